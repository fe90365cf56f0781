// The arithmetic of SparseCholesky: a plan made once, worked through for every matrix.
#pragma once

#include <cstdint>

#include "core/types.hpp"

namespace fusionopt {

// Everything is counted in unknowns, named by their place in the elimination order. The panel of a front
// holds its columns of the factor, column-major, each with room for a multiple of kPanelStep rows: those of
// the front's own unknowns, then the others. Reciprocals on the diagonal; nothing above it means anything.
struct Front {
    Index panel;             // where it begins
    Index first;             // unknown
    Index rows;              // in FrontPlan::rows: the unknowns below
    Index updates, entries;  // the first of each; they end where the next front's begin
    std::int32_t columns, size, stride;
};

// What the columns of one front take from another: the product of their rows from `source` on.
struct FrontUpdate {
    Index source;  // in the panels: row of the first column it reaches
    Index places;  // in FrontPlan::places: rows of the other panel that these rows are
    std::int32_t stride, depth, height, width;
};

// A block of the matrix: the edge it belongs to; column and row in the panel, counted in nodes.
struct FrontEntry {
    Index edge;
    std::int32_t column, row;
};

struct FrontPlan {
    Index n_fronts, block;
    const Front* fronts;  // and one more, where the lists end
    const FrontUpdate* updates;
    const FrontEntry* entries;
    const std::int32_t *places, *rows, *order;
};

inline constexpr Index kPanelStep = 4;

struct FrontKernels {
    // Panels of the matrix `diagonal`, `off` (as SparseCholesky::factor). They need kPanelStep * 2 numbers
    // more than the fronts fill: they are read in lanes.
    void (*factor)(const FrontPlan&, const double* diagonal, const double* off, double* panels);
    // v [node][block][columns] in place. scratch: room for kRightSides columns of all unknowns and of the
    // tallest panel.
    void (*solve)(const FrontPlan&, const double* panels, double* v, Index columns, double* scratch);
};

inline constexpr Index kRightSides = 4;

// Those of the instruction set that sweeps() has chosen. AVX2 also where there is AVX-512: fronts are narrow.
const FrontKernels& front_kernels();

}  // namespace fusionopt

// Algorithm 1 of paper 002: the parallel direction method of multipliers on
//     sum_i f_i(x_i) + sum_{(i,j) in E, i<j} radius_ij ||z_ij||,   z_ij = x_i - x_j.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "core/draw.hpp"
#include "core/loss.hpp"

namespace fusionopt {

// Which blocks an iteration refreshes. kPairs and kUsers keep one z, mu and muhat a pair i < j, so the duals
// stay antisymmetric; kLiteral is the printed sampling of ordered pairs, which can stop at a wrong point.
enum class PdmmScheme { kFull, kUsers, kPairs, kLiteral };

struct PdmmOptions {
    PdmmScheme scheme = PdmmScheme::kFull;
    double participation = 1.0;  // share of users, or of blocks, refreshed in an iteration
    double rho = 1.0;
    double eta = 1.0;  // of the pairs, already times the curvature of their Bregman function
    double tau = 0.8;
    double nu = 0.2;
    std::uint64_t seed = 0;
    // A pair whose z was zero at `skip_after` touches in a row is touched only every `skip_period`-th
    // iteration, until its z is not zero; 0 skips nothing.
    Index skip_after = 0;
    Index skip_period = 10;
};

// Vectors of n_features numbers, counted as below equation (19) of the paper; S_P is the number of primal
// blocks (x_i, z_ij) refreshed, S_D that of dual blocks.
struct PdmmCounts {
    std::int64_t up = 0;    // S_P
    std::int64_t down = 0;  // S_P + S_D
    std::int64_t pairs = 0;
    std::int64_t skipped = 0;
};

class Pdmm {
  public:
    // eta_users[i] weighs 1/2 ||x_i - x_i^t||^2; edges i < j.
    Pdmm(Index n_nodes, Index n_features, std::vector<std::int32_t> tail, std::vector<std::int32_t> head,
         Vector radius, Vector eta_users, PdmmOptions options);

    void start(const Vector& x) { x_ = x; }
    // Multiplies rho and every eta; mu, muhat, z and x stay.
    void stretch(double factor);
    // Draws the blocks of the next iteration. The users in active() then need
    //     x_i = argmin f_i(x) + modulus_i / 2 ||x||^2 - <pull_i, x>.
    void begin();
    // The same with the users named instead of drawn (kUsers only), ascending.
    void begin(const std::vector<Index>& users);
    const std::vector<Index>& active() const { return active_; }
    const Vector& modulus() const { return modulus_; }
    const Vector& pull() const { return pull_; }
    // Ends the iteration with those x (rows of users that are not active are not read). O(n_edges d).
    void end(const Vector& x);
    // Whole iterations with the exact x-step of quadratic losses.
    void run(const QuadraticLoss& loss, Index iterations);

    const Vector& x() const { return x_; }
    // All that iterations change but the random engine, which a run with named users does not use.
    struct Snapshot {
        Vector x, z, mu, hat, sums;
        std::vector<std::uint8_t> zeros;
        Index n_iter = 0;
    };
    Snapshot snapshot() const { return {x_, z_, mu_, hat_, sums_, zeros_, n_iter_}; }
    void restore(Snapshot state);

    Index n_iter() const { return n_iter_; }
    Index n_edges() const { return static_cast<Index>(tail_.size()); }
    const PdmmCounts& counts() const { return counts_; }
    double largest_residual() const;  // max_ij ||x_i - x_j - z_ij||
    double asymmetry() const;         // max_ij ||mu_ij + mu_ji||; 0 but for kLiteral

    struct Balance {
        double penalty = 0.0;  // sum radius ||x_i - x_j||
        double product = 0.0;  // sum <v_ij, x_i - x_j>
    };
    // v = mu, antisymmetric part, scaled into the balls; sums[i] = sum_j v_ij.
    Balance balance(const Vector& x, Vector& sums) const;
    void duals(double* out) const;  // the same v, edge by edge
    // Length of v and whether z is zero, edge by edge.
    void state(double* lengths, std::uint8_t* fused) const;

  private:
    void touch(Index e, const double* xi, const double* xj, const double* yi, const double* yj,
               double* change);
    void sum_neighbours();
    void gather();
    void take_all();
    void resum();
    void set_modulus();
    void dual(Index e, double* out) const;
    void end_literal(const Vector& x);
    bool resting(Index e) const;

    Index n_ = 0, d_ = 0, n_iter_ = 0;
    bool literal_ = false;
    std::vector<std::int32_t> tail_, head_;
    Vector radius_, eta_users_;
    PdmmOptions options_;
    std::mt19937_64 engine_;
    SubsetDraw primal_, dual_;
    std::vector<Index> active_;
    std::vector<std::uint8_t> is_active_, chosen_, chosen_dual_, zeros_;
    Vector x_, z_, mu_, hat_, sums_, neighbours_, degree_, modulus_, pull_, row_, next_;
    PdmmCounts counts_;
    bool complete_ = false;
};

}  // namespace fusionopt

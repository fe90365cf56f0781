// The server of Algorithm 1 of paper 000 (FPFC) on
//     sum_i f_i(x_i) + sum_{(i,j) in E, i<j} w_ij g(||x_i - x_j||).
//
// With delta = x_i - x_j + v / rho and tau = prox of g (step 1 / rho) at ||delta||, a touched pair gets
//     theta = s delta,  v = rho (1 - s) delta,  s = tau / ||delta||,
// so one vector and one number keep both; v is per unit weight. A pair that was never touched has theta = v =
// 0 and is not kept. Neither is one that prox left alone at two touches in a row: its v is 0 and its theta is
// x_i - x_j, from which a later touch starts exactly as from the kept pair (only where every move of an end
// touches the pair).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/linear.hpp"
#include "core/penalty.hpp"

namespace fusionopt {

struct FpfcGraph {
    Index n_nodes = 0;
    bool complete = true;
    double weight = 1.0;                   // complete: w_ij = weight r_i r_j
    Vector node_weights;                   // r; empty for ones
    std::vector<std::int32_t> tail, head;  // otherwise: edges i < j, sorted
    Vector weights;
};

struct FpfcOptions {
    RadialPenalty penalty;
    double lam = 0.0;
    double rho = 1.0;        // per unit weight
    bool both_ends = false;  // touch only pairs with two active ends; then every touched pair is kept
    int n_threads = 1;
};

struct FpfcReport {
    double penalty = 0.0;       // sum w_ij g(||x_i - x_j||)
    double magnitude = 0.0;     // sum w_ij lam ||x_i - x_j||, what rounding scales with
    double product = 0.0;       // sum w_ij <v_ij, x_i - x_j>
    double residual = 0.0;      // max ||x_i - x_j - theta_ij||
    double squares = 0.0;       // sum w_ij^2 ||x_i - x_j - theta_ij||^2
    double prox_squares = 0.0;  // sum over ordered pairs ||theta - prox_g(theta + v)||^2, unit step
    Vector sums;                // [n][d]: sum_j w_ij v_ij
};

struct FpfcCounts {
    Index kept = 0, dropped = 0, untouched = 0;  // pairs
    Index peak = 0;                              // most pairs kept at once
    Index bytes = 0;                             // of the pair vectors allocated
};

// All that rounds change. slots: for each pair -1 untouched, -2 dropped, else its row of vectors.
struct FpfcSnapshot {
    Vector x, pull, vectors, factors;
    std::vector<std::int32_t> slots;
};

class FpfcServer {
  public:
    virtual ~FpfcServer() = default;
    // Every pair untouched.
    virtual void start(const Vector& x) = 0;
    virtual void set_lam(double lam) = 0;
    // kappa_i, with sum_j w_ij (x_i - x_j - theta_ij + v_ij / rho) = kappa_i (x_i - zeta_i) at the present x:
    // deg_i + w_ii on complete graphs (the paper's j = i term), 2 deg_i otherwise; diag(kappa) dominates the
    // Laplacian, which is what moving all nodes at once needs.
    virtual const Vector& kappa() const = 0;
    virtual void zeta(const std::vector<Index>& active, double* out) const = 0;  // [active][d]
    // Moves the active nodes and touches their pairs. O(active n d), the same bits for any n_threads.
    virtual void update(const std::vector<Index>& active, const double* fresh) = 0;
    virtual FpfcReport report() const = 0;
    virtual FpfcCounts counts() const = 0;
    virtual void duals(double* out) const = 0;   // w_ij v_ij in edge order
    virtual void thetas(double* out) const = 0;  // theta_ij in edge order
    // Components of {||theta_ij|| <= nu} among touched pairs, by first appearance.
    virtual void labels(double nu, std::vector<std::int32_t>& out) const = 0;
    virtual Vector x() const = 0;
    virtual FpfcSnapshot snapshot() const = 0;
    virtual void restore(const FpfcSnapshot& state) = 0;
};

// State in double or, with single, in float; x and the sums are double in both.
std::unique_ptr<FpfcServer> make_fpfc_server(FpfcGraph graph, Index n_features, FpfcOptions options,
                                             bool single);

}  // namespace fusionopt

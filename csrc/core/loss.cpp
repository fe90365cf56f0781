#include "core/loss.hpp"

#include <algorithm>

namespace fusionopt {

namespace {
std::size_t at(Index k) { return static_cast<std::size_t>(k); }
}  // namespace

double QuadraticLoss::mean_eigenvalue() const {
    double total = 0.0;
    for (const double value : eigenvalues) total += value;
    return total / static_cast<double>(eigenvalues.size());
}

QuadraticLoss QuadraticLoss::at_nodes(const std::vector<std::int32_t>& nodes) const {
    const Index d = n_features;
    QuadraticLoss out;
    out.n_nodes = static_cast<Index>(nodes.size());
    out.n_features = d;
    out.dense = dense;
    out.singular = singular;
    const auto take = [&](const Vector& from, Index size, Vector& to) {
        to.reserve(nodes.size() * at(size));
        for (const std::int32_t i : nodes)
            to.insert(to.end(), from.begin() + i * size, from.begin() + (i + 1) * size);
    };
    take(eigenvalues, dense ? d : 1, out.eigenvalues);
    take(linear, d, out.linear);
    if (dense) {
        take(basis, d * d, out.basis);
        take(hessian, d * d, out.hessian);
    }
    return out;
}

void QuadraticLoss::apply_node(Index i, const double* x, double* out) const {
    const Index d = n_features;
    if (!dense) {
        for (Index k = 0; k < d; ++k) out[k] = eigenvalues[at(i)] * x[k];
        return;
    }
    const double* h = hessian.data() + i * d * d;
    for (Index a = 0; a < d; ++a) {
        double total = 0.0;
        for (Index b = 0; b < d; ++b) total += h[a * d + b] * x[b];
        out[a] = total;
    }
}

void QuadraticLoss::solve_node(Index i, double tau, const double* b, double* out, double* scratch) const {
    const Index d = n_features;
    if (!dense) {
        const double h = eigenvalues[at(i)] + tau;
        for (Index k = 0; k < d; ++k) out[k] = h > 0.0 ? b[k] / h : 0.0;
        return;
    }
    const double* u = basis.data() + i * d * d;
    const double* e = eigenvalues.data() + i * d;
    for (Index c = 0; c < d; ++c) {
        double total = 0.0;
        for (Index a = 0; a < d; ++a) total += u[a * d + c] * b[a];
        scratch[c] = e[c] + tau > 0.0 ? total / (e[c] + tau) : 0.0;
    }
    for (Index a = 0; a < d; ++a) {
        double total = 0.0;
        for (Index c = 0; c < d; ++c) total += u[a * d + c] * scratch[c];
        out[a] = total;
    }
}

void QuadraticLoss::null_part(Index i, double* b, double* scratch) const {
    const Index d = n_features;
    if (!dense) {
        if (eigenvalues[at(i)] > 0.0) std::fill(b, b + d, 0.0);
        return;
    }
    const double* u = basis.data() + i * d * d;
    const double* e = eigenvalues.data() + i * d;
    for (Index c = 0; c < d; ++c) {
        double total = 0.0;
        if (!(e[c] > 0.0))
            for (Index a = 0; a < d; ++a) total += u[a * d + c] * b[a];
        scratch[c] = total;
    }
    for (Index a = 0; a < d; ++a) {
        double total = 0.0;
        for (Index c = 0; c < d; ++c) total += u[a * d + c] * scratch[c];
        b[a] = total;
    }
}

QuadraticLoss::Value QuadraticLoss::evaluate(const Vector& x, const Vector& g) const {
    const Index d = n_features;
    Value out;
    CompensatedSum values, products, stats;
    for (Index i = 0; i < n_nodes; ++i) {
        const double* xi = x.data() + i * d;
        const double* gi = g.data() + i * d;
        const double* qi = linear.data() + i * d;
        double value = 0.0, magnitude = 0.0, product = 0.0, stat = 0.0, residual = 0.0;
        if (!dense) {
            const double h = eigenvalues[at(i)];
            double null = 0.0;
            for (Index k = 0; k < d; ++k) {
                const double curved = 0.5 * h * xi[k] * xi[k], tilted = qi[k] * xi[k];
                const double r = h * xi[k] - qi[k] + gi[k];
                value += curved - tilted;
                magnitude += curved + std::fabs(tilted) + std::fabs(gi[k] * xi[k]);
                product += gi[k] * xi[k];
                residual += r * r;
                if (h > 0.0)
                    stat += 0.5 * r * r / h;
                else
                    null = std::fmax(null, std::fabs(r));
            }
            out.null = std::fmax(out.null, null);
        } else {
            const double* u = basis.data() + i * d * d;
            const double* e = eigenvalues.data() + i * d;
            for (Index c = 0; c < d; ++c) {
                double xc = 0.0, qc = 0.0, gc = 0.0;
                for (Index a = 0; a < d; ++a) {
                    const double uac = u[a * d + c];
                    xc += uac * xi[a];
                    qc += uac * qi[a];
                    gc += uac * gi[a];
                }
                const double curved = 0.5 * e[c] * xc * xc, tilted = qc * xc, r = e[c] * xc - qc + gc;
                value += curved - tilted;
                magnitude += curved + std::fabs(tilted) + std::fabs(gc * xc);
                product += gc * xc;
                residual += r * r;
                if (e[c] > 0.0)
                    stat += 0.5 * r * r / e[c];
                else
                    out.null = std::fmax(out.null, std::fabs(r));
            }
        }
        values.add(value);
        out.magnitude += magnitude;
        products.add(product);
        stats.add(stat);
        out.residual = std::fmax(out.residual, residual);
    }
    out.value = values.value();
    out.product = products.value();
    out.stat = stats.value();
    out.residual = std::sqrt(out.residual);
    return out;
}

}  // namespace fusionopt

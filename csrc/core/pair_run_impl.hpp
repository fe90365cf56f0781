// What is asked of runs of pairs between sweeps. Included by sweep_impl.hpp inside the namespace of each
// compilation.

// action(pack, state) with a pack of as many float64 as a block has lanes, and the state in its own type.
template <class Action>
void with_lanes(const PairRun& run, const Action& action) {
    if (run.narrow)
        action(Pack<double, 64 / sizeof(float)>(), static_cast<const float*>(run.y));
    else
        action(Pack<double, 64 / sizeof(double)>(), static_cast<const double*>(run.y));
}

void run_squares(const PairRun& run, double* out) {
    with_lanes(run, [&](auto pack, const auto* y) {
        typedef decltype(pack) P;
        constexpr Index L = P::kParts * P::kWidth;
        for (Index b = 0; b < run.n_blocks; ++b, y += run.n_features * L) {
            P squared = zero<P>();
            for (Index k = 0; k < run.n_features; ++k) {
                const P v = load<P>(y + k * L);
                squared = fma(v, v, squared);
            }
            store(out + b * L, squared);
        }
    });
}

void run_add(const PairRun& run, double share, double* sums) {
    with_lanes(run, [&](auto pack, const auto* y) {
        typedef decltype(pack) P;
        constexpr Index L = P::kParts * P::kWidth;
        const P factor = splat<P>(share);
        for (Index k = 0; k < run.n_blocks * run.n_features; ++k, y += L, sums += L)
            store(sums, fma(factor, load<P>(y), load<P>(sums)));
    });
}

void run_residuals(const PairRun& run, const StepParameters& step, const double* xi, const double* xj,
                   const double* weights, PairResiduals& out) {
    with_lanes(run, [&](auto pack, const auto* y) {
        typedef decltype(pack) P;
        constexpr Index L = P::kParts * P::kWidth;
        const P radius = splat<P>(step.lam), loosen = splat<P>(1.0 / step.rho);
        P gap = load<P>(out.gap), apart = load<P>(out.apart), split = load<P>(out.split);
        for (Index b = 0; b < run.n_blocks; ++b, y += run.n_features * L, xj += run.n_features * L) {
            P squared = zero<P>(), missing = zero<P>(), between = zero<P>();
            for (Index k = 0; k < run.n_features; ++k) {
                const P v = load<P>(y + k * L);
                squared = fma(v, v, squared);
            }
            const P loose = (splat<P>(1.0) - shrink_factor(squared, radius)) * loosen;
            for (Index k = 0; k < run.n_features; ++k) {
                const P u = splat<P>(xi[k]) - load<P>(xj + k * L), m = fnma(loose, load<P>(y + k * L), u);
                missing = fma(m, m, missing);
                between = fma(u, u, between);
            }
            const P w = load<P>(weights + b * L);
            gap = fma(w, missing, gap);
            apart = fma(w, between, apart);
            split = fma(w * (loose * loose), squared, split);
        }
        store(out.gap, gap);
        store(out.apart, apart);
        store(out.split, split);
    });
}

#include "bindings/arrays.hpp"
#include "bindings/register.hpp"
#include "core/implicit_solver.hpp"

namespace fusionopt::bindings {

namespace {

using Doubles = Array<double>;

ImplicitProblem make_problem(const Doubles& targets, const Doubles& curvature, const Doubles& weight,
                             double lam) {
    if (targets.ndim() != 2 || targets.shape(0) < 1 || targets.shape(1) < 1)
        throw std::invalid_argument("targets must have shape (n_nodes, n_features)");
    ImplicitProblem out;
    out.n_nodes = targets.shape(0);
    out.n_features = targets.shape(1);
    out.targets = to_vector("targets", targets, {out.n_nodes, out.n_features});
    out.curvature = to_vector("curvature", curvature, {out.n_nodes});
    out.weight = to_vector("weight", weight, {out.n_nodes});
    for (const std::vector<double>* v : {&out.curvature, &out.weight})
        for (const double value : *v)
            if (!(value > 0.0)) throw std::invalid_argument("curvature and weight must be positive");
    out.lam = lam;
    return out;
}

// Python sees its signals here, between slabs of work; an exception of the hook ends the run.
auto ask(const py::function& hook) {
    return [&hook](const ImplicitProgress& told) {
        py::gil_scoped_acquire acquire;
        if (PyErr_CheckSignals() != 0) throw py::error_already_set();
        return hook(told.fresh, told.newton_steps, told.objective, told.dual_objective).cast<bool>();
    };
}

}  // namespace

void register_implicit(py::module_& module) {
    module.def(
        "pair_length",
        [](const Doubles& x, const Doubles& weight, int n_threads) {
            if (x.ndim() != 2) throw std::invalid_argument("x must have shape (n_nodes, n_features)");
            const Index n = x.shape(0), d = x.shape(1);
            const std::vector<double> rows = to_vector("x", x, {n, d}), w = to_vector("weight", weight, {n});
            py::gil_scoped_release release;
            Points points(n, d);
            for (Index i = 0; i < n; ++i)
                for (Index k = 0; k < d; ++k) points.at(i, k) = rows[static_cast<std::size_t>(i * d + k)];
            return PairPasses(n_threads, nullptr).length(points, w);
        },
        py::arg("x"), py::arg("weight"), py::arg("n_threads") = 1,
        "sum_{i<j} w_i w_j ||x_i - x_j||, no pair stored.");
    py::class_<ImplicitSolver>(module, "Implicit")
        .def(
            py::init([](const Doubles& targets, const Doubles& curvature, const Doubles& weight, double lam,
                        double eps_rel, double eps_abs, Index max_newton, std::uint64_t seed, int n_threads) {
                ImplicitOptions options;
                options.eps_rel = eps_rel;
                options.eps_abs = eps_abs;
                options.max_newton = max_newton;
                options.seed = seed;
                options.n_threads = n_threads;
                return std::make_unique<ImplicitSolver>(make_problem(targets, curvature, weight, lam),
                                                        options);
            }),
            py::arg("targets"), py::arg("curvature"), py::arg("weight"), py::arg("lam"), py::kw_only(),
            py::arg("eps_rel"), py::arg("eps_abs"), py::arg("max_newton"), py::arg("seed"),
            py::arg("n_threads"))
        .def(
            "run",
            [](ImplicitSolver& self, const py::function& hook) {
                py::gil_scoped_release release;
                return self.run(ask(hook));
            },
            py::arg("hook"))
        .def(
            "fusing_bound",
            [](ImplicitSolver& self, const py::function& hook) {
                py::gil_scoped_release release;
                return self.fusing_bound(ask(hook));
            },
            py::arg("hook"))
        .def(
            "certify",
            [](ImplicitSolver& self, const Doubles& centres) {
                const Index d = static_cast<Index>(self.point().size() / self.labels().size());
                const std::vector<double> w = to_vector("centres", centres, {self.n_clusters(), d});
                ImplicitCertificate c;
                {
                    py::gil_scoped_release release;
                    c = self.certify(w);
                }
                py::dict out;
                out["objective"] = c.objective;
                out["dual_objective"] = c.dual_objective;
                out["gap"] = c.gap;
                out["rounding"] = c.rounding;
                out["penalty"] = c.penalty;
                out["residual"] = c.residual;
                out["met"] = c.met;
                return out;
            },
            py::arg("centres"))
        .def_property_readonly("point",
                               [](const ImplicitSolver& self) {
                                   const Index m = static_cast<Index>(self.labels().size());
                                   return to_matrix(self.point(), m,
                                                    static_cast<Index>(self.point().size()) / m);
                               })
        .def_property_readonly("dual_point",
                               [](const ImplicitSolver& self) {
                                   const Index m = static_cast<Index>(self.labels().size());
                                   return to_matrix(self.dual_point(), m,
                                                    static_cast<Index>(self.dual_point().size()) / m);
                               })
        .def_property_readonly(
            "labels",
            [](const ImplicitSolver& self) {
                py::array_t<std::int64_t> out(static_cast<py::ssize_t>(self.labels().size()));
                std::copy(self.labels().begin(), self.labels().end(), out.mutable_data());
                return out;
            })
        .def_property_readonly("n_clusters", &ImplicitSolver::n_clusters)
        .def_property_readonly("delta", &ImplicitSolver::delta)
        .def_property_readonly("shrink", &ImplicitSolver::shrink)
        .def_property_readonly("counts", [](const ImplicitSolver& self) {
            const ImplicitCounts& c = self.counts();
            py::dict out;
            out["newton_steps"] = c.newton_steps;
            out["cg_steps"] = c.cg_steps;
            out["levels"] = c.levels;
            out["stages"] = c.stages;
            out["pairs"] = c.pairs;
            return out;
        });
}

}  // namespace fusionopt::bindings

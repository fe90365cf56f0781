#include <pybind11/stl.h>

#include <limits>
#include <optional>

#include "bindings/arrays.hpp"
#include "bindings/register.hpp"
#include "core/admm.hpp"
#include "core/node_order.hpp"

namespace fusionopt::bindings {

namespace {

using Doubles = Array<double>;
using Int32s = Array<std::int32_t>;

QuadraticLoss make_loss(const Doubles& eigenvalues, const std::optional<Doubles>& basis,
                        const std::optional<Doubles>& hessian, const Doubles& linear, double constant) {
    if (linear.ndim() != 2) throw std::invalid_argument("linear must have shape (n_nodes, n_features)");
    QuadraticLoss loss;
    loss.n_nodes = linear.shape(0);
    loss.n_features = linear.shape(1);
    const Index m = loss.n_nodes, d = loss.n_features;
    if (m < 1 || d < 1) throw std::invalid_argument("linear must not be empty");
    if (m > std::numeric_limits<std::int32_t>::max() / 2)
        throw std::invalid_argument("too many nodes for 32-bit node indices");
    loss.dense = basis.has_value();
    if (loss.dense != hessian.has_value()) throw std::invalid_argument("basis and hessian come together");
    loss.linear = to_vector("linear", linear, {m, d});
    loss.constant = constant;
    if (loss.dense) {
        loss.eigenvalues = to_vector("eigenvalues", eigenvalues, {m, d});
        loss.basis = to_vector("basis", *basis, {m, d, d});
        loss.hessian = to_vector("hessian", *hessian, {m, d, d});
    } else {
        loss.eigenvalues = to_vector("eigenvalues", eigenvalues, {m});
    }
    for (const double value : loss.eigenvalues) {
        if (!(value >= 0.0)) throw std::invalid_argument("eigenvalues must be non-negative");
        if (value == 0.0) loss.singular = true;
    }
    return loss;
}

// The l2 penalty takes one coupling of all features; the l1 penalty (`separable`) one of each feature beside
// it.
template <class Make>
std::unique_ptr<Coupling> make_coupling(const Make& make, Index n_nodes, Index n_features, bool separable) {
    if (!separable) return make(n_features);
    std::vector<std::unique_ptr<Coupling>> parts;
    for (Index k = 0; k < n_features; ++k) parts.push_back(make(1));
    return make_separable_coupling(make(n_features), std::move(parts), n_nodes);
}

AdmmOptions make_options(double eps_rel, double eps_abs, double relaxation, double rho, Index check_every,
                         int n_threads) {
    AdmmOptions out;
    out.eps_rel = eps_rel;
    out.eps_abs = eps_abs;
    out.relaxation = relaxation;
    out.rho = rho;
    out.check_every = check_every;
    out.n_threads = n_threads;
    return out;
}

py::dict to_dict(const Certificate& c) {
    py::dict out;
    out["objective"] = c.objective;
    out["dual_objective"] = c.dual_objective;
    out["gap"] = c.gap;
    out["rounding"] = c.rounding;
    out["penalty"] = c.penalty;
    out["slack"] = c.slack;
    out["residual"] = c.residual;
    out["met"] = c.met;
    return out;
}

void check_edges(const std::vector<std::int32_t>& tail, const std::vector<std::int32_t>& head,
                 Index n_nodes) {
    for (std::size_t e = 0; e < tail.size(); ++e)
        if (tail[e] < 0 || tail[e] >= head[e] || head[e] >= n_nodes)
            throw std::invalid_argument("edges must satisfy 0 <= i < j < n_nodes");
}

}  // namespace

void register_admm(py::module_& module) {
    module.def(
        "local_order",
        [](Index n_nodes, const Int32s& tail, const Int32s& head) {
            const Index n = tail.size();
            const std::vector<std::int32_t> from = to_vector("tail", tail, {n}),
                                            to = to_vector("head", head, {n});
            check_edges(from, to, n_nodes);
            std::vector<std::int32_t> order;
            {
                py::gil_scoped_release release;
                order = local_order(n_nodes, from.data(), to.data(), n);
            }
            py::array_t<std::int32_t> out(static_cast<py::ssize_t>(order.size()));
            std::copy(order.begin(), order.end(), out.mutable_data());
            return out;
        },
        py::arg("n_nodes"), py::arg("tail"), py::arg("head"));
    py::class_<Admm>(module, "Admm")
        .def_static(
            "complete",
            [](const Doubles& eigenvalues, const std::optional<Doubles>& basis,
               const std::optional<Doubles>& hessian, const Doubles& linear, double constant, double lam,
               double weight, const Doubles& node_weights, const Doubles& common_null, double eps_rel,
               double eps_abs, double relaxation, double rho, Index check_every, bool separable,
               int n_threads, bool narrow) {
                QuadraticLoss loss = make_loss(eigenvalues, basis, hessian, linear, constant);
                const Index m = loss.n_nodes, d = loss.n_features;
                const Vector r = to_vector("node_weights", node_weights, {m}),
                             null = to_vector("common_null", common_null, {d, d});
                const auto make = [&](Index features) {
                    return make_complete_coupling(m, features, weight, r,
                                                  features == d ? null : Vector(1, 0.0),
                                                  narrow && !loss.singular);
                };
                auto coupling = make_coupling(make, m, d, separable);
                return std::make_unique<Admm>(
                    std::move(loss), std::move(coupling), lam,
                    make_options(eps_rel, eps_abs, relaxation, rho, check_every, n_threads));
            },
            py::arg("eigenvalues"), py::arg("basis"), py::arg("hessian"), py::arg("linear"),
            py::arg("constant"), py::arg("lam"), py::arg("weight"), py::arg("node_weights"),
            py::arg("common_null"), py::kw_only(), py::arg("eps_rel"), py::arg("eps_abs"),
            py::arg("relaxation"), py::arg("rho"), py::arg("check_every"), py::arg("separable") = false,
            py::arg("n_threads") = 1, py::arg("narrow") = false)
        .def_static(
            "edges",
            [](const Doubles& eigenvalues, const std::optional<Doubles>& basis,
               const std::optional<Doubles>& hessian, const Doubles& linear, double constant, double lam,
               const Int32s& tail, const Int32s& head, const Doubles& weights, double eps_rel, double eps_abs,
               double relaxation, double rho, Index check_every, bool separable, int n_threads,
               bool /*narrow: edge lists keep float64*/) {
                QuadraticLoss loss = make_loss(eigenvalues, basis, hessian, linear, constant);
                const Index m = loss.n_nodes, d = loss.n_features, n = tail.size();
                std::vector<std::int32_t> from = to_vector("tail", tail, {n}),
                                          to = to_vector("head", head, {n});
                check_edges(from, to, m);
                const Vector w = to_vector("weights", weights, {n});
                const auto make = [&](Index features) {
                    return make_edge_coupling(m, features, from, to, w);
                };
                auto coupling = make_coupling(make, m, d, separable);
                return std::make_unique<Admm>(
                    std::move(loss), std::move(coupling), lam,
                    make_options(eps_rel, eps_abs, relaxation, rho, check_every, n_threads));
            },
            py::arg("eigenvalues"), py::arg("basis"), py::arg("hessian"), py::arg("linear"),
            py::arg("constant"), py::arg("lam"), py::arg("tail"), py::arg("head"), py::arg("weights"),
            py::kw_only(), py::arg("eps_rel"), py::arg("eps_abs"), py::arg("relaxation"), py::arg("rho"),
            py::arg("check_every"), py::arg("separable") = false, py::arg("n_threads") = 1,
            py::arg("narrow") = false)
        .def("run", &Admm::run, py::arg("iterations"), py::call_guard<py::gil_scoped_release>())
        .def("set_lam", &Admm::set_lam, py::arg("lam"), py::call_guard<py::gil_scoped_release>())
        .def(
            "set_loss",
            [](Admm& self, const Doubles& eigenvalues, const std::optional<Doubles>& basis,
               const std::optional<Doubles>& hessian, const Doubles& linear, double constant) {
                QuadraticLoss loss = make_loss(eigenvalues, basis, hessian, linear, constant);
                if (loss.n_nodes * loss.n_features != static_cast<Index>(self.x().size()))
                    throw std::invalid_argument("the new loss must have the shape of the old one");
                py::gil_scoped_release release;
                self.set_loss(std::move(loss));
            },
            py::arg("eigenvalues"), py::arg("basis"), py::arg("hessian"), py::arg("linear"),
            py::arg("constant"))
        .def("state",
             [](Admm& self) {
                 const std::vector<double> numbers = self.state();
                 py::array_t<double> out(static_cast<py::ssize_t>(numbers.size()));
                 std::copy(numbers.begin(), numbers.end(), out.mutable_data());
                 return out;
             })
        .def(
            "restore",
            [](Admm& self, const Doubles& numbers) {
                self.restore(to_vector("numbers", numbers, {static_cast<Index>(numbers.size())}));
            },
            py::arg("numbers"))
        .def("tighten", &Admm::tighten, py::arg("factor"))
        .def(
            "refine",
            [](Admm& self, double budget) {
                NewtonReport report;
                {
                    py::gil_scoped_release release;
                    report = self.refine(budget);
                }
                return std::make_tuple(report.steps, report.work, report.improved);
            },
            py::arg("budget"))
        .def_property_readonly("sweep_work", &Admm::sweep_work)
        .def(
            "finish",
            [](Admm& self, double share) {
                FinishReport report;
                {
                    py::gil_scoped_release release;
                    report = self.finish(share);
                }
                py::dict out;
                out["accepted"] = report.accepted;
                out["enough"] = report.enough;
                out["proven"] = report.proven;
                out["n_clusters"] = report.n_clusters;
                out["newton_steps"] = report.newton_steps;
                out["candidates"] = report.candidates;
                out["work"] = report.work;
                return out;
            },
            py::arg("share"))
        .def(
            "certify",
            [](Admm& self, const Doubles& x) {
                const Index m = static_cast<Index>(self.labels().size()),
                            d = static_cast<Index>(self.x().size()) / m;
                const std::vector<double> point = to_vector("x", x, {m, d});
                Certificate out;
                {
                    py::gil_scoped_release release;
                    out = self.certify(point);
                }
                return to_dict(out);
            },
            py::arg("x"))
        .def(
            "warm_start",
            [](Admm& self, const Doubles& x) {
                const Index m = static_cast<Index>(self.labels().size()),
                            d = static_cast<Index>(self.x().size()) / m;
                const std::vector<double> point = to_vector("x", x, {m, d});
                py::gil_scoped_release release;
                self.warm_start(point);
            },
            py::arg("x"))
        .def("duals",
             [](Admm& self) {
                 const Index m = static_cast<Index>(self.labels().size()),
                             d = static_cast<Index>(self.x().size()) / m;
                 py::array_t<double> out({self.n_edges(), d});
                 double* data = out.mutable_data();
                 py::gil_scoped_release release;
                 self.duals(data);
                 return out;
             })
        .def("fused_point",
             [](Admm& self) {
                 const Index m = static_cast<Index>(self.labels().size());
                 std::vector<double> out;
                 {
                     py::gil_scoped_release release;
                     self.fused_point(out);
                 }
                 return to_matrix(out, m, static_cast<Index>(out.size()) / m);
             })
        .def("contract", &Admm::contract, py::arg("any"), py::arg("checks"),
             py::call_guard<py::gil_scoped_release>())
        .def("apart", &Admm::apart, py::call_guard<py::gil_scoped_release>())
        .def("finishing_work", &Admm::finishing_work)
        .def("primal_residual", &Admm::primal_residual)
        .def_property_readonly("aggregated", &Admm::aggregated)
        .def_property_readonly("narrow", &Admm::narrow)
        .def_property_readonly("n_swept", &Admm::n_swept)
        .def_property_readonly("n_between", &Admm::n_between)
        .def("n_fused", &Admm::n_fused, py::call_guard<py::gil_scoped_release>())
        .def("left_open", &Admm::left_open, py::arg("n_clusters"))
        .def_property_readonly("dual_sums",
                               [](const Admm& self) {
                                   const Index m = static_cast<Index>(self.labels().size());
                                   return to_matrix(self.dual_sums(), m,
                                                    static_cast<Index>(self.dual_sums().size()) / m);
                               })
        .def_property_readonly("last", [](const Admm& self) { return to_dict(self.last()); })
        .def_property_readonly("x",
                               [](const Admm& self) {
                                   const Index m = static_cast<Index>(self.labels().size());
                                   return to_matrix(self.x(), m, static_cast<Index>(self.x().size()) / m);
                               })
        .def_property_readonly(
            "labels",
            [](const Admm& self) {
                py::array_t<std::int64_t> out(static_cast<py::ssize_t>(self.labels().size()));
                std::copy(self.labels().begin(), self.labels().end(), out.mutable_data());
                return out;
            })
        .def_property_readonly("n_iter", &Admm::n_iter)
        .def_property_readonly("rho", &Admm::rho)
        .def_property_readonly("n_edges", &Admm::n_edges);
}

}  // namespace fusionopt::bindings

#include <pybind11/stl.h>

#include <optional>

#include "bindings/arrays.hpp"
#include "bindings/register.hpp"
#include "core/pdmm.hpp"

namespace fusionopt::bindings {

namespace {

using Doubles = Array<double>;
using Int32s = Array<std::int32_t>;

PdmmScheme scheme_of(const std::string& name) {
    if (name == "full") return PdmmScheme::kFull;
    if (name == "users") return PdmmScheme::kUsers;
    if (name == "pairs") return PdmmScheme::kPairs;
    if (name == "literal") return PdmmScheme::kLiteral;
    throw std::invalid_argument("unknown scheme " + name);
}

// A Pdmm with the quadratic loss of its x-step, where it has one.
struct Run {
    Index n_nodes, n_features;
    Pdmm pdmm;
    std::optional<QuadraticLoss> loss;
};

}  // namespace

void register_pdmm(py::module_& module) {
    py::class_<Run>(module, "Pdmm")
        .def(py::init([](Index n_nodes, Index n_features, const Int32s& tail, const Int32s& head,
                         const Doubles& radius, const Doubles& eta_users, const std::string& scheme,
                         double participation, double rho, double eta, double tau, double nu,
                         std::uint64_t seed, Index skip_after, Index skip_period) {
                 const Index n = tail.size();
                 std::vector<std::int32_t> from = to_vector("tail", tail, {n}),
                                           to = to_vector("head", head, {n});
                 for (std::size_t e = 0; e < from.size(); ++e)
                     if (from[e] < 0 || from[e] >= to[e] || to[e] >= n_nodes)
                         throw std::invalid_argument("edges must satisfy 0 <= i < j < n_nodes");
                 PdmmOptions options;
                 options.scheme = scheme_of(scheme);
                 options.participation = participation;
                 options.rho = rho;
                 options.eta = eta;
                 options.tau = tau;
                 options.nu = nu;
                 options.seed = seed;
                 options.skip_after = skip_after;
                 options.skip_period = skip_period;
                 Pdmm pdmm(n_nodes, n_features, std::move(from), std::move(to),
                           to_vector("radius", radius, {n}), to_vector("eta_users", eta_users, {n_nodes}),
                           options);
                 return Run{n_nodes, n_features, std::move(pdmm), std::nullopt};
             }),
             py::arg("n_nodes"), py::arg("n_features"), py::arg("tail"), py::arg("head"), py::arg("radius"),
             py::arg("eta_users"), py::kw_only(), py::arg("scheme"), py::arg("participation"), py::arg("rho"),
             py::arg("eta"), py::arg("tau"), py::arg("nu"), py::arg("seed"), py::arg("skip_after"),
             py::arg("skip_period"))
        .def(
            "set_quadratic",
            [](Run& self, const Doubles& eigenvalues, const std::optional<Doubles>& basis,
               const Doubles& linear) {
                const Index m = self.n_nodes, d = self.n_features;
                QuadraticLoss loss;
                loss.n_nodes = m;
                loss.n_features = d;
                loss.dense = basis.has_value();
                loss.linear = to_vector("linear", linear, {m, d});
                if (loss.dense) {
                    loss.eigenvalues = to_vector("eigenvalues", eigenvalues, {m, d});
                    loss.basis = to_vector("basis", *basis, {m, d, d});
                } else {
                    loss.eigenvalues = to_vector("eigenvalues", eigenvalues, {m});
                }
                self.loss = std::move(loss);
            },
            py::arg("eigenvalues"), py::arg("basis"), py::arg("linear"))
        .def("start",
             [](Run& self, const Doubles& x) {
                 self.pdmm.start(to_vector("x", x, {self.n_nodes, self.n_features}));
             })
        .def("stretch", [](Run& self, double factor) { self.pdmm.stretch(factor); })
        .def("run",
             [](Run& self, Index iterations) {
                 if (!self.loss) throw std::invalid_argument("run needs set_quadratic");
                 py::gil_scoped_release release;
                 self.pdmm.run(*self.loss, iterations);
             })
        .def(
            "begin",
            [](Run& self, const std::optional<Array<Index>>& users) {
                if (users)
                    self.pdmm.begin(to_vector("users", *users, {users->size()}));
                else
                    self.pdmm.begin();
                const std::vector<Index>& active = self.pdmm.active();
                py::array_t<Index> nodes(static_cast<py::ssize_t>(active.size()));
                std::copy(active.begin(), active.end(), nodes.mutable_data());
                return py::make_tuple(nodes, to_matrix(self.pdmm.pull(), self.n_nodes, self.n_features));
            },
            py::arg("users") = py::none())
        .def("snapshot",
             [](const Run& self) {
                 const Pdmm::Snapshot state = self.pdmm.snapshot();
                 const Index pairs = static_cast<Index>(state.z.size()) / self.n_features;
                 py::dict out;
                 out["x"] = to_matrix(state.x, self.n_nodes, self.n_features);
                 out["z"] = to_matrix(state.z, pairs, self.n_features);
                 out["mu"] = to_matrix(state.mu, pairs, self.n_features);
                 out["hat"] = to_matrix(state.hat, pairs, self.n_features);
                 out["sums"] = to_matrix(state.sums, self.n_nodes, self.n_features);
                 out["zeros"] = py::array_t<std::uint8_t>(static_cast<py::ssize_t>(state.zeros.size()),
                                                          state.zeros.data());
                 out["n_iter"] = state.n_iter;
                 return out;
             })
        .def(
            "restore",
            [](Run& self, const Doubles& x, const Doubles& z, const Doubles& mu, const Doubles& hat,
               const Doubles& sums, const Array<std::uint8_t>& zeros, Index n_iter) {
                const Index m = self.n_nodes, d = self.n_features, e = self.pdmm.n_edges();
                self.pdmm.restore({to_vector("x", x, {m, d}), to_vector("z", z, {e, d}),
                                   to_vector("mu", mu, {e, d}), to_vector("hat", hat, {e, d}),
                                   to_vector("sums", sums, {m, d}), to_vector("zeros", zeros, {e}), n_iter});
            },
            py::arg("x"), py::arg("z"), py::arg("mu"), py::arg("hat"), py::arg("sums"), py::arg("zeros"),
            py::arg("n_iter"))
        .def("end",
             [](Run& self, const Doubles& x) {
                 const std::vector<double> point = to_vector("x", x, {self.n_nodes, self.n_features});
                 py::gil_scoped_release release;
                 self.pdmm.end(point);
             })
        .def("balance",
             [](const Run& self, const Doubles& x) {
                 const std::vector<double> point = to_vector("x", x, {self.n_nodes, self.n_features});
                 std::vector<double> sums;
                 Pdmm::Balance told;
                 {
                     py::gil_scoped_release release;
                     told = self.pdmm.balance(point, sums);
                 }
                 return py::make_tuple(told.penalty, told.product,
                                       to_matrix(sums, self.n_nodes, self.n_features));
             })
        .def("duals",
             [](const Run& self) {
                 py::array_t<double> out({self.pdmm.n_edges(), self.n_features});
                 self.pdmm.duals(out.mutable_data());
                 return out;
             })
        .def("state",
             [](const Run& self) {
                 py::array_t<double> lengths(self.pdmm.n_edges());
                 py::array_t<std::uint8_t> fused(self.pdmm.n_edges());
                 self.pdmm.state(lengths.mutable_data(), fused.mutable_data());
                 return py::make_tuple(lengths, fused);
             })
        .def("largest_residual", [](const Run& self) { return self.pdmm.largest_residual(); })
        .def("asymmetry", [](const Run& self) { return self.pdmm.asymmetry(); })
        .def_property_readonly(
            "x", [](const Run& self) { return to_matrix(self.pdmm.x(), self.n_nodes, self.n_features); })
        .def_property_readonly("modulus",
                               [](const Run& self) {
                                   const std::vector<double>& m = self.pdmm.modulus();
                                   return py::array_t<double>(static_cast<py::ssize_t>(m.size()), m.data());
                               })
        .def_property_readonly("counts",
                               [](const Run& self) {
                                   py::dict out;
                                   out["up"] = self.pdmm.counts().up;
                                   out["down"] = self.pdmm.counts().down;
                                   out["pairs"] = self.pdmm.counts().pairs;
                                   out["skipped"] = self.pdmm.counts().skipped;
                                   return out;
                               })
        .def_property_readonly("n_iter", [](const Run& self) { return self.pdmm.n_iter(); });
}

}  // namespace fusionopt::bindings

#include <pybind11/stl.h>

#include <optional>

#include "bindings/arrays.hpp"
#include "bindings/register.hpp"
#include "core/fpfc.hpp"

namespace fusionopt::bindings {

namespace {

using Doubles = Array<double>;
using Int32s = Array<std::int32_t>;

struct Server {
    Index n_nodes, n_features, n_edges;
    std::unique_ptr<FpfcServer> core;
};

FpfcOptions make_options(const RadialPenalty& penalty, double lam, double rho, bool both_ends,
                         int n_threads) {
    FpfcOptions options;
    options.penalty = penalty;
    options.lam = lam;
    options.rho = rho;
    options.both_ends = both_ends;
    options.n_threads = n_threads;
    return options;
}

std::vector<Index> nodes_of(const Server& self, const Array<std::int64_t>& active) {
    std::vector<Index> out = to_vector("active", active, {active.size()});
    for (const Index i : out)
        if (i < 0 || i >= self.n_nodes) throw std::invalid_argument("active names a node out of range");
    return out;
}

}  // namespace

void register_fpfc(py::module_& module) {
    py::class_<Server>(module, "Fpfc")
        .def_static(
            "complete",
            [](Index n_nodes, Index n_features, double weight, const std::optional<Doubles>& node_weights,
               const RadialPenalty& penalty, double lam, double rho, bool both_ends, bool single,
               int n_threads) {
                FpfcGraph graph;
                graph.n_nodes = n_nodes;
                graph.weight = weight;
                if (node_weights) graph.node_weights = to_vector("node_weights", *node_weights, {n_nodes});
                return Server{
                    n_nodes, n_features, n_nodes * (n_nodes - 1) / 2,
                    make_fpfc_server(std::move(graph), n_features,
                                     make_options(penalty, lam, rho, both_ends, n_threads), single)};
            },
            py::arg("n_nodes"), py::arg("n_features"), py::arg("weight"), py::arg("node_weights"),
            py::arg("penalty"), py::arg("lam"), py::arg("rho"), py::kw_only(), py::arg("both_ends"),
            py::arg("single"), py::arg("n_threads"))
        .def_static(
            "edges",
            [](Index n_nodes, Index n_features, const Int32s& tail, const Int32s& head,
               const Doubles& weights, const RadialPenalty& penalty, double lam, double rho, bool both_ends,
               bool single, int n_threads) {
                FpfcGraph graph;
                graph.n_nodes = n_nodes;
                graph.complete = false;
                const Index n = tail.size();
                graph.tail = to_vector("tail", tail, {n});
                graph.head = to_vector("head", head, {n});
                graph.weights = to_vector("weights", weights, {n});
                for (std::size_t e = 0; e < graph.tail.size(); ++e)
                    if (graph.tail[e] < 0 || graph.tail[e] >= graph.head[e] || graph.head[e] >= n_nodes)
                        throw std::invalid_argument("edges must satisfy 0 <= i < j < n_nodes");
                return Server{
                    n_nodes, n_features, n,
                    make_fpfc_server(std::move(graph), n_features,
                                     make_options(penalty, lam, rho, both_ends, n_threads), single)};
            },
            py::arg("n_nodes"), py::arg("n_features"), py::arg("tail"), py::arg("head"), py::arg("weights"),
            py::arg("penalty"), py::arg("lam"), py::arg("rho"), py::kw_only(), py::arg("both_ends"),
            py::arg("single"), py::arg("n_threads"))
        .def("start",
             [](Server& self, const Doubles& x) {
                 self.core->start(to_vector("x", x, {self.n_nodes, self.n_features}));
             })
        .def("set_lam", [](Server& self, double lam) { self.core->set_lam(lam); })
        .def("zeta",
             [](const Server& self, const Array<std::int64_t>& active) {
                 const std::vector<Index> nodes = nodes_of(self, active);
                 py::array_t<double> out({static_cast<Index>(nodes.size()), self.n_features});
                 double* data = out.mutable_data();
                 py::gil_scoped_release release;
                 self.core->zeta(nodes, data);
                 return out;
             })
        .def("update",
             [](Server& self, const Array<std::int64_t>& active, const Doubles& fresh) {
                 const std::vector<Index> nodes = nodes_of(self, active);
                 const std::vector<double> rows =
                     to_vector("fresh", fresh, {static_cast<Index>(nodes.size()), self.n_features});
                 py::gil_scoped_release release;
                 self.core->update(nodes, rows.data());
             })
        .def("report",
             [](const Server& self) {
                 FpfcReport told;
                 {
                     py::gil_scoped_release release;
                     told = self.core->report();
                 }
                 py::dict out;
                 out["penalty"] = told.penalty;
                 out["magnitude"] = told.magnitude;
                 out["product"] = told.product;
                 out["residual"] = told.residual;
                 out["squares"] = told.squares;
                 out["prox_squares"] = told.prox_squares;
                 out["sums"] = to_matrix(told.sums, self.n_nodes, self.n_features);
                 return out;
             })
        .def("counts",
             [](const Server& self) {
                 const FpfcCounts told = self.core->counts();
                 py::dict out;
                 out["kept"] = told.kept;
                 out["dropped"] = told.dropped;
                 out["untouched"] = told.untouched;
                 out["peak"] = told.peak;
                 out["bytes"] = told.bytes;
                 return out;
             })
        .def("duals",
             [](const Server& self) {
                 py::array_t<double> out({self.n_edges, self.n_features});
                 self.core->duals(out.mutable_data());
                 return out;
             })
        .def("thetas",
             [](const Server& self) {
                 py::array_t<double> out({self.n_edges, self.n_features});
                 self.core->thetas(out.mutable_data());
                 return out;
             })
        .def("labels",
             [](const Server& self, double nu) {
                 std::vector<std::int32_t> labels;
                 self.core->labels(nu, labels);
                 py::array_t<std::int64_t> out(static_cast<py::ssize_t>(labels.size()));
                 std::copy(labels.begin(), labels.end(), out.mutable_data());
                 return out;
             })
        .def("snapshot",
             [](const Server& self) {
                 const FpfcSnapshot state = self.core->snapshot();
                 py::dict out;
                 out["x"] = to_matrix(state.x, self.n_nodes, self.n_features);
                 out["pull"] = to_matrix(state.pull, self.n_nodes, self.n_features);
                 const Index kept = static_cast<Index>(state.factors.size());
                 out["vectors"] = to_matrix(state.vectors, kept, self.n_features);
                 out["factors"] = py::array_t<double>(kept, state.factors.data());
                 out["slots"] = py::array_t<std::int32_t>(static_cast<py::ssize_t>(state.slots.size()),
                                                          state.slots.data());
                 return out;
             })
        .def(
            "restore",
            [](Server& self, const Doubles& x, const Doubles& pull, const Doubles& vectors,
               const Doubles& factors, const Int32s& slots) {
                const Index m = self.n_nodes, d = self.n_features, kept = factors.size();
                FpfcSnapshot state{to_vector("x", x, {m, d}), to_vector("pull", pull, {m, d}),
                                   to_vector("vectors", vectors, {kept, d}),
                                   to_vector("factors", factors, {kept}),
                                   to_vector("slots", slots, {self.n_edges})};
                for (const std::int32_t slot : state.slots)
                    if (slot < -2 || slot >= kept) throw std::invalid_argument("slots name no vector");
                self.core->restore(state);
            },
            py::arg("x"), py::arg("pull"), py::arg("vectors"), py::arg("factors"), py::arg("slots"))
        .def_property_readonly(
            "x", [](const Server& self) { return to_matrix(self.core->x(), self.n_nodes, self.n_features); })
        .def_property_readonly("kappa", [](const Server& self) {
            const std::vector<double>& kappa = self.core->kappa();
            return py::array_t<double>(static_cast<py::ssize_t>(kappa.size()), kappa.data());
        });
}

}  // namespace fusionopt::bindings

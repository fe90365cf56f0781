"""Hypothesis inputs: small problems full of ties, duplicates, lone nodes and wild weights."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tests import catalogue
from tests.catalogue import Instance
from tests.oracles import SquaredNodes


@st.composite
def point_sets(draw: st.DrawFn, max_nodes: int = 9, max_features: int = 3) -> np.ndarray:
    """(n, d) points; half the time on a coarse lattice, so that ties and duplicates are common."""
    n = draw(st.integers(1, max_nodes))
    d = draw(st.integers(1, max_features))
    lattice = st.integers(-3, 3).map(lambda k: k / 2.0)
    value = draw(st.sampled_from([lattice, st.floats(-4.0, 4.0).map(lambda v: round(v, 6))]))
    rows = draw(st.lists(st.lists(value, min_size=d, max_size=d), min_size=n, max_size=n))
    return np.array(rows, dtype=np.float64)


@st.composite
def instances(draw: st.DrawFn, max_nodes: int = 9, max_features: int = 3) -> Instance:
    """A squared-distance problem on a complete, weighted complete, or arbitrary (perhaps empty) graph."""
    points = draw(point_sets(max_nodes, max_features))
    n = len(points)
    kind = draw(st.sampled_from(["complete", "node_weights", "edges"]))
    pairs = catalogue.all_pairs(n)
    complete: tuple[float, np.ndarray | None] | None = None
    if kind == "complete":
        complete = (draw(st.sampled_from([1.0, 1e-3, 0.3, 1e3])), None)
        weights = np.full(len(pairs), complete[0])
    elif kind == "node_weights":
        r = np.array(draw(st.lists(st.sampled_from([0.1, 1.0, 3.0]), min_size=n, max_size=n)))
        complete = (1.0, r)
        weights = r[pairs[:, 0]] * r[pairs[:, 1]]
    else:
        chosen = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
        pairs = pairs[np.array(chosen, dtype=bool)]
        scale = st.sampled_from([1e-3, 0.1, 1.0, 2.0, 1e3])
        weights = np.array(draw(st.lists(scale, min_size=len(pairs), max_size=len(pairs))), dtype=np.float64)
    lam = draw(st.sampled_from([0.0, 1e-3, 0.03, 0.2, 1.0, 20.0]))
    heavy = st.sampled_from([0.5, 1.0, 4.0])
    uniform = draw(st.booleans())
    s = np.ones(n) if uniform else np.array(draw(st.lists(heavy, min_size=n, max_size=n)))
    return Instance(SquaredNodes(points, s), pairs, weights, lam, complete)


@st.composite
def orders(draw: st.DrawFn, n: int) -> np.ndarray:
    """A permutation of n nodes."""
    return np.array(draw(st.permutations(range(n))), dtype=np.int64)

"""A clustering held against labels that were known beforehand, flattering and unflattering numbers alike."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt.errors import InvalidArgumentError, MissingDependencyError


@dataclass(frozen=True)
class Comparison:
    """How well found clusters agree with known labels. A row alone in its cluster counts as a cluster of one.

    Attributes
    ----------
    known : tuple of str
        The distinct known labels, sorted.
    ari : float
        Adjusted Rand index over all rows, rows alone included: 1 for the same partition, about 0 for chance.
    ari_without_singletons : float
        The same over the rows that share their cluster with another row only. It leaves out what was not
        grouped and so looks better than `ari`; NaN when there is no such row.
    ami, homogeneity, completeness, v_measure : float
        Adjusted mutual information; whether clusters hold one label; whether labels stay in one cluster; and
        the harmonic mean of the last two. Many tiny clusters make homogeneity 1 for nothing.
    matched : float
        Share of rows that agree when every cluster is matched with at most one label and every label with at
        most one cluster, in the best way.
    n_clusters, n_singletons : int
    largest_share : float
        Share of the rows in the largest cluster.
    counts : int64 (n_clusters, len(known))
        Rows by cluster number and known label.
    """

    known: tuple[str, ...]
    ari: float
    ari_without_singletons: float
    ami: float
    homogeneity: float
    completeness: float
    v_measure: float
    matched: float
    n_clusters: int
    n_singletons: int
    largest_share: float
    counts: NDArray[np.int64]

    def to_dict(self) -> dict[str, Any]:
        """Fields by name, with lists for arrays."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def _metrics() -> Any:
    try:
        from sklearn import metrics
    except ImportError as error:
        raise MissingDependencyError(
            "Comparing with known labels needs scikit-learn, which is not installed; install it with: "
            "pip install scikit-learn",
            package="scikit-learn",
        ) from error
    return metrics


@contextmanager
def _many_clusters() -> Iterator[None]:
    # scikit-learn 1.6 and 1.7 take many clusters for a sign of a regression target, and say so.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        yield


def adjusted_rand(labels: ArrayLike, known: ArrayLike) -> float:
    """Adjusted Rand index over all rows (see `Comparison`)."""
    with _many_clusters():
        return float(_metrics().adjusted_rand_score(known, labels))


def compare_labels(labels: ArrayLike, known: ArrayLike) -> Comparison:
    """Compare found clusters with known labels.

    Parameters
    ----------
    labels : int (n,)
        Clusters numbered from 0 without gaps.
    known : (n,)
        Known labels of any kind; compared as text.

    Returns
    -------
    Comparison

    Raises
    ------
    InvalidArgumentError
        The two differ in length.
    MissingDependencyError
        scikit-learn is not installed.

    References
    ----------
    Hubert and Arabie 1985 (adjusted Rand index); Rosenberg and Hirschberg 2007 (homogeneity, completeness).
    """
    found = np.asarray(labels, dtype=np.int64)
    truth = np.asarray(known).astype(np.str_)
    if found.shape != truth.shape:
        raise InvalidArgumentError(
            f"known has shape {truth.shape} and labels has shape {found.shape}; give one known label for "
            "every row.",
            argument="known",
            got=truth.shape,
            wanted=f"shape {found.shape}",
        )
    metrics = _metrics()
    from scipy.optimize import linear_sum_assignment

    names, number = np.unique(truth, return_inverse=True)
    sizes = np.bincount(found)
    counts = np.zeros((len(sizes), len(names)), dtype=np.int64)
    np.add.at(counts, (found, number), 1)
    grouped = sizes[found] > 1
    rows, columns = linear_sum_assignment(-counts)
    with _many_clusters():
        homogeneity, completeness, v_measure = metrics.homogeneity_completeness_v_measure(number, found)
        ari = float(metrics.adjusted_rand_score(number, found))
        ami = float(metrics.adjusted_mutual_info_score(number, found))
        flattering = math.nan
        if grouped.any():
            flattering = float(metrics.adjusted_rand_score(number[grouped], found[grouped]))
    return Comparison(
        known=tuple(str(name) for name in names),
        ari=ari,
        ari_without_singletons=flattering,
        ami=ami,
        homogeneity=float(homogeneity),
        completeness=float(completeness),
        v_measure=float(v_measure),
        matched=float(counts[rows, columns].sum() / len(found)),
        n_clusters=len(sizes),
        n_singletons=int(np.sum(sizes == 1)),
        largest_share=float(sizes.max() / len(found)),
        counts=counts,
    )

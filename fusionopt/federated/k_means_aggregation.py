"""RFedAvg's rival: clusters of updates by k-means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusionopt import _checks
from fusionopt.federated._system import FloatArray, IntArray
from fusionopt.federated.rfed_avg import RFedAvg


@dataclass(frozen=True)
class KMeansAggregation(RFedAvg):
    """`RFedAvg` with clusters by k-means (scikit-learn, k-means++, 10 starts) on the updates.

    Parameters
    ----------
    steps, rate, weights, angle, least_loss
        As in `RFedAvg`.
    n_clusters : int >= 1, or None
        k, at most the number of active clients; None is the number that RFedAvg would form in this round. The paper
        does not state its k.

    References
    ----------
    Wang, Zhang and Tao, section V (K-means).

    Examples
    --------
    >>> KMeansAggregation().n_clusters is None
    True
    """

    n_clusters: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_clusters is not None:
            _checks.as_count("n_clusters", self.n_clusters)

    def cluster(
        self, updates: FloatArray, first_loss: float, loss: float, rng: np.random.Generator
    ) -> list[IntArray]:
        """Clusters of rows by k-means; fewer than k where rows coincide."""
        from sklearn.cluster import KMeans

        wanted = self.n_clusters or len(super().cluster(updates, first_loss, loss, rng))
        if not np.isfinite(updates).all():
            return [np.arange(len(updates))]  # a client has diverged: there are no distances
        k = min(wanted, len(np.unique(updates, axis=0)))
        # k-means is told units in which the rows are of order one.
        scale = float(np.abs(updates).max()) or 1.0
        # It sees distances only: in an orthonormal basis of their span, rows have no more columns than there are rows.
        rows = np.linalg.qr(updates.T / scale).R.T
        found = KMeans(k, n_init=10, random_state=int(rng.integers(2**31))).fit_predict(rows)
        return [np.flatnonzero(found == j) for j in np.unique(found)]

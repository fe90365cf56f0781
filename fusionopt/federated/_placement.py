"""Clients that were not there: which cluster they belong to, without training, and how firmly."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fusionopt.federated._fleet import Fleet, FloatArray, IntArray, row_norms


class Placement(NamedTuple):
    """Where new clients were placed.

    labels : int64 (n,), cluster of each, as in `History.labels`.
    scores : float64 (n, n_clusters), mean loss on the client's rows under each cluster's model, or distance to it.
    firmness : float64 (n,); by loss, how many standard errors the second best cluster's loss lies above the best's,
        row by row on the same rows (below about 2 the data do not tell); by parameters, 1 - (distance to the nearest) /
        (distance to the second), 0 in the middle and 1 at a cluster's model. inf with one cluster only; nan where it
        cannot be told (one row, or a score that is not a number).
    """

    labels: IntArray
    scores: FloatArray
    firmness: FloatArray


@np.errstate(divide="ignore", over="ignore", invalid="ignore")  # what overflows is no number
def by_loss(fleet: Fleet, centres: FloatArray) -> Placement:
    """The centre with the smallest mean training loss; ties: the first."""
    everyone, shape = np.arange(fleet.n_clients), (fleet.n_clients, fleet.dim)
    samples = [fleet.sample_losses(everyone, np.broadcast_to(w, shape)) for w in centres]
    scores = np.stack([fleet.means(everyone, losses) for losses in samples], axis=1)
    labels, second = _two_best(scores)
    firmness = np.full(fleet.n_clients, np.inf)
    if len(centres) > 1:
        parts = [fleet.split(everyone, losses) for losses in samples]
        for k in everyone:
            excess = parts[second[k]][k] - parts[labels[k]][k]
            error = excess.std(ddof=1) / np.sqrt(len(excess)) if len(excess) > 1 else np.nan
            firmness[k] = excess.mean() / error
    return Placement(labels, scores, firmness)


@np.errstate(over="ignore", invalid="ignore")
def by_parameters(models: FloatArray, centres: FloatArray) -> Placement:
    """The nearest centre; ties: the first."""
    between = (models[:, None, :] - centres).reshape(-1, models.shape[1])
    scores = row_norms(between).reshape(len(models), len(centres))
    labels, second = _two_best(scores)
    firmness = np.full(len(models), np.inf)
    if len(centres) > 1:
        rows = np.arange(len(models))
        firmness = 1.0 - scores[rows, labels] / scores[rows, second]
    return Placement(labels, scores, firmness)


def _two_best(scores: FloatArray) -> tuple[IntArray, IntArray]:
    order = np.argsort(scores, axis=1, kind="stable")
    return order[:, 0], order[:, min(1, scores.shape[1] - 1)]

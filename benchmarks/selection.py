"""Clusterings chosen without labels, beside scikit-learn's: adjusted Rand index on four UCI tables.

Fusion paths: Gaussian kNN weights (k = 10), standardised columns, every criterion of `PathResult.select`. The others
are told the number of classes (HDBSCAN is not; its noise counts as rows alone). Worse rows stay in. Hold-out solves
twenty-five paths with missing cells: it is left out where there are more than 5,000 cells.

    python -m benchmarks.selection [TABLE ...]      runs these tables and keeps the rows of the others
"""

from __future__ import annotations

import csv
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn import cluster, datasets
from sklearn.metrics import adjusted_rand_score

from fusionopt import AdmmSettings, FusionProblem, Graph, SquaredDistance, solution_path
from fusionopt.clusters import n_large
from fusionopt.errors import InvalidArgumentError
from fusionopt.io import standardise
from fusionopt.selection import select_plateau

RESULTS = Path(__file__).parent / "results" / "selection.csv"
TABLES = {
    "wine": datasets.load_wine,
    "iris": datasets.load_iris,
    "breast-cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}
SEEDS = range(5)


def fusion_rows(name: str, points: np.ndarray, known: np.ndarray) -> list[dict[str, object]]:
    """One row a criterion (and seed, where it draws), and the best of the path, which needs the labels."""
    start = time.perf_counter()
    problem = FusionProblem(SquaredDistance(points), Graph.knn(points, n_neighbors=10))
    # A plateau does not ask for more digits, and replicates are solved twenty times over.
    path = solution_path(problem, n_lams=50, lam_min_ratio=1e-4, settings=AdmmSettings(eps_rel=1e-5))
    seconds = time.perf_counter() - start
    large = points.size > 5000
    rows = []
    for criterion, seeds in (
        ("plateau", range(1)),
        ("bic", range(1)),
        ("ebic", range(1)),
        ("holdout", range(0) if large else SEEDS),
        ("stability", range(1) if large else SEEDS),
    ):
        for seed in seeds:
            start = time.perf_counter()
            repeats = 3 if large else 5
            try:
                chosen = (
                    select_plateau(path)
                    if criterion == "plateau"
                    else path.selection(criterion, random_state=seed, n_repeats=repeats)
                )
            except InvalidArgumentError:  # nothing to choose from: that is a result too
                rows.append({"table": name, "method": f"fusion path, {criterion} refuses", "seed": seed})
                continue
            took = seconds + time.perf_counter() - start
            rows.append(
                row(name, f"fusion path, {chosen.criterion}", seed, chosen.result.labels, known, took)
            )
    scores = [adjusted_rand_score(known, result.labels) for result in path.results]
    best = path.results[int(np.argmax(scores))]
    rows.append(row(name, "fusion path, best lam (needs the labels)", 0, best.labels, known, seconds))
    return rows


def other_rows(name: str, points: np.ndarray, known: np.ndarray) -> list[dict[str, object]]:
    """Agglomerative and KMeans with k known, HDBSCAN."""
    k = len(np.unique(known))
    methods = [
        (f"Agglomerative {linkage}, k known", 0, cluster.AgglomerativeClustering(k, linkage=linkage))
        for linkage in ("ward", "average", "single")
    ]
    methods += [("KMeans, k known", seed, cluster.KMeans(k, n_init=10, random_state=seed)) for seed in SEEDS]
    methods.append(("HDBSCAN", 0, cluster.HDBSCAN(copy=True)))
    rows = []
    for title, seed, method in methods:
        start = time.perf_counter()
        labels = method.fit_predict(points)
        noise = labels < 0
        labels[noise] = labels.max() + 1 + np.arange(noise.sum())
        rows.append(row(name, title, seed, labels, known, time.perf_counter() - start))
    return rows


def row(
    name: str, method: str, seed: int, labels: np.ndarray, known: np.ndarray, seconds: float
) -> dict[str, object]:
    _, sizes = np.unique(labels, return_counts=True)
    return {
        "table": name,
        "method": method,
        "seed": seed,
        "ari": f"{adjusted_rand_score(known, labels):.4f}",
        "clusters": len(sizes),
        "large": n_large(sizes),
        "alone": int((sizes == 1).sum()),
        "seconds": f"{seconds:.2f}",
    }


def main() -> None:
    warnings.filterwarnings("ignore", category=FutureWarning)
    wanted = sys.argv[1:] or list(TABLES)
    rows: list[dict[str, object]] = []
    if RESULTS.exists():
        with RESULTS.open(newline="", encoding="utf-8") as stream:
            rows = [dict(entry) for entry in csv.DictReader(stream) if entry["table"] not in wanted]
    for name in wanted:
        data = TABLES[name]()
        points = standardise(data.data).values
        rows += fusion_rows(name, points, data.target) + other_rows(name, points, data.target)
        for entry in rows:
            if entry["table"] == name:
                print(entry, flush=True)
        _write(rows)


def _write(rows: list[dict[str, object]]) -> None:
    with RESULTS.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[-1]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()

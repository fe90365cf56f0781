"""Paths killed at random moments: does every one end in the bits of an unbroken run?  `make soak`

Each trial runs a path with `checkpoint=` in a process of its own, kills it (SIGKILL) after a random time, and starts it
again on the same folder until it ends. Counted: kills that hit, lams that were on the disk before a kill and not after,
and trials whose final bits differ from those of an unbroken run.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import fusionopt
from fusionopt import FusionProblem, Graph, LeastSquares, PathResult, SquaredDistance, solution_path

RESULTS = Path(__file__).parent / "results" / "soak.csv"
KINDS = ("complete", "complete, located", "knn", "regression", "logistic")


def problem_of(kind: str) -> FusionProblem:
    """One of `KINDS`."""
    rng = np.random.default_rng(5)
    if kind in ("regression", "logistic"):
        designs = [rng.normal(size=(12, 3)) for _ in range(30)]
        scores = [z @ [1.0, k % 3, 0.0] for k, z in enumerate(designs)]
        if kind == "regression":
            return FusionProblem(LeastSquares(designs, scores))
        return FusionProblem(
            fusionopt.Logistic(designs, [np.where(s > 0, 1.0, -1.0) for s in scores], ridge=0.1)
        )
    n = 80 if kind == "complete, located" else 400
    points = rng.normal(size=(n, 2))
    graph = Graph.knn(points, 8) if kind == "knn" else Graph.complete(n)
    return FusionProblem(SquaredDistance(points), graph)


def run(kind: str, folder: str | None) -> PathResult:
    """The path of the trial."""
    events = "locate" if kind.endswith("located") else "grid"
    return solution_path(problem_of(kind), n_lams=40, lam_min_ratio=1e-2, events=events, checkpoint=folder)


def digest(path: PathResult) -> str:
    """All that a run must reproduce: points, labels, certificates and events, not times."""
    out = hashlib.sha256(path.lams.tobytes())
    for result in path.results:
        out.update(result.x.tobytes() + result.labels.tobytes())
        numbers = [result.objective, result.dual_objective, result.gap, float(result.n_iter)]
        out.update(np.array(numbers).tobytes() + result.status.encode() + result.message.encode())
    for event in path.events:
        out.update(
            np.array([event.lam, *event.bracket]).tobytes() + event.members.tobytes() + event.kind.encode()
        )
    return out.hexdigest()


def finished(folder: Path) -> set[str]:
    return {file.name for file in folder.glob("lam-*.npz")} | {
        file.name for file in folder.glob("point-*.npz")
    }


def soak(kind: str, kills: int, seed: int) -> dict[str, object]:
    """Kill one kind of path until that many kills have hit."""
    rng = np.random.default_rng(seed)
    start = time.perf_counter()
    # Methods without a state to save (proximal Newton) begin each lam anew under a checkpoint: there the unbroken run
    # has a checkpoint too. For the others a run without one must give the same bits.
    with tempfile.TemporaryDirectory() as place:
        wanted = digest(run(kind, f"{place}/kept" if kind == "logistic" else None))
    whole = time.perf_counter() - start
    hit = lost = differing = trials = 0
    while hit < kills:
        trials += 1
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "kept"
            while True:
                child = subprocess.Popen(
                    [sys.executable, "-m", "benchmarks.soak", "--child", kind, str(folder)],
                    stdout=subprocess.PIPE,
                )
                # Importing takes its time too: kills fall anywhere from the start to past the end.
                wait = rng.uniform(0.0, 1.5 + whole) if hit < kills else None
                before = finished(folder)
                try:
                    told, _ = child.communicate(timeout=wait)
                except subprocess.TimeoutExpired:
                    before = finished(folder)
                    child.send_signal(signal.SIGKILL)
                    child.communicate()
                    hit += 1
                    lost += len(before - finished(folder))
                    continue
                if child.returncode != 0:
                    raise RuntimeError(f"{kind}: the child ended with {child.returncode}")
                differing += told.decode().strip() != wanted
                break
    return {
        "kind": kind,
        "trials": trials,
        "kills": hit,
        "lams_lost": lost,
        "differing": differing,
        "seed": seed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", nargs=2, metavar=("KIND", "FOLDER"))
    parser.add_argument("--kills", type=int, default=10, help="for each kind of path")
    options = parser.parse_args()
    if options.child:
        print(digest(run(*options.child)))
        return
    rows = []
    for seed, kind in enumerate(KINDS):
        rows.append(soak(kind, options.kills, seed))
        print(rows[-1], flush=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    if any(row["lams_lost"] or row["differing"] for row in rows):
        raise SystemExit("a killed run lost a lam or ended in other bits")


if __name__ == "__main__":
    main()

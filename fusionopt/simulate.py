"""``fusionopt simulate``: federated systems on one bench, and PDMM's way to the optimum."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks, datasets, plotting
from fusionopt._bench_specs import (
    DataPlan,
    Spec,
    check_options,
    models,
    parse_spec,
    pick,
    plain,
    systems,
    takes,
)
from fusionopt.datasets import ClientData
from fusionopt.io import ResultFolder
from fusionopt.runs import Meter, Outcome, interrupt_deferred, versions
from fusionopt.simulate_report import BenchContent, ConvergenceContent, SimulateContent

if TYPE_CHECKING:
    from fusionopt.federated import Model, Round, System
    from fusionopt.methods import Progress
    from fusionopt.problem import FusionProblem
    from fusionopt.result import Result
    from fusionopt.settings import PdmmSettings

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

CONVERGENCE = "appendix-c"
"""The data on which PDMM is followed as a solver towards the optimum, instead of as a federated system."""
APPENDIX_C: dict[str, Any] = {"n_users": 10, "n_samples": 170, "delta": 2.0, "axes": (1.5, 2.4)}
"""The ellipses recorded for the figures of Appendix C, which prints none."""
_PAPER_STEPS: dict[str, Any] = {"rho": 10.0, "eta": 10.0, "tau": 0.8, "nu": 0.2}
_PAPER_LAM = 0.02
_EVERY = 50
"""Iterations between two looks at F."""


@dataclass(frozen=True)
class SimulateRequest:
    """What the user asked for; None is left to the experiment."""

    systems: tuple[str, ...]
    data: str | None = None
    seeds: tuple[int, ...] | None = None
    rounds: int | None = None
    participation: float | None = None
    lams: tuple[float, ...] | None = None
    warm_up: int = 300
    model: str | None = None
    evaluate_every: int | None = None
    n_threads: int = 1
    checkpoint: Path | None = None
    out: Path | None = None
    force: bool = False
    time_limit: float | None = None


@dataclass(frozen=True)
class _Experiment:
    """What a request leaves open."""

    systems: tuple[str, ...] = ()
    data: str = "fpfc-synthetic"
    seeds: tuple[int, ...] = (0,)
    rounds: int = 100
    participation: float = 1.0
    lams: tuple[float, ...] | None = None
    model: str = "softmax"
    evaluate_every: int = 1


_EXPERIMENTS = {
    "pdmm": _Experiment(
        systems=(
            "pdmm:scheme=full",
            "pdmm:scheme=users,participation=0.4",
            "pdmm:scheme=pairs,participation=0.4",
            "pdmm:scheme=literal,participation=0.4",
        ),
        data=CONVERGENCE,
        rounds=10_000,
    ),
    "fpfc": _Experiment(
        systems=("local:participation=1", "fpfcl1:lam=0.2,nu=4", "fpfc"),
        seeds=(1,),
        rounds=1000,
        participation=0.3,
        lams=(0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        model="softmax:spread=1",
        evaluate_every=20,
    ),
}
"""What ``simulate NAME`` alone stands for: the experiment of that system's paper, in minutes. FPFC's paper has 2000
rounds and at least three seeds; its published code starts from N(0, 1)."""


class LamChoice(NamedTuple):
    """lam by held-out training rows, after a few rounds each.

    Attributes
    ----------
    lams : ascending
    score : mean over clients of the accuracy of the models of the warm-up (minus the loss where nothing is classified).
    n_clusters : of the warm-up.
    refit : the same as `score` for one model per cluster found, trained without penalty; NaN where no lam found
        clusters.
    behind, error : how far each is behind the best `refit` (`score` where that is NaN), and the standard error of that
        difference over clients.
    chosen : by the rule of `choose_lam`.
    """

    lams: FloatArray
    score: FloatArray
    n_clusters: IntArray
    refit: FloatArray
    behind: FloatArray
    error: FloatArray
    chosen: float


def run_simulate(request: SimulateRequest, command: str, meter: Meter | None = None) -> Outcome:
    """Make the data, run every system on every seed, and write a result folder.

    Parameters
    ----------
    request : SimulateRequest
    command : str
        The command line, for the report.
    meter : Meter, optional

    Returns
    -------
    Outcome

    Raises
    ------
    FusionoptError
        Misuse; raised before any run, and nothing is left behind.
    KeyboardInterrupt
        Ctrl-C before anything was finished, or twice; nothing is left behind.
    """
    started = time.monotonic()
    plotting.require_matplotlib()
    specs = [parse_spec(text) for text in request.systems]
    name = specs[0].name
    alone = len(specs) == 1 and not specs[0].options and request.data is None
    experiment = _EXPERIMENTS.get(name, _Experiment()) if alone else _Experiment()
    if experiment.systems:
        specs = [parse_spec(text) for text in experiment.systems]
    data = request.data or experiment.data
    kind = _Convergence if parse_spec(data.partition("+")[0]).name == plain(CONVERGENCE) else _Bench
    given = {key: value for key, value in vars(request).items() if value is not None}
    run = _Run(
        specs=tuple(specs),
        data=data,
        seeds=given.get("seeds", experiment.seeds),
        rounds=_checks.as_count("rounds", given.get("rounds", experiment.rounds)),
        participation=_checks.as_share("participation", given.get("participation", experiment.participation)),
        lams=given.get("lams", experiment.lams),
        warm_up=_checks.as_count("warm_up", request.warm_up),
        model=parse_spec(given.get("model", experiment.model)),
        evaluate_every=_checks.as_count(
            "evaluate_every", given.get("evaluate_every", experiment.evaluate_every)
        ),
        n_threads=_checks.as_count("n_threads", request.n_threads),
        checkpoint=request.checkpoint,
    )
    with ResultFolder(request.out or Path(f"simulate-{name}"), force=request.force) as folder:
        job = kind(run)
        with interrupt_deferred() as seen:
            limit = math.inf if request.time_limit is None else started + request.time_limit
            try:
                job.solve(lambda: bool(seen) or time.monotonic() >= limit, meter)
            finally:
                if meter is not None:
                    meter.close()
            if seen and not job.rows:
                raise KeyboardInterrupt
            outcome = _write(job, folder, command, started)
    return dataclasses.replace(outcome, interrupted=True) if seen else outcome


def choose_lam(
    make: Callable[[float], System],
    clients: Sequence[ClientData],
    lams: Sequence[float],
    *,
    rounds: int = 300,
    participation: float = 1.0,
    random_state: int = 0,
    model: Model | None = None,
    n_threads: int = 1,
    callback: Callable[[float, Round], bool] = lambda lam, record: False,
) -> LamChoice:
    """Choose lam on a validation split: a fifth of every client's training rows, after few rounds.

    The penalty's bias is still in the models after few rounds, the more the larger lam is, so their accuracy alone
    asks for too small a lam. The clusters are judged instead: one model for each is trained without penalty (FedAvg
    inside the clusters, as many rounds). A lam remains that is

    1. behind the best of these refits by no more than the standard error of the difference over clients, and
    2. behind the best models of those by no more than that error, or half of what the refit has gained on them: less is
       made up in later rounds, more is a penalty that keeps clusters together.

    Of them the fewest clusters are taken, then the largest lam: the farther from where devices leave their cluster.
    Where every lam leaves all clients alone, or all together, it is the largest lam whose models satisfy 1; where all
    runs diverge, the smallest.

    Parameters
    ----------
    make : function
        lam -> System.
    clients : sequence of ClientData
        Test rows are not looked at.
    lams : sequence of float
        At least one.
    rounds : int
        For each lam, from the same start: with a concave penalty a start from the answer at another lam would keep
        devices that have left their cluster there outside for good.
    participation, random_state, model, n_threads
        As for `federated.simulate`.
    callback : function
        (lam, Round) -> whether to give up.

    Returns
    -------
    LamChoice

    Raises
    ------
    InvalidArgumentError
        No lam.
    KeyboardInterrupt
        `callback` gave up.

    References
    ----------
    The warm-up of Yu et al. (arXiv 2211.04218), of which only the abstract was read: short runs over a grid. The rule
    is this toolkit's own.
    """
    from fusionopt.federated import Oracle, simulate

    rng = np.random.default_rng([random_state, 1])
    held = [_hold_out(client, rng) for client in clients]
    grid = np.sort(np.asarray(lams, dtype=np.float64))
    if not len(grid):
        _checks.refuse(
            "lams is empty; give at least one number.", argument="lams", got=lams, wanted="numbers"
        )

    def run(system: System, lam: float) -> tuple[FloatArray, IntArray]:
        """Score of each client, and the clusters."""
        stopped = False

        def each(record: Round) -> bool:
            nonlocal stopped
            stopped = callback(lam, record)
            return stopped

        history = simulate(
            system,
            held,
            rounds,
            participation,
            random_state,
            each,
            model=model,
            evaluate_every=rounds,
            n_threads=n_threads,
        )
        if stopped:
            raise KeyboardInterrupt
        known = np.isfinite(history.client_accuracy).all()
        return history.client_accuracy if known else -history.client_loss, history.labels

    warm = [run(make(lam), lam) for lam in grid.tolist()]
    score = np.stack([told for told, _ in warm])
    count = np.array([int(labels.max()) + 1 for _, labels in warm])
    refit = np.full(score.shape, np.nan)
    clusters = len({labels.tobytes() for _, labels in warm}) > 1 or 1 < count[0] < len(held)
    if clusters:
        again: dict[bytes, FloatArray] = {}
        for k, lam in enumerate(grid.tolist()):
            labels = warm[k][1]
            if labels.tobytes() not in again:
                again[labels.tobytes()], _ = run(Oracle(**_work(make(lam)), labels=labels), lam)
            refit[k] = again[labels.tobytes()]
    behind, error = _behind(refit if clusters else score)
    good = np.flatnonzero((behind <= error) & np.isfinite(score).all(axis=1))
    if clusters and len(good):
        lag, lag_error = _behind(score[good])
        left = refit[good].mean(axis=1).max() - score[good].mean(axis=1).max()
        good = good[lag <= np.maximum(lag_error, 0.5 * left)]
        good = good[count[good] == count[good].min()]
    chosen = float(grid[good[-1]] if len(good) else grid[0])
    return LamChoice(grid, score.mean(axis=1), count, refit.mean(axis=1), behind, error, chosen)


def _behind(score: FloatArray) -> tuple[FloatArray, FloatArray]:
    """How far each row is behind the best in the mean, and the standard error of that difference; NaN where it is no
    number."""
    n, known = score.shape[1], np.asarray(np.isfinite(score).all(axis=1))
    best = int(np.argmax(np.where(known, score.mean(axis=1), -np.inf)))
    apart = np.where(known[:, None], score[best] - score, np.nan)
    error = apart.std(axis=1, ddof=1) / math.sqrt(n) if n > 1 else np.zeros(len(score))
    return apart.mean(axis=1), error


def _work(system: System) -> dict[str, Any]:
    """The local work of a system."""
    return {name: getattr(system, name) for name in ("steps", "rate", "batch", "epochs", "decay")}


def _hold_out(client: ClientData, rng: np.random.Generator) -> ClientData:
    n = len(client.y_train)
    order = rng.permutation(n)
    # A client with one row is tested on it.
    cut = max(1, n // 5) if n > 1 else 0
    test, train = order[: max(cut, 1)], order[cut:]
    return ClientData(
        client.x_train[train], client.y_train[train], client.x_train[test], client.y_train[test]
    )


@dataclass(frozen=True)
class _Run:
    """A request with nothing left open."""

    specs: tuple[Spec, ...]
    data: str
    seeds: tuple[int, ...]
    rounds: int
    participation: float
    lams: tuple[float, ...] | None
    warm_up: int
    model: Spec
    evaluate_every: int
    n_threads: int
    checkpoint: Path | None


class _Bench:
    """Systems of `fusionopt.federated` on clients of a generator, on several seeds."""

    def __init__(self, run: _Run) -> None:
        self.run = run
        self.rows: list[dict[str, Any]] = []
        self.curves: list[dict[str, Any]] = []
        self.warm_ups: list[dict[str, Any]] = []
        self.data = DataPlan(run.data, [CONVERGENCE])
        kind = pick("model", run.model, models())
        check_options("model", run.model, kind)
        self.model: Model = kind(**run.model.options)
        known = systems()
        self.classes = [pick("systems", spec, known) for spec in run.specs]
        for spec, item in zip(run.specs, self.classes, strict=True):
            check_options("systems", spec, item, "participation")
            self._share(spec)
            # Everything that can be refused is refused before the first round.
            for lam in run.lams or (None,):
                self._make(spec, item, np.zeros(1, dtype=np.int64), lam)
        self.words = (
            f"{run.data}, {_count(run.rounds, 'round')}, {run.participation:.0%} of the clients in each"
        )

    def _make(self, spec: Spec, item: type[System], labels: IntArray, lam: float | None) -> System:
        options = {key: value for key, value in spec.options.items() if key != "participation"}
        if takes(item, "labels"):
            options.setdefault("labels", labels)
        if lam is not None and takes(item, "lam"):
            options.setdefault("lam", lam)
        return item(**options)

    def _share(self, spec: Spec) -> float:
        return _checks.as_share("participation", spec.options.get("participation", self.run.participation))

    def solve(self, stop: Callable[[], bool], meter: Meter | None) -> None:
        """Seed by seed, so that whatever is finished can be compared."""
        for seed in self.run.seeds:
            clients, labels = self.data.make(seed)
            for spec, item in zip(self.run.specs, self.classes, strict=True):
                if stop():
                    return
                self._one(seed, clients, labels, spec, item, stop, meter)

    def _one(
        self,
        seed: int,
        clients: list[ClientData],
        labels: IntArray,
        spec: Spec,
        item: type[System],
        stop: Callable[[], bool],
        meter: Meter | None,
    ) -> None:
        from fusionopt.federated import simulate

        run, lam = self.run, None
        if run.lams is not None and takes(item, "lam") and "lam" not in spec.options:
            lam = self._choose(seed, clients, labels, spec, item, stop, meter)
            if lam is None:
                return
        system = self._make(spec, item, labels, lam)
        begun = time.process_time()

        def each(record: Round) -> bool:
            if meter is not None:
                meter.rounds(f"{spec.text}, seed {seed}", record.round, run.rounds, record.seconds)
            return stop()

        checkpoint = None
        if run.checkpoint is not None:
            run.checkpoint.mkdir(parents=True, exist_ok=True)
            checkpoint = run.checkpoint / f"{self.run.specs.index(spec)}-{spec.name}-{seed}.npz"
        history = simulate(
            system,
            clients,
            run.rounds,
            self._share(spec),
            seed,
            each,
            model=self.model,
            labels=labels,
            evaluate_every=run.evaluate_every,
            n_threads=run.n_threads,
            checkpoint=checkpoint,
        )
        measured = [record for record in history.rounds if math.isfinite(record.loss)] or history.rounds
        self.rows.append(
            {
                "system": spec.text,
                "seed": seed,
                "lam": getattr(system, "lam", math.nan),
                "rounds": len(history.rounds),
                "accuracy": measured[-1].accuracy,
                "weighted_accuracy": measured[-1].weighted_accuracy,
                "loss": measured[-1].loss,
                "n_clusters": history.n_clusters,
                "ari": history.rounds[-1].ari,
                "bytes_up": history.bytes_up,
                "bytes_down": history.bytes_down,
                "cpu_seconds": time.process_time() - begun,
            }
        )
        self.curves += [{"system": spec.text, "seed": seed} | record._asdict() for record in history.rounds]

    def _choose(
        self,
        seed: int,
        clients: list[ClientData],
        labels: IntArray,
        spec: Spec,
        item: type[System],
        stop: Callable[[], bool],
        meter: Meter | None,
    ) -> float | None:
        run = self.run
        assert run.lams is not None
        rounds = min(run.warm_up, run.rounds)

        def each(lam: float, record: Round) -> bool:
            if meter is not None:
                words = f"{spec.text}, seed {seed}, warm-up at lam {lam:g}"
                meter.rounds(words, record.round, rounds, record.seconds)
            return stop()

        try:
            choice = choose_lam(
                lambda lam: self._make(spec, item, labels, lam),
                clients,
                run.lams,
                rounds=rounds,
                participation=self._share(spec),
                random_state=seed,
                model=self.model,
                n_threads=run.n_threads,
                callback=each,
            )
        except KeyboardInterrupt:
            if not stop():
                raise
            return None
        columns = {name: getattr(choice, name).tolist() for name in LamChoice._fields[1:-1]}
        for k, lam in enumerate(choice.lams.tolist()):
            told = {"system": spec.text, "seed": seed, "lam": lam}
            told |= {name: column[k] for name, column in columns.items()}
            self.warm_ups.append(told | {"chosen": lam == choice.chosen})
        return choice.chosen

    def content(self, head: dict[str, Any]) -> SimulateContent:
        run = self.run
        facts = [
            ("data", run.data),
            ("seeds", ", ".join(map(str, run.seeds))),
            ("rounds", str(run.rounds)),
            ("participation", f"{run.participation:g}"),
            ("model", run.model.text),
        ]
        if self.warm_ups:
            grid = ", ".join(f"{lam:g}" for lam in run.lams or ())
            facts.append(("lam", f"by a warm-up of {min(run.warm_up, run.rounds)} rounds over {grid}"))
        return BenchContent(
            **head,
            facts=facts,
            rows=self.rows,
            curves=self.curves,
            warm_ups=self.warm_ups,
            classes={spec.text: item.__name__ for spec, item in zip(run.specs, self.classes, strict=True)},
            # The paper's numbers stand beside the paper's own data only.
            is_paper=self.data.source == "fpfcsynthetic" and self.data.is_plain,
        )

    def missing(self) -> str:
        """What was not run to its end."""
        whole = sum(row["rounds"] == self.run.rounds for row in self.rows)
        total = len(self.run.specs) * len(self.run.seeds)
        return "" if whole == total else f"Only {whole} of {_count(total, 'run')} were finished."

    @property
    def fine(self) -> bool:
        return all(math.isfinite(row["loss"]) for row in self.rows)


def appendix_c(lam: float = _PAPER_LAM, **options: Any) -> FusionProblem:
    """The problem of Appendix C of Armacki et al.: squared hinge on three ellipses, ridge 0.001 on w.

    Parameters
    ----------
    lam : float
        Canonical.
    options
        Of `datasets.make_ellipses`, instead of those recorded for the paper's figure.
    """
    from fusionopt.losses import SquaredHinge
    from fusionopt.problem import FusionProblem

    clients, _ = datasets.make_ellipses(**(APPENDIX_C | options))
    loss = SquaredHinge([c.x_train for c in clients], [c.y_train for c in clients], ridge=1e-3)
    return FusionProblem(loss, lam=lam)


def paper_settings(rounds: int, **options: Any) -> PdmmSettings:
    """PDMM as Appendix C runs it: the paper's steps, and a look at F every 50 of `rounds` iterations."""
    from fusionopt.settings import PdmmSettings

    fixed = {"eps_rel": 0.0, "max_iter": rounds, "check_every": _EVERY}
    return PdmmSettings(**(_PAPER_STEPS | options | fixed))


class Followed(NamedTuple):
    """result; iterations and gaps : at each look, F(x_t) - F*."""

    result: Result
    iterations: IntArray
    gaps: FloatArray


def follow_pdmm(
    problem: FusionProblem,
    settings: PdmmSettings,
    best: float,
    callback: Callable[[Progress], bool] | None = None,
) -> Followed:
    """PDMM's way to the optimum ``best``."""
    import warnings

    from fusionopt.solver import solve

    with warnings.catch_warnings():
        # What the literal scheme warns of is what the figure shows.
        warnings.simplefilter("ignore", RuntimeWarning)
        result = solve(problem, settings, callback=callback)
    # The last iteration is there twice: as it is, and with its clusters' centres solved for.
    iterations, first = np.unique(result.trace["iteration"], return_index=True)
    gaps = np.asarray(result.trace["objective"], dtype=np.float64)[first] - best
    return Followed(result, iterations.astype(np.int64), gaps)


class _Convergence:
    """F(x_t) - F* of PDMM on the data of Appendix C of Armacki et al., F* from CVXPY."""

    def __init__(self, run: _Run) -> None:
        from fusionopt.settings import PdmmSettings

        self.run = run
        self.rows: list[dict[str, Any]] = []
        self.curves: list[dict[str, Any]] = []
        self.warm_ups: list[dict[str, Any]] = []
        self.ellipses = parse_spec(run.data)
        check_options("data", self.ellipses, datasets.make_ellipses)
        self.settings: list[tuple[Spec, float, PdmmSettings]] = []
        for spec in run.specs:
            if spec.name != "pdmm":
                _checks.refuse(
                    f"--data {CONVERGENCE} is the convergence experiment of PDMM, and {spec.text!r} is not pdmm; "
                    "give another --data, or pdmm with settings.",
                    argument="systems",
                    got=spec.text,
                    wanted="pdmm",
                )
            check_options("systems", spec, PdmmSettings, "lam")
            options = dict(spec.options)
            lam = _checks.as_nonnegative_scalar("lam", options.pop("lam", _PAPER_LAM))
            self.settings.append((spec, lam, paper_settings(run.rounds, **options)))
        self.words = f"{run.data}, {_count(run.rounds, 'iteration')}"

    def solve(self, stop: Callable[[], bool], meter: Meter | None) -> None:
        """Seed by seed; a seed draws both the data and the users of each iteration."""
        from fusionopt import reference
        from fusionopt.settings import AdmmSettings
        from fusionopt.solver import solve

        best: dict[tuple[int, float], float] = {}
        for seed in self.run.seeds:
            made = {"random_state": seed} | self.ellipses.options
            for spec, lam, settings in self.settings:
                if stop():
                    return
                problem = appendix_c(lam, **made)
                if (seed, lam) not in best:
                    found = reference.solve(problem).objective
                    # A second opinion on F*, with a certificate.
                    told = solve(problem, AdmmSettings(eps_rel=1e-12))
                    best[seed, lam] = min(found, told.objective)
                    self.rows.append(
                        {
                            "system": "F*",
                            "seed": seed,
                            "lam": lam,
                            "rounds": 0,
                            "objective": found,
                            "gap": told.objective - found,
                            "message": "CVXPY; gap: the certified solver's F less it",
                        }
                    )
                # CVXPY stops within its tolerance above the optimum.
                star = best[seed, lam]

                def each(progress: Any, text: str = spec.text, seed: int = seed, star: float = star) -> bool:
                    if meter is not None:
                        words = f"{text}, seed {seed}, F - F* {progress.objective - star:.1e}"
                        meter.rounds(words, progress.iteration, self.run.rounds, progress.elapsed)
                    return stop()

                begun = time.process_time()
                settings = dataclasses.replace(settings, random_state=seed)
                result, iterations, gaps = follow_pdmm(problem, settings, star, each)
                self.curves += [
                    {"system": spec.text, "seed": seed, "iteration": k, "gap": gap}
                    for k, gap in zip(iterations.tolist(), gaps.tolist(), strict=True)
                ]
                self.rows.append(
                    {
                        "system": spec.text,
                        "seed": seed,
                        "lam": lam,
                        "rounds": result.n_iter,
                        "objective": result.objective,
                        "gap": float(gaps[-1]),
                        "n_clusters": result.n_clusters,
                        "cpu_seconds": time.process_time() - begun,
                        "message": result.message,
                    }
                )

    def content(self, head: dict[str, Any]) -> SimulateContent:
        run = self.run
        facts = [
            (
                "data",
                f"{run.data}: 30 users with 170 of 200 points of three clusters, unless said otherwise",
            ),
            ("loss", "squared hinge, ridge 0.001 on w, intercept without"),
            ("seeds", ", ".join(map(str, run.seeds))),
            (
                "settings",
                ", ".join(f"{k} = {v:g}" for k, v in _PAPER_STEPS.items()) + ", unless said otherwise",
            ),
        ]
        return ConvergenceContent(**head, facts=facts, rows=self.rows, curves=self.curves)

    def missing(self) -> str:
        """What was not run to its end."""
        runs = [row for row in self.rows if row["system"] != "F*"]
        whole, total = (
            sum(row["rounds"] == self.run.rounds for row in runs),
            len(self.settings) * len(self.run.seeds),
        )
        return "" if whole == total else f"Only {whole} of {_count(total, 'run')} were finished."

    @property
    def fine(self) -> bool:
        return all(math.isfinite(row["objective"]) for row in self.rows)


def _write(job: _Bench | _Convergence, folder: ResultFolder, command: str, started: float) -> Outcome:
    told = versions()
    missing = job.missing()
    head = {
        "version": told["fusionopt"],
        "created": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
        "versions": told,
        "notes": [missing] if missing else [],
    }
    content = job.content(head)
    figures = []
    for figure, ax in content.draw():
        svg, png = plotting.figure_files(ax)
        folder.write_text(f"figures/{figure.name}.svg", plotting.on_white(svg))
        folder.write_bytes(f"figures/{figure.name}.png", png)
        figures.append(dataclasses.replace(figure, svg=svg))
    folder.write_text("report.html", content.render(figures))
    for name, rows in (("table", job.rows), ("curves", job.curves), ("warm_up", job.warm_ups)):
        if rows:
            header = list(dict.fromkeys(key for row in rows for key in row))
            folder.write_csv(f"{name}.csv", header, ([row.get(key, "") for key in header] for row in rows))
    summary = content.summary()
    folder.write_json(
        "results.json",
        {
            "fusionopt": told["fusionopt"],
            "command": command,
            "created": content.created,
            "versions": told,
            "facts": dict(content.facts),
            "rows": job.rows,
            "notes": content.notes,
        },
    )
    lines = [
        job.words,
        *content.notes,
        *summary,
        f"{time.monotonic() - started:.1f} s in all; tables, figures and report.html are in",
    ]
    return Outcome(folder.target, lines, job.fine, False)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"

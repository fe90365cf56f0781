"""The command line: ``fusionopt solve | path | recover | simulate | info``.

A data file goes in; a folder with results, figures and a report comes out, whole or not at all.
Exit codes: 0 every status optimal or stationary; 2 misuse; 3 tolerance not met, unbounded or numerical error
(what was reached is written); 130 interrupted (finished work is written).
"""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import numpy as np
import typer

from fusionopt import recover as recovering
from fusionopt import runs
from fusionopt import simulate as simulating
from fusionopt._checks import refuse
from fusionopt.errors import FusionoptError
from fusionopt.io import Table, read_table

OK, MISUSE, NOT_MET, INTERRUPTED, TERMINATED = 0, 2, 3, 130, 143

app = typer.Typer(
    name="fusionopt",
    add_completion=False,
    no_args_is_help=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Certified clustering of a table by convex fusion of its rows.",
)


class GraphKind(StrEnum):
    """Which pairs of rows are pulled together."""

    knn = "knn"
    complete = "complete"


class LossKind(StrEnum):
    """What a node loses."""

    squared_distance = "squared-distance"
    least_squares = "least-squares"
    logistic = "logistic"
    squared_hinge = "squared-hinge"


class Criterion(StrEnum):
    """How lam is chosen from a path."""

    plateau = "plateau"
    bic = "bic"
    ebic = "ebic"
    holdout = "holdout"
    stability = "stability"


class Events(StrEnum):
    """How merges and splits are told."""

    grid = "grid"
    locate = "locate"


class Tables(StrEnum):
    """Format of the tables written."""

    csv = "csv"
    parquet = "parquet"


Data = Annotated[Path, typer.Argument(help="Table: .csv, .parquet, .npy or .npz.", show_default=False)]
Out = Annotated[
    Path | None,
    typer.Option(help="Folder for the results [default: NAME-fusionopt here].", show_default=False),
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing result folder.")]
LabelsColumn = Annotated[
    str | None,
    typer.Option(help="Column with known labels, by name or index from 0; compared with, never used."),
]
Drop = Annotated[
    list[str] | None, typer.Option(help="Column to leave out, by name or index; may be repeated.")
]
Delimiter = Annotated[
    str | None, typer.Option(help="Of a .csv: one character, or tab, space [default: detected].")
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header", help="Whether the first line of a .csv names the columns [default: detected]."
    ),
]
Key = Annotated[str | None, typer.Option(help="Name of the array in a .npz file.")]
Standardise = Annotated[
    bool,
    typer.Option("--standardise", "--standardize", help="Give every column mean 0 and variance 1 first."),
]
GraphOption = Annotated[GraphKind, typer.Option(help="Pairs of rows: nearest neighbours, or all.")]
Neighbors = Annotated[int | None, typer.Option(help="For --graph knn [default: 10].", show_default=False)]
EpsRel = Annotated[float, typer.Option(help="Relative duality gap at which a solve ends.")]
MaxIter = Annotated[int, typer.Option(help="Limit of iterations for each lam.")]
TimeLimit = Annotated[float | None, typer.Option(help="Limit in seconds, for the whole run.")]
Progress = Annotated[
    bool | None,
    typer.Option("--progress/--no-progress", help="Progress on stderr [default: when it is a terminal]."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but the folder.")]


@app.callback()
def _root() -> None:
    """Keeps `solve` a subcommand however many there are."""


@app.command()
def solve(
    data: Data,
    lam: Annotated[float, typer.Option(help="Weight of the pair term.", show_default=False)],
    out: Out = None,
    force: Force = False,
    labels_column: LabelsColumn = None,
    drop: Drop = None,
    delimiter: Delimiter = None,
    header: Header = None,
    key: Key = None,
    standardise: Standardise = False,
    graph: GraphOption = GraphKind.knn,
    n_neighbors: Neighbors = None,
    eps_rel: EpsRel = 1e-6,
    max_iter: MaxIter = 20000,
    time_limit: TimeLimit = None,
    progress: Progress = None,
    quiet: Quiet = False,
) -> int:
    """Solve for one lam.

    Writes results, figures and a report into a folder.
    """
    return _run(
        runs.Request(
            data=data,
            out=out,
            force=force,
            labels_column=labels_column,
            drop=tuple(drop or ()),
            delimiter=delimiter,
            header=header,
            key=key,
            standardise=standardise,
            graph=graph.value,
            n_neighbors=n_neighbors,
            lam=lam,
            eps_rel=eps_rel,
            max_iter=max_iter,
            time_limit=time_limit,
        ),
        progress,
        quiet,
    )


@app.command()
def path(
    data: Data,
    out: Out = None,
    force: Force = False,
    labels_column: LabelsColumn = None,
    drop: Drop = None,
    delimiter: Delimiter = None,
    header: Header = None,
    key: Key = None,
    standardise: Standardise = False,
    graph: GraphOption = GraphKind.knn,
    n_neighbors: Neighbors = None,
    n_lams: Annotated[int, typer.Option(help="Values of lam, spaced evenly in log lam.")] = 100,
    lam_min_ratio: Annotated[float, typer.Option(help="Smallest over largest lam.")] = 1e-3,
    lams: Annotated[
        str | None,
        typer.Option(help="Values of lam, separated by commas, instead of a grid.", show_default=False),
    ] = None,
    events: Annotated[
        Events,
        typer.Option(help="Merges and splits by the grid step they fall into, or each at its own lam."),
    ] = Events.grid,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Folder that keeps each finished lam: the same command goes on there.", show_default=False
        ),
    ] = None,
    select: Annotated[
        Criterion, typer.Option(help="How the lam shown in full is chosen.")
    ] = Criterion.plateau,
    n_repeats: Annotated[int, typer.Option(min=2, help="Paths solved again for holdout and stability.")] = 20,
    random_state: Annotated[int, typer.Option(min=0, help="Seed of holdout and stability.")] = 0,
    tables: Annotated[Tables, typer.Option(help="Format of the tables; parquet needs pyarrow.")] = Tables.csv,
    eps_rel: EpsRel = 1e-6,
    max_iter: MaxIter = 20000,
    time_limit: TimeLimit = None,
    progress: Progress = None,
    quiet: Quiet = False,
) -> int:
    """Solve for a range of lam and choose one.

    Writes results, figures and a report into a folder, whose path is printed last.
    """
    return _run(
        runs.Request(
            data=data,
            out=out,
            force=force,
            labels_column=labels_column,
            drop=tuple(drop or ()),
            delimiter=delimiter,
            header=header,
            key=key,
            standardise=standardise,
            graph=graph.value,
            n_neighbors=n_neighbors,
            lam=None,
            n_lams=n_lams,
            lam_min_ratio=lam_min_ratio,
            lams=_as_lams(lams),
            events=events.value,
            checkpoint=checkpoint,
            criterion=select.value,
            n_repeats=n_repeats,
            random_state=random_state,
            tables=tables.value,
            eps_rel=eps_rel,
            max_iter=max_iter,
            time_limit=time_limit,
        ),
        progress,
        quiet,
    )


@app.command()
def recover(
    data: Data,
    labels: Annotated[
        str,
        typer.Option(
            "--labels",
            "--labels-column",
            help="Column with the known groups, by name or index.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results [default: NAME-recover here].", show_default=False),
    ] = None,
    force: Force = False,
    drop: Drop = None,
    delimiter: Delimiter = None,
    header: Header = None,
    key: Key = None,
    standardise: Standardise = False,
    graph: Annotated[
        GraphKind | None,
        typer.Option(
            help="Pairs of nodes [default: knn for rows, complete for --groups].", show_default=False
        ),
    ] = None,
    n_neighbors: Neighbors = None,
    loss: Annotated[
        LossKind, typer.Option(help="squared-distance: rows are nodes. Others: --groups are nodes.")
    ] = LossKind.squared_distance,
    groups: Annotated[
        str | None, typer.Option(help="Column that tells the node of each row.", show_default=False)
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Column that each node's model predicts.", show_default=False)
    ] = None,
    ridge: Annotated[float, typer.Option(help="Ridge of the losses of samples.")] = 1e-3,
    n_lams: Annotated[int, typer.Option(help="Values of lam along the path.")] = 40,
    pair: Annotated[
        tuple[int, int] | None,
        typer.Option(
            help="Two nodes, from 0: why are they together?  [default: the most loosely tied]",
            show_default=False,
        ),
    ] = None,
    eps_rel: EpsRel = 1e-8,
    time_limit: TimeLimit = None,
    progress: Progress = None,
    quiet: Quiet = False,
) -> int:
    """For which lam are known groups recovered, and how sure is it?

    Writes intervals of lam, accuracies, forces on the edges, figures and a report into a folder.
    """
    return _run(
        recovering.RecoverRequest(
            data=data,
            out=out,
            force=force,
            labels_column=labels,
            drop=tuple(drop or ()),
            delimiter=delimiter,
            header=header,
            key=key,
            standardise=standardise,
            graph=None if graph is None else graph.value,
            n_neighbors=n_neighbors,
            loss=loss.value,
            groups=groups,
            target=target,
            ridge=ridge,
            n_lams=n_lams,
            pair=pair,
            eps_rel=eps_rel,
            time_limit=time_limit,
        ),
        progress,
        quiet,
    )


@app.command()
def simulate(
    systems: Annotated[
        list[str],
        typer.Argument(
            metavar="SYSTEM...",
            help="Names, each with its settings after a colon: fedavg ifca:n_clusters=4 fpfc:lam=0.7,nu=0.5. "
            "fpfc alone, or pdmm alone, is the experiment of its paper.",
            show_default=False,
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            help="Generator of clients, with its settings after a colon: ellipses:n_users=5, or appendix-c, on "
            "which pdmm is followed towards the optimum [default: fpfc-synthetic].",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Seeds of data and runs, separated by commas [default: 0].", show_default=False),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds of each run [default: 100].", show_default=False)
    ] = None,
    participation: Annotated[
        float | None,
        typer.Option(help="Share of the clients in a round [default: 1].", show_default=False),
    ] = None,
    lams: Annotated[
        str | None,
        typer.Option(
            help="Values of lam, separated by commas, from which a warm-up on held-out training rows chooses for "
            "each system that has a lam and is given none.",
            show_default=False,
        ),
    ] = None,
    warm_up: Annotated[int, typer.Option(min=1, help="Rounds of the warm-up for each lam.")] = 300,
    model: Annotated[
        str | None,
        typer.Option(
            help="What is trained: softmax, linear, logistic, squaredhinge, mnist-cnn; settings after a colon "
            "[default: softmax].",
            show_default=False,
        ),
    ] = None,
    evaluate_every: Annotated[
        int | None,
        typer.Option(
            min=1, help="Rounds between two measurements on the test rows [default: 1].", show_default=False
        ),
    ] = None,
    n_threads: Annotated[
        int, typer.Option(min=1, help="Threads, for networks processes; the same bits for any number.")
    ] = 1,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Folder that keeps each run as far as it is: the same command goes on there.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results [default: simulate-NAME here].", show_default=False),
    ] = None,
    force: Force = False,
    time_limit: TimeLimit = None,
    progress: Progress = None,
    quiet: Quiet = False,
) -> int:
    """Run federated systems on the same clients.

    Writes a table, curves, figures and a report into a folder.
    """
    return _run(
        simulating.SimulateRequest(
            systems=tuple(systems),
            data=data,
            seeds=_as_seeds(seeds),
            rounds=rounds,
            participation=participation,
            lams=_as_lams(lams),
            warm_up=warm_up,
            model=model,
            evaluate_every=evaluate_every,
            n_threads=n_threads,
            checkpoint=checkpoint,
            out=out,
            force=force,
            time_limit=time_limit,
        ),
        progress,
        quiet,
    )


@app.command()
def info(
    data: Annotated[
        Path | None, typer.Argument(help="Table: .csv, .parquet, .npy or .npz.", show_default=False)
    ] = None,
    labels_column: LabelsColumn = None,
    drop: Drop = None,
    delimiter: Delimiter = None,
    header: Header = None,
    key: Key = None,
) -> int:
    """Tell about this installation, or a table.

    For a table: its shape, ranges and duplicates, and commands to try.
    """
    if data is None:
        typer.echo("\n".join(f"{name}: {value}" for name, value in runs.versions().items()))
        return OK
    table = read_table(data, labels_column, delimiter, header, key=key, drop_columns=tuple(drop or ()))
    typer.echo("\n".join(describe(table)))
    return OK


def describe(table: Table) -> list[str]:
    """Lines about a table: shape, columns, duplicates, and commands to try."""
    values = table.values
    n, d = values.shape
    distinct = len(np.unique(values, axis=0))
    lines = [f"{table.source.name}: {n} rows, {d} columns", *table.notes]
    if table.labels is not None:
        names, counts = np.unique(table.labels, return_counts=True)
        listed = ", ".join(f"{name} ({count})" for name, count in zip(names[:12], counts[:12], strict=True))
        lines.append(
            f"labels {table.labels_name!r}: {len(names)} values: {listed}{', ...' if len(names) > 12 else ''}"
        )
    lines.append(f"duplicate rows: {n - distinct}" if distinct < n else "no duplicate rows")
    shown = min(d, 30)
    width = max(len(name) for name in table.column_names[:shown])
    lines.append("")
    lines.append(f"{'column':<{max(width, 6)}}  {'min':>12} {'mean':>12} {'max':>12} {'distinct':>9}")
    for name, column in zip(table.column_names[:shown], values.T, strict=False):
        numbers = (
            f"{column.min():>12.6g} {column.mean():>12.6g} {column.max():>12.6g} {len(np.unique(column)):>9}"
        )
        lines.append(f"{name:<{max(width, 6)}}  {numbers}")
    if shown < d:
        lines.append(f"... and {d - shown} more columns")
    return [*lines, "", *_suggestions(table)]


def _suggestions(table: Table) -> list[str]:
    values = table.values
    spread = np.ptp(values, axis=0)
    lines = ["commands to try:"]
    arguments = [str(table.source)]
    if table.labels_name is not None:
        arguments += ["--labels-column", table.labels_name]
    varying = spread[spread > 0]
    if len(varying) > 1 and float(varying.max()) > 3.0 * float(varying.min()):
        arguments.append("--standardise")
        lines.insert(
            0,
            f"The widest column spans {varying.max() / varying.min():.3g} times the narrowest: "
            "--standardise.",
        )
    lines.append("  " + shlex.join(["fusionopt", "path", *arguments]))
    lines += [
        f"  Column {name!r} has {len(np.unique(column))} whole values; if it holds known labels: "
        f"--labels-column {shlex.quote(name)}"
        for name, column in zip(table.column_names, values.T, strict=True)
        if table.labels is None and _may_be_labels(name, column)
    ]
    return lines


def _may_be_labels(name: str, column: np.ndarray[tuple[int], np.dtype[np.float64]]) -> bool:
    telling = name.strip().lower() in (
        "class",
        "label",
        "labels",
        "target",
        "y",
        "species",
        "type",
        "cluster",
        "group",
    )
    whole = bool(np.all(column == np.round(column)))
    return whole and 2 <= len(np.unique(column)) <= min(20, len(column) // 3) and telling


def _as_lams(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        refuse(
            f"--lams {text!r} is not a list of numbers; give for example --lams 0.1,0.5,2.",
            argument="lams",
            got=text,
            wanted="numbers separated by commas",
        )


def _as_seeds(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts) or len(set(parts)) < len(parts):
        refuse(
            f"--seeds {text!r} is not a list of different whole numbers from 0 on; give for example --seeds 1,2,3.",
            argument="seeds",
            got=text,
            wanted="whole numbers separated by commas",
        )
    return tuple(int(part) for part in parts)


_Request = runs.Request | recovering.RecoverRequest | simulating.SimulateRequest


def _run(request: _Request, progress: bool | None, quiet: bool) -> int:
    show = not quiet and (sys.stderr.isatty() if progress is None else progress)
    meter = runs.Meter(sys.stderr) if show else None
    try:
        command = shlex.join(["fusionopt", *_ARGV])
        if isinstance(request, recovering.RecoverRequest):
            outcome = recovering.run_recover(request, command, meter)
        elif isinstance(request, simulating.SimulateRequest):
            outcome = simulating.run_simulate(request, command, meter)
        else:
            outcome = runs.run(request, command=command, meter=meter)
    except KeyboardInterrupt:
        typer.echo("fusionopt: interrupted; nothing was written", err=True)
        return INTERRUPTED
    if not quiet:
        typer.echo("\n".join(outcome.summary))
    typer.echo(str(outcome.folder))
    if outcome.interrupted:
        return INTERRUPTED
    return OK if outcome.converged else NOT_MET


# What the user typed, for the report; set by `main` because Typer does not hand it to commands.
_ARGV: list[str] = []


def _terminate(signum: int, frame: FrameType | None) -> NoReturn:
    sys.exit(TERMINATED)  # unwinds the stack, so that a half-written folder is removed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; ``sys.argv[1:]`` when None.

    Returns
    -------
    int
        The exit code.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    _ARGV[:] = arguments
    try:
        previous = signal.signal(signal.SIGTERM, _terminate)
    except ValueError:  # not the main thread
        previous = None
    try:
        if not arguments:
            arguments = ["--help"]
        elif arguments == ["--version"]:
            arguments = ["info"]
        code = app(arguments, prog_name="fusionopt", standalone_mode=False)
        return code if isinstance(code, int) else OK
    except KeyboardInterrupt:
        print("fusionopt: interrupted; nothing was written", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stdout = None  # the reader is gone; keep the exit from complaining
        return OK
    except FusionoptError as error:
        print(f"fusionopt: {error}", file=sys.stderr)
        return MISUSE
    except OSError as error:
        print(f"fusionopt: the results could not be written: {error}", file=sys.stderr)
        return 1
    except Exception as error:
        # Typer's usage errors: their class has moved between versions, the method has not.
        worded = getattr(error, "format_message", None)
        if worded is None:
            raise
        print(f"fusionopt: {str(worded()).rstrip(chr(46))}. See: fusionopt --help", file=sys.stderr)
        return MISUSE
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)


if __name__ == "__main__":
    sys.exit(main())

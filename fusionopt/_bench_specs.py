"""What the command line calls systems and data: NAME:key=value,key=value, and steps joined by +."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks, datasets
from fusionopt.datasets import ClientData

if TYPE_CHECKING:
    from fusionopt.federated import Model, System

IntArray = NDArray[np.int64]


SOURCES = (
    "load_digits", "load_mnist", "make_conflict", "make_ellipses", "make_fedsoft_synthetic", "make_fpfc_synthetic",
    "make_xor",
)  # fmt: skip
STEPS = ("label_swap", "permute_labels", "rotate", "split_dirichlet", "split_evenly", "split_imbalanced")


class Spec(NamedTuple):
    """As typed; the name in small letters without - and _; the settings."""

    text: str
    name: str
    options: dict[str, Any]


def parse_spec(text: str) -> Spec:
    """NAME, or NAME:key=value,key=value; values are numbers, True, False, None, or words.

    Raises
    ------
    InvalidArgumentError
        A part without "=".

    Examples
    --------
    >>> parse_spec("Fed-Avg").name, parse_spec("ifca:n_clusters=4").options
    ('fedavg', {'n_clusters': 4})
    """
    name, _, rest = text.partition(":")
    options: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, equal, value = part.partition("=")
        if not equal or not key.strip():
            _checks.refuse(
                f"{text!r}: {part!r} is no setting; give NAME:key=value,key=value, for instance ifca:n_clusters=4.",
                argument="systems",
                got=part,
                wanted="key=value",
            )
        try:
            options[key.strip()] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            options[key.strip()] = value.strip()
    return Spec(text, plain(name), options)


def plain(name: str) -> str:
    """Small letters, no - and _."""
    return name.strip().replace("-", "").replace("_", "").lower()


def takes(item: Callable[..., Any], name: str) -> bool:
    """Whether a function or class has a parameter of this name."""
    return name in inspect.signature(item).parameters


def check_options(argument: str, spec: Spec, item: Callable[..., Any], *also: str) -> None:
    """Refuse settings that a function or class does not have; `also` are allowed beside its own."""
    known = [*also, *inspect.signature(item).parameters]
    unknown = [key for key in spec.options if key not in known]
    if unknown:
        _checks.refuse(
            f"{spec.text!r}: {unknown[0]!r} is no setting of it; its settings are {', '.join(known)}.",
            argument=argument,
            got=unknown[0],
            wanted="a setting",
        )


def pick(argument: str, spec: Spec, known: dict[str, Any], also: Sequence[str] = ()) -> Any:
    """The item of `known` that a spec names; `also` are listed beside them when it names none."""
    for name, item in known.items():
        if plain(name) == spec.name:
            return item
    _checks.refuse(
        f"{spec.text!r} is unknown; give one of {', '.join(sorted([*known, *also]))}.",
        argument=argument,
        got=spec.text,
        wanted="one of those",
    )


def _federated(base: str) -> dict[str, Any]:
    from fusionopt import federated

    kind = getattr(federated, base)
    found = [getattr(federated, name) for name in federated.__all__]
    return {
        item.__name__: item
        for item in found
        if inspect.isclass(item) and issubclass(item, kind) and not inspect.isabstract(item)
    }


def systems() -> dict[str, type[System]]:
    """The systems of `fusionopt.federated` by the names of the command line."""
    return {name.lower(): item for name, item in _federated("System").items()}


def models() -> dict[str, Callable[..., Model]]:
    """Its models likewise; of networks the one that needs no Python to be named."""
    from fusionopt.federated import TorchModel

    found = {name.removesuffix("Model").lower(): item for name, item in _federated("Model").items()}
    return {name: item for name, item in found.items() if item is not TorchModel} | {"mnist-cnn": _mnist_cnn}


def _mnist_cnn(dtype: str = "float32") -> Model:
    from fusionopt.federated import TorchModel, mnist_cnn

    return TorchModel(mnist_cnn, shape=(1, 28, 28), dtype=dtype)


def sources() -> dict[str, Callable[..., Any]]:
    """What makes clients, or loads one data set to be dealt out."""
    return {name.partition("_")[2].replace("_", "-"): getattr(datasets, name) for name in SOURCES}


def steps() -> dict[str, Callable[..., Any]]:
    """What deals a data set out to clients, or changes clients."""
    return {name.replace("_", "-"): getattr(datasets, name) for name in STEPS}


class DataPlan:
    """SOURCE, or SOURCE+STEP+STEP: clients with known clusters from a seed.

    Parameters
    ----------
    text : str
        For instance ``digits+split-dirichlet:n_clients=8,alpha=1+label-swap``.
    also : sequence of str
        Names that are listed beside the sources when the first is unknown.

    Raises
    ------
    InvalidArgumentError
        An unknown name or setting.
    """

    def __init__(self, text: str, also: Sequence[str] = ()) -> None:
        self.text = text
        parts = [parse_spec(part.strip()) for part in text.split("+")]
        self._calls = [(parts[0], pick("data", parts[0], sources(), also))]
        self._calls += [(spec, pick("data", spec, steps())) for spec in parts[1:]]
        for spec, item in self._calls:
            check_options("data", spec, item)
        first, item = self._calls[0]
        needed = [
            name
            for name, parameter in inspect.signature(item).parameters.items()
            if parameter.default is inspect.Parameter.empty and name not in first.options
        ]
        if needed:
            _checks.refuse(
                f"{first.text!r} needs {needed[0]}; give {first.text}:{needed[0]}=...",
                argument="data",
                got=first.text,
                wanted=needed[0],
            )

    @property
    def is_plain(self) -> bool:
        """One source as it is by default."""
        return len(self._calls) == 1 and not self._calls[0][0].options

    @property
    def source(self) -> str:
        """The name of the source."""
        return self._calls[0][0].name

    def make(self, seed: int) -> tuple[list[ClientData], IntArray]:
        """The clients and their clusters; one cluster where the data know of none.

        Raises
        ------
        InvalidArgumentError, InvalidTypeError
            A setting that its function refuses; a data set that is not dealt out.
        """
        made: Any = None
        labels: IntArray | None = None
        for k, (spec, item) in enumerate(self._calls):
            options = dict(spec.options)
            if takes(item, "random_state"):
                options.setdefault("random_state", seed)
            made = item(**options) if k == 0 else item(made, **options)
            # A record is a tuple too.
            if isinstance(made, tuple) and not isinstance(made, ClientData):
                made, told = made[0], np.asarray(made[1])
                # Shares of distributions: the largest.
                labels = told.argmax(axis=1) if told.ndim == 2 else told
        if isinstance(made, ClientData):
            _checks.refuse(
                f"--data {self.text} is one data set; deal it out, for instance "
                f"{self.text}+split-dirichlet:n_clients=20.",
                argument="data",
                got=self.text,
                wanted="clients",
            )
        return list(made), np.zeros(len(made), dtype=np.int64) if labels is None else labels.astype(np.int64)

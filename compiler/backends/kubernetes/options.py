"""The options of `target "kubernetes"`: what a cluster is told that no other target needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

from parlay.compiler.backends.kubernetes import names
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic, error
from parlay.dsl.nearest import nearest

VERSION: Final = "B351"
UNKNOWN: Final = "B352"
UNFIT: Final = "B353"
PLACE: Final = "target.kubernetes.options."

VERSIONS: Final = ("2.2", "2.3", "2.4")
"""Of Kubeflow Trainer: 2.2 is the first with `runtimePatches` and `activeDeadlineSeconds`."""

ENTRIES: Final = ("torch", "megatron", "deepspeed")
"""The targets whose code a job may start."""

RESERVED: Final = (
    "PET_NNODES",
    "PET_NPROC_PER_NODE",
    "PET_NODE_RANK",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
)
"""What the Trainer itself tells torchrun; it refuses a job that sets one."""

_QUANTITY: Final = re.compile(r"\d{1,15}(\.\d{1,9})?(m|k|[KMGTPE]i?)?", re.ASCII)
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,499}", re.ASCII)
_PATH: Final = re.compile(r"(/[A-Za-z0-9._-]+)+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options with their defaults; what is None is left to the cluster."""

    entry: str | None = None
    image: str | None = None
    namespace: str | None = None
    runtime: str = "torch-distributed"
    runtime_kind: str = "ClusterTrainingRuntime"
    claim: str | None = None
    workspace: str = "/workspace"
    deadline: int | None = None
    queue: str | None = None
    gpu: str | None = None
    resources: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[str, ...] = ()
    service_account: str | None = None
    pull_secret: str | None = None


def options_of(phase: Phase) -> Options:
    """The options as the file gives them; those that are unfit keep their defaults."""
    found = {n: read for n, value in _given(phase).items() if (read := _read(n, value)) is not None}
    return Options(**found)


def entries_of(options: Options, beside: Sequence[str] = ()) -> tuple[str, ...]:
    """The entry points: as the file names one, else those asked for beside this, else torch."""
    if options.entry is not None:
        return (options.entry,)
    return tuple(entry for entry in ENTRIES if entry in beside) or ("torch",)


def refusals_of_options(phase: Phase) -> Iterator[Diagnostic]:
    """An error for a version, an option or a value that is not known."""
    target = phase.targets.get("kubernetes")
    written = target.version if target else None
    if written is not None and written not in VERSIONS:
        span = phase.origins.span("target.kubernetes.version")
        known = ", ".join(f'"{version}"' for version in VERSIONS)
        said = f'Kubeflow Trainer "{written}" is not known'
        yield error(VERSION, said, span, "another version", help=[f"known are {known}"])
    for name, value in _given(phase).items():
        span = phase.origins.span(PLACE + name)
        if name not in READERS:
            meant = [f"`{each}`" for each in nearest(name, list(READERS))]
            help = [f"did you mean {meant[0]}?"] if meant else [f"there are {', '.join(READERS)}"]
            yield error(UNKNOWN, f"no option is called {name}", span, "not known", help=help)
        elif _read(name, value) is None:
            said = f"`{name}` has a value that Kubernetes does not take"
            yield error(UNFIT, said, span, "not taken", help=[f"it is {READERS[name][1]}"])


def _given(phase: Phase) -> Mapping[str, Any]:
    target = phase.targets.get("kubernetes")
    return (target.options if target else None) or {}


def _read(name: str, value: Any) -> Any:
    """The value of an option as `Options` holds it; None for what is unknown or unfit."""
    reader = READERS.get(name)
    return None if reader is None else reader[0](value)


# ── Readers: a value, or None for what is unfit ───────────────────────────────


def _text(fits: Callable[[str], bool]) -> Callable[[Any], str | None]:
    return lambda value: value if isinstance(value, str) and fits(value) else None


def _one_of(*words: str) -> Callable[[Any], str | None]:
    return _text(lambda text: text in words)


def _pairs(
    key: Callable[[str], bool], value: Callable[[str], bool]
) -> Callable[[Any], dict[str, str] | None]:
    """`["NAME=VALUE", …]`, each name once."""

    def read(given: Any) -> dict[str, str] | None:
        items = given if isinstance(given, tuple) else (given,)
        found: dict[str, str] = {}
        for item in items:
            name, equals, text = item.partition("=") if isinstance(item, str) else ("", "", "")
            if not equals or name in found or not key(name) or not value(text):
                return None
            found[name] = text
        return found

    return read


def _list(fits: Callable[[str], bool]) -> Callable[[Any], tuple[str, ...] | None]:
    def read(given: Any) -> tuple[str, ...] | None:
        items = given if isinstance(given, tuple) else (given,)
        return items if all(isinstance(item, str) and fits(item) for item in items) else None

    return read


def _seconds(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 < value < 1 << 63 else None


def _folder(text: str) -> bool:
    return _PATH.fullmatch(text) is not None and ".." not in PurePosixPath(text).parts


def _variable(name: str) -> bool:
    return _VARIABLE.fullmatch(name) is not None and name not in RESERVED


READERS: Final[Mapping[str, tuple[Callable[[Any], Any], str]]] = {
    "entry": (_one_of(*ENTRIES), f"one of {', '.join(ENTRIES)}: the target whose code is started"),
    "image": (_text(lambda text: _IMAGE.fullmatch(text) is not None), "the name of an image"),
    "namespace": (_text(names.label), "a DNS label: lower-case letters, digits, `-`"),
    "runtime": (_text(names.subdomain), "the name of a training runtime"),
    "runtime_kind": (
        _one_of("ClusterTrainingRuntime", "TrainingRuntime"),
        "ClusterTrainingRuntime or TrainingRuntime",
    ),
    "claim": (_text(names.subdomain), "the name of a PersistentVolumeClaim"),
    "workspace": (_text(_folder), "an absolute path of plain letters: where the claim is mounted"),
    "deadline": (_seconds, "a time of whole seconds, `12h`"),
    "queue": (_text(names.label_value), "the name of a LocalQueue of Kueue"),
    "gpu": (_text(names.qualified), "the resource that counts GPUs, `nvidia.com/gpu`"),
    "resources": (
        _pairs(names.qualified, lambda text: _QUANTITY.fullmatch(text) is not None),
        'a list of "NAME=QUANTITY" for each node, `["rdma/ib=1", "cpu=96"]`',
    ),
    "env": (_pairs(_variable, str.isprintable), 'a list of "NAME=VALUE" without PET_* of torchrun'),
    "node_selector": (_pairs(names.qualified, names.label_value), 'a list of "LABEL=VALUE"'),
    "tolerations": (_list(names.qualified), "a list of the keys of taints"),
    "service_account": (_text(names.subdomain), "the name of a ServiceAccount"),
    "pull_secret": (_text(names.subdomain), "the name of a Secret"),
}
"""Option -> how it is read, and what it is."""

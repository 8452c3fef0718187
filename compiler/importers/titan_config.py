"""Where a torchtitan job is written: a function of Python that returns it, or the older TOML."""

from __future__ import annotations

import ast
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from parlay.compiler.backends.torchtitan.options import NEWEST, sections
from parlay.compiler.importers.folder import within
from parlay.compiler.importers.hf import LARGEST, Unreadable
from parlay.compiler.importers.python_calls import Called, Module, shown

READ: Final = (
    "model_spec",
    "loss",
    "hf_assets_path",
    "optimizer",
    "lr_scheduler",
    "dataloader",
    "activation_checkpoint",
    "tokenizer",
)
"""Parts of a job that are no sections of plain settings, and are read."""

_DEEPEST: Final = 8


@dataclass(slots=True)
class Given:
    """A job: its parts as keywords of `config`, the call that names its model, and the rest.

    `hints` are texts that may name the family of the model, the surest first.
    """

    name: str
    config: Called
    registry: Called | None = None
    module: Module = field(default_factory=lambda: Module(ast.Module([], [])))
    hints: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


def read(path: Path) -> tuple[Given, str]:
    """The job of a file, and its text; `FILE.py::NAME` takes the function of that name."""
    wanted = None
    if not path.exists() and "::" in path.name:
        name, _, wanted = path.name.rpartition("::")
        path = path.with_name(name)
    text = _text(within(path, "parlay_config.py") if path.is_dir() else path)
    if path.suffix == ".toml":
        return _of_toml(text), text
    try:
        tree = ast.parse(text)
        return _of_python(tree, path, wanted), text
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Unreadable("it is no Python") from None


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise Unreadable("it is no file" if path.exists() else "there is no such file")
        if path.stat().st_size > LARGEST:
            raise Unreadable(f"it is larger than {LARGEST // 1024} KiB")
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as failure:
        raise Unreadable(failure.strerror or "it cannot be read") from None


# ── Python ────────────────────────────────────────────────────────────────────


def _of_python(tree: ast.Module, path: Path, wanted: str | None) -> Given:
    """The job of the function of that name; else of `config`, else of the first with a model."""
    module = Module(tree)
    functions = {function.name: function for function in module.functions()}
    found = {
        name: given
        for name, function in functions.items()
        if (given := _of_function(module, functions, function)) is not None
    }
    if wanted is not None and wanted not in found:
        raise Unreadable(f"no function {wanted} in it returns Trainer.Config(…)")
    if not found:
        raise Unreadable("no function in it returns Trainer.Config(…)")

    def first(name: str) -> tuple[bool, bool]:
        flavour = flavour_of(found[name])
        return name != "config", flavour is None or str(flavour).startswith("debug")

    given = found[wanted or min(found, key=first)]
    if wanted is None and len(found) > 1:
        said = f"the job {given.name} of {len(found)}: {path.name}::NAME takes another"
        given.assumed.append(said)
    others = found.keys() - {given.name}
    body = [node for node in tree.body if getattr(node, "name", "") not in others]
    given.module = Module(ast.Module(body, []))
    given.hints = [
        _family(tree, path),
        given.name,
        str(given.config.keywords.get("hf_assets_path")),
    ]
    return given


def flavour_of(given: Given) -> Any:
    """What the model registry is asked for."""
    if given.registry is None:
        return None
    names = [*given.registry.arguments, given.registry.keywords.get("flavor")]
    return next((name for name in names if isinstance(name, str)), None)


def _family(tree: ast.Module, path: Path) -> str:
    """The package whose registry is asked: of an import, else the folder of the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(a.name == "model_registry" for a in node.names):
            return node.module or path.absolute().parent.name
    return path.absolute().parent.name


def _of_function(
    module: Module, functions: dict[str, ast.FunctionDef], function: ast.FunctionDef, depth: int = 0
) -> Given | None:
    """The job that a function returns, with what it changes of another's; None where it is none."""
    calls = list(module.calls(function))
    configs = [call for call in calls if call.name == "Trainer.Config"]
    registries = [call for call in calls if call.name == "model_registry"]
    if configs:
        given = Given(function.name, deepcopy(configs[-1]), module=module)
    else:
        bases = [
            call.name for call in calls if call.name in functions and call.name != function.name
        ]
        inner = (
            _of_function(module, functions, functions[bases[0]], depth + 1)
            if bases and depth < _DEEPEST
            else None
        )
        if inner is None or not any(isinstance(n, ast.Return) for n in ast.walk(function)):
            return None
        given = inner
        given.name = function.name
    given.registry = registries[-1] if registries else given.registry
    _change(module, function, given)
    return given


def _change(module: Module, function: ast.FunctionDef, given: Given) -> None:
    """Takes over `config.a.b = value`; what is done to the job otherwise is told."""
    parts = given.config.keywords
    for path, value, text in module.assignments(function):
        name, _, inner = path.partition(".")
        if name == "model_spec" and not inner and isinstance(value, Called):
            continue
        made = inner and isinstance(value, Called) and value.name != "float"
        if made or (name not in READ and name not in sections(NEWEST)):
            given.lost.append(text)
        elif not inner:
            parts[name] = value
        elif "." not in inner and isinstance(parts.setdefault(name, Called(name, {}, 0)), Called):
            parts[name].keywords[inner] = value
        else:
            given.lost.append(text)
    for node in function.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            given.lost.append(ast.unparse(node)[:300])


# ── TOML ──────────────────────────────────────────────────────────────────────

MOVED: Final = {
    "training.batch_size": "training.local_batch_size",
    "training.data_parallel_degree": "parallelism.data_parallel_shard_degree",
    "training.data_parallel_shard_degree": "parallelism.data_parallel_shard_degree",
    "training.data_parallel_replicate_degree": "parallelism.data_parallel_replicate_degree",
    "training.tensor_parallel_degree": "parallelism.tensor_parallel_degree",
    "training.compile": "compile.enable",
    "training.seed": "debug.seed",
    "training.deterministic": "debug.deterministic",
    "training.dataset": "dataloader.dataset",
    "training.dataset_path": "dataloader.dataset_path",
    "experimental.context_parallel_degree": "parallelism.context_parallel_degree",
    "experimental.pipeline_parallel_degree": "parallelism.pipeline_parallel_degree",
    "experimental.pipeline_parallel_schedule": "parallelism.pipeline_parallel_schedule",
    "checkpoint.enable_checkpoint": "checkpoint.enable",
    "lr_scheduler.lr_min": "lr_scheduler.min_lr_factor",
    "parallelism.enable_async_tensor_parallel": "compile.enable_async_tensor_parallel",
}
"""Keys of older files -> where they stand today."""


def _of_toml(text: str) -> Given:
    import tomllib

    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable("it is no TOML") from None
    given = Given("", Called("Trainer.Config", {}, 0))
    parts = given.config.keywords
    model = tables.pop("model", {})
    if not isinstance(model, dict) or not isinstance(model.get("flavor"), str):
        raise Unreadable("it names no flavor of a model")
    given.registry = Called("model_registry", {}, 0, [model.pop("flavor")])
    given.hints = [str(model.pop("name", "")), str(model.get("hf_assets_path", ""))]
    for name in ("tokenizer_path", "hf_assets_path"):
        if name in model:
            parts["hf_assets_path"] = model.pop(name)
    for path, value in _leaves({"model": model, **tables}, ""):
        section, _, name = MOVED.get(path, path).partition(".")
        if "." in name or section not in (*sections(NEWEST), *READ):
            given.lost.append(f"{path} = {shown(value)}")
        else:
            parts.setdefault(section, Called(section, {}, 0)).keywords[name] = value
    return given


def _leaves(tables: dict[str, Any], prefix: str, depth: int = 0) -> list[tuple[str, Any]]:
    out: list[tuple[str, Any]] = []
    for name, value in tables.items():
        if isinstance(value, dict) and depth < _DEEPEST:
            out += _leaves(value, f"{prefix}{name}.", depth + 1)
        else:
            out.append((f"{prefix}{name}", value))
    return out

"""What a rule is asked about: one phase, its values by path, its places, its layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from parlay.compiler.checks.degrees import degrees_hold
from parlay.compiler.layout import Layout, lay_out
from parlay.compiler.spec.blocks import Cluster, Model, Parallel, Spec, Target, Train
from parlay.compiler.spec.origins import Kind, Origins
from parlay.compiler.spec.schema import Derived, Setting, field_of, fields_of
from parlay.dsl.source import Span

LAYOUT: Final = "layout"
"""The path by which a rule says that it reads the layout."""
UNPLACED: Final = frozenset(
    (
        *("parallel.zero", "parallel.cp_method", "parallel.offload"),
        *("train.micro_batch", "train.recompute", "train.global_batch"),
    )
)
"""Fields that no layout follows from, of those that are tried with other values."""
WHOLE: Final = "whole"
"""The path by which a rule says that it reads more than it can list, as the ledger does."""


@dataclass(frozen=True)
class Subject:
    """One phase under check.

    `open` are the fields left to the planner; `editable` says whether fixes may change the text
    that a value stands in, and `searching` that nobody will read what is told: then rules leave
    suggestions out. `targets` are the file's `target` blocks by name; `before` is the phase whose
    checkpoint this one starts from.
    """

    spec: Spec
    origins: Origins
    open: Mapping[str, Any] = field(default_factory=dict)
    editable: bool = True
    targets: Mapping[str, Target] = field(default_factory=dict)
    searching: bool = False
    before: Subject | None = None

    # ── Values ────────────────────────────────────────────────────────────────

    def value(self, path: str) -> Any:
        """The value at a path of the language; None where it is missing, in error or open."""
        if path == LAYOUT:
            return self.layout
        if path == WHOLE:
            return self.whole or None
        if path == "cluster.gpus":
            return self.world
        at: Any = self.spec
        for name in path.split("."):
            if at is None:
                return None
            if isinstance(at, Setting):
                return at.get(name)
            schema = field_of(type(at), name)
            assert schema is not None, f"no field {path}"
            at = getattr(at, schema.attribute)
        return at

    @cached_property
    def _given(self) -> dict[str, bool]:
        """Whether the path has a value, once that was asked."""
        return {}

    def has(self, paths: tuple[str, ...]) -> bool:
        """Whether every one of `paths` has a value."""
        given = self._given  # a hundred rules ask for the same few
        for path in paths:
            if path not in given:
                given[path] = self.value(path) is not None
            if not given[path]:
                return False
        return True

    @property
    def whole(self) -> bool:
        """Whether every field has its value, as the ledger needs: none in error, none open."""
        model = self.spec.model
        # Derived, and None where heads do not divide the width.
        headless = model is not None and model.head_dim is None and model.mla is None
        if headless and model is not None and model.layers is not None:
            return False
        return not self.origins.broken and not self.open

    @cached_property
    def world(self) -> int | None:
        """The number of GPUs, where both factors are known."""
        nodes, gpus = self.value("cluster.nodes"), self.value("cluster.node.gpus")
        return None if nodes is None or gpus is None else nodes * gpus

    @cached_property
    def layout(self) -> Layout | None:
        """The layout; None where the degrees make no grid or the stages do not hold the layers."""
        return lay_out(self.spec) if degrees_hold(self) else None

    @cached_property
    def microbatches(self) -> int | None:
        """Microbatches of one step on one replica; None where the batch does not come out even."""
        if not self.has(("train.global_batch", "train.micro_batch", "parallel.dp")):
            return None
        number, rest = divmod(self.train.global_batch, self.train.micro_batch * self.parallel.dp)
        return number if number and not rest else None

    # ── Blocks that a rule has said it reads ──────────────────────────────────

    @property
    def parallel(self) -> Parallel:
        """The `parallel` block."""
        return self.spec.parallel

    @property
    def model(self) -> Model:
        """The `model` block, for rules that read it."""
        assert self.spec.model is not None
        return self.spec.model

    @property
    def cluster(self) -> Cluster:
        """The `cluster` block, for rules that read it."""
        assert self.spec.cluster is not None
        return self.spec.cluster

    @property
    def train(self) -> Train:
        """The `train` block, for rules that read it."""
        assert self.spec.train is not None
        return self.spec.train

    @property
    def laid_out(self) -> Layout:
        """The layout, for rules that read it."""
        assert self.layout is not None
        return self.layout

    # ── Places ────────────────────────────────────────────────────────────────

    def span(self, path: str) -> Span:
        """The place to point at for the value at `path`."""
        return self.origins.span(path)

    def label(self, path: str, words: str) -> tuple[Span, str]:
        """That place with `words` under it, and where the value came from if not written there."""
        return self.origins.label(path, words)

    def written(self, path: str) -> bool:
        """Whether the file itself gives the value."""
        return self.origins.kind(path) is Kind.FILE

    def derived(self, path: str) -> bool:
        """Whether the value follows from other fields."""
        return self.origins.kind(path) is Kind.DERIVED

    # ── Other layouts of the same job ─────────────────────────────────────────

    def admits(self, values: Mapping[str, Any]) -> bool:
        """Whether the file's `auto in […]` and `auto <= N` leave other `values`, by path."""
        for path, value in values.items():
            origin = self.origins.get(path)
            restricted = origin.restricted if origin else None
            if restricted is None:
                continue
            if restricted.choices is not None and value not in restricted.choices:
                return False
            if restricted.limit is not None and value > restricted.limit:
                return False
        return True

    def with_values(self, values: Mapping[str, Any]) -> Subject:
        """The same job with other values, by path; degrees that follow from them follow anew."""
        spec = self.spec
        for path, value in values.items():
            spec = _changed(spec, path.split("."), value)
        left = {path: open for path, open in self.open.items() if path not in values}
        changed = replace(self, spec=spec, open=left, searching=True)
        for schema in fields_of(Parallel):
            path = f"parallel.{schema.name}"
            default = schema.default
            if path in values or not isinstance(default, Derived) or not self.derived(path):
                continue
            read = [changed.value(path) for path in default.paths]
            known = all(value is not None for value in read)
            follows = default.function(*read) if known else None
            changed = replace(changed, spec=_changed(changed.spec, path.split("."), follows))
        if "layout" in self.__dict__ and UNPLACED.issuperset(values):
            changed.__dict__["layout"] = self.layout
        return changed


def _changed(block: Any, path: list[str], value: Any) -> Any:
    name, *rest = path
    if isinstance(block, Setting):
        return replace(block, options={**block.options, name: value})
    schema = field_of(type(block), name)
    assert schema is not None, f"no field {name}"
    below = _changed(getattr(block, schema.attribute), rest, value) if rest else value
    return replace(block, **{schema.attribute: below})

"""The choices that emitted code makes, one layout's: what exists, and how each piece is called.

Templates print what stands here; they decide nothing but whether a section is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parlay.compiler.backends.places import file_name, placer
from parlay.compiler.backends.render import Code
from parlay.compiler.backends.torch.plan import mesh_axes
from parlay.compiler.layout import Layout
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.source import Source

CUT = (
    ("embedding.weight", 0),
    ("q.weight", 0),
    ("k.weight", 0),
    ("v.weight", 0),
    ("o.weight", 1),
    ("gate.weight", 0),
    ("up.weight", 0),
    ("down.weight", 1),
    ("head.weight", 0),
)
WIDTH = 80


@dataclass(frozen=True, slots=True)
class Structure:
    """Which axes exist, in what order, and what else the code depends on; no sizes."""

    phase: Phase
    layout: Layout
    sources: Mapping[str, Source]
    axes: tuple[str, ...]

    @classmethod
    def of(cls, phase: Phase, layout: Layout, sources: Mapping[str, Source]) -> Structure:
        """The structure of a phase that the back end can express."""
        return cls(phase, layout, sources, mesh_axes(phase))

    @property
    def mesh(self) -> bool:
        """Whether there is more than one rank."""
        return bool(self.axes)

    @property
    def sequence(self) -> bool:
        """Whether the sequence is cut over tp between the linears."""
        return "tp" in self.axes and bool(self.phase.spec.parallel.sequence_parallel)

    def context(self) -> dict[str, Any]:
        """What the templates print; text is `Code`, values are values."""
        tp, pp, dp, sp = "tp" in self.axes, "pp" in self.axes, "dp" in self.axes, self.sequence
        spec = self.phase.spec
        at = placer(self.phase.origins, self.sources)
        common: dict[str, Any] = {
            "name": Code(file_name(self.phase.origins)),
            "at": at,
            "rule": _rule,
            "mesh": self.mesh,
            "tp": tp,
            "pp": pp,
            "dp": dp,
            "sp": sp,
            "class_name": Code("Stage" if pp else "Model"),
            "parameters": Code("plan: Plan, mesh: Mesh" if tp else "plan: Plan"),
            "arguments": Code("plan, mesh" if tp else "plan"),
        }
        cluster = spec.cluster
        assert cluster is not None
        launch = {
            "nodes": cluster.nodes,
            "gpus": cluster.node.gpus,
            "ranks_words": Code(
                _count(self.layout.world, "rank") + " on " + _count(cluster.nodes, "node")
            ),
        }
        return {**common, **self._mesh(), **self._model(at), **self._train(at), **launch}

    # ── mesh.py ───────────────────────────────────────────────────────────────

    def _mesh(self) -> dict[str, Any]:
        parallel = self.phase.spec.parallel
        planes = (("tp", "pp"),) if {"tp", "pp"} <= set(self.axes) else ()
        first = self.axes[0] if self.axes else ""
        return {
            "degrees": Code(", ".join(f"{axis} {getattr(parallel, axis)}" for axis in self.axes)),
            "neighbours": Code(f"neighbouring ranks share a {first} group"),
            "order": self._tuple(self.axes),
            "planes": self._planes(planes) if planes else None,
            "planes_argument": Code(", planes=PLANES" if planes else ""),
        }

    @staticmethod
    def _tuple(names: tuple[str, ...]) -> Code:
        inside = ", ".join(f'"{name}"' for name in names)
        return Code(f"({inside},)" if len(names) == 1 else f"({inside})")

    def _planes(self, planes: tuple[tuple[str, ...], ...]) -> Code:
        return Code("(" + ", ".join(self._tuple(plane) for plane in planes) + ",)")

    # ── model.py ──────────────────────────────────────────────────────────────

    def _model(self, at: Any) -> dict[str, Any]:
        tp, pp, sp = "tp" in self.axes, "pp" in self.axes, self.sequence
        model = self.phase.spec.model
        assert model is not None
        imports = []
        if tp:
            imports += ["from parlay.runtime import tensor", "from parlay.runtime.mesh import Mesh"]
        imports.append("from parlay.runtime.plan import Plan" + (", Section" if pp else ""))
        if not tp:
            imports.append("from parlay.runtime.precision import wide")
        return {
            "model_is": Code("One stage of the model" if pp else "The model"),
            "cut_words": Code(", cut over tp" if tp else ""),
            "sequence_words": Code(
                "; between them a rank holds its piece of the sequence" if sp else ""
            ),
            "model_imports": [Code(line) for line in imports],
            "cut": [(Code(f'"{name}"'), dim) for name, dim in CUT],
            "shape": Code("[b, s/tp, h]" if sp else "[b, s, h]"),
            "column": Code("gather_column" if sp else "column"),
            "row": Code("row_scatter" if sp else "row"),
            "grouped": Code(", enable_gqa=True" if model.kv_heads != model.heads else ""),
            "stage_init": [Code(line) for line in self._stage_init(tp, pp)],
            "stage_forward": [Code(line) for line in self._stage_forward(tp, pp, sp)],
        }

    @staticmethod
    def _stage_init(tp: bool, pp: bool) -> list[str]:
        rows = "m.padded_vocab // self.tp.size" if tp else "m.padded_vocab"
        layer = "Layer(plan, mesh)" if tp else "Layer(plan)"
        embedding = f"self.embedding = nn.Embedding({rows}, m.hidden)"
        head = [
            "self.norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)",
            f"self.head = nn.Linear(m.hidden, {rows}, bias=False)",
        ]
        if not pp:
            layers = f"self.layers = nn.ModuleDict({{str(i): {layer} for i in range(m.layers)}})"
            return ["m = plan.model", embedding, layers, *head]
        return [
            "m, (first, last) = plan.model, stage.layers",
            "if stage.embedding:",
            f"    {embedding}",
            f"self.layers = nn.ModuleDict({{str(i): {layer} for i in range(first, last + 1)}})",
            "if stage.head:",
            *(f"    {line}" for line in head),
        ]

    @staticmethod
    def _stage_forward(tp: bool, pp: bool, sp: bool) -> list[str]:
        if tp:
            embed = "embedding_scatter" if sp else "embedding"
            column = "gather_column" if sp else "column"
            embedded = f"x = tensor.{embed}(x, self.embedding.weight, axis=self.tp)"
            loss = [
                f"logits = tensor.{column}(self.norm(x), self.head.weight, axis=self.tp)",
                "return tensor.cross_entropy("
                "logits, labels, vocab=self.plan.model.vocab, axis=self.tp)",
            ]
        else:
            embedded = "x = self.embedding(x)"
            loss = [
                "logits = self.head(self.norm(x))[..., : self.plan.model.vocab].flatten(0, 1)",
                "logits = logits.to(wide(x.dtype))",
                'return F.cross_entropy(logits, labels.flatten(), reduction="sum")',
            ]
        layers = [
            "cos, sin = rotary(self.plan, like=x)",
            "for layer in self.layers.values():",
            "    x = layer(x, cos, sin)",
        ]
        if not pp:
            return [embedded, *layers, *loss]
        return [
            "if self.stage.embedding:",
            f"    {embedded}",
            *layers,
            "if not self.stage.head:",
            "    return x",
            *loss,
        ]

    # ── train.py ──────────────────────────────────────────────────────────────

    def _train(self, at: Any) -> dict[str, Any]:
        spec = self.phase.spec
        train, parallel = spec.train, spec.parallel
        assert train is not None
        tp, pp, dp, sp = "tp" in self.axes, "pp" in self.axes, "dp" in self.axes, self.sequence
        planes = [axis for axis in ("tp", "pp") if axis in self.axes]
        norm = [f"over=job.mesh.{'_'.join(planes)}"] if planes else []
        norm += ["once=job.mesh.tp"] if tp else []
        writes = [f"mesh.pp.{'last'}"] if pp else []
        writes += [f"mesh.{axis}.first" for axis in ("dp", "tp") if axis in self.axes]
        built = [at(f"parallel.{axis}") for axis in ("tp", "pp") if axis in self.axes]
        return {
            "says": Code(self._says()),
            "computes": Code(
                train.precision + (" over fp32 masters" if train.master == "fp32" else "")
            ),
            "what_starts": Code("the ranks" if self.mesh else "it"),
            "train_imports": [Code(line) for line in self._train_imports()],
            "built_for": Code(", ".join(built) or at("model.layers")),
            "device": Code("mesh.device" if self.mesh else "device"),
            "cut_argument": Code(", cut=CUT" if tp else ""),
            "fill_arguments": Code(", cut=CUT, axis=mesh.tp" if tp else ""),
            "schedule": Code(parallel.schedule.name),
            "data_rank": Code("mesh.dp.rank" if dp else "0"),
            "data_ranks": Code("mesh.dp.size" if dp else "1"),
            "valid_axis": Code(", axis=mesh.dp" if dp else ""),
            "piece": Code("plan.batch.seq // mesh.tp.size" if sp else "plan.batch.seq"),
            "backward_says": Code(
                "Gradients summed over every axis; the mean loss of the global batch."
                if self.mesh
                else "Gradients of the mean loss over all valid labels of the global batch."
            ),
            "plan_name": Code("plan" if pp else "job.plan"),
            "where": [Code(line) for line in self._where()],
            "lr_schedule": Code(train.lr_schedule.name),
            "clip": train.clip > 0,
            "before_clip": Code(" before they were clipped" if train.clip > 0 else ""),
            "norm_arguments": Code(", ".join(norm)),
            "writes": Code(" and ".join(writes)),
        }

    def _where(self) -> list[str]:
        """The device and, where anything is summed over an axis, the mesh."""
        if not self.mesh:
            return ["device = job.device"]
        if "dp" in self.axes or self.sequence:
            return ["mesh, device = job.mesh, job.mesh.device"]
        return ["device = job.mesh.device"]

    def _says(self) -> str:
        parallel = self.phase.spec.parallel
        parts = []
        if "tp" in self.axes:
            with_sequence = " with sequence parallelism" if self.sequence else ""
            parts.append(f"tp {parallel.tp}{with_sequence}")
        if "dp" in self.axes:
            parts.append(f"dp {parallel.dp}")
        if "pp" in self.axes:
            parts.append(f"pp {parallel.pp} by {parallel.schedule.name}")
        return ", ".join(parts) or "one process"

    def _train_imports(self) -> list[str]:
        tp, pp = "tp" in self.axes, "pp" in self.axes
        train = self.phase.spec.train
        assert train is not None
        name = "Stage" if pp else "Model"
        lines = ["import torch"]
        lines += ["import torch.distributed as dist"] if self.mesh else []
        lines += ["from mesh import build as build_mesh"] if self.mesh else []
        lines += [f"from model import CUT, {name}" if tp else f"from model import {name}"]
        pieces = "init, pipeline, precision, timeline" if pp else "init, precision"
        lines += [f"from parlay.runtime import {pieces}"]
        lines += ["from parlay.runtime.data import Loader", "from parlay.runtime.log import Log"]
        lines += ["from parlay.runtime.loss import valid_labels"]
        lines += [f"from parlay.runtime.mesh import {'Mesh' if self.mesh else 'own_device'}"]
        lines += ["from parlay.runtime.pipeline import Batch"]
        lines += ["from parlay.runtime.plan import Plan"]
        lines += [f"from parlay.runtime.schedule import {train.lr_schedule.name}"]
        lines += ["from parlay.runtime.shard import AdamW, Gradients"]
        lines += ["from parlay.runtime.timeline import Timeline"] if pp else []
        lines += ["from parlay.runtime.weights import Weights", "from torch import Tensor"]
        return lines


def _rule(title: str) -> Code:
    return Code("─" * (WIDTH - len(title) - 6))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"

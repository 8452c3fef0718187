"""Weights of which several ranks of a replica have a share of the gradient each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from parlay.compiler.backends.torch.structure import Structure
from parlay.compiler.backends.torch.wrap import comment, tuple_of


@dataclass(frozen=True, slots=True)
class Share:
    """One constant of model.py: the ends of the names of such weights, and whose sum they are."""

    name: str
    ends: tuple[str, ...]
    axis: str
    alike: bool
    """Whether the ranks of `axis` hold a piece that tp has cut, or a copy on another stage."""
    of: str
    """The fields of the file that ask for it, as a comment."""
    says: tuple[str, ...]
    """The comment on the constant, a line each."""

    @property
    def names(self) -> str:
        """The tuple as code."""
        return tuple_of([f'"{end}"' for end in self.ends])


def shares(structure: Structure) -> Iterator[Share]:
    """In the order of their names, which is that of an import."""
    model, at = structure.model, structure.at
    if structure.head_norms:
        biases = ("q_norm.bias", "k_norm.bias") if model.norm_bias else ()
        yield Share(
            "HEAD_NORMS",
            ("q_norm.weight", "k_norm.weight", *biases),
            "tp",
            False,
            at("model.qk_norm"),
            (f"{at('model.qk_norm')}: a tp rank has the share of its heads in these gradients.",),
        )
    if structure.kv:
        biases = ("k.bias", "v.bias") if "qkv" in model.bias else ()
        norms = ("k_norm.weight",) if model.qk_norm == "full" else ()
        adapters = ("k.lora_b", "v.lora_b") if structure.adapted else ()
        yield Share(
            "KV",
            ("k.weight", "v.weight", *biases, *norms, *adapters),
            "kv",
            True,
            f"{at('parallel.tp')}, {at('model.kv_heads')}",
            (
                f"{at('parallel.tp')} is more than {at('model.kv_heads')}:",
                "neighbouring tp ranks hold one key/value head alike.",
            ),
        )
    if structure.tied_stages and not structure.adapted:
        yield Share(
            "TIED",
            ("embedding.weight",),
            "embedding",
            True,
            at("model.tied_embeddings"),
            (f"{at('model.tied_embeddings')}: held by the first stage and by the last.",),
        )


def names(structure: Structure) -> Sequence[str]:
    """The constants of model.py that train.py imports."""
    return [*(["CUT"] if structure.tp else []), *(share.name for share in shares(structure))]


def argument(structure: Structure, axes: Sequence[str] = ("kv", "embedding")) -> str:
    """`copies=[(KV, mesh.kv)]`, of these axes; empty where there are none."""
    pairs = [
        f"({share.name}, mesh.{share.axis})"
        for share in shares(structure)
        if share.alike and share.axis in axes
    ]
    return f"copies=[{', '.join(pairs)}]" if pairs else ""


def parts(structure: Structure) -> list[str]:
    """The groups that mesh.py adds to those of the axes."""
    at, axis, lines = structure.at, structure.batch_axis, []
    overlay = "mesh.overlay(Grid.of(plan.expert_mesh, order=EXPERT_ORDER))"
    if structure.expert_axes and not structure.replicates:
        lines.append(overlay)
    if structure.kv:
        lines += [
            f"# {at('model.kv_heads')}: the tp ranks that hold one of them alike.",
            'mesh.split("tp", plan.model.kv_heads, name="kv")',
        ]
    if structure.replicates:
        lines += [
            f"# {at('parallel.shard')}: neighbours on {axis} that share one copy of the state.",
            f'mesh.split("{axis}", mesh.{axis}.size // plan.shard, name="shard")',
            f'mesh.across("{axis}", mesh.{axis}.size // plan.shard, name="replicate")',
        ]
        lines += [overlay] if structure.expert_axes else []
    if structure.context == "ulysses_ring":
        lines += [
            comment(4, f"{at('parallel.cp_method')}: neighbours deal out heads, others ring."),
            'mesh.split("cp", mesh.cp.size // plan.cp_inner, name="inner")',
            'mesh.across("cp", mesh.cp.size // plan.cp_inner, name="outer")',
        ]
    if structure.mirrored:
        lines += [
            f"# {at('parallel.schedule')}: two ranks hold the same stages.",
            'mesh.mirrored("pp", name="mirror")',
        ]
    if structure.tied_stages and not structure.adapted:
        lines += [
            f"# {at('model.tied_embeddings')}: the first stage and the last.",
            'mesh.ends("pp", name="embedding")',
        ]
    return lines


def summed(structure: Structure) -> Iterator[tuple[str, str]]:
    """What train.py sums once a step, before dp: a comment and a call each."""
    for share in shares(structure):
        yield share.of, f"job.gradients.sum({share.name}, axis=mesh.{share.axis})"

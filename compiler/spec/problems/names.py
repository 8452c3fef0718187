"""The words of what can be wrong with names: of blocks, fields, presets and lets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from parlay.compiler.spec.problems.elsewhere import elsewhere
from parlay.compiler.spec.problems.types import describe
from parlay.compiler.spec.schema import (
    FieldSchema,
)
from parlay.dsl import syntax
from parlay.dsl.diagnostics import Diagnostic, Edit, Fix, error
from parlay.dsl.nearest import nearest
from parlay.dsl.source import Span


def meant(word: str, known: Iterable[str], span: Span) -> tuple[list[str], list[Fix]]:
    """Help and fixes that name the nearest of the known names, or all where they are few."""
    names = list(known)
    close = nearest(word, names)
    if close:
        listed = ", ".join(f"`{name}`" for name in close)
        fixes = [Fix(f"write `{name}`", (Edit(span, name),)) for name in close]
        return [f"nearest: {listed}"], fixes
    if 0 < len(names) <= 14:
        return ["known: " + ", ".join(f"`{name}`" for name in names)], []
    return [], []


def unknown_block(keyword: syntax.Name, known: Sequence[str]) -> Diagnostic:
    """T001."""
    help, fixes = meant(keyword.text, known, keyword.span)
    return error(
        "T001",
        f"no block is called `{keyword.text}`",
        keyword.span,
        "unknown block",
        help=help,
        fixes=fixes,
    )


def unknown_field(
    path: str, item: syntax.Field | syntax.Block, fields: Sequence[FieldSchema]
) -> Diagnostic:
    """T002."""
    name = item.keyword if isinstance(item, syntax.Block) else item.name
    block = path.rpartition(".")[2] if not path.startswith("target.") else "target"
    known = [field.name for field in fields]
    help, fixes = meant(name.text, known, name.span)
    if (said := elsewhere(name.text)) and said[0] in known:
        help, fixes = _translated(name, *said)
    elif not help and len(known) <= MOST_LISTED:
        help = ["known: " + ", ".join(f"`{each}`" for each in known)]
    return error(
        "T002",
        f"`{block}` has no field `{name.text}`",
        name.span,
        "unknown field",
        help=help,
        fixes=fixes,
    )


MOST_LISTED: Final = 20


def _translated(name: syntax.Name, field: str, form: str) -> tuple[list[str], list[Fix]]:
    help = [f"it is called {form} here"]
    if form != f"`{field}`":
        return help, []
    return help, [Fix(f"write `{field}`", (Edit(name.span, field),))]


UNWEIGHED: Final = ("data", "checkpoint", "log", "target")
"""Blocks that memory and speed do not depend on."""


def weighs(told: Diagnostic) -> str | None:
    """The block whose field a diagnostic calls unknown, where what a layout weighs hangs on it;
    empty where the block itself is unknown, None where nothing is."""
    if told.code == "T001":
        return ""
    if told.code != "T002" or told.message.startswith(tuple(f"`{one}` " for one in UNWEIGHED)):
        return None
    return told.message.split("`")[1]


def unknown_preset(kind: str, name: syntax.String, known: Sequence[str]) -> Diagnostic:
    """T003."""
    close = nearest(name.value, known)
    fixes = [Fix(f'write "{other}"', (Edit(name.span, f'"{other}"'),)) for other in close]
    help = ["nearest: " + ", ".join(f'"{other}"' for other in close)] if close else []
    if known:
        help.append(f"`parlay catalog {kind}` lists all {len(known)}")
    return error(
        "T003",
        f'the catalog has no {kind} "{name.value}"',
        name.span,
        "unknown preset",
        help=help,
        fixes=fixes,
    )


def unreadable_preset(kind: str, name: syntax.String, why: str) -> Diagnostic:
    """T015, T016: a preset's file that gives no model, or no calibration."""
    measured = kind == "calibration"
    return error(
        "T016" if measured else "T015",
        f'"{name.value}" gives no {kind}',
        name.span,
        "read from this file",
        notes=[why],
        help=["`parlay calibrate -o FILE` measures this machine and writes one"]
        if measured
        else (),
    )


def no_preset_taken(path: str, span: Span) -> Diagnostic:
    """T004."""
    return error("T004", f"`{path}` takes no preset", span, "no presets of this kind exist")


def given_twice(what: str, name: syntax.Name, first: Span) -> Diagnostic:
    """T005."""
    return error(
        "T005",
        f"{what} `{name.text}` is given twice",
        name.span,
        "given again here",
        also=[(first, "given first here")],
        help=["one of the two needs to go; neither wins in silence"],
    )


def label_not_taken(kind: str, span: Span) -> Diagnostic:
    """T006."""
    return error("T006", f"a `{kind}` block takes no name", span, "name not taken here")


def phase_twice(name: str, span: Span, first: Span) -> Diagnostic:
    """T005 for phases."""
    return error(
        "T005",
        f'phase "{name}" is given twice',
        span,
        "given again here",
        also=[(first, "given first here")],
        help=["phases are told apart by their names"],
    )


def phase_main(name: str, span: Span) -> Diagnostic:
    """T005 for a phase called as the file without its phases is."""
    return error(
        "T005",
        f'phase "{name}" is the file without its phases',
        span,
        "given again here",
        help=["its blocks stand outside of any phase; another name is needed for a further one"],
    )


def target_twice(name: str, span: Span, first: Span) -> Diagnostic:
    """T005 for targets."""
    return error(
        "T005",
        f'target "{name}" is given twice',
        span,
        "given again here",
        also=[(first, "given first here")],
        help=["one of the two needs to go; neither wins in silence"],
    )


def unknown_target(name: syntax.String, known: Sequence[str]) -> Diagnostic:
    """T017."""
    close = nearest(name.value, known)
    fixes = [Fix(f'write "{each}"', (Edit(name.span, f'"{each}"'),)) for each in close]
    help = "known: " + ", ".join(f'"{each}"' for each in known)
    said = f'no back end is called "{name.value}"'
    return error("T017", said, name.span, "unknown target", help=[help], fixes=fixes)


def target_needs_name(span: Span) -> Diagnostic:
    """T007; a phase without a name is told by the parser."""
    return error("T007", "a target needs a name", span, help=['`target "megatron" { … }`'])


def field_not_block(path: str, item: syntax.Block, schema: FieldSchema) -> Diagnostic:
    """T008."""
    name = path.rpartition(".")[2]
    return error(
        "T008",
        f"`{name}` is a field, not a block",
        item.keyword.span,
        "a value is needed here",
        help=[f"`{name} = …` takes {describe(schema.types)}"],
    )


def block_not_field(path: str, item: syntax.Field) -> Diagnostic:
    """T008 the other way round."""
    name = item.name.text
    return error(
        "T008",
        f"`{name}` is a block, not a field",
        item.value.span,
        "a block is needed here",
        help=[f"`{name} {{ … }}`"],
    )


def block_not_taken(path: str, keyword: syntax.Name) -> Diagnostic:
    """T008 inside free options."""
    return error(
        "T008",
        f"`{path.rpartition('.')[2]}` holds no blocks",
        keyword.span,
        "a field is needed here",
    )


def missing_fields(block: str, names: Sequence[str], span: Span, docs: Sequence[str]) -> Diagnostic:
    """T009."""
    listed = ", ".join(f"`{name}`" for name in names)
    return error(
        "T009",
        f"`{block}` lacks {listed}",
        span,
        f"{block} stands here",
        notes=[f"{name}: {doc}" for name, doc in zip(names, docs, strict=True)],
    )


def missing_block(path: str, span: Span, why: str) -> Diagnostic:
    """T010."""
    return error("T010", f"the file lacks `{path}`", span, notes=[why])


def unknown_name(ref: syntax.Ref, known: Iterable[str]) -> Diagnostic:
    """T011."""
    text = ".".join(name.text for name in ref.path)
    help, fixes = meant(text, known, ref.span)
    return error(
        "T011", f"nothing is called `{text}`", ref.span, "unknown name", help=help, fixes=fixes
    )


def no_value(ref: syntax.Ref, why: str) -> Diagnostic:
    """T012."""
    text = ".".join(name.text for name in ref.path)
    return error("T012", f"`{text}` has no value", ref.span, why)


def no_number(ref: syntax.Ref) -> Diagnostic:
    """T012, of a value that is there."""
    text = ".".join(name.text for name in ref.path)
    return error("T012", f"`{text}` is no number", ref.span, "a number is needed here")


def cycle(ring: Sequence[tuple[str, Span]]) -> Diagnostic:
    """T013: the ring of references, each with the place of its definition."""
    names = [name for name, _ in ring]
    shown = " -> ".join([*names, names[0]])
    (first, place), *rest = ring
    return error(
        "T013",
        f"`{first}` depends on itself",
        place,
        f"`{first}` is defined by this",
        also=[(span, f"`{name}` is defined by this") for name, span in rest[:6]],
        notes=[shown if len(names) <= 12 else f"a ring of {len(names)} definitions"],
    )


def chain_too_long(span: Span, limit: int) -> Diagnostic:
    """T014."""
    return error("T014", f"definitions lean on each other more than {limit} deep", span)

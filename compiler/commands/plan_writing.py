"""Plans into the text of a file: values where `auto` stands, or laid over it in a phase's block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parlay.compiler import pipeline
from parlay.compiler.checks import fix
from parlay.compiler.planner import Plan, spelling
from parlay.dsl import syntax
from parlay.dsl.diagnostics import Edit
from parlay.dsl.parse import parse
from parlay.dsl.source import Span


def edits_of(job: pipeline.Job, plans: Sequence[Plan]) -> tuple[Edit, ...]:
    """The edits that write the best layout of every plan; none where they cannot all be written.

    A phase that leaves to the planner what the file does, and gets what `main` gets, is left alone.
    """
    name = str(job.path)
    tree, _ = parse(job.sources[name])
    inherited: Mapping[str, Any] = {}
    edits: list[Edit] = []
    for found in plans:
        chosen = found.best.top[0].chosen
        if found.phase.name == "main":
            texts = {path: spelling(value) for path, value in chosen.items()}
            made = tuple(
                edit for each in fix.set_fields(found.subject, texts) for edit in each.edits
            )
            inherited = chosen
        else:
            block = _block(tree, found.phase.name)
            if block is None:
                return ()
            over = {
                path: value
                for path, value in chosen.items()
                if _inside(block.span, found.phase.origins.span(path))
                or path not in inherited
                or inherited[path] != value
            }
            if not over:
                continue
            made = tuple(_over(job.sources[name].text, block, found, over))
        if not made or any(edit.span.file != name for edit in made):
            return ()
        edits += made
    return tuple(edits)


def _block(tree: syntax.File, phase: str) -> syntax.Block | None:
    """The block of a phase, where it stands in this file."""
    for each in tree.statements:
        if not isinstance(each, syntax.Block) or each.kind != "phase" or each.body is None:
            continue
        if isinstance(each.label, syntax.String) and each.label.value == phase:
            return each
    return None


def _inside(outer: Span, span: Span) -> bool:
    return outer.file == span.file and outer.start <= span.start and span.end <= outer.end


def _over(text: str, block: syntax.Block, found: Plan, values: Mapping[str, Any]) -> list[Edit]:
    """Values in the block of a phase: what stands there is replaced, the rest is put beside it."""
    edits: list[Edit] = []
    missing: dict[str, list[str]] = {}
    for path, value in values.items():
        span, (kind, _, field) = found.phase.origins.span(path), path.partition(".")
        if _inside(block.span, span):
            edits.append(Edit(span, spelling(value)))
        else:
            missing.setdefault(kind, []).append(f"{field} = {spelling(value)}")
    blocks: list[str] = []
    for kind, fields in missing.items():
        words = ", ".join(fields)
        inner = next(
            (
                each
                for each in block.body or ()
                if isinstance(each, syntax.Block) and each.kind == kind
            ),
            None,
        )
        if inner is None or inner.body is None:
            blocks.append(f"{kind} {{ {words} }}")
        elif inner.body:
            end = inner.body[-1].span.end
            edits.append(Edit(Span(block.span.file, end, end), f", {words}"))
        else:
            edits.append(_before(block.span.file, inner.span.end - 1, f" {words} "))
    if blocks:
        edits.append(_blocks(text, block, blocks))
    return edits


def _blocks(text: str, phase: syntax.Block, blocks: Sequence[str]) -> Edit:
    """Whole blocks before the brace that closes a phase, on lines of their own where it has one."""
    brace = phase.span.end - 1
    line = text.rfind("\n", 0, brace) + 1
    indent = text[line:brace]
    if indent.strip() or line <= phase.span.start:
        return _before(phase.span.file, brace, "".join(f" {each} " for each in blocks))
    return _before(phase.span.file, line, "".join(f"{indent}  {each}\n" for each in blocks))


def _before(file: str, place: int, text: str) -> Edit:
    return Edit(Span(file, place, place), text)

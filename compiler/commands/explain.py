"""`parlay explain`: the page of a code, and where a field's value comes from."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from parlay.compiler import pipeline
from parlay.compiler.commands.printing import show
from parlay.compiler.spec import problems
from parlay.compiler.spec.evaluate import ALIASES
from parlay.compiler.spec.origins import Kind, Origin
from parlay.compiler.spec.resolve import Phase, schemas
from parlay.compiler.spec.schema import Derived, FieldSchema, Quantity, Setting, Variant
from parlay.dsl.diagnostics.cells import harmless
from parlay.dsl.nearest import nearest
from parlay.dsl.source import Source, Span
from parlay.dsl.units import Dimension

WORLD = "cluster.gpus"
"""The one path that is no field: it follows from the nodes."""


def run(code: str | None, field: str | None, file: Path | None) -> int:
    """Prints the page of `code`, or the origin of `field` in `file`; 1 where it is not known."""
    if code is not None:
        return _explain_code(code)
    assert field is not None and file is not None
    return _explain_field(field, file)


# ── Codes ─────────────────────────────────────────────────────────────────────


def _explain_code(code: str) -> int:
    found = page_of(code.upper())
    if found is not None:
        sys.stdout.write(found)
        return 0
    known = all_codes()
    close = nearest(code.upper(), known) or [other for other in known if other[:1] == code[:1]][:3]
    families = "" if close else "; families: " + ", ".join(sorted({other[0] for other in known}))
    said = f"; nearest: {', '.join(close)}" if close else families
    print(f"parlay: no diagnostic has the code {harmless(code)}{said}", file=sys.stderr)
    return 1


def all_codes() -> tuple[str, ...]:
    """Every code that has a page, in alphabetical order."""
    from parlay.compiler import checks
    from parlay.compiler.backends import rules

    texts = (code for texts in _texts() for code in texts)
    return tuple(sorted({*checks.codes(), *rules.codes(), *texts}))


def page_of(code: str) -> str | None:
    """The page of any code as plain text; None for a code that nothing tells."""
    from parlay.compiler import checks
    from parlay.compiler.backends import rules

    page = checks.page(code) or rules.page(code)
    if page is not None:
        return page.text
    found = next((texts[code] for texts in _texts() if code in texts), None)
    if found is None:
        return None
    title, text = found
    lines = [f"{code}: {title}", ""]
    for line in text.strip().splitlines():
        head, colon, rest = line.partition(": ")
        words = head in ("What", "Why")
        lines.append(f"{head}{colon}{rest[:1].upper()}{rest[1:]}" if words else line)
    # An example may hold what a terminal would obey.
    return "".join(f"{harmless(line)}\n" for line in lines)


def sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """The parts of a page: `What: words` with the lines that go on, `Example:` with its block."""
    name, lines = "", list[str]()
    for line in text.strip().splitlines():
        head, colon, rest = line.partition(":")
        if colon and head in ("What", "Why", "Example", "Instead", "Source"):
            if name:
                yield name, lines
            name, lines = head, [rest.strip()] if rest.strip() else []
        else:
            lines.append(line.removeprefix("    "))
    yield name, lines


def _texts() -> Iterator[Mapping[str, tuple[str, str]]]:
    """The pages that are no rule's, code -> (title, text), each table read when it is asked."""
    from parlay.dsl.diagnostics.codes import CODES as of_syntax

    yield of_syntax
    from parlay.compiler.spec.codes import CODES as of_names

    yield of_names
    from parlay.compiler.ledger.codes import CODES as of_ledger

    yield of_ledger
    for _, of_target in target_codes():
        yield of_target


def target_codes() -> Iterator[tuple[str, Mapping[str, tuple[str, str]]]]:
    """Each back end that tells codes of its own, with their pages."""
    from parlay.compiler.backends import TARGETS

    for target, known in TARGETS.items():
        if find_spec(f"{known.module}.codes") is not None:
            yield target, import_module(f"{known.module}.codes").CODES


# ── Fields ────────────────────────────────────────────────────────────────────


def _explain_field(field: str, file: Path) -> int:
    job = pipeline.load(file)
    if not job.phases:
        show([job], summary=True, stream=sys.stderr)
        return 1
    path = _full(field)
    found = [(phase, phase.origins.get(path)) for phase in job.phases]
    if all(origin is None for _, origin in found):
        return _no_value(field, path, job)
    for number, (phase, origin) in enumerate(found):
        if number:
            print()
        if len(found) > 1:
            print(f'phase "{harmless(phase.name)}"')
        if origin is None:
            print(f"{path} is absent")
            continue
        _print_value(path, phase, origin, job.sources)
    return 0


def _full(field: str) -> str:
    head, dot, rest = field.partition(".")
    return f"{ALIASES[head]}.{rest}" if dot and head in ALIASES else field


def _no_value(field: str, path: str, job: pipeline.Job) -> int:
    """A known field without a value, a block, or a name that does not exist."""
    known = [*schemas(), WORLD]
    below = [name for name in known if name.startswith(f"{path}.")]
    if path in schemas():
        print(f"{path} is absent")
        _print_schema(schemas()[path])
        if job.errors:
            show([job], summary=True, stream=sys.stderr)
        return 1 if job.errors else 0
    if below:
        names = ", ".join(dict.fromkeys(n[len(path) + 1 :].split(".")[0] for n in below))
        print(f"parlay: {path} is a block; its fields: {names}", file=sys.stderr)
        return 1
    tails = [name for name in known if name.rpartition(".")[2] == field]
    close = tails[:3] or nearest(path, known)
    said = f"; nearest: {', '.join(close)}" if close else ""
    print(f"parlay: no field is called {harmless(field)}{said}", file=sys.stderr)
    return 1


def _print_value(path: str, phase: Phase, origin: Origin, sources: Mapping[str, Source]) -> None:
    print(f"{path} = {harmless(origin.shown)}")
    print(f"  {_whence(path, phase, origin)}")
    for line in _place(origin.span, sources):
        print(f"  {line}")
    schema = _schema(path, phase)
    if schema is not None:
        _print_schema(schema)
    elif path == WORLD:
        print("  GPUs of all nodes: what the degrees multiply to")


def _whence(path: str, phase: Phase, origin: Origin) -> str:
    if path in phase.open:
        return "open: `parlay plan` chooses it"
    match origin.kind:
        case Kind.FILE:
            return "written in the file"
        case Kind.PRESET:
            return f'from the preset "{harmless(origin.words)}"'
        case Kind.DEFAULT:
            return "the default; the file does not set it"
        case Kind.DERIVED:
            schema = schemas().get(path)
            paths = schema.default.paths if schema and isinstance(schema.default, Derived) else ()
            read = [(name, phase.origins.get(name)) for name in paths]
            with_values = ", ".join(f"{name} = {at.shown}" for name, at in read if at)
            return f"derived: {origin.words}" + (f", with {with_values}" if with_values else "")


def _place(span: Span, sources: Mapping[str, Source]) -> list[str]:
    """Where the value stands, or the block that would hold it, and the line itself."""
    source = sources.get(span.file)
    if source is None or span.start == span.end == 0:  # no block stands anywhere
        return []
    at = source.position(span.start)
    line = source.text[span.start - at.column + 1 :].partition("\n")[0].rstrip("\r")
    return [f"--> {harmless(span.file)}:{at.line}:{at.column}", f"    {harmless(line.strip())}"]


def _schema(path: str, phase: Phase) -> FieldSchema | None:
    """The schema of a field, or of the option of a variant that `path` names."""
    if path in schemas():
        return schemas()[path]
    above, _, name = path.rpartition(".")
    setting, field = _value(phase, above), schemas().get(above)
    if field is None or not isinstance(setting, Setting):
        return None
    for type_ in field.types:
        if isinstance(type_, Variant) and (case := type_.case(setting.name)):
            return next((option for option in case.options if option.name == name), None)
    return None


def _value(phase: Phase, path: str) -> object:
    value: object = phase.spec
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def _print_schema(schema: FieldSchema) -> None:
    print(f"  {schema.doc}")
    takes = problems.describe(schema.types) + (", or `auto`" if schema.open else "")
    dimension = next((t.dimension for t in schema.types if isinstance(t, Quantity)), None)
    plain = dimension in (None, Dimension.COUNT)
    print(f"  takes {takes}" + ("" if plain else f"; dimension {dimension}"))

"""`docs/language.md`: from the schema, the units table, the pages of the rules and of the codes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from parlay.compiler import catalog, checks
from parlay.compiler.commands.explain import all_codes, page_of, sections
from parlay.compiler.spec import problems
from parlay.compiler.spec.asserting import VALUES
from parlay.compiler.spec.blocks import Spec, Target
from parlay.compiler.spec.schema import (
    REQUIRED,
    Case,
    Derived,
    FieldSchema,
    Free,
    Nested,
    Variant,
    fields_of,
)
from parlay.compiler.spec.shown import shown
from parlay.dsl.tokens import KEYWORDS
from parlay.dsl.units import Dimension, units_of

FAMILIES: Final = {
    "P": "syntax and imports",
    "T": "names, types, units",
    "L": "layout arithmetic",
    "N": "network and topology",
    "M": "memory",
    "S": "pipeline schedule",
    "B": "what a back end cannot express",
    "W": "warnings about speed or convergence",
    "A": "asserts",
}
BASES: Final = {
    Dimension.COUNT: "a pure number",
    Dimension.DATA: "bytes; decimal `kB`, binary `KiB`",
    Dimension.RATE: "one direction; `Gb/s` are bits, the others bytes",
    Dimension.COMPUTE: "dense floating-point operations",
    Dimension.TIME: "",
    Dimension.SHARE: "`90%` is 0.9",
    Dimension.MONEY: "of one accelerator hour",
}
HEAD: Final = """\
# The language

One `.par` file describes one training job: the model, the cluster, how the work is cut, and the
recipe. It is made of blocks, fields and values, with a little arithmetic, and has no loops.

<!-- Written by `make docs` from the schema, the units table and the pages of the diagnostics. -->
"""
RULES: Final = """\
- A comment runs from `#` to the end of its line. White space never matters; a comma or a new line
  stands between fields.
- A name is made of letters, digits and `_`. Keywords: {keywords}.
- A quantity is one token: a number and its unit without a space (`8Ki`, `400Gb/s`, `90%`); `_` may
  group digits. It is held exactly.
- A string is `"…"` with `\\"`, `\\\\` and `\\n`.
- A file is UTF-8, at most 1 MiB, nested at most 64 deep.

A value is a quantity, `on` or `off`, a name of an enumeration, a string, a list `[…]`, a form with
options `adamw(lr = 3e-4)`, `auto`, or an expression: `+ - * / //`, parentheses, `min max ceil
floor`, and references: the name of a `let`, or a path such as `model.layers`, `cluster.gpus`,
`gpu.memory`. `auto in [1, 2, 4]` and `auto <= 8` restrict what the compiler may choose.

| statement | what it does |
|---|---|
| `let NAME = value` | names a value |
| `import "path.par"` | brings in blocks and lets; the importing file overrides field by field |
| `BLOCK from "preset" {{ … }}` | starts from the catalog; a model also from `config.json` |
| `phase "name" {{ … }}` | the same blocks, changed; runs from the last phase's checkpoint |
| `assert EXPR < EXPR` | a claim over fields and the ledger's values, checked by `parlay ledger` |
| `allow CODE "reason"` | makes one rule's error a warning, where the rule permits it |
| `target "name" {{ version, options }}` | a back end's version, and settings that only it has |

The file without its phases is the first phase, `main`. A file with phases that has neither
`parallel` nor `train` outside of them is only what they share.
"""


def reference() -> str:
    """The whole page."""
    parts = [
        HEAD,
        "## Rules",
        RULES.format(keywords=", ".join(f"`{word}`" for word in sorted(KEYWORDS))),
        "## Units",
        _units(),
        "## Blocks",
        *_blocks(),
        "## Values of the ledger",
        _figures(),
        "## Presets",
        _presets(),
        "## Diagnostics",
        *_codes(),
    ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


# ── Tables ────────────────────────────────────────────────────────────────────


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [_row(names), "|" + "---|" * len(names)]
    return "\n".join([*lines, *(_row(row) for row in rows)]) + "\n"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _units() -> str:
    return _table(
        ("dimension", "units", ""),
        (
            (str(one), " ".join(f"`{unit}`" for unit in units_of(one)), BASES[one])
            for one in Dimension
        ),
    )


def _figures() -> str:
    said = "What an `assert` may name besides fields and lets.\n\n"
    return said + _table(
        ("name", "measures"), ((f"`{name}`", str(kind)) for name, kind in VALUES.items())
    )


def _presets() -> str:
    rows = (
        (f"`{kind}`", ", ".join(f"`{name}`" for name in catalog.names(kind)))
        for kind in catalog.KINDS
    )
    return _table(("kind", "names"), rows)


# ── Blocks ────────────────────────────────────────────────────────────────────


def _blocks() -> Iterator[str]:
    for schema in fields_of(Spec):
        nested = schema.types[0]
        assert isinstance(nested, Nested)
        yield from _block(schema.name, nested, schema.doc)
    yield from _block('target "name"', Nested(Target), Target.__doc__ or "")


def _block(path: str, nested: Nested, doc: str) -> Iterator[str]:
    """A section for a block, then one for each block in it."""
    yield f"### {path}"
    preset = f" `from` takes a {nested.preset} of the catalog." if nested.preset else ""
    if nested.preset == "calibration":
        preset = " `from` takes the JSON file of `parlay calibrate -o`, beside the file."
    yield f"{doc}{preset}\n"
    fields = fields_of(nested.block)
    plain = [field for field in fields if not isinstance(field.types[0], Nested)]
    inner = [field for field in fields if isinstance(field.types[0], Nested)]
    if plain:
        yield _table(("field", "takes", "default", ""), map(_field, plain))
    yield from _cases(plain)
    if inner:
        yield "Blocks: " + ", ".join(f"`{field.name}`" for field in inner) + ".\n"
    for field in inner:
        type_ = field.types[0]
        assert isinstance(type_, Nested)
        yield from _block(f"{path}.{field.name}", type_, field.doc)


def _field(field: FieldSchema) -> tuple[str, str, str, str]:
    free = isinstance(field.types[0], Free)
    takes = "a block of any names" if free else problems.describe(field.types)
    return (
        f"`{field.name}`",
        takes + (" or `auto`" if field.open else ""),
        _default(field),
        field.doc,
    )


def _default(field: FieldSchema) -> str:
    match field.default:
        case None:
            return "absent"
        case Derived() as derived:
            return derived.words
        case value if value is REQUIRED:
            return "**needed**"
        case value:
            return f"`{shown(value, field.types)}`"


def _cases(fields: Iterable[FieldSchema]) -> Iterator[str]:
    """The options of the forms that have some."""
    for field in fields:
        forms = [case for t in field.types if isinstance(t, Variant) for case in t.cases]
        if not any(case.options or case.flags or case.doc for case in forms):
            continue
        yield f"Forms of `{field.name}`:\n"
        yield "\n".join(_case(case) for case in forms) + "\n"


def _case(case: Case) -> str:
    parts = [f"{one.name} = …" for one in case.options] + list(case.flags)
    head = f"- `{case.name}({', '.join(parts)})`" if parts else f"- `{case.name}`"
    said = f"{head}: {case.doc}" if case.doc else head
    for option in case.options:
        takes = problems.describe(option.types)
        said += f"\n  - `{option.name}`: {option.doc} Takes {takes}; default {_default(option)}."
    return said


# ── Diagnostics ───────────────────────────────────────────────────────────────


def _codes() -> Iterator[str]:
    codes = all_codes()
    yield "`parlay explain CODE` prints the same pages.\n"
    yield _table(("code", "what"), ((f"[{code}](#{code.lower()})", _title(code)) for code in codes))
    for family in dict.fromkeys(code[0] for code in codes):
        yield f"### {family}: {FAMILIES.get(family, 'others')}"
        for code in codes:
            if code[0] == family:
                yield from _page(code)


def _title(code: str) -> str:
    return _text(code).partition("\n")[0].partition(": ")[2]


def _text(code: str) -> str:
    page = page_of(code)
    assert page is not None
    return page


def _page(code: str) -> Iterator[str]:
    head, _, body = _text(code).partition("\n")
    yield f'#### <a id="{code.lower()}"></a>{head}'
    rule: Any = checks.rule(code)
    for name, lines in sections(body):
        text = "\n".join(lines).strip("\n")
        if name in ("Example", "Instead") and text:
            fence = max([2, *(len(run) for run in re.findall("`+", text))]) + 1
            yield f"{name}:\n\n{'`' * fence}par\n{text}\n{'`' * fence}\n"
        elif text:
            yield f"{name}: {_joined(lines)}\n"
    if rule is not None and rule.ALLOWED:
        yield f'`allow {code} "reason"` makes it a warning.\n'


def _joined(lines: Iterable[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())

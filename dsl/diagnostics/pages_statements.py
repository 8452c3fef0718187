"""Pages: brackets, fields, values, blocks and statements."""

_DEEP = "[" * 65 + "]" * 65
_LONG = " + ".join(["1"] * 130)

PAGES: dict[str, tuple[str, str]] = {
    "P030": (
        "a bracket that is not closed",
        """
What: a `{`, `[` or `(` has no partner. The label shows where one may be missing.
Why: all that follows would belong to it.
Example:
    parallel {
      tp = 8
    train {
      seq = 8Ki
    }
Instead:
    parallel {
      tp = 8
    }
    train {
      seq = 8Ki
    }
""",
    ),
    "P031": (
        "a closing bracket without its partner",
        """
What: a closing bracket closes nothing, or a bracket of another kind.
Why: brackets come in pairs: `{ }` for blocks, `[ ]` for lists, `( )` for options and arithmetic.
Example:
    parallel { order = [tp, cp, pp, dp) }
Instead:
    parallel { order = [tp, cp, pp, dp] }
""",
    ),
    "P032": (
        "brackets nested too deep",
        f"""
What: braces, brackets and parentheses stand more than 64 deep in one another.
Why: no job needs more than five or six; the limit keeps every tool that walks the file safe.
Example:
    let a = {_DEEP}
Instead:
    let a = [[1]]
""",
    ),
    "P033": (
        "an expression too deep",
        f"""
What: a value stacks more than 128 operators upon one another.
Why: the limit keeps every tool that walks the file safe. A `let` may hold a part.
Example:
    let a = {_LONG}
Instead:
    let a = 130
""",
    ),
    "P034": (
        "a value is missing",
        """
What: something that is no value stands where one is needed, or nothing does.
Why: a value is a number, a string, a name, `on`, `off`, `auto`, a list, or an expression of them.
Example:
    parallel { tp = , pp = 4 }
Instead:
    parallel { tp = 8, pp = 4 }
""",
    ),
    "P035": (
        "a missing `=`",
        """
What: a value follows a field's name without `=`.
Why: a field is written `name = value`.
Example:
    parallel { tp 8 }
Instead:
    parallel { tp = 8 }
""",
    ),
    "P036": (
        "another sign in the place of `=`",
        """
What: a field is given its value by `:`, `==` or a comparison.
Why: a field is written `name = value`; `==` and `<=` compare, in an `assert`.
Example:
    parallel { tp: 8 }
Instead:
    parallel { tp = 8 }
""",
    ),
    "P037": (
        "a missing comma or closing bracket",
        """
What: within brackets something follows an item that neither separates nor closes.
Why: the items of a list and of options are separated by commas.
Example:
    train { optimizer = adamw(lr = 3e-4 weight_decay = 0.1) }
Instead:
    train { optimizer = adamw(lr = 3e-4, weight_decay = 0.1) }
""",
    ),
    "P038": (
        "a comma that separates nothing",
        """
What: a comma stands before the first item, after another comma, or between statements.
Why: between two fields one comma may stand, and one after the last.
Example:
    parallel { tp = 8,, pp = 4 }
Instead:
    parallel { tp = 8, pp = 4 }
""",
    ),
    "P039": (
        "a word of the language as a name",
        """
What: one of `let import from assert phase allow auto on off in` is used as a name.
Why: these words have one meaning everywhere.
Example:
    let phase = 2
Instead:
    let second_phase = 2
""",
    ),
    "P040": (
        "something that starts nothing",
        """
What: a statement, field or block cannot start with what stands here.
Why: a file holds `let`, `import`, `assert`, `allow`, `phase` and blocks; a block holds fields and
blocks.
Example:
    parallel { 8 }
Instead:
    parallel { tp = 8 }
""",
    ),
    "P041": (
        "a field outside every block",
        """
What: a field stands at file level.
Why: every field belongs to a block; a value that several share is named by `let`.
Example:
    tp = 8
Instead:
    parallel { tp = 8 }
""",
    ),
    "P042": (
        "a statement in a block",
        """
What: `let`, `import`, `assert`, `allow` or `phase` stands in a block.
Why: they speak of the whole file and stand at its level.
Example:
    parallel {
      let width = 8
      tp = width
    }
Instead:
    let width = 8
    parallel { tp = width }
""",
    ),
    "P043": (
        "a block without body",
        """
What: a block has neither `{ … }` nor `from "preset"`, or something else stands before its `{`.
Why: a block is written `kind { … }`, `kind name { … }` or `kind from "preset"`.
Example:
    model
Instead:
    model from "llama3-70b"
""",
    ),
    "P044": (
        "an import without a path",
        """
What: `import` is not followed by a string.
Why: what is imported is a file, named relative to the one that imports it.
Example:
    import cluster.par
Instead:
    import "cluster.par"
""",
    ),
    "P045": (
        "a phase without name or body",
        """
What: `phase` is not followed by a name in quotation marks and `{ … }`.
Why: a phase changes blocks of the file; its name stands in reports and in the folder of its code.
Example:
    phase long { train { seq = 32Ki } }
Instead:
    phase "long" { train { seq = 32Ki } }
""",
    ),
    "P046": (
        "an allow without code or reason",
        """
What: `allow` needs the code of a rule and a reason in quotation marks.
Why: who reads the file later needs to know why the rule does not hold here.
Example:
    allow N201
Instead:
    allow N201 "measured: the fabric carries it"
""",
    ),
    "P047": (
        "an assert without comparison",
        """
What: an `assert` holds no `<`, `<=`, `>`, `>=`, `==` or `!=`.
Why: an assert compares two values; a value alone is neither true nor false.
Example:
    assert parallel.tp = 8
Instead:
    assert parallel.tp == 8
""",
    ),
    "P048": (
        "an assert with several comparisons",
        """
What: an `assert` goes on after its comparison, by another one, `and` or `or`.
Why: one comparison an assert lets a report say which one failed, and by how much.
Example:
    assert 10% < pipeline.bubble < 20%
Instead:
    assert 10% < pipeline.bubble
    assert pipeline.bubble < 20%
""",
    ),
    "P049": (
        "a comparison outside an assert",
        """
What: a value is compared in a field, a `let` or an argument.
Why: the language has no conditions. `auto <= 8` bounds what the compiler may choose.
Example:
    parallel { tp = width <= 8 }
Instead:
    parallel { tp = auto <= 8 }
""",
    ),
    "P050": (
        "a name is missing",
        """
What: something else stands where a name is needed.
Why: a `let` names a value; a path is made of names and points.
Example:
    let 8 = width
Instead:
    let width = 8
""",
    ),
    "P051": (
        "a field's name in quotation marks",
        """
What: the name of a field is written as a string.
Why: names stand as they are; strings name presets, files and phases.
Example:
    parallel { "tp" = 8 }
Instead:
    parallel { tp = 8 }
""",
    ),
    "P052": (
        "a preset without quotation marks",
        """
What: `from` is not followed by a string.
Why: names of presets hold `-` and `.`, which would be arithmetic.
Example:
    model from llama3-70b
Instead:
    model from "llama3-70b"
""",
    ),
    "P053": (
        "a field right in a phase",
        """
What: a field stands in a phase without a block around it.
Why: a phase holds the blocks that it changes.
Example:
    phase "long" { seq = 32Ki }
Instead:
    phase "long" { train { seq = 32Ki } }
""",
    ),
    "P055": (
        "a restriction of auto that is none",
        """
What: `auto` is followed by something else than `in [ … ]` or `<= …`.
Why: the compiler chooses from a list or up to a bound.
Example:
    parallel { tp = auto < 16 }
Instead:
    parallel { tp = auto <= 8 }
""",
    ),
    "P056": (
        "a path that is given a value",
        """
What: a path such as `parallel.tp` stands on the left of `=`.
Why: paths read values; a field is set in its block.
Example:
    parallel.tp = 8
Instead:
    parallel { tp = 8 }
""",
    ),
    "P057": (
        "`=` before a block",
        """
What: `=` or `:` stands between a block's name and its `{`.
Why: a block is no value; it is written `name { … }`.
Example:
    parallel = { tp = 8 }
Instead:
    parallel { tp = 8 }
""",
    ),
    "P058": (
        "auto within an expression",
        """
What: `auto` is an operand.
Why: it stands for a value that is not known while expressions are computed.
Example:
    parallel { tp = auto * 2 }
Instead:
    parallel { tp = auto in [2, 4, 8] }
""",
    ),
}

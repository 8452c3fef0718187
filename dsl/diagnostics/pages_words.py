"""Pages: characters, strings, comments and numbers."""

PAGES: dict[str, tuple[str, str]] = {
    "P010": (
        "a sign that is not of the language",
        """
What: a sign stands where the language has no use for it: `@`, `&&`, `^`, a lone `%` or `$`.
Why: the operators are `+ - * / //`; `%` and `$/h` are units and belong to their number.
Example:
    train { micro_batch = global % 3 }
Instead:
    train { micro_batch = global - global // 3 * 3 }
""",
    ),
    "P011": (
        "a character that is not seen",
        """
What: a control character, a mark of writing direction, or a character without width.
Why: what is read must be what is seen. Such characters hide text, reorder it, or take over the
terminal it is shown on. In a comment they are a warning.
Example:
    model from "llama3\x0870b"
Instead:
    model from "llama3-70b"
""",
    ),
    "P012": (
        "a character that looks like another",
        """
What: a letter, digit, sign or space of another alphabet that looks like one of the language.
Why: it comes from a copied web page or another keyboard. Two names that look the same would be two.
Example:
    parallel { tp = 8, pp = 16 − 12 }
Instead:
    parallel { tp = 8, pp = 16 - 12 }
""",
    ),
    "P013": (
        "a name with other letters",
        """
What: a name holds a letter beyond ASCII.
Why: names are letters from a to z, digits and `_`, so that each can be typed on every keyboard.
Strings and comments may hold any letter.
Example:
    let größe = 4
Instead:
    let size = 4
""",
    ),
    "P014": (
        "a string that is not closed",
        """
What: a string has no `"` at its end.
Why: a string stands on one line; without its end the rest of the line would belong to it.
Example:
    model from "llama3-70b
Instead:
    model from "llama3-70b"
""",
    ),
    "P015": (
        "a string over several lines",
        """
What: a string goes on over the end of its line.
Why: strings name presets, files and phases. `\\n` writes a line break where one is meant.
Example:
    allow N201 "the fabric is fast
    enough here"
Instead:
    allow N201 "the fabric is fast enough here"
""",
    ),
    "P016": (
        "an unknown escape",
        """
What: a backslash in a string stands before something else than `"`, `\\` or `n`.
Why: the escapes are `\\"`, `\\\\` and `\\n`. A backslash itself is written twice.
Example:
    import "common\\cluster.par"
Instead:
    import "common/cluster.par"
""",
    ),
    "P017": (
        "quotation marks of another kind",
        """
What: a string stands in `'`, `` ` ``, or in the marks that a text editor made of `"`.
Why: one kind of string needs one kind of mark.
Example:
    model from 'llama3-70b'
Instead:
    model from "llama3-70b"
""",
    ),
    "P018": (
        "a comment of another language",
        """
What: a comment starts with `//` or `/*`.
Why: a comment starts with `#`; `//` is the division that rounds down.
Example:
    parallel { tp = 8 } // one node wide
Instead:
    parallel { tp = 8 } # one node wide
""",
    ),
    "P019": (
        "a semicolon",
        """
What: a `;` stands between fields or statements.
Why: a comma or a new line separates fields; statements need nothing between them.
Example:
    parallel { tp = 8; pp = 4 }
Instead:
    parallel { tp = 8, pp = 4 }
""",
    ),
    "P020": (
        "a number with too many digits",
        """
What: a number has more than 40 digits.
Why: numbers are held exactly, and none of a training job needs so many.
Example:
    let tokens = 15600000000000000000000000000000000000000000
Instead:
    let tokens = 15.6T
""",
    ),
    "P021": (
        "an exponent out of range",
        """
What: an exponent lies outside -30 to 30.
Why: no quantity of a training job is so large or so small.
Example:
    train { tokens = 1e120 }
Instead:
    train { tokens = 1e12 }
""",
    ),
    "P022": (
        "an unknown unit",
        """
What: the letters right after a number are no unit.
Why: counts are `k M B T` and `Ki Mi Gi`, data `B kB MB GB TB` and `KiB MiB GiB TiB`, rates `Gb/s`
(bits) and `GB/s TB/s GiB/s` (bytes), compute `GFLOP/s TFLOP/s PFLOP/s`, times `ns us ms s min h d`,
shares `%`, money `$/h`. A division has a space before its `/`.
Example:
    cluster { node { nic { bandwidth = 400Gbps } } }
Instead:
    cluster { node { nic { bandwidth = 400Gb/s } } }
""",
    ),
    "P023": (
        "a space between number and unit",
        """
What: a space stands between a number and its unit.
Why: a quantity is one word. Otherwise `8 h = 3` could be eight hours or two fields.
Example:
    train { seq = 8 Ki }
Instead:
    train { seq = 8Ki }
""",
    ),
    "P024": (
        "a malformed number",
        """
What: `.5`, `5.`, `1__000`, `1.2.3`, `0x10` or `1e`.
Why: a number is decimal, has digits on both sides of its point, and `_` between two digits.
Example:
    train { seq = 1__024 }
Instead:
    train { seq = 1_024 }
""",
    ),
}

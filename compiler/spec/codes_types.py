"""Pages: types, dimensions, options of variants, and `auto`."""

PAGES: dict[str, tuple[str, str]] = {
    "T101": (
        "a value of the wrong type",
        """
What: a field takes a number, a string, a switch, a list or a name, and got another of these.
Why: each field has one type, which `parlay explain --field` and the reference name.
Example:
    parallel { tp = "8" }
Instead:
    parallel { tp = 8 }
""",
    ),
    "T102": (
        "a value of the wrong dimension",
        """
What: a field takes an amount of data, a rate, a time, a share or a plain number, and got a value
of another dimension.
Why: 400 Gb and 400 Gb/s differ by what is asked; units are checked so that neither stands for the
other.
Example:
    cluster { node from "dgx-h100" { nic { bandwidth = 50GB } } }
Instead:
    cluster { node from "dgx-h100" { nic { bandwidth = 50GB/s } } }
""",
    ),
    "T103": (
        "dimensions that do not join",
        """
What: an operator stands between two values whose dimensions it does not join.
Why: bytes and seconds have no sum. Data over time is a rate, a rate by a time is data.
Example:
    let wait = 80GB + 2s
Instead:
    let wait = 80GB / 2s
""",
    ),
    "T104": (
        "7B may be bytes or 10^9",
        """
What: `B` follows a number where no field says whether bytes or billions are meant.
Why: `tokens = 7B` counts and `memory = 7B` weighs; in a `let` it could be either.
Example:
    let budget = 7B
Instead:
    let budget = 7_000M
""",
    ),
    "T105": (
        "a number that is not whole",
        """
What: a field counts things, and its value leaves a remainder.
Why: values are exact and never rounded; `a // b`, `floor(…)` and `ceil(…)` say which way.
Example:
    parallel { pp = 7 / 2 }
Instead:
    parallel { pp = 7 // 2 }
""",
    ),
    "T106": (
        "a value out of its bounds",
        """
What: a value lies below or above what its field can have.
Why: no job has half a rank, a share above 1 or a link without bandwidth.
Example:
    parallel { tp = 0 }
Instead:
    parallel { tp = 1 }
""",
    ),
    "T107": (
        "a value beyond anything a job can have",
        """
What: an expression comes to more than 10^60, or needs a fraction of thousands of digits.
Why: values are exact, so such a number would take memory and time without end.
Example:
    let many = 1e30 * 1e30 * 10
Instead:
    let many = 1e3 * 1e3 * 10
""",
    ),
    "T108": (
        "division by zero",
        """
What: the right side of `/` or `//` is 0.
Why: the result has no value.
Example:
    let each = 64 / 0
Instead:
    let each = 64 / 8
""",
    ),
    "T109": (
        "no such value",
        """
What: a field takes one of a few names and got another one.
Why: `fp8` and `mxfp8` are different arithmetic; nothing near is taken in its place.
Example:
    parallel { cp_method = rings }
Instead:
    parallel { cp_method = ring }
""",
    ),
    "T110": (
        "no such option",
        """
What: a value with options got one that it does not have.
Why: a misspelt option would leave the default standing.
Example:
    parallel { pp = 2, schedule = interleaved(chunk = 2) }
Instead:
    parallel { pp = 2, schedule = interleaved(chunks = 2) }
""",
    ),
    "T111": (
        "an option is missing",
        """
What: a value lacks an option that has no default.
Why: a learning rate or the shape of a ring cannot be guessed.
Example:
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, optimizer = adamw(eps = 1e-8) }
Instead:
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, optimizer = adamw(lr = 3e-4) }
""",
    ),
    "T112": (
        "arguments that a function does not take",
        """
What: `min`, `max`, `ceil`, `floor` or a value with options got arguments it has no place for.
Why: `ceil` and `floor` take one number, `min` and `max` one or more, none of them by name.
Example:
    let half = floor(7, 2)
Instead:
    let half = floor(7 / 2)
""",
    ),
    "T113": (
        "a field that cannot be auto",
        """
What: `auto` stands in a field that the compiler does not choose.
Why: the layout may be searched; what is trained, and on how many sequences, is the user's word.
Example:
    train { seq = auto, micro_batch = 1, global_batch = 64 }
Instead:
    train { seq = 8Ki, micro_batch = 1, global_batch = 64 }
""",
    ),
    "T114": (
        "the file is a search problem",
        """
What: a note: `auto` leaves these fields open.
Why: what can be checked without them is checked; a rule that reads one of them is not asked.
Example:
    parallel { tp = auto, pp = 2 }
Instead:
    parallel { tp = 8, pp = 2 }
""",
    ),
    "T115": (
        "auto has no solution",
        """
What: `dp = auto` follows from the cluster and the other degrees, and comes to a value that its
restriction leaves out.
Why: the degrees and the restriction contradict each other; neither gives way in silence.
Example:
    cluster { nodes = 2, node from "dgx-h100" }
    parallel { tp = 8, dp = auto in [4, 8] }
Instead:
    cluster { nodes = 2, node from "dgx-h100" }
    parallel { tp = 8, dp = auto in [2, 4] }
""",
    ),
    "T116": (
        "a command needs what is open",
        """
What: `compile`, `run` or `verify` was asked for a file whose layout is left open by `auto`.
Why: code is emitted for one layout.
Example:
    parallel { tp = auto }
Instead:
    parallel { tp = 2 }
""",
    ),
}

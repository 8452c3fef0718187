"""Characters that do not belong in source text, and what was probably meant by them."""

from __future__ import annotations

HIDDEN = (
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u180e\\u200b\\u200e\\u200f"
    "\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufeff\\uffa0\\ufff9-\\ufffb\\ud800-\\udfff"
    "\\U000e0000-\\U000e007f"
)
"""The inside of a regular expression's class: control characters but tab and line feed, marks of
writing direction, what takes no room, halves of surrogate pairs."""

_SYMBOLS = {
    "−": "-",
    "–": "-",
    "—": "-",
    "‐": "-",
    "‑": "-",
    "×": "*",
    "·": "*",
    "∗": "*",
    "⋅": "*",
    "÷": "/",
    "∕": "/",
    "⁄": "/",
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
    "＝": "=",
    "，": ",",
    "、": ",",
    "；": ";",
    "：": ":",
    "（": "(",
    "）": ")",
    "［": "[",
    "］": "]",
    "｛": "{",
    "｝": "}",
    "＋": "+",
    "－": "-",
    "＊": "*",
    "／": "/",
    "＜": "<",
    "＞": ">",
}
_LETTERS = dict(
    zip(
        "АВЕЅІЈКМНОРСТУХԛаеіјкмортсухѕһԁΑΒΕΖΗΙΚΜΝΟΡΤΥΧοιν",
        "ABESIJKMHOPCTYXqaeijkmoptcyxshdABEZHIKMNOPTYXoiv",
        strict=True,
    )
)
_SPACES = frozenset("\u00a0\u1680\u202f\u205f\u3000") | {chr(c) for c in range(0x2000, 0x200B)}

QUOTES = {
    "'": "'",
    "`": "`",
    "‘": "’'",
    "’": "’",
    "‚": "‘’",
    "“": '”"',
    "”": "”",
    "„": "“”",
    "«": "»",
    "»": "«",
    "「": "」",
    "＂": "＂",
}
"""An opening quotation mark of another kind -> what may close it."""


def plain_symbol(character: str) -> str | None:
    """The operator, bracket or space that `character` looks like, if it looks like one."""
    if character in _SPACES:
        return " "
    return _SYMBOLS.get(character)


def plain_word(word: str) -> str | None:
    """`word` in the ASCII letters and digits it looks like, if all of it looks like some."""
    # Only texts that need it pay for the import.
    from unicodedata import digit, normalize

    letters: list[str] = []
    for letter in word:
        plain = _LETTERS.get(letter) or normalize("NFKC", letter)
        if not plain.isascii() and len(plain) == 1 and digit(plain, None) is not None:
            plain = str(digit(plain))
        letters.append(plain)
    text = "".join(letters)
    return text if text.isascii() and text.replace("_", "a").isalnum() else None


def code_points(text: str, at_most: int = 4) -> str:
    """`U+200B U+FEFF`: the characters of `text` by number."""
    shown = " ".join(f"U+{ord(character):04X}" for character in text[:at_most])
    return shown + (" …" if len(text) > at_most else "")


def quoted(text: str, at_most: int = 40) -> str:
    """`text` in backquotes, cut where it is long."""
    if len(text) > at_most:
        text = text[: at_most - 1] + "…"
    return f"`{text}`"

"""Names that Kubernetes takes: DNS labels of RFC 1035, and what pods are called after them."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import PurePath
from typing import Final

LONGEST: Final = 40
"""A pod is called NAME-node-0-INDEX-SUFFIX, 63 characters at most: 23 are left for the rest."""

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_SUBDOMAIN: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.A
)
_QUALIFIED: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_WORDS: Final = re.compile(r"[a-z0-9]+( [a-z0-9]+)*", re.ASCII)


def job_name(file: str, phase: str, entry: str = "") -> str:
    """The name of a phase's job: at most 40 letters, digits and hyphens, the first a letter.

    `entry` tells jobs of one phase apart that start different code.

    Two phases of a file never share one: what a name loses, a hash makes up for.
    `runs/70B run.par`, `long context` --> `parlay-70b-run-long-context`
    """
    name = plain(PurePath(file).name.removesuffix(".par"))
    if phase != "main":
        name = f"{name}-{plain(phase)}" if plain(phase) else name
        name = name if _WORDS.fullmatch(phase) else f"{name}-{_hash(phase)}"
    name = f"{name.strip('-') or 'job'}-{entry}".strip("-")
    name = name if name[0].isalpha() else f"parlay-{name}"
    if len(name) > LONGEST:
        name = f"{name[: LONGEST - 7].rstrip('-')}-{_hash(f'{file}/{phase}/{entry}')}"
    return name


def plain(text: str) -> str:
    """Lower-case letters, digits and single hyphens; empty where nothing of that is in a text."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:6]


def label(text: str) -> bool:
    """Whether a text is a DNS label of RFC 1123: a namespace."""
    return _LABEL.fullmatch(text) is not None


def subdomain(text: str) -> bool:
    """Whether a text is a DNS subdomain of RFC 1123: a claim, a secret, an account."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


def qualified(text: str) -> bool:
    """Whether a text names a resource, a label or a taint: `nvidia.com/gpu`, `zone`."""
    prefix, slash, name = text.rpartition("/")
    return _QUALIFIED.fullmatch(name) is not None and (not slash or subdomain(prefix))


def label_value(text: str) -> bool:
    """Whether a text is the value of a label."""
    return text == "" or _QUALIFIED.fullmatch(text) is not None

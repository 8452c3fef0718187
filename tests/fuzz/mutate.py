"""Inputs for the fuzzer: bytes, tokens and trees of real files, changed by a seeded chance."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from parlay.compiler import catalog
from parlay.compiler.commands.explain import all_codes, page_of, sections
from parlay.compiler.spec.asserting import VALUES
from parlay.compiler.spec.resolve import schemas
from parlay.compiler.spec.schema import Choice, Variant
from parlay.dsl.tokens import KEYWORDS
from parlay.dsl.units import UNITS

ROOT = Path(__file__).resolve().parents[2]
TOKEN = re.compile(r'#[^\n]*|"[^"\n]*"?|\w+|\s+|.', re.DOTALL)
SIGNS = (*"{}[]()=,.-+*/<:", "//", "<=", "==")
ODD = (
    *("\u202e", "\ufeff", "\u00a0", "\u200b", "é", "ｔｐ", "“", "\r", "\t", "\0", "\x1b[2J", "\\"),
    *("9" * 41, "1e40", "1e-40", "0", "-1", "1e999", "0x10", "1__0", ".5", "5.", "1 / 0", "1 // 0"),
    *('"' + "a" * 300 + '"', '"../../etc/passwd"', '"/dev/zero"', "'", "/*", ";", "$(reboot)"),
)


def seeds() -> list[str]:
    """Real files: the examples, the samples of the tests and the examples of every page."""
    texts = [path.read_text() for path in sorted((ROOT / "examples").rglob("*.par"))]
    texts += [path.read_text() for path in sorted((ROOT / "tests").rglob("*.par"))]
    for code in all_codes():
        for name, lines in sections((page_of(code) or "").partition("\n")[2]):
            if name in ("Example", "Instead"):
                texts.append("\n".join(lines) + "\n")
    texts.append(EVERYTHING)
    return [text for text in dict.fromkeys(texts) if text.strip()]


EVERYTHING = """import "other.par"
let width = 8Ki
let half = width // 2
model everything from "deepseek-v3" { layers = 8, mtp_layers = 1 }
cluster {
  nodes = 16
  node from "dgx-h100" { gpus = 8, nic { count = 8, bandwidth = 400Gb/s } }
  fabric { kind = infiniband, oversubscription = 1.5 }
  reliability { gpu_mtbf = 50000h }
}
parallel {
  tp = auto in [1, 2, 4]
  pp = auto <= 8
  ep = min(8, 16)
  dp = auto
  schedule = interleaved(chunks = 2)
  offload = cpu(optimizer, params)
  order = [tp, cp, dp, pp]
}
train {
  seq = half
  micro_batch = 1
  global_batch = 4 * width // (half + 0)
  precision = fp8
  recompute = selective(core_attention, mlp)
  optimizer = adamw(lr = 3e-4, betas = [0.9, 0.95], states = bf16)
  tokens = 1.5T
}
budget { memory = 95%, reserve = 2GiB }
target "megatron" { version = "0.19", options { moe_token_dispatcher_type = flex } }
allow N201 "measured"
assert memory.peak <= 90% * gpu.memory
assert pipeline.bubble < 10%
phase "long" { train { seq = 2 * width, tokens = 80B } parallel { cp = 2 } }
"""


class Mutator:
    """Makes input after input from a seed; the same seed makes the same inputs."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.texts = seeds()
        names = [part for path in schemas() for part in path.split(".")]
        for schema in schemas().values():
            for type_ in schema.types:
                if isinstance(type_, Variant):
                    names += [case.name for case in type_.cases]
                    names += [option.name for case in type_.cases for option in case.options]
                elif isinstance(type_, Choice):
                    names += type_.values
        presets = [f'"{name}"' for kind in catalog.KINDS for name in catalog.names(kind)]
        numbers = ["1", "2", "3", "7", "8", "64", "1.5", "1e3", "100000000000000000000"]
        sized = [f"{number}{unit}" for unit in UNITS for number in ("1", "8", "2.5")]
        self.words = [
            *dict.fromkeys(names),
            *sorted(KEYWORDS),
            *SIGNS,
            *numbers,
            *sized,
            *presets,
            *schemas(),
            *VALUES,
            *("cluster.gpus", "gpu.memory", "min(", "max(1, 2)", "ceil(3 / 2)", "\n", " "),
            *ODD,
        ]

    def inputs(self, count: int) -> Iterator[bytes]:
        """`count` inputs of every kind."""
        kinds: tuple[Callable[[], bytes], ...] = (self.tokens, self.tokens, self.tree, self.bytes)
        for _ in range(count):
            yield self.random.choice(kinds)()

    # ── Kinds ─────────────────────────────────────────────────────────────────

    def bytes(self) -> bytes:
        """A file with some of its bytes changed, lost, doubled or cut off."""
        chance = self.random
        data = bytearray(chance.choice(self.texts).encode())
        for _ in range(chance.randint(1, 12)):
            at = chance.randrange(len(data) + 1)
            match chance.randrange(5):
                case 0:
                    data[at : at + 1] = bytes([chance.randrange(256)])
                case 1:
                    del data[at : at + chance.randint(1, 60)]
                case 2:
                    data[at:at] = bytes(chance.randrange(256) for _ in range(4))
                case 3:
                    data[at:at] = data[at : at + chance.randint(1, 60)]
                case 4:
                    data = data[: max(1, at)]
        return bytes(data)

    def tokens(self) -> bytes:
        """A file with some of its words replaced, lost, moved or put in from elsewhere."""
        chance = self.random
        words: list[str] = TOKEN.findall(chance.choice(self.texts))
        for _ in range(chance.choice((1, 1, 2, 3, 6, 12))):
            if not words:
                break
            at = chance.randrange(len(words))
            match chance.randrange(6):
                case 0:
                    del words[at]
                case 1:
                    words.insert(at, chance.choice(self.words))
                case 2 | 3:
                    # A word in place of a word, more often than of a gap.
                    while words[at].isspace() and chance.random() < 0.8:
                        at = chance.randrange(len(words))
                    words[at] = chance.choice(self.words)
                case 4:
                    other = chance.randrange(len(words))
                    words[at], words[other] = words[other], words[at]
                case 5:
                    stolen = TOKEN.findall(chance.choice(self.texts))
                    start = chance.randrange(len(stolen))
                    words[at:at] = stolen[start : start + chance.randint(1, 20)]
        return "".join(words).encode("utf-8", "surrogatepass")

    def tree(self) -> bytes:
        """Right syntax, odd sense: blocks of fields of the schema with values of any kind."""
        chance = self.random
        lines = [self._value("let x")] if chance.random() < 0.3 else []
        if chance.random() < 0.7:
            lines.append(f'model from "{chance.choice(catalog.names("model"))}"')
        if chance.random() < 0.7:
            node = chance.choice(catalog.names("node"))
            lines.append(f'cluster {{ nodes = {chance.choice((1, 2, 8, 64))} node from "{node}" }}')
        given: dict[str, set[str]] = {}
        paths = list(schemas())
        for _ in range(chance.randint(1, 12)):
            path = chance.choice(paths)
            block, _, name = path.rpartition(".")
            if lines and any(line.startswith(block.partition(".")[0]) for line in lines):
                continue
            given.setdefault(block, set()).add(self._value(name))
        for block, fields in given.items():
            *outer, last = block.split(".")
            text = f"{last} {{ {', '.join(sorted(fields))} }}"
            for name in reversed(outer):
                text = f"{name} {{ {text} }}"
            lines.append(text)
        if chance.random() < 0.6:
            sizes = (1, 2, 3, 4, 8, 16)
            degrees = [f"{axis} = {chance.choice(sizes)}" for axis in ("tp", "pp", "cp")]
            lines.append("parallel { " + ", ".join(degrees) + " }")
        if chance.random() < 0.6:
            seq = chance.choice((1, 512, 4096, 131072, 10**12))
            micro, batch = chance.choice((1, 2, 3)), chance.choice((1, 16, 1000, 10**9))
            fields = f"seq = {seq}, micro_batch = {micro}, global_batch = {batch}"
            lines.append(f"train {{ {fields} }}")
        chance.shuffle(lines)
        if chance.random() < 0.3:
            inner = "\n".join(line for line in lines if not line.startswith("let"))
            lines.append(f'phase "p" {{ {inner} }}')
        return "\n".join(lines).encode()

    def _value(self, name: str) -> str:
        chance = self.random
        path = [path for path in schemas() if path.rpartition(".")[2] == name]
        words = []
        for each in path:
            for type_ in schemas()[each].types:
                if isinstance(type_, Choice):
                    words += type_.values
                elif isinstance(type_, Variant):
                    words += [case.name for case in type_.cases]
        if words and chance.random() < 0.7:
            return f"{name} = {chance.choice(words)}"
        return f"{name} = {self._expression(0)}"

    def _expression(self, deep: int) -> str:
        chance = self.random
        match chance.randrange(4 if deep < 4 else 2):
            case 0:
                unit = chance.choice(list(UNITS))
                return f"{chance.choice((0, 1, 2, 3, 8, 100, 4096, 10**18))}{unit}"
            case 1:
                return chance.choice((*schemas(), "x", "auto", "on", '"s"', "cluster.gpus"))
            case 2:
                sign = chance.choice(("+", "-", "*", "/", "//"))
                return f"({self._expression(deep + 1)} {sign} {self._expression(deep + 1)})"
        name = chance.choice(("min", "max", "ceil", "floor", "adamw", "cpu"))
        return f"{name}({self._expression(deep + 1)}, {self._expression(deep + 1)})"

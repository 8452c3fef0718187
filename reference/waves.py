"""How fast each pair of rotary features turns, one after the other, and how large it is drawn."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parlay.reference.config import Config


def waves(config: Config, half: int, s: int) -> tuple[list[float], float]:
    """Radians a token of `half` pairs of features, of sequences of s tokens, and the factor of
    their cosines and sines."""
    plain = [config.rope_theta ** (-pair / half) for pair in range(half)]
    bands = config.rope_bands
    if bands is None:
        return plain, 1.0
    if bands["name"] == "llama3":
        return [_llama3(bands, each) for each in plain], 1.0
    if bands["name"] == "dynamic":
        return _dynamic(config, bands["factor"], half, s), 1.0
    if bands["name"] == "longrope":
        used = bands["long"] if s > bands["original"] else bands["short"]
        return [own / by for own, by in zip(plain, used, strict=True)], _longrope_size(bands)
    if bands["name"] != "yarn":
        raise ValueError(f"no bands `{bands['name']}`: llama3, yarn, longrope or dynamic")
    size = bands["attention_factor"]
    if size is None:
        size = _temper(bands, "mscale") / _temper(bands, "mscale_all_dim")
    return [_yarn(config, bands, pair, half) for pair in range(half)], size


def steepness(bands: dict[str, Any]) -> float:
    """What scores of latent attention are multiplied with: both sides of them grow."""
    return _temper(bands, "mscale_all_dim") ** 2 if bands["name"] == "yarn" else 1.0


def _longrope_size(bands: dict[str, Any]) -> float:
    """How many times longer the context became, as a power of what it was before."""
    if bands["attention_factor"] is not None:
        return float(bands["attention_factor"])
    return math.sqrt(1 + math.log(bands["factor"], bands["original"]))


def _temper(bands: dict[str, Any], name: str) -> float:
    return 1 + bands[name] * math.log(bands["factor"]) / 10


def _llama3(bands: dict[str, Any], turn: float) -> float:
    """Waves longer than original / low_freq are stretched, those shorter than original / high_freq
    are not."""
    length = 2 * math.pi / turn
    if length <= bands["original"] / bands["high_freq"]:
        return turn
    if length >= bands["original"] / bands["low_freq"]:
        return turn / bands["factor"]
    way = (bands["original"] / length - bands["low_freq"]) / (
        bands["high_freq"] - bands["low_freq"]
    )
    return turn * (way + (1 - way) / bands["factor"])


def _yarn(config: Config, bands: dict[str, Any], pair: int, half: int) -> float:
    """One pair of features; the ends of the mixture are pairs, or lie between them."""
    longest = config.rope_theta ** (1 / half)  # how much longer each wave is than the one before

    def place(turns: float) -> float:
        return math.log(bands["original"] / (turns * 2 * math.pi), longest)

    start, end = place(bands["beta_fast"]), place(bands["beta_slow"])
    if bands["truncate"]:
        start, end = math.floor(start), math.ceil(end)
    start, end = max(0, start), min(2 * half - 1, end)
    if start == end:
        end += 1e-3
    mixed = min(1.0, max(0.0, (pair - start) / (end - start)))
    own = config.rope_theta ** (-pair / half)
    return own + mixed * (own / bands["factor"] - own)


def _dynamic(config: Config, factor: float, half: int, s: int) -> list[float]:
    """Beyond the context the base grows, so that the longest wave grows with the sequence."""
    if config.context is None:
        raise ValueError("dynamic bands need `context`")
    longer = 1 + factor * (max(s, config.context) / config.context - 1)
    base = config.rope_theta * longer ** (half / (half - 1))
    return [base ** (-pair / half) for pair in range(half)]

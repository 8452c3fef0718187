"""The order of samples: a permutation of each epoch that nothing keeps in memory. Pure Python."""

from __future__ import annotations

_WORD = (1 << 64) - 1
_ROUNDS = 8


def mixed(value: int) -> int:
    """The finaliser of splitmix64: a bijection on 64 bits in which every bit stirs every other."""
    value = (value + 0x9E3779B97F4A7C15) & _WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _WORD
    return value ^ (value >> 31)


def permuted(index: int, *, size: int, key: int) -> int:
    """Where a permutation of range(size), chosen by `key`, sends `index`.

    A balanced Feistel network permutes the next power of four; a value that falls outside
    range(size) is sent through again until it falls inside, which keeps it a permutation.
    """
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    keys = [mixed(key + turn) for turn in range(_ROUNDS)]
    while True:
        left, right = index >> half, index & mask
        for stirred in keys:
            left, right = right, left ^ (mixed(right ^ stirred) & mask)
        index = (left << half) | right
        if index < size:
            return index

"""The catalog: models, accelerators and nodes, one TOML fact file each with its source."""

from parlay.compiler.catalog.load import KINDS, Preset, load, names

__all__ = ["KINDS", "Preset", "load", "names"]

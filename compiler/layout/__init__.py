"""The layout algebra: a spec's ranks as points of two grids, its groups as lines and planes."""

from parlay.compiler.layout.describe import to_json
from parlay.compiler.layout.groups import Group, Reach
from parlay.compiler.layout.layout import Layout, lay_out
from parlay.compiler.layout.placement import Placement
from parlay.compiler.layout.stages import Stage

__all__ = ["Group", "Layout", "Placement", "Reach", "Stage", "lay_out", "to_json"]

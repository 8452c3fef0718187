"""The blocks of the language: every field with its dimension, default and doc line.

THE one table. The resolved spec is made of these classes; a field's metadata is its schema.
A field whose value is in error, or left to the planner, is None in the spec: a rule names what
it reads and is not asked where a part of that is missing.
"""

from parlay.compiler.spec.blocks.cluster import Cluster, Fabric, Gpu, Host, Link, Nic, Node, Nvme
from parlay.compiler.spec.blocks.job import Budget, Checkpoint, Data, Log, Spec, Target
from parlay.compiler.spec.blocks.model import BIASED, GATED, Experts, Mla, Model
from parlay.compiler.spec.blocks.parallel import AXES, Parallel
from parlay.compiler.spec.blocks.train import Train

__all__ = [
    "AXES",
    "BIASED",
    "GATED",
    "Budget",
    "Checkpoint",
    "Cluster",
    "Data",
    "Experts",
    "Fabric",
    "Gpu",
    "Host",
    "Link",
    "Log",
    "Mla",
    "Model",
    "Nic",
    "Node",
    "Nvme",
    "Parallel",
    "Spec",
    "Target",
    "Train",
]

"""Importing this lets `megatron.training` be imported on a machine without GPU and on Python 3.11.

MEGATRON names the folder of a `megatron-core` wheel that carries `megatron.training`.
"""

import functools
import inspect
import os
import sys
import typing

sys.path.insert(0, os.environ["MEGATRON"])
os.environ.setdefault("RANK", "0")
os.environ.setdefault("WORLD_SIZE", "1")
if not hasattr(typing, "override"):  # the one thing of Python 3.12 that it needs
    typing.override = lambda function: function

# Every parser looks up the docstrings of the same classes for its help.
inspect.getsource = functools.cache(inspect.getsource)

import absent  # noqa: E402, F401
import torch  # noqa: E402


class Gpu:
    """What validation asks of the device: an H100 unless a question names another capability."""

    major, minor = 9, 0
    total_memory = 80 << 30
    name = "accelerator"
    multi_processor_count = 132


# Fused functions are compiled at import: nothing is run here, so nothing is compiled.
torch.compile = lambda function=None, **_: function or (lambda inner: inner)
torch.cuda.get_device_properties = lambda *_, **__: Gpu
torch.cuda.get_device_capability = lambda *_, **__: (Gpu.major, Gpu.minor)


def with_transformer_engine(version="2.9.0"):
    """Answers for the version of Transformer Engine, which cannot be installed on a CPU."""
    import megatron.core.utils as utils
    from packaging.version import Version

    utils._te_version = Version(version)

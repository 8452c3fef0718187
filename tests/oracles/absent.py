"""Importing this makes `import triton` and its like succeed where they are not installed.

Frameworks import kernels at the top of their modules; their parsers never run one. Every name of
such a module is a class that can be called, indexed, subclassed and used as a decorator.
"""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

ABSENT = ("triton",)


class _Any(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _made(name)

    def __getitem__(cls, _):
        return cls

    def __call__(cls, *args, **kwargs):
        # `@jit` gets the function itself, `@jit(…)` gets options and gives a decorator.
        if len(args) == 1 and callable(args[0]) and not kwargs:
            return args[0]
        return lambda *inner, **_: inner[0] if inner else cls


def _made(name):
    return _Any(name, (), {})


class _Module(ModuleType):
    __path__ = ()
    __version__ = "3.9.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, _made(name))
        return getattr(self, name)


class _Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


MISSING = [name for name in ABSENT if importlib.util.find_spec(name) is None]
if MISSING:
    sys.meta_path.append(_Finder())

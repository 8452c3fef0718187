"""Prints the table of options of a Megatron-LM: one JSON object, an option string a line.

`{"--lr": {"dest": "lr", "kind": "value", "type": "float"}, …}`; kinds are `on` and `off` (flags
that set their dest to true or false), `value`, `list` and `const`. What is printed is committed as
compiler/backends/megatron/options/VERSION.json.
"""

import argparse
import contextlib
import enum
import io
import json

import megatron_env  # noqa: F401


def kind(action):
    if isinstance(action, argparse._StoreTrueAction):
        return "on"
    if isinstance(action, argparse._StoreFalseAction):
        return "off"
    if isinstance(action, argparse._StoreConstAction):
        return "const"
    if action.nargs in ("*", "+") or (isinstance(action.nargs, int) and action.nargs > 1):
        return "list"
    return "value"


def plain(value):
    if isinstance(value, enum.Enum):
        return value.name
    return value if isinstance(value, str | int | float | bool) else str(value)


def row(action):
    found = {"dest": action.dest, "kind": kind(action)}
    if action.type in (int, float, str):
        found["type"] = action.type.__name__
    elif action.type is not None:
        found["type"] = "other"
    if action.choices is not None:
        found["choices"] = [plain(choice) for choice in action.choices]
    if isinstance(action, argparse.BooleanOptionalAction):
        found["kind"] = "switch"
    return found


with contextlib.redirect_stdout(io.StringIO()):
    from megatron.training.arguments import add_megatron_arguments

    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_megatron_arguments(parser)
table = {}
for action in parser._actions:
    for option in action.option_strings:
        if option.startswith("--") and option != "--help":
            table[option] = row(action)
lines = (f" {json.dumps(name)}: {json.dumps(table[name])}" for name in sorted(table))
print("{\n" + ",\n".join(lines) + "\n}")

"""Fields, well written or not."""

from __future__ import annotations

from parlay.dsl import faults
from parlay.dsl.cursor import Lost
from parlay.dsl.parse_values import Values
from parlay.dsl.syntax import Field, Name

VALUE_AHEAD = frozenset({"number", "string", "[", "on", "off", "auto", "-"})
"""What after a name can only be the value of a field without its `=`."""
GIVES = frozenset({"=", "==", ":", "<=", "<", ">", ">=", "!="})
"""What is written between a field's name and its value, rightly or not."""


class Fields(Values):
    """Reads one field or raises `Lost`."""

    def field_ahead(self) -> bool:
        """The current name starts a field, well written or not, rather than a block."""
        sign, third = self.after(), self.after(2)
        if sign.kind in GIVES:
            return third.kind != "{"
        if sign.kind in ("(", "."):
            return True
        if not self.same_line(self.here, sign):
            # Alone on its line: in a block rather a field without value.
            return False
        if sign.kind in ("name", "string"):
            return bool(self.open) and third.kind not in ("{", "from", *GIVES)
        return sign.kind in VALUE_AHEAD

    def field(self) -> Field:
        """`name = value` or `name(…)`."""
        sign = self.after()
        if sign.kind == "(":
            call = self.call()
            return Field(call.name, call, True, call.span)
        if sign.kind == ".":
            self.assigned_path()
        return self.given(self.name("a field"))

    def given(self, name: Name) -> Field:
        """The value of the field whose name was taken."""
        if self.here.kind in GIVES:
            self.equals(name)
        elif not self.was_comment(name.span.start):
            self.tell(faults.equals_missing(name.span, name.text))
        else:
            raise Lost
        value = self.value(f"the field `{name.text}`")
        return Field(name, value, False, name.span.to(value.span))

    def assigned_path(self) -> None:
        """Raises: `parallel.tp = 8`, with its fix where the block can be written in its place."""
        path = self.path()
        text = ".".join(name.text for name in path.path)
        if self.here.kind not in GIVES:
            raise self.fail(faults.path_as_field(path.span, text, None, path.span))
        self.equals(path.path[-1])
        value = self.value(f"`{text}`")
        blocks = [name.text for name in path.path[:-1]]
        written = self.source.text[value.span.start : value.span.end]
        fix = f"{path.path[-1].text} = {written}"
        for block in reversed(blocks):
            fix = f"{block} {{ {fix} }}"
        whole = path.span.to(value.span)
        raise self.fail(faults.path_as_field(path.span, text, fix, whole))

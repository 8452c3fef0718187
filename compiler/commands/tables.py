"""Tables whose figures are never cut: a cut number reads like another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parlay.compiler.commands.printing import console as new_console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH = 120
"""Columns that a table may take; a narrower screen breaks its lines."""


def table_of(title: str) -> Table:
    """An empty table without rules."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", title=title, pad_edge=False, padding=(0, 1))
    table.title_justify = "left"
    return table


def add_figures(table: Table, title: str, *, left: bool = False) -> None:
    """A column whose cells are shown whole."""
    table.add_column(title, justify="left" if left else "right", no_wrap=True, min_width=len(title))


def print_table(console: Console, table: Table) -> None:
    """The table after an empty line, as wide as it needs."""
    wide = new_console(console.file, least=WIDTH)
    wide.print()
    wide.print(table)

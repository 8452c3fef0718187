"""Diagnostics for people at a terminal: the lines they are about, marked, with reason and fix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from parlay.dsl.diagnostics.cells import cells, harmless
from parlay.dsl.diagnostics.order import count, in_order
from parlay.dsl.diagnostics.record import Diagnostic, Label, Severity
from parlay.dsl.source import Source

_RESET = "\x1b[0m"
_BOLD = "\x1b[1m"
_BLUE = "\x1b[1;34m"
_COLORS = {
    Severity.ERROR: "\x1b[1;31m",
    Severity.WARNING: "\x1b[1;33m",
    Severity.NOTE: "\x1b[1;36m",
}
_NARROWEST = 40


def render(
    diagnostics: Iterable[Diagnostic],
    sources: Mapping[str, Source],
    color: bool = False,
    width: int = 100,
    summary: bool = True,
) -> str:
    """All of them in the order of the text, each told once, and with `summary` a line that counts.

    `sources` are the texts by name; a place in a text that is not there is named only. Lines longer
    than `width` are cut around their marks; messages are never cut. Nothing of the text reaches
    the terminal as a control sequence. Nothing to tell is the empty text; else it ends in a
    newline.
    """
    told = in_order(diagnostics)
    if not told:
        return ""
    printer = _Printer(sources, color, max(width, _NARROWEST))
    parts = [printer.one(diagnostic) for diagnostic in told]
    if summary:
        parts.append(printer.counted(told))
    return "\n".join(parts)


def counted(diagnostics: Sequence[Diagnostic]) -> str:
    """`run.par: 2 errors, 1 warning`; `3 files: …`; notes count where they are all there is."""
    files = list(dict.fromkeys(one.file for one in diagnostics))
    where = harmless(files[0]) if len(files) == 1 else f"{len(files)} files"
    counts = [
        (count(diagnostics, severity), severity.value)
        for severity in (Severity.ERROR, Severity.WARNING, Severity.NOTE)
    ]
    if counts[0][0] or counts[1][0]:
        counts.pop()
    told = [f"{number} {word}{'s' if number > 1 else ''}" for number, word in counts if number]
    return f"{where}: {', '.join(told)}" if told else "nothing to tell"


class _Mark(NamedTuple):
    """A label on one line, in columns of the terminal."""

    start: int
    end: int
    text: str
    primary: bool


class _Printer:
    def __init__(self, sources: Mapping[str, Source], color: bool, width: int) -> None:
        self.sources = sources
        self.color = color
        self.width = width

    def paint(self, text: str, code: str) -> str:
        return f"{code}{text}{_RESET}" if self.color and text else text

    def counted(self, told: Sequence[Diagnostic]) -> str:
        worst = next(level for level in Severity if count(told, level))
        return self.paint(counted(told), _COLORS[worst]) + "\n"

    def one(self, diagnostic: Diagnostic) -> str:
        """One diagnostic, ending in a newline."""
        self.hue = _COLORS[diagnostic.severity]
        head = self.paint(f"{diagnostic.severity}[{harmless(diagnostic.code)}]", self.hue)
        lines = [head + self.paint(f": {harmless(diagnostic.message)}", _BOLD)]
        by_file: dict[str, list[tuple[Label, bool]]] = {}
        for label in diagnostic.labels:
            primary = label is diagnostic.labels[0]
            by_file.setdefault(label.span.file, []).append((label, primary))
        self.gutter = self.digits(diagnostic.labels)
        if not by_file:
            lines.append(self.place(diagnostic.file, first=True))
        for number, (file, labels) in enumerate(by_file.items()):
            lines.extend(self.excerpt(file, labels, first=number == 0))
        lines.extend(self.remarks(diagnostic, framed=bool(by_file)))
        return "\n".join(lines) + "\n"

    def digits(self, labels: Iterable[Label]) -> int:
        numbers = [1]
        for label in labels:
            source = self.sources.get(label.span.file)
            if source is not None:
                numbers.append(source.position(label.span.start).line)
        return len(str(max(numbers)))

    def place(self, text: str, *, first: bool) -> str:
        return (
            " " * self.gutter + self.paint("-->" if first else ":::", _BLUE) + " " + harmless(text)
        )

    def bar(self, number: int | None = None) -> str:
        text = "" if number is None else str(number)
        return self.paint(f"{text:>{self.gutter}} |", _BLUE)

    def remarks(self, diagnostic: Diagnostic, *, framed: bool) -> list[str]:
        """Notes, help and fixes, each behind its word."""
        remarks = [
            *(("note", text) for text in diagnostic.notes),
            *(("help", text) for text in diagnostic.help),
            *(("fix", fix.title) for fix in diagnostic.fixes),
        ]
        lines = [self.bar()] if remarks and framed else []
        for word, text in remarks:
            first, *rest = text.split("\n")
            start = " " * (self.gutter + 1) + self.paint("=", _BLUE)
            lines.append(f"{start} {self.paint(word, _BOLD)}: {harmless(first)}")
            # What follows stands under the text, not under the word.
            lines.extend(" " * (self.gutter + 5 + len(word)) + harmless(more) for more in rest)
        return lines

    # ── Lines of the text ─────────────────────────────────────────────────────

    def excerpt(self, file: str, labels: list[tuple[Label, bool]], *, first: bool) -> list[str]:
        """The marked lines of one file below its name."""
        source = self.sources.get(file)
        if source is None:
            texts = [label.text for label, _ in labels if label.text]
            return [self.place(": ".join([file, *texts[:1]]), first=first)]
        position = source.position(labels[0][0].span.start)
        place = f"{file}:{position.line}:{position.column}"
        lines = [self.place(place, first=first), self.bar()]
        by_line: dict[int, list[tuple[Label, bool]]] = {}
        for label, primary in labels:
            by_line.setdefault(source.position(label.span.start).line, []).append((label, primary))
        for number in sorted(by_line):
            lines.extend(self.line(source, number, by_line[number]))
        return lines

    def line(self, source: Source, number: int, labels: list[tuple[Label, bool]]) -> list[str]:
        """One line of the text and the marks under it; once more for marks too far apart."""
        text = source.line(number)
        room = self.width - self.gutter - 3
        first = source.position(labels[0][0].span.start)
        offset = labels[0][0].span.start - first.column + 1
        # Far from every mark nothing is shown, so nothing there is measured.
        near = [max(0, min(label.span.start - offset, len(text))) for label, _ in labels]
        low, high = max(0, min(near) - room), min(len(text), max(near) + room)
        drawn = cells(text[low:high])
        marks = []
        for label, primary in labels:
            start = max(0, min(label.span.start - offset - low, len(drawn.shown)))
            end = max(start, min(label.span.end - offset - low, len(drawn.shown)))
            columns = drawn.starts[start], drawn.starts[end]
            marks.append(_Mark(columns[0], max(columns[1], columns[0] + 1), label.text, primary))
        marks.sort(key=lambda mark: (mark.start, not mark.primary))
        lines: list[str] = []
        while marks:
            left, right = self.window(drawn.starts[-1], marks[0], room, low > 0, high < len(text))
            here = [mark for mark in marks if left <= mark.start < right]
            marks = marks[len(here) :]
            shown = self.cut(drawn.shown, drawn.starts, left, right, low > 0, high < len(text))
            lines.append(f"{self.bar(number)} {shown}".rstrip())
            moved = [
                mark._replace(
                    start=mark.start - left, end=max(mark.start + 1, min(mark.end, right)) - left
                )
                for mark in here
            ]
            lines.extend(f"{self.bar()} {row}".rstrip() for row in self.under(moved))
        return lines

    def window(
        self, total: int, mark: _Mark, room: int, before: bool, after: bool
    ) -> tuple[int, int]:
        """The columns of a line to show around its leftmost mark."""
        # A mark may stand behind the last cell: it needs a column too.
        if total < room and not before and not after:
            return 0, room
        left = max(0, mark.start - room // 3)
        if left + room > total and not after:
            left = max(0, total - room + 1)
        return left, left + room

    def cut(
        self, shown: list[str], starts: list[int], left: int, right: int, before: bool, after: bool
    ) -> str:
        """The cells between two columns, with `…` where the line goes on outside."""
        if left == 0 and starts[-1] <= right and not before and not after:
            return "".join(shown)
        kept: list[str] = []
        for index, text in enumerate(shown):
            start, end = starts[index], starts[index + 1]
            if start >= left and end <= right:
                kept.append(text)
            elif start < right and end > left:
                # A cell cut in half leaves room for its visible half.
                kept.append(" " * (min(end, right) - max(start, left)))
        text = "".join(kept)
        if left > 0 or before:
            text = "…" + text[1:]
        if starts[-1] > right or after:
            text = text[:-1] + "…"
        return text

    def under(self, marks: list[_Mark]) -> list[str]:
        """The rows below a line: the marks, the last one's words beside it, the others' below."""
        width = max(mark.end for mark in marks)
        row = [(" ", "")] * width
        # The primary mark is drawn last: where two overlap, it is seen.
        for mark in sorted(marks, key=lambda mark: mark.primary):
            for column in range(mark.start, mark.end):
                row[column] = ("^", self.hue) if mark.primary else ("-", _BLUE)
        last = marks[-1]
        beside = last.text and all(mark.end <= last.start for mark in marks[:-1])
        first = self.painted(row)
        if beside:
            first += " " + self.words(last)
        rows = [first]
        hanging = [mark for mark in marks if mark.text and not (beside and mark is last)]
        if hanging:
            rows.append(self.pipes(hanging))
        while hanging:
            mark = hanging.pop()
            left = [other for other in hanging if other.start < mark.start]
            start = self.pipes(left)
            gap = mark.start - (max((other.start for other in left), default=-1) + 1)
            rows.append(start + " " * gap + self.words(mark))
        return rows

    def words(self, mark: _Mark) -> str:
        return self.paint(harmless(mark.text), self.hue if mark.primary else _BLUE)

    def pipes(self, marks: list[_Mark]) -> str:
        row = [(" ", "")] * (max((mark.start for mark in marks), default=-1) + 1)
        for mark in marks:
            row[mark.start] = ("|", self.hue if mark.primary else _BLUE)
        return self.painted(row)

    def painted(self, row: list[tuple[str, str]]) -> str:
        """A row of signs, each run of one color painted once."""
        text, run, color = "", "", ""
        for sign, hue in row:
            if hue != color:
                text += self.paint(run, color) if color else run
                run, color = "", hue
            run += sign
        return text + (self.paint(run, color) if color else run)

"""A document on the terminal. The answer and what to do stand last, where they stay on the screen.

Charts are left out, since tables have their figures. A document of several phases, which has badges, is also
a page: on the terminal its folded tables are their lines. That of one result is whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specops.render.figures import aligned, bar
from specops.render.report.document import Curve, Document, Section, Step, Table, text_of

LEAST_PROSE = 24
"""Columns of the terminal below which a sentence does not stand beside the cells of its row."""


def terminal(document: Document, width: int = 0) -> Iterator[str]:
    """Yield the lines for a terminal of `width` columns; 0 for a file or a pipe. Sentences are not folded."""
    yield " · ".join(filter(None, (document.title, document.verdict, document.subtitle)))
    for section in document.sections:
        yield from _section(section, width, folds=bool(document.badges))
    yield ""
    yield from aligned([(f"  {tile.label}", tile.value, tile.note) for tile in document.tiles])
    yield from map(text_of, document.summary)
    yield document.headline
    yield from _steps(document.steps)


def _section(section: Section, width: int, *, folds: bool) -> Iterator[str]:
    yield from ("", section.title)
    yield from (f"  {text}" for text in section.text)
    for chart in section.charts:
        if isinstance(chart, Curve):
            lines = [(f"  {line.label}", "".join(map(bar, line.values))) for line in chart.lines]
            yield from (f"  {chart.title}", *aligned(lines))
    for number, table in enumerate(section.tables):
        if folds and table.folded:
            yield f"  {table.folded}"
            continue
        if title := table.title or table.folded:
            yield from [""] if number else []
            yield f"  {title}"
        yield from (f"  {line}" for line in grid(table, width and width - 2))
        yield from [f"  {table.note}"] if table.note else ()
    yield from _steps(section.steps)


def _steps(steps: Sequence[Step]) -> Iterator[str]:
    """Several steps are numbered, as on the page: a change and its command have one number."""
    for number, step in enumerate(steps, start=1):
        lines = [f"change: {step.action}"] if step.action else []
        if step.command and "\n" not in step.command:
            lines.append(f"next: {step.command}{f'  # {step.why}' if step.why else ''}")
        mark = f"{number}. " if len(steps) > 1 else ""
        yield from (f"{mark if place == 0 else ' ' * len(mark)}{line}" for place, line in enumerate(lines))
        if "\n" in step.command:  # to be pasted: nothing stands before it
            yield from ([step.why] if step.why else [])
            yield from step.command.splitlines()


def grid(table: Table, width: int = 0) -> Iterator[str]:
    """Yield the lines of a table of at most `width` columns; 0: of any width.

    Its first column of sentences stands beside the short cells, the others below, each after its name. If
    that is too wide, all sentences stand below; or the rows are columns; or the names of rows have lines of
    their own; or each cell stands after the name of its column.
    """
    rows = [[text_of(cell) for cell in row] for row in (table.columns, *table.rows)]
    short = [place for place in range(len(table.columns)) if place not in table.prose]
    for beside in (table.prose[:1], ()):
        places = [*short, *beside]
        lines = aligned([[row[place] for place in places] for row in rows])
        indent = max(map(len, aligned([[row[place] for place in short] for row in rows])))
        if not width or indent + (LEAST_PROSE if beside else 0) <= width:
            yield from _rows(table, rows, lines, beside)
            return
    turned = aligned(list(zip(*rows, strict=True)))
    cells = aligned([[row[place] for place in short[1:]] for row in rows])
    if not table.prose and max(map(len, turned)) <= width:
        yield from turned
    elif max(map(len, cells)) <= width - 2:
        lines = [f"{row[0]}\n  {line}" for row, line in zip(rows, cells, strict=True)]
        yield from _rows(table, rows, lines, ())
    else:
        for row in rows[1:]:
            yield from _named_cells(table.columns, row, width)


def _rows(
    table: Table, rows: Sequence[Sequence[str]], lines: Sequence[str], beside: Sequence[int]
) -> Iterator[str]:
    """Yield the lines of the rows, with the sentences below them that do not stand `beside`."""
    for number, (row, line) in enumerate(zip(rows, lines, strict=True)):
        if number == 0 and not any(row):
            continue
        yield from line.splitlines()
        for place in table.prose if number else ():
            if row[place] and place not in beside:
                yield from (f"  {piece}" for piece in f"{table.columns[place]}: {row[place]}".splitlines())


def _named_cells(columns: Sequence[str], row: Sequence[str], width: int) -> Iterator[str]:
    line, *words = row[0], *(f"{name} {cell}" for name, cell in zip(columns, row, strict=True) if cell)
    for cell in words[1:]:
        if len(line) + len(cell) + 2 > width:
            yield line
            line = ""
        line += f"  {cell}"
    yield line

"""A document as Markdown: GitHub's kind, without charts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specops.render.report.document import Cell, Document, Section, Step, Table, text_of

_SPECIAL = str.maketrans({each: f"\\{each}" for each in "\\`*_[]<>|"})


def markdown(document: Document) -> str:
    return "\n".join(_lines(document)).rstrip() + "\n"


def _lines(document: Document) -> Iterator[str]:
    yield from (f"# {_text(document.title)}", "", _text(document.subtitle), "")
    yield from (f"**{_text(document.verdict)}.** {_text(document.headline)}", "")
    for text in document.summary:
        yield from (_text(text_of(text)), "")
    if document.tiles:
        rows = tuple((tile.label, tile.value, tile.note) for tile in document.tiles)
        yield from _table(Table("", ("", "", ""), rows))
    if document.steps:
        yield from (f"## {_text(document.steps_title)}", "")
        yield from _steps(document.steps)
    for section in document.sections:
        yield from _section(section)
    if document.foot:
        yield from ("---", "")
        for line in document.foot:
            yield from (_text(line), "")


def _section(section: Section) -> Iterator[str]:
    yield from (f"## {_text(section.title)}", "")
    for text in section.text:
        yield from (_text(text), "")
    for table in section.tables:
        if table.title:
            yield from (f"### {_text(table.title)}", "")
        yield from _table(table)
    yield from _steps(section.steps)


def _steps(steps: Sequence[Step]) -> Iterator[str]:
    for number, step in enumerate(steps, start=1):
        why = f" ({_text(step.why)})" if step.why else ""
        yield f"{number}. {_text(step.action)}{why}  "
        yield f"   {_code(step.command)}"
    if steps:
        yield ""


def _table(table: Table) -> Iterator[str]:
    yield _row(table.columns)
    yield _row(["---", *("---:" for _ in table.columns[1:])], plain=True)
    yield from (_row(row) for row in table.rows)
    yield ""
    if table.note:
        yield from (_text(table.note), "")


def _row(cells: Sequence[str | Cell], *, plain: bool = False) -> str:
    return "| " + " | ".join(text_of(cell) if plain else _text(text_of(cell)) for cell in cells) + " |"


def _text(text: str) -> str:
    """Nothing in it is read as Markdown or HTML, or begins another line."""
    return " ".join(text.split()).translate(_SPECIAL)


def _code(text: str) -> str:
    one_line = " ".join(text.split())
    fence = "`"
    while fence in one_line:
        fence += "`"
    pad = " " if one_line.startswith("`") or one_line.endswith("`") else ""
    return f"{fence}{pad}{one_line}{pad}{fence}"

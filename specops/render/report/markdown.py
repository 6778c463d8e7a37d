"""A document as Markdown: GitHub's kind, without charts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specops.render.report.document import Document, Section, Table

_SPECIAL = str.maketrans({each: f"\\{each}" for each in "\\`*_[]<>|"})


def markdown(document: Document) -> str:
    return "\n".join(_lines(document)).rstrip() + "\n"


def _lines(document: Document) -> Iterator[str]:
    yield from (f"# {_text(document.title)}", "", _text(document.subtitle), "")
    yield from (f"**{_text(document.headline)}** {_text(document.summary)}", "")
    if document.tiles:
        rows = tuple((tile.label, tile.value, tile.note) for tile in document.tiles)
        yield from _table(Table("", ("", "", ""), rows))
    if document.steps:
        yield from ("## To do", "")
        for number, step in enumerate(document.steps, start=1):
            yield f"{number}. {_text(step.action)} ({_text(step.why)})  "
            yield f"   {_code(step.command)}"
        yield ""
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


def _table(table: Table) -> Iterator[str]:
    yield _row(table.columns)
    yield _row(["---", *("---:" for _ in table.columns[1:])], plain=True)
    yield from (_row(row) for row in table.rows)
    yield ""
    if table.note:
        yield from (_text(table.note), "")


def _row(cells: Sequence[str], *, plain: bool = False) -> str:
    return "| " + " | ".join(cell if plain else _text(cell) for cell in cells) + " |"


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

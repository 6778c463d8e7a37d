"""A document in both of its formats.

One HTML file: no script, no external request, light, dark and print. Markdown: GitHub's kind, without charts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from specops.render.figures import sentence
from specops.render.report.charts import Drawn, draw
from specops.render.report.document import Cell, Document, Section, Step, Table, text_of

if TYPE_CHECKING:
    from jinja2 import Template

GENERATOR = '<meta name="generator" content="specops">'
"""A page that has it may be replaced by a newer one."""
_NUMBER = re.compile(r"[-+≤<>~±]?\s*[\d–](?!\d{3}-)")
_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|"})


@lru_cache(maxsize=1)
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("specops.render.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")


def html(document: Document, *, linked: bool = True) -> str:
    """The page. `linked`: it lies beside the files that it links."""
    from markupsafe import Markup

    number = 0
    charts: dict[str, list[Drawn]] = {}
    for section in document.sections:
        charts[section.title] = []
        for chart in section.charts:
            charts[section.title].append(draw(chart, document.axis, number))
            number += 1
    text = _template().render(
        document=document,
        charts=charts,
        drawing=Markup,  # our own drawing, in which texts are escaped already
        generator=Markup(GENERATOR),
        anchor=anchor,
        alignment=alignment,
        sentence=sentence,
        linked=linked,
    )
    # JSON may hold half of a surrogate pair, which no file can.
    return text.encode("utf-8", "replace").decode("utf-8")


def framed(document: Document) -> str:
    """The page in a frame, for a notebook: neither takes the other's styles. It links no files."""
    from markupsafe import escape

    page = escape(html(document, linked=False))
    style = "width: 100%; height: 36rem; border: 0; resize: vertical"
    return f'<iframe sandbox="" title="{escape(document.title)}" style="{style}" srcdoc="{page}"></iframe>'


def anchor(section: Section | str) -> str:
    title = section if isinstance(section, str) else section.title
    return "".join(c if c.isalnum() else "-" for c in title.lower())


def alignment(table: Table) -> Callable[[int], str]:
    """The CSS class of each column: `prose`, `number` if all its cells begin with one, else `text`."""
    kinds = []
    for column in range(len(table.columns)):
        cells = [text_of(row[column]) for row in table.rows]
        numbers = all(not cell or _NUMBER.match(cell) for cell in cells) and any(cells)
        kinds.append("prose" if column in table.prose else "number" if numbers and column else "text")
    return kinds.__getitem__


# Markdown


def markdown(document: Document) -> str:
    return "\n".join(_lines(document)).rstrip() + "\n"


def _lines(document: Document) -> Iterator[str]:
    yield from (f"# {_escaped(document.title)}", "", _escaped(document.subtitle), "")
    yield from (f"**{_escaped(document.verdict)}.** {_escaped(document.headline)}", "")
    for text in document.summary:
        yield from (_escaped(text_of(text)), "")
    if document.tiles:
        rows = tuple((tile.label, tile.value, tile.note) for tile in document.tiles)
        yield from _table(Table("", ("", "", ""), rows))
    if document.steps:
        yield from (f"## {_escaped(document.steps_title)}", "")
        yield from _steps(document.steps)
    for section in document.sections:
        yield from _section(section)
    if document.foot:
        yield from ("---", "")
        for line in document.foot:
            yield from (_escaped(line), "")


def _section(section: Section) -> Iterator[str]:
    yield from (f"## {_escaped(section.title)}", "")
    for text in section.text:
        yield from (_escaped(text), "")
    for table in section.tables:
        if title := table.title or table.folded:
            yield from (f"### {_escaped(title)}", "")
        yield from _table(table)
    yield from _steps(section.steps)


def _steps(steps: Sequence[Step]) -> Iterator[str]:
    for number, step in enumerate(steps, start=1):
        why = f" ({_escaped(step.why)})" if step.why else ""
        yield f"{number}. {_escaped(sentence(step.action))}{why}  "
        if "\n" in step.command.strip():
            fence = "```"
            while fence in step.command:
                fence += "`"
            yield from ("", fence, *step.command.splitlines(), fence)
        elif step.command:
            yield f"   {_code(step.command)}"
    if steps:
        yield ""


def _table(table: Table) -> Iterator[str]:
    yield _row(table.columns)
    yield _row(["---", *("---:" for _ in table.columns[1:])], plain=True)
    yield from (_row(row) for row in table.rows)
    yield ""
    if table.note:
        yield from (_escaped(table.note), "")


def _row(cells: Sequence[str | Cell], *, plain: bool = False) -> str:
    return "| " + " | ".join(text_of(cell) if plain else _escaped(text_of(cell)) for cell in cells) + " |"


def _escaped(text: str) -> str:
    """Escape a text: nothing in it is read as Markdown or HTML, or begins another line."""
    return " ".join(text.split()).translate(_SPECIAL)


def _code(text: str) -> str:
    one_line = " ".join(text.split())
    fence = "`"
    while fence in one_line:
        fence += "`"
    pad = " " if one_line.startswith("`") or one_line.endswith("`") else ""
    return f"{fence}{pad}{one_line}{pad}{fence}"

"""A document as one HTML file: no script, no external request, light, dark and print."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from specops.render.report.charts import Drawn, draw
from specops.render.report.document import Document, Section, Table, text_of

if TYPE_CHECKING:
    from jinja2 import Template

GENERATOR = '<meta name="generator" content="specops">'
"""A page that has it may be replaced by a newer one."""
_NUMBER = re.compile(r"[-+≤<>~±]?\s*[\d–](?!\d{3}-)")


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


def html(document: Document) -> str:
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
    )
    # JSON may hold half of a surrogate pair, which no file can.
    return text.encode("utf-8", "replace").decode("utf-8")


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

"""A document as one HTML file: no script, nothing from elsewhere, readable in the dark and on paper."""

from __future__ import annotations

from specops.render.report.charts import svg
from specops.render.report.document import Curve, Document, Section


def html(document: Document) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("specops.render.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    number = 0
    pictures: dict[str, list[tuple[Markup, bool]]] = {}
    for section in document.sections:
        drawn = []
        for chart in section.charts:
            # Our own drawing, in which texts are escaped already.
            drawn.append((Markup(svg(chart, document.axis, number)), isinstance(chart, Curve)))
            number += 1
        pictures[section.title] = drawn
    return environment.get_template("page.html").render(document=document, pictures=pictures, anchor=anchor)


def anchor(section: Section) -> str:
    return "".join(c if c.isalnum() else "-" for c in section.title.lower())

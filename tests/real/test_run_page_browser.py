"""The page of a real run in a real Chromium: all of it is legible, on a screen, a phone and paper."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from browser import CONTRAST, chromium

from specops.phases.run_page.document import write_page

pytestmark = pytest.mark.slow
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"width": 1280},
    "dark": {"width": 1280, "dark": True},
    "phone": {"width": 360},
    "dark phone": {"width": 360, "dark": True},
}
SMALLEST = """
[...document.querySelectorAll('main *, footer *')].filter(node => node.getClientRects().length &&
  [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim()))
  .map(node => parseFloat(getComputedStyle(node).fontSize)).reduce((a, b) => Math.min(a, b), 99)
"""
CUT = """
[...document.querySelectorAll('td, th, p, li, h1, h2, figcaption')].filter(node => {
  const box = node.getBoundingClientRect();
  return box.width && !node.closest('.wide, .skip') && (box.right > innerWidth + 1 || box.left < -1);
}).map(node => node.textContent.slice(0, 40))
"""
BROKEN_LINKS = """
[...document.querySelectorAll('a[href^="#"]')].filter(a => !document.querySelector(a.hash)).map(a => a.hash)
"""
ROLES = """
[...document.querySelectorAll('table')].map(table => [
  table.querySelectorAll('thead th[scope=col]').length,
  Math.max(...[...table.rows].map(row => row.cells.length)),
  [...table.tBodies[0].rows].every(row => row.cells[0].scope === 'row')])
"""
FOLDED = """
[...document.querySelectorAll('details table')]
  .map(table => table.checkVisibility({contentVisibilityAuto: true}))
"""
OUTLINE = "(s => s.outlineStyle + ' ' + s.outlineWidth)(getComputedStyle(document.activeElement))"
FOCUSED = "[document.activeElement.textContent.trim(), document.activeElement.getBoundingClientRect().left]"


async def _visit(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async with chromium(path.parent) as page:
        await page.open(path.as_uri())
        for name, how in LOOKS.items():
            await page.look(**how)
            found[name] = {
                "contrast": await page.evaluate(CONTRAST),
                "wide": await page.evaluate("document.documentElement.scrollWidth"),
                "cut": await page.evaluate(CUT),
                "smallest": await page.evaluate(SMALLEST),
                "paper": await page.evaluate("getComputedStyle(document.body).backgroundColor"),
            }
        await page.look()
        found["links"] = await page.evaluate(BROKEN_LINKS)
        found["tables"] = await page.evaluate(ROLES)
        for kind in ("rawKeyDown", "keyUp"):
            await page.ask(
                "Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9
            )
        found["focused"] = await page.evaluate(FOCUSED)
        found["outline"] = await page.evaluate(OUTLINE)
        found["names"] = [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in (await page.ask("Accessibility.getFullAXTree"))["nodes"]
            if not node["ignored"] and "role" in node
        ]
        found["folded"] = await page.evaluate(FOLDED)
        await page.look(media="print", width=687)
        found["printed"] = await page.evaluate(FOLDED)
        found["print"] = await page.evaluate("document.documentElement.scrollWidth")
        found["pdf"] = await page.pdf()
        found["requests"], found["complaints"] = page.requests, page.complaints
    return found


def test_the_page_of_a_real_run(walked: Path) -> None:
    path = write_page(walked.parent / "run")
    seen = asyncio.run(_visit(path))
    assert [one for one in seen["requests"] if not one.startswith("data:")] == [path.as_uri()]
    assert seen["complaints"] == []
    for look, how in LOOKS.items():
        assert seen[look]["contrast"][0][0] >= 4.5, (look, seen[look]["contrast"])
        assert seen[look]["wide"] == how["width"], look
        assert seen[look]["cut"] == [], look
        assert seen[look]["smallest"] >= 12, look
    assert seen["light"]["paper"] != seen["dark"]["paper"]
    assert seen["links"] == []
    for heads, cells, rows_have_heads in seen["tables"]:
        assert heads == cells
        assert rows_have_heads
    text, left = seen["focused"]
    assert (text, left >= 0) == ("Skip to the answer", True), "the first Tab shows the skip link"
    assert seen["outline"].startswith("solid 3px")
    roles = [role for role, _ in seen["names"]]
    assert {"banner", "main", "navigation", "contentinfo", "heading", "table", "rowheader"} <= set(roles)
    images = [name for role, name in seen["names"] if role in ("image", "img") and name]
    assert len(images) >= 3
    assert all(len(name) > 30 for name in images)
    assert seen["folded"]
    assert not any(seen["folded"]), "what is folded is not on the screen"
    assert all(seen["printed"]), "it is on paper"
    assert seen["print"] <= 687
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", seen["pdf"])) <= 15

"""The guide's pages as tests read them: fenced blocks, headings with their anchors, links."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("README*.md")])

_FENCE = re.compile(r"^ {0,3}(```+)\s*(\S*)")
_LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def parts(page: Path) -> tuple[str, list[Block]]:
    """The page without its fenced blocks (their lines left empty), and those."""
    prose, blocks = [], []
    fence, language, began, inside = "", "", 0, []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        mark = _FENCE.match(line)
        if not fence and mark:
            fence, language, began, inside = mark[1], mark[2], number, []
        elif fence and mark and mark[1] == fence and not mark[2]:
            blocks.append(Block(page, began, language, "\n".join(inside)))
            fence = ""
        elif fence:
            inside.append(line)
        prose.append("" if fence or mark else line)
    assert not fence, f"{page}:{began}: a block without an end"
    return "\n".join(prose), blocks


def blocks(*languages: str) -> list[Block]:
    return [block for page in PAGES for block in parts(page)[1] if block.language in languages]


def anchors(page: Path) -> set[str]:
    """As GitHub makes them: lower case, no punctuation, - for spaces, -1 where one comes again."""
    found, seen = set(), Counter[str]()
    for line in parts(page)[0].splitlines():
        if heading := re.match(r"#{1,6} +(.+?)\s*$", line):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            found.add(slug if not seen[slug] else f"{slug}-{seen[slug]}")
            seen[slug] += 1
    return found


def links(page: Path) -> Iterator[str]:
    """Targets within the repository; code is left out, where brackets mean something else."""
    for target in _LINK.findall(re.sub(r"`[^`\n]*`", "", parts(page)[0])):
        if not re.match(r"[a-z]+:", target):
            yield target

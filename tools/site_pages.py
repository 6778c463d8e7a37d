"""Hook of MkDocs: files of the repository that a page links, such as the runbook, are part of the site.

Pages are plain Markdown for GitHub, so they link `../alerts/runbook.md`. MkDocs has only `docs/`. Such files
are added below `repository/`, with the files that they link themselves, and links are written for the site.
A link to a folder becomes plain text, since a site has no listing of it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = "repository/"
_LINK = re.compile(r"(\[[^\]]*\]|\[!\[[^\]]*\]\([^)]*\)\])\(([^()\s#]+)(#[^()\s]*)?\)")
_CODE = re.compile(r"^ {0,3}(```+).*?^ {0,3}\1 *$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def repository_path(source: str) -> str:
    """Return where in the repository the file `source` of the site is."""
    return source.removeprefix(OUTSIDE) if source.startswith(OUTSIDE) else f"docs/{source}"


def site_path(path: str) -> str:
    """Return the file of the site for the file `path` of the repository."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{OUTSIDE}{path}"


def linked(path: str, target: str) -> str | None:
    """Return the path in the repository that `target` means in the file `path`. None: an address."""
    if re.match(r"[a-z]+:", target):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target))


def on_files(files: Files, config: Any) -> Files:
    from mkdocs.structure.files import File

    waiting = [repository_path(file.src_uri) for file in files.documentation_pages()]
    while waiting:
        path = waiting.pop()
        text = _CODE.sub("", (ROOT / path).read_text(encoding="utf-8"))
        for _, target, _ in _LINK.findall(text):
            other = linked(path, target)
            if other is None or site_path(other) in files.src_uris or not (ROOT / other).is_file():
                continue
            files.append(File.generated(config, site_path(other), abs_src_path=str(ROOT / other)))
            if other.endswith(".md"):
                waiting.append(other)
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    source = page.file.src_uri
    if source.startswith(OUTSIDE) and source.count("/") == 1:  # LOG.md and the like crowd out the guide
        page.meta["search"] = {"exclude": True}

    def rewritten(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        path = linked(repository_path(source), target)
        if path is None:
            return match[0]
        if (ROOT / path).is_dir():
            return text[1:-1]
        return f"{text}({posixpath.relpath(site_path(path), posixpath.dirname(source) or '.')}{anchor})"

    parts, end = [], 0
    for code in _CODE.finditer(markdown):
        # A link's text may hold code: only fences divide the page.
        if code[1]:
            parts += [_LINK.sub(rewritten, markdown[end : code.start()]), code[0]]
            end = code.end()
    return "".join([*parts, _LINK.sub(rewritten, markdown[end:])])

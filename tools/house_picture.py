"""Draws docs/house.svg: packages as boxes in the layers of import-linter's contract, and who imports whom.

An arrow is drawn where no other arrows imply it: if `load` imports `results`, and `results` imports
`errors`, then none leads from `load` to `errors`. Nearly all packages import the small modules at the bottom,
so these have none. Colours are readable on a light and on a dark page. A test proves the picture current.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "house.svg"

PACKAGES: dict[str, tuple[int, str]] = {
    "cli": (300, "commands"),
    "api": (560, "for Python"),
    "phases": (430, "the playbook, a folder a phase"),
    "experiment": (250, "compares servers"),
    "guard": (540, "decides, switches"),
    "effect": (580, "the live effect"),
    "load": (250, "drives endpoints"),
    "launch": (95, "starts servers"),
    "render": (405, "files, pages"),
    "edge": (700, "drafts elsewhere"),
    "serve": (800, "OpenAI API"),
    "engine": (800, "tree speculation"),
    "prometheus": (310, "reads metrics"),
    "specops_kernels": (860, "Triton"),
    "results": (250, "result files"),
    "config": (405, "the rollout file"),
    "economics": (680, "break-even"),
    "stats": (545, "intervals"),
    "router": (405, "NGINX, …"),
    "actions": (405, "what is switched"),
    "serving": (405, "vLLM, SGLang, …"),
    "checkpoints": (655, "model files"),
}
"""The centre of each box that has arrows, in pixels from the left, and what it does."""

WIDTH, ROW, BOX, BOX_HEIGHT = 930, 56, 126, 36
SMALL = 100
"""Width of the box of a module without arrows."""

WIDE = {"phases": 700}
BLUE, GREY, ARROW = "#2f5d9e", "#5c6470", "#8b949e"


def layers() -> list[list[str]]:
    """The contract's layers, the highest first, by the last part of each name."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    return [[name.strip().rpartition(".")[2] for name in layer.split("|")] for layer in contract["layers"]]


def imports(boxes: set[str]) -> set[tuple[str, str]]:
    """Who imports whom directly, of the packages that are `boxes`."""
    graph = grimp.build_graph(
        "specops", "specops_kernels", exclude_type_checking_imports=True, cache_dir=None
    )

    def box(module: str) -> str:
        parts = module.split(".")
        return parts[0] if parts[0] in boxes else parts[min(1, len(parts) - 1)]

    pairs = {
        (box(importer), box(imported))
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
    }
    return {(upper, lower) for upper, lower in pairs if upper != lower and {upper, lower} <= boxes}


def arrows(pairs: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pairs that no chain of others implies. `pairs` has no cycle, since layers have none."""
    lower: dict[str, set[str]] = {}
    for importer, imported in pairs:
        lower.setdefault(importer, set()).add(imported)

    def reaches(start: str, end: str) -> bool:
        return any(step == end or reaches(step, end) for step in lower.get(start, ()))

    return sorted(
        (importer, imported)
        for importer, imported in pairs
        if not any(reaches(step, imported) for step in lower[importer] - {imported})
    )


def picture() -> str:
    rows = layers()
    names = {name for row in rows for name in row}
    folders = {name for name in names if (ROOT / "specops" / name).is_dir()}
    if wrong := sorted((folders - PACKAGES.keys()) | (PACKAGES.keys() - names)):
        raise SystemExit(f"PACKAGES and the layers of pyproject.toml differ in {', '.join(wrong)}")
    places: dict[str, tuple[float, float, float]] = {}
    for number, row in enumerate(rows):
        y = 10 + number * ROW
        small = [name for name in row if name not in PACKAGES]
        for name in row:
            if name in PACKAGES:
                places[name] = (PACKAGES[name][0], y, WIDE.get(name, BOX))
            else:
                places[name] = (60 + small.index(name) * (SMALL + 12), y, SMALL)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {len(rows) * ROW}" '
        'font-family="sans-serif" font-size="12" text-anchor="middle">',
        "<title>The packages of specops in their layers: an upper one imports lower ones</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{ARROW}"/></marker></defs>',
        *_paths(arrows(imports(set(PACKAGES))), places),
    ]
    for name, (x, y, width) in places.items():
        colour = BLUE if name in PACKAGES else GREY
        lines.append(
            f'<rect x="{x - width / 2:g}" y="{y}" width="{width:g}" height="{BOX_HEIGHT}" rx="5" '
            f'fill="{colour}"/>'
        )
        title = y + (15 if name in PACKAGES else 22)
        lines.append(f'<text x="{x:g}" y="{title}" fill="white" font-weight="bold">{name}</text>')
        if name in PACKAGES:
            lines.append(
                f'<text x="{x:g}" y="{y + 29}" fill="white" font-size="11">{PACKAGES[name][1]}</text>'
            )
    return "\n".join([*lines, "</svg>", ""])


def _paths(pairs: list[tuple[str, str]], places: dict[str, tuple[float, float, float]]) -> Iterator[str]:
    """An arrow for each pair, beside the others at the same box, in the order of their other ends."""
    for upper, lower in pairs:
        lowers = sorted((b for a, b in pairs if a == upper), key=lambda name: places[name][0])
        uppers = sorted((a for a, b in pairs if b == lower), key=lambda name: places[name][0])
        start, top, width = places[upper]
        end, y, _ = places[lower]
        if upper in WIDE:
            start = min(max(end, start - width / 2 + 20), start + width / 2 - 20)
        else:
            start += 16 * (lowers.index(lower) - (len(lowers) - 1) / 2)
        wide = lower in WIDE
        end = start if wide else end + 16 * (uppers.index(upper) - (len(uppers) - 1) / 2)
        top += BOX_HEIGHT
        bend = (y - top) / 2
        yield (
            f'<path d="M{start:g} {top}C{start:g} {top + bend:g} {end:g} {y - bend:g} {end:g} {y - 2}" '
            f'fill="none" stroke="{ARROW}" stroke-width="1.5" marker-end="url(#tip)"/>'
        )


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")

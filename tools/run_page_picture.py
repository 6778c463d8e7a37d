"""Takes the picture of docs/run-page.md from a run folder, and writes its caption.

    make demo                          # on a machine that does nothing else
    .venv/bin/python tools/run_page_picture.py

The page is written again, by the code as it is now. Chromium shows its first screen, down to the end of the
first chart. Another folder is given as the argument.
"""

from __future__ import annotations

import asyncio
import io
import re
import sys
import tempfile
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "real")]

from browser import chromium  # noqa: E402
from PIL import Image  # noqa: E402

from specops.phases.run_folder import RunFolder  # noqa: E402
from specops.phases.run_page.document import document, write_page  # noqa: E402
from specops.render.figures import count  # noqa: E402

RUN = ROOT / "playbooks" / "embedded" / "runs" / "embedded"
GUIDE = ROOT / "docs" / "run-page.md"
PICTURE = GUIDE.with_suffix(".png")
WIDTH = 1120
CAPTION = re.compile(r"(?<=\(run-page\.png\)\n\n)\*.*?\*(?=\n\n)", re.DOTALL)
END_OF_FIRST_CHART = "Math.ceil(document.querySelector('figure').getBoundingClientRect().bottom + scrollY)"


async def first_screen(page: Path) -> Image.Image:
    with tempfile.TemporaryDirectory() as folder:
        async with chromium(Path(folder)) as shown:
            await shown.open(page.as_uri())
            await shown.look(width=WIDTH)
            height = await shown.evaluate(END_OF_FIRST_CHART)
            whole = Image.open(io.BytesIO(await shown.png()))
            return whole.convert("RGB").crop((0, 0, WIDTH, height + 16)).quantize(256)


def caption(folder: Path) -> str:
    """Which phases did not pass, and where it ran."""
    run = RunFolder(folder)
    words: dict[str, list[str]] = {}
    for badge in document(run).badges:
        if badge.state != "good":
            words.setdefault(badge.word, []).append(f"`{badge.label}`")
    cores = next(
        (one.environment["cores"] for one in run.results.values() if "cores" in one.environment), None
    )
    where = f" on {count(int(cores), 'core')}" if cores else ""
    rest = "; ".join(f"{word}: {', '.join(phases)}" for word, phases in words.items())
    said = f"{rest.capitalize()}." if rest else "Every phase passed."
    return textwrap.fill(f"*The page of `make demo`{where}. {said}*", 100, break_on_hyphens=False)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else RUN
    if not (folder / "ab.json").is_file():
        sys.exit(f"error: there is no comparison in {folder}\nhint: make demo")
    asyncio.run(first_screen(write_page(folder).resolve())).save(PICTURE, optimize=True)
    text = GUIDE.read_text(encoding="utf-8")
    GUIDE.write_text(CAPTION.sub(lambda _: caption(folder), text, count=1), encoding="utf-8")


if __name__ == "__main__":
    main()

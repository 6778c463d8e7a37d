"""Applies single changes to the code that decides, and runs the tests that cover each: do the tests notice?

    python tools/mutations.py                     all, two at a time, each in a copy of the tree
    python tools/mutations.py specops/guard       those of files below a path
    AT_ONCE=1 python tools/mutations.py           one at a time, on a machine that does other work

`mutations.yaml` is the list: by file, the tests that cover it, and changes of one anchor text each, which
must be in the file exactly once. A third text of a change says why no test notices it. The tests of a file
first run on the unchanged tree: if they fail there, they prove nothing, and the file's changes do not count.
Exit 1 if fewer than 95% are noticed, or a change does not count. By hand; not in CI.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import yaml

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_suffix(".yaml")
AT_ONCE = int(os.environ.get("AT_ONCE", "2"))
LEAST_NOTICED = 0.95
LONGEST_S = 300


@dataclass(frozen=True)
class Change:
    file: str
    tests: tuple[str, ...]
    anchor: str
    replacement: str
    why_unnoticed: str | None = None

    def applied(self, text: str) -> str | None:
        """The file's text with the change; None where the anchor is not in it exactly once."""
        return text.replace(self.anchor, self.replacement) if text.count(self.anchor) == 1 else None


def changes(below: str = "") -> Iterator[Change]:
    for entry in yaml.safe_load(LIST.read_text(encoding="utf-8")):
        if entry["file"].startswith(below):
            for change in entry["changes"]:
                yield Change(entry["file"], tuple(entry["tests"]), *change)


def failing(tests: tuple[str, ...], tree: Path) -> bool:
    """Whether one of the test files fails in `tree`, or takes longer than `LONGEST_S`."""
    environment = os.environ | {"PYTHONPATH": f"{tree}:{tree / 'kernels'}", "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(words, cwd=tree, env=environment, capture_output=True, timeout=LONGEST_S)
        return done.returncode != 0
    except subprocess.TimeoutExpired:
        return True


def noticed(change: Change, tree: Path) -> bool | None:
    """Whether a test of the changed `tree` fails; None where the change does not apply. Restores the tree."""
    path = tree / change.file
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    changed = change.applied(text)
    if changed is None:
        return None
    path.write_text(changed, encoding="utf-8")
    try:
        return failing(change.tests, tree)
    finally:
        path.write_text(text, encoding="utf-8")


def copy(to: Path) -> Path:
    """The tracked files of this tree, as they are now."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return to


def main(below: str = "") -> int:
    found = list(changes(below))
    counts = {True: 0, False: 0, None: 0}
    explained = 0
    with (
        tempfile.TemporaryDirectory(prefix="specops-mutations-") as folder,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(AT_ONCE):
            trees.put(copy(Path(folder, str(number))))

        def in_a_tree(work: Callable[[Path], bool | None]) -> bool | None:
            tree = trees.get()
            try:
                return work(tree)
            finally:
                trees.put(tree)

        sets = list(dict.fromkeys(change.tests for change in found))
        fail = pool.map(in_a_tree, [partial(failing, tests) for tests in sets])
        useless = {tests for tests, fails in zip(sets, fail, strict=True) if fails}
        for tests in useless:
            print(f"fails on the unchanged tree: {' '.join(tests)}", flush=True)
        results = pool.map(in_a_tree, [partial(noticed, change) for change in found])
        for change, result in zip(found, results, strict=True):
            counted = None if change.tests in useless else result
            counts[counted] += 1
            words = {True: "noticed", False: "not noticed", None: "does not count"}[counted]
            reason = f"  ({change.why_unnoticed})" if change.why_unnoticed else ""
            print(f"{words}  {change.file}: {change.anchor!r} -> {change.replacement!r}{reason}", flush=True)
            explained += counted is False and change.why_unnoticed is not None
    print(
        f"{counts[True]} of {len(found)} noticed, {counts[False]} not ({explained} explained),"
        f" {counts[None]} do not count"
    )
    return 1 if counts[None] or counts[True] < LEAST_NOTICED * len(found) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))

"""docs/first-hour.md, followed to the letter in an empty folder.

Its commands run in their order. What is replaced: what is typed in the checkout (`make demo` and the
installation) is left out, since the tests run on an installation; both ports are free ones; comparisons
are smaller; and there is no terminal on which `run` could ask.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import answers, free_port, stop, wait_until

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "first-hour.md"
IN_THE_CHECKOUT = ("make ", "pip ")
VERDICTS = {"specops ab": (0, 1, 4), "specops run": (0, 1, 4)}
"""Exit codes of commands whose exit code is a verdict; the page says so. The others end with 0."""

SMALLER = ("--requests", "120", "--min-duration", "0")
"""Of a comparison, which by default takes minutes until a yes is proven."""


def steps() -> Iterator[tuple[str, str | None]]:
    """Each command, and the output that the page shows of it."""
    found = re.findall(
        r"^```(sh|text)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    for number, (language, text) in enumerate(found):
        if language == "sh":
            after = found[number + 1] if number + 1 < len(found) else ("", "")
            commands = text.replace("\\\n", " ").strip().splitlines()
            for command in commands:
                last = command == commands[-1] and after[0] == "text"
                yield command, after[1] if last else None


def shape(line: str) -> str:
    """A line without its figures and the space between its columns."""
    return " ".join(re.sub(r"[-+]?\d[\d.,/]*", "#", line).split())


def labels(text: str) -> list[str]:
    """The first word of each line that begins with one, in the order of the page."""
    return [found[1] for line in text.splitlines() if (found := re.match(r"\s*([A-Za-z][\w-]*)", line))]


def test_the_page_can_be_read_as_steps() -> None:
    commands = [command for command, _ in steps()]
    assert [c.split()[0] for c in commands[:2]] == ["make", "pip"]
    assert sum(c.startswith("specops serve") for c in commands) == 3
    assert sum(shown is not None for _, shown in steps()) == 3
    assert all(c.startswith(("specops ", *IN_THE_CHECKOUT)) for c in commands)


@pytest.mark.slow  # two comparisons of real servers
@pytest.mark.timeout(1500)
def test_the_page_can_be_followed_in_an_empty_folder(tmp_path: Path) -> None:
    ports = {"8000": str(free_port()), "8001": str(free_port())}
    program = tmp_path / "bin" / "specops"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m specops "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": ":".join(sys.path),
    }
    folder = tmp_path / "empty"
    folder.mkdir()
    servers: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for command, shown in steps():
            if command.startswith(IN_THE_CHECKOUT):
                continue
            typed = re.sub(r"\b800[01]\b", lambda port: ports[port[0]], command)
            words = shlex.split(typed)
            if words[1] == "serve":
                port = words[words.index("--port") + 1]
                if port in servers:
                    stop(servers[port])
                servers[port] = subprocess.Popen(
                    words,
                    cwd=folder,
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
                wait_until(lambda url=f"http://127.0.0.1:{port}/health": answers(url), typed, 90)
                continue
            more = {"ab": SMALLER, "run": ("--yes",)}.get(words[1], ())
            done = subprocess.run(
                [*words, *more], cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
            promised = VERDICTS.get(" ".join(words[:2]), (0,))
            assert done.returncode in promised, f"{typed}: {done.returncode}\n{done.stdout}\n{done.stderr}"
            if shown is not None:
                compare(shown, done.stdout, typed)
    finally:
        for server in servers.values():
            stop(server)
    for name in (
        "mine/rollout.yaml",
        "mine/prompts.json",
        "mine/runs/mine/index.html",
        "ab.svg",
        "ngram.json",
    ):
        assert (folder / name).is_file(), name


def compare(shown: str, printed: str, command: str) -> None:
    """The page's lines begin as today's do, and a line without figures is still printed as it stands."""
    today = labels(printed)
    missing = [one for one in labels(shown) if one.lower() not in {label.lower() for label in today}]
    allowed = {"deploy", "do", "undecided"}  # a verdict differs from machine to machine
    assert not {one.lower() for one in missing} - allowed, f"{command}: {missing}\n{printed}"
    header = shape(shown.splitlines()[0])
    if "#" not in header and not header.startswith("ok"):
        assert header in map(shape, printed.splitlines()), f"{command}: {header}\n{printed}"

"""Every command of specops that the product prints, renders or documents is one that its command line takes:
with its arguments, its options and their values."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import yaml
from calling import specops
from guide_pages import PAGES, ROOT, parts
from made_monitoring import FULL, NOTHING, Watched, rollout
from printed_commands import HOLE, Literal, Shown, in_prose, literals, of_shell, problem

from specops.config import Rollout
from specops.phases.launch import render as render_launch
from specops.phases.report.delivery import schedule
from specops.phases.route import render as render_route
from specops.progress import SilentProgress
from specops.router.nginx import Nginx

RUNBOOK = ROOT / "alerts" / "runbook.md"
COMPLETE = [RUNBOOK, ROOT / "nginx" / "README.md", ROOT / "alerts" / "examples" / "README.md"]
"""Pages whose commands are typed as they stand. A guide may speak of a command by its name alone."""
SHELL = ("sh", "bash", "console", "shell")
ENDPOINTS = {
    pool: {"engine": "endpoint", "base_url": f"http://10.0.0.{host}:8000/v1", "model": "m"}
    for host, pool in enumerate(("standard", "speculative"), 1)
}
VLLM = {"engine": "vllm", "model": "m", "version": "0.33.0"}
KINDS = {
    "embedded": rollout(deploy={"image": "registry.example/specops:1"}),
    "endpoints": rollout(pools=ENDPOINTS),
    "vllm": rollout(
        pools={
            "standard": VLLM,
            "speculative": VLLM | {"speculation": {"method": "ngram", "num_speculative_tokens": 3}},
        }
    ),
}


def wrong(where: str, shown: Iterator[Shown], *, by_name: bool = False) -> list[str]:
    """`by_name`: a command may be spoken of without its arguments."""
    found = []
    for one in shown:
        why = None if by_name and one.only_named else problem(one.words)
        if why is not None:
            found.append(f"{where}: specops {one.text.replace(HOLE, '…')}: {why}")
    return found


def of_script(where: str, text: str) -> list[str]:
    calls = ((words, problem(words)) for words in of_shell(text))
    return [f"{where}: specops {' '.join(words)}: {why}" for words, why in calls if why is not None]


def of_lists(where: str, text: str) -> list[str]:
    """Commands as YAML has them for containers: a list of words."""
    found, todo = [], list(yaml.safe_load_all(text))
    while todo:
        node = todo.pop()
        todo += node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
        if isinstance(node, list) and all(isinstance(word, str) for word in node):
            found += of_script(where, shlex.join(node))
    return found


def source() -> Iterator[Literal]:
    for path in sorted((ROOT / "specops").rglob("*.py")):
        yield from literals(path)


def test_every_command_in_the_programs_own_texts_is_taken() -> None:
    """Hints of errors, `next:` lines, fixes and descriptions, wherever in the source they stand."""
    found, counted = [], 0
    for one in source():
        shown = list(in_prose(one.text))
        counted += len(shown)
        found += wrong(f"{one.path.relative_to(ROOT)}:{one.line}", iter(shown), by_name=one.describes)
    assert found == []
    assert counted > 100


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("measured", [False, True])
def test_every_next_line_of_the_checklist_is_taken(kind: str, measured: bool, tmp_path: Path) -> None:
    """As they are printed for a rollout that has no results, and for one whose results are of another."""
    file = tmp_path / "rollout.yaml"
    file.write_text(yaml.safe_dump(KINDS[kind].model_dump(mode="json", exclude_unset=True)))
    for name in ("ab.json", "baseline.json") if measured else ():
        shutil.copy(ROOT / "alerts" / "examples" / name, tmp_path)
    done = specops("checklist", str(file), "--out", str(tmp_path))
    lines = re.findall(r"^(?:\d+\. | +)next: (.+)$", done.stdout, re.MULTILINE)
    assert len(lines) > 3, done.stdout + done.stderr
    shown = [one for line in lines for one in in_prose(line)]
    assert len(shown) >= len(lines) - 2, "a few lines may be commands of other programs"
    assert wrong("checklist", iter(shown)) == []


@pytest.mark.parametrize("page", COMPLETE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_that_is_typed_from_is_taken(page: Path) -> None:
    prose, blocks = parts(page)
    found = wrong(page.name, (one for one in in_prose(prose) if one.quoted))
    for block in blocks:
        if block.language in SHELL:
            found += of_script(str(block), block.text)
    assert found == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_in_the_guides_prose_is_taken(page: Path) -> None:
    assert wrong(page.name, (one for one in in_prose(parts(page)[0]) if one.quoted), by_name=True) == []


def rendered(made: Rollout, folder: Path) -> dict[str, str]:
    """Every file that is rendered for a rollout: monitoring, the router with Lua and without, the servers
    and the schedule of the report."""
    texts = Watched(made, NOTHING).texts() | {f"full/{name}": text for name, text in FULL.texts().items()}
    path = folder / "rollout.yaml"
    for lua in (True, False):
        nginx = Nginx(lua=lua)
        route = made.route.model_copy(update={nginx.name: nginx})
        render_route(made.model_copy(update={"route": route}), folder / f"lua-{lua}")
    render_launch(made, folder, SilentProgress())
    now, zone = datetime(2026, 11, 23, 12, tzinfo=UTC), ZoneInfo("Asia/Seoul")
    schedule(made, path, folder, "Mon 09:00", zone, now)
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            texts[str(file.relative_to(folder))] = file.read_text(encoding="utf-8")
    return texts


@pytest.mark.parametrize("kind", KINDS)
def test_every_command_in_a_rendered_file_is_taken(kind: str, tmp_path: Path) -> None:
    texts = rendered(KINDS[kind], tmp_path)
    found, scheduled = [], 0
    for name, text in texts.items():
        if name.endswith(".sh"):
            found += of_script(name, text)
            continue
        found += wrong(name, in_prose(text))
        if name.endswith((".yml", ".yaml")):
            found += of_lists(name, text)
        for line in text.splitlines():
            run = re.search(r"^(?:ExecStart=|\d.* \* )(.*)$", line)
            if run is not None and "specops" in run[1]:
                scheduled += 1
                found += of_script(name, run[1].replace("\\%", "%"))
    assert found == []
    assert scheduled == 2, "a line of cron's and one of systemd's"


def test_the_comments_of_files_to_start_from_are_taken() -> None:
    found = []
    for path in [*(ROOT / "playbooks").glob("*.yaml"), *(ROOT / "nginx").rglob("*.j2")]:
        found += wrong(path.name, in_prose(path.read_text(encoding="utf-8")), by_name=True)
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "hint: specops guard override standard --by YOU --why x",
        "`specops guard status` has the reason",
        "specops guard override ROLLOUT sideways --why x",
        "specops guard override ROLLOUT standard --why x --for soon",
        "specops diagnose ROLLOUT --symptom slow; and go on",
        "specops checklist attest no-such-item ROLLOUT --by NAME",
        "specops monitor check ROLLOUT tells why",
        "specops run ROLLOUT --only nothing",
        "specops route",
    ],
)
def test_a_wrong_command_is_found_in_prose(text: str) -> None:
    assert wrong("here", in_prose(text))


@pytest.mark.parametrize(
    "text",
    [
        "specops guard override ROLLOUT standard --by YOU --why 'what you see'",
        "why: specops sweep ROLLOUT, or set guard.min_acceptance",
        f"specops ab --arm standard={HOLE} --arm {HOLE}",
        f"specops guard simulate {HOLE} --last {HOLE}",
        "what `specops monitor check ROLLOUT` says, and a vLLM that specops configures",
    ],
)
def test_a_right_command_is_taken_with_what_surrounds_it(text: str) -> None:
    assert not wrong("here", in_prose(text))


def test_commands_of_cron_and_systemd_are_read_as_they_run() -> None:
    line = "cd /x && { set -a; [ ! -r /e ] || . /e; set +a; /bin/python3 -m specops report r.yaml --quiet; }"
    assert of_shell(line) == [["report", "r.yaml", "--quiet"]]
    assert of_script("cron", line.replace("--quiet", "--quite"))
    assert of_shell("cd /x && specops serve --port 1 & echo specops nothing") == [["serve", "--port", "1"]]

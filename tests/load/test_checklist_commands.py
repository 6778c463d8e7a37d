"""`next:` lines of the checklist are complete commands, and running them ends at passed items."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from calling import specops
from stub import Body, Reply, Stub, stream

from specops import results
from specops.cli.app import app
from specops.config import load, run_folder
from specops.phases.checklist.checklist import checklist
from specops.phases.checklist.evidence import ChecklistData, Item

CHUNKS = [("one ", 4), ("two ", 4), ("three ", 4), ("four", 4)]
PLACEHOLDER = re.compile(r"[{}<>]|\b(?:NAME|URL|HOST|ROLLOUT|TARGET|DRAFT|FILE)\b")
MEASURED = ("baseline", "k-swept", "speedup", "draft-compatible", "runbook-shared", "capacity")


def answering(gap_s: float) -> Any:
    def answer(body: Body) -> Reply:
        return Reply(stream(body, CHUNKS[: body["max_tokens"] // 4]), gap_s=gap_s)  # of 4 tokens each

    return answer


@pytest.fixture
def file(stub: Stub, other: Stub, tmp_path: Path) -> Path:
    """A rollout of two endpoints that run already; nothing was measured yet."""
    prompts = [{"id": f"p{i}", "class": "short", "text": f"Prompt {i}", "max_tokens": 16} for i in range(48)]
    (tmp_path / "prompts.json").write_text(json.dumps(prompts))
    ends = [{"engine": "endpoint", "base_url": server.base_url, "model": "stub"} for server in (stub, other)]
    measure = {"endpoint": "completions", "concurrency": [1, 2], "repeats": 2, "warmup": 0}
    path = tmp_path / "my rollout.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "rollout": "r",
                "prompts": "prompts.json",
                "pools": dict(zip(("standard", "speculative"), ends, strict=True)),
                "measure": measure,
                "ab": {"looks": 1, "requests": 480, "min_duration_s": 0.0},
                "peak": {"requests_per_s": 0.01},
                "addresses": {"standard": ["127.0.0.1:1"], "speculative": ["127.0.0.1:2"]},
            }
        )
    )
    return path


def items(file: Path, now: datetime | None = None) -> dict[str, Item]:
    rollout = load(file)
    folder = run_folder(file, rollout.rollout)
    result = checklist(rollout, file, folder, now or datetime.now(UTC))
    return {one.name: one for one in ChecklistData.model_validate(result.data).items}


def parsed(command: str) -> Iterator[str]:
    """The names of the commands in it; what Typer does not take raises."""
    words = shlex.split(command, comments=True)
    assert words.pop(0) == "specops"
    group: Any = typer.main.get_command(app)
    context = group.make_context("specops", words)
    while hasattr(group, "commands"):
        name, group, words = group.resolve_command(context, [*context._protected_args, *context.args])
        yield name
        context = group.make_context(name, words, parent=context)


def complete(item: Item) -> None:
    assert item.decide is not None, item
    assert not PLACEHOLDER.search(item.decide), item.decide
    assert list(parsed(item.decide))


def test_every_command_of_an_empty_run_folder_is_complete(file: Path) -> None:
    found = items(file)
    for item in found.values():
        complete(item)
    name = shlex.quote(str(file))
    stub, other = (getattr(load(file).pools, pool).base_url for pool in ("standard", "speculative"))
    assert found["k-swept"].decide == (
        f"specops sweep {name} --attach '0={stub}#stub' --attach '5={other}#stub'"
    )
    assert found["baseline"].decide == f"specops run {name} --only baseline"
    attest = found["draft-compatible"].decide or ""
    assert attest.startswith(f"specops checklist attest draft-compatible {name} --by ")


def test_what_is_old_or_was_edited_is_made_anew(file: Path) -> None:
    """Its inputs have not changed: without --fresh the earlier result would be shown again."""
    folder = run_folder(file, "r")
    for phase in ("baseline", "ab", "sweep", "canary"):
        made = results.Result(phase=phase, verdict="yes", reason="made up")
        results.write(folder / f"{phase}.json", made)
    names = {"baseline": "baseline", "k-swept": "sweep", "speedup": "ab", "canary": "canary"}
    later = items(file, datetime.now(UTC) + timedelta(days=31))
    for path in folder.glob("*.json"):
        path.write_text(path.read_text().replace("made up", "better"))
    for found in (later, items(file)):
        for name in names:
            complete(found[name])
            assert (found[name].decide or "").endswith(" --fresh"), found[name]


def test_a_prometheus_that_is_down_is_a_change_and_not_a_command(file: Path) -> None:
    fields = yaml.safe_load(file.read_text())
    fields["addresses"]["prometheus"] = "http://127.0.0.1:9"
    file.write_text(yaml.safe_dump(fields))
    found = items(file)["acceptance"]
    assert (found.change or "").startswith("fix what this shows: curl -sSi -m 5 http://127.0.0.1:9/")
    complete(found)


def test_what_a_command_would_refuse_is_to_be_added_first(file: Path) -> None:
    """Neither the drill nor the guard runs on a rollout that names nothing to switch, and no Prometheus."""
    found = items(file)
    assert "add addresses.routers" in (found["fallback-tested"].change or "")
    assert "add addresses.prometheus" in (found["guard-running"].change or "")
    fields = yaml.safe_load(file.read_text())
    fields["addresses"] |= {"prometheus": "http://127.0.0.1:9", "routers": ["127.0.0.1:9"]}
    file.write_text(yaml.safe_dump(fields))
    found = items(file)
    assert (found["fallback-tested"].change, found["guard-running"].change) == (None, None)


def test_another_run_folder_is_named_in_every_command(file: Path, tmp_path: Path) -> None:
    done = specops("checklist", str(file), "--out", str(tmp_path / "else where"))
    lines = re.findall(r"^(?:\d+\. | +)next: (.+)$", done.stdout, re.MULTILINE)
    assert len(lines) > 8
    for line in lines:
        words = shlex.split(line, comments=True)
        assert words[words.index("--out") + 1] == str(tmp_path / "else where"), line


@pytest.mark.slow
def test_commands_run_in_turn_end_at_passed_items(
    file: Path, stub: Stub, other: Stub, any_speed: None
) -> None:
    stub.answer, other.answer = answering(0.01), answering(0.002)
    ran: list[str] = []
    for _ in range(len(MEASURED) + 1):
        found = items(file)
        left = [found[name] for name in MEASURED if found[name].status not in ("passed", "attested")]
        if not left:
            break
        command = left[0].decide or ""
        assert command not in ran, left[0].model_dump_json()
        ran.append(command)
        words = shlex.split(command)[1:]
        specops(*words, *(["--yes"] if words[0] == "run" else []), "--quiet")
    assert {name: found[name].status for name in MEASURED} == {
        name: "attested" if name in ("draft-compatible", "runbook-shared") else "passed" for name in MEASURED
    }
    assert len(ran) == 5, ran

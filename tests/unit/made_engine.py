"""A made-up serving engine, registered as a package of its own would be; run as a script, it is walked.

    python made_engine.py ROLLOUT

What it prints is JSON: what config, launch, lint, monitor, sweep, route, doctor and the counters make of it.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from specops.section import Section
from specops.serving import ENGINES
from specops.serving.acceptance import Drafts
from specops.serving.argv import CallPattern, Command, CommandLine, Finding, LintResult
from specops.serving.engine import (
    EVERYWHERE,
    Container,
    Engine,
    Grid,
    PairQuestion,
    Rendering,
    Setting,
    Start,
    Startable,
    by_k,
)
from specops.serving.metrics import Series

NAMES = Series(
    ttft="quick:ttft_seconds",
    tpot="quick:tpot_seconds",
    e2e="quick:e2e_seconds",
    running="quick:running",
    waiting="quick:waiting",
    kv_usage="quick:kv",
    generated="quick:tokens_total",
    finished="quick:requests_total",
    preemptions="quick:preemptions_total",
    acceptance=(
        Drafts(
            drafts="quick:drafts_total",
            draft_tokens="quick:drafted_total",
            accepted_tokens="quick:accepted_total",
            per_position="quick:accepted_at_total",
        ),
    ),
    aborted="quick:aborted_total",
)


class QuickSpeculation(Section):
    draft: str
    ahead: int = 4


class QuickPool(Startable):
    """Servers of Quick."""

    engine: Literal["quick"]
    model: str
    gpu_count: int = 1
    speculation: QuickSpeculation | None = None

    PROGRAM: ClassVar[str] = "quick-server"

    def start(self, port: int, name: str) -> Start:
        return Start(self._words(port, "127.0.0.1"), timeout_s=900.0)

    def rendering(self, port: int | str, name: str) -> Rendering:
        words = self._words(port, "127.0.0.1")
        return Rendering(words, "1.2", judged="Quick 1.2", findings=lint(words))

    def container(self, port: int, name: str, version: str | None, drain_s: int) -> Container:
        return Container(f"quick/quick:{version}", self._words(port, EVERYWHERE), self.gpus, drains=True)

    @property
    def models(self) -> Mapping[str, str]:
        return {"model": self.model}

    @property
    def programs(self) -> Sequence[str]:
        return (self.PROGRAM,)

    @property
    def gpus(self) -> int:
        return self.gpu_count

    @property
    def series(self) -> Series:
        return NAMES

    @property
    def speculates(self) -> bool:
        return self.speculation is not None

    @property
    def comparable(self) -> Mapping[str, Any]:
        return self.model_dump(exclude={"speculation"})

    @property
    def method(self) -> str | None:
        return "quick" if self.speculation else None

    def variants(self, grid: Grid) -> list[Setting]:
        return by_k(self, grid, partial(_at, self))

    @property
    def pair(self) -> PairQuestion:
        assert self.speculation is not None
        return PairQuestion(self.model, self.speculation.draft)

    def _words(self, port: int | str, host: str) -> list[str]:
        words = [self.PROGRAM, "-m", self.model, "--host", host, "--port", str(port)]
        if self.speculation is not None:
            words += ["-d", self.speculation.draft, "--ahead", str(self.speculation.ahead)]
        return words


def _at(pool: QuickPool, k: int, draft: str | None) -> QuickPool:
    assert pool.speculation is not None
    update = {"ahead": k} | ({"draft": draft} if draft else {})
    return pool.model_copy(update={"speculation": pool.speculation.model_copy(update=update)})


def lint(words: Sequence[str]) -> list[Finding]:
    return [Finding("warning", "--ahead", "slow beyond 3", "3")] if "4" in words else []


def judge(command: Command, asked: str | None) -> LintResult:
    version = asked or command.version or "1.2"
    return LintResult(command.where, "Quick", version, "known", lint(command.words), None, [])


ENGINE = Engine(
    name="quick",
    title="Quick",
    about="specops configures them",
    settings=QuickPool,
    namings={"quick": NAMES},
    refused={"min_p": "Quick has no such sampler"},
    command_line=CommandLine(
        call=CallPattern("quick", (("quick-server",),), ("quick.server",)),
        example="quick-server …",
        judge=judge,
    ),
    k_key="ahead",
)


def walk(file: Path) -> dict[str, Any]:
    ENGINES[ENGINE.name] = ENGINE  # the registry's line
    from typer.testing import CliRunner

    from specops.cli.app import app
    from specops.config import Rollout, load
    from specops.launch.command_files import command_of, judge
    from specops.load.server_identity import GENERATED
    from specops.phases.canary.checks.endings import in_flight
    from specops.phases.launch import render
    from specops.phases.monitor.check import needs
    from specops.phases.sweep.recommend import method_of
    from specops.phases.sweep.spec import swept_settings
    from specops.progress import SilentProgress
    from specops.prometheus.exposition import draft_counts, parse
    from specops.prometheus.series import exposed

    rollout = load(file)
    folder = file.parent / "out"
    swept = swept_settings(rollout, folder)
    rendered = render(rollout, folder, SilentProgress()).data
    counters = "quick_drafts_total {0}\nquick_drafted_total {1}\nquick_accepted_total {2}\nquick_running 1\n"
    before, after = parse(counters.format(1, 4, 2)), parse(counters.format(3, 12, 8))
    cli = CliRunner()
    for command in ("monitor", "route"):
        done = cli.invoke(app, [command, "render", str(file), "--out", str(folder)])
        assert done.exit_code == 0, done.output
    asked = "docker run quick/quick:2.0 -m m --ahead 4"
    return {
        "schema": "QuickPool" in Rollout.model_json_schema()["$defs"],
        "stored": rollout.model_dump(mode="json")["pools"]["speculative"],
        "commands": {name: pool["command"] for name, pool in rendered["pools"].items()},
        "findings": [found["flag"] for found in rendered["pools"]["speculative"]["findings"]],
        "files": rendered["files"],
        "compose": (folder / "rendered/compose.yaml").read_text(),
        "judged": asdict(judge(command_of(shlex.split(asked)))),
        "prefixes": sorted({exposed(rollout, pool).prefix for pool in ("standard", "speculative")}),
        "needs": [need.name for need in needs(rollout) if need.name.startswith("quick:")],
        "rules": (folder / "rendered/monitor/rules.yml").read_text(),
        "scrape": (folder / "rendered/monitor/prometheus.yml").read_text(),
        "routes": (folder / "rendered/nginx/lua/specops/rules.lua").read_text(),
        "settings": {one.name: one.pool.model_dump()["speculation"] for one in swept},
        "method": [method_of(one) for one in swept],
        "drafts": draft_counts(before, after).drafts,
        "counts": asdict(draft_counts(before, after)),  # type: ignore[call-overload]
        "in flight": in_flight(after),
        "generated": NAMES.generated in GENERATED,
    }


if __name__ == "__main__":
    print(json.dumps(walk(Path(sys.argv[1]))))

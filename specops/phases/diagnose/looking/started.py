"""How the speculative pool is started, what its servers wrote, and whether Prometheus has their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from specops.config import Rollout
from specops.errors import ConfigError, SpecopsError
from specops.launch.reading import command_of, judge
from specops.phases.diagnose.observations import Lint, LintFinding, Logged, Names
from specops.phases.monitor.check import GOOD, Found, check
from specops.progress import Silent
from specops.prometheus.api import Api
from specops.serving import ENGINES, Finding, Startable

ANY_PORT = 8000
UNLIKE = re.compile(
    "|".join(pattern for engine in ENGINES.values() for pattern in engine.vocabulary_errors), re.IGNORECASE
)
LINES, CHARACTERS = 3, 300
TAIL_BYTES = 1 << 20
"""Of each log: a server that refuses its pair says so last."""


def lint(rollout: Rollout) -> Lint | str:
    """Of the command as specops would start the pool, for the version that is named or installed."""
    pool = rollout.pools.speculative
    try:
        if not isinstance(pool, Startable):
            return "an endpoint does not say how it was started"
        if pool.own is not None:
            return f"{ENGINES[pool.engine].title} takes no such command"
        script = pool.rendering(ANY_PORT, rollout.rollout)
        if script.judged is not None:
            return _lint(script.judged, script.findings)
        judged = judge(command_of(script.words))
        return _lint(f"{judged.engine} {judged.version}, {judged.because}", judged.findings)
    except ConfigError as error:  # a setting that the version does not have
        refused = Finding("error", "pools.speculative", error.message, error.hint)
        return _lint("the rollout file", [refused])
    except SpecopsError as error:
        return error.message


def _lint(source: str, findings: Sequence[Finding]) -> Lint:
    return Lint(
        source=source,
        findings=tuple(
            LintFinding(level=one.level, flag=one.flag, why=one.why, replacement=one.replacement)
            for one in findings
        ),
    )


def logged(folder: Path) -> Logged | str:
    logs = sorted((folder / "logs").rglob("*.log"))
    if not logs:
        return "no server's log is in the run folder"
    lines: list[str] = []
    where = "logs"
    for log in logs:
        for line in _tail(log).splitlines():
            if UNLIKE.search(line) and len(lines) < LINES:
                lines.append(line.strip()[:CHARACTERS])
                where = log.relative_to(folder).as_posix()
    return Logged(source=where, files=len(logs), lines=tuple(lines))


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def names(rollout: Rollout, api: Api) -> Names:
    """Raises EndpointError."""
    result = check(rollout, api, Silent())
    found = [Found.model_validate(one) for one in result.data["names"]]
    lacking = [one for one in found if one.status not in GOOD]
    told = [f"{one.name} of the {one.where}: {one.status}" for one in lacking]
    fixes = dict.fromkeys(one.fix for one in lacking if one.fix)
    return Names(source=api.url, requested=len(found), lacking=tuple(told), fixes=tuple(fixes))

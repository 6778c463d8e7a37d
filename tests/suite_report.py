"""What a run of the tests says at its end: second tries, features not tested, and the slowest files.

- A test that fails is run once more (`--reruns 1`, pytest-rerunfailures). A second try survives a busy
  machine, but it can hide a fault as well. So every first failure is printed, they are counted, and more
  than `MOST_SECOND_TRIES` of them fail the run.
- A missing program or package skips many tests. They are summed up by the feature that was not tested.
- `--slowest-files N` prints the N files that took the most CPU, with their wall time.
"""

from __future__ import annotations

import resource
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MOST_SECOND_TRIES = 3

FEATURES = {
    "deploy": "the Helm chart",
    "edge": "drafting at the edge",
    "engine": "the embedded engine",
    "faults": "the fault zoo",
    "grafana": "the dashboard",
    "kernels": "Triton kernels",
    "load": "the load driver",
    "serve": "the embedded server",
    "canary": "the canary",
    "vllm": "a real vLLM",
}
"""By folder of tests/: what is untested where its tests are skipped."""

FEATURES_BY_FILE = {
    "router": "router",
    "route": "router",
    "guard": "guard",
    "monitor": "monitoring",
    "report": "weekly report",
    "prometheus": "Prometheus access",
    "sweep": "sweep",
    "launch": "launch",
    "rendered": "rendered files",
    "checklist": "checklist",
    "diagnose": "diagnose",
    "doctor": "doctor",
    "run": "the walk of `run`",
}
"""By a word of the file's name, in folders that hold several features."""


class SuiteReport:
    """A pytest plugin. In pytest-xdist's controller it sees the reports of all workers."""

    def __init__(self, slowest: int) -> None:
        self.slowest = slowest
        self._cpu_s = _cpu_s()  # at the end of the last phase, in the process that runs the tests
        self._wall: dict[str, float] = defaultdict(float)
        self._cpu: dict[str, float] = defaultdict(float)
        self._began = time.monotonic()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """Note the phase's CPU time, that of processes which ended in it included."""
        report: Any = yield
        now = _cpu_s()
        report.cpu_s, self._cpu_s = now - self._cpu_s, now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self._wall[file] += report.duration
        self._cpu[file] += getattr(report, "cpu_s", 0.0)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        reruns = terminal.stats.get("rerun", []) if terminal else []
        if len(reruns) > MOST_SECOND_TRIES and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        self._say_skipped(terminalreporter)
        self._say_slowest(terminalreporter)
        self._say_second_tries(terminalreporter)

    def _say_second_tries(self, terminal: pytest.TerminalReporter) -> None:
        reruns: list[pytest.TestReport] = terminal.stats.get("rerun", [])
        if not reruns:
            return
        terminal.section("first failures of tests that were run again")
        for report in reruns:
            terminal.write_line(f"{report.nodeid} ({report.when})", yellow=True)
            terminal.write_line(report.longreprtext)
        names = ", ".join(sorted({report.nodeid.rpartition("/")[2] for report in reruns}))
        count = "1 test" if len(reruns) == 1 else f"{len(reruns)} tests"
        terminal.write_line(f"{count} needed a second try: {names}", yellow=True, bold=True)
        if len(reruns) > MOST_SECOND_TRIES:
            terminal.write_line(f"More than {MOST_SECOND_TRIES} second tries fail the run.", red=True)

    def _say_skipped(self, terminal: pytest.TerminalReporter) -> None:
        skipped = Counter(
            (_reason(report), feature_of(report.nodeid)) for report in terminal.stats.get("skipped", [])
        )
        if skipped:
            terminal.section("not tested")
        for (reason, feature), count in sorted(skipped.items()):
            terminal.write_line(f"{reason}: {feature} not tested ({count} test{'s' * (count != 1)})")

    def _say_slowest(self, terminal: pytest.TerminalReporter) -> None:
        if not self.slowest:
            return
        terminal.section(f"slowest {self.slowest} files")
        terminal.write_line(f"{'CPU s':>8} {'wall s':>8}  file")
        for file in sorted(self._cpu, key=lambda file: -self._cpu[file])[: self.slowest]:
            terminal.write_line(f"{self._cpu[file]:8.1f} {self._wall[file]:8.1f}  {file}")
        total = f"{sum(self._cpu.values()):8.1f} {time.monotonic() - self._began:8.1f}"
        terminal.write_line(f"{total}  all {len(self._cpu)} files (wall time: of the run)")


def feature_of(nodeid: str) -> str:
    """What a test file covers, in words for a person: `tests/real/test_router_faults.py` gives "router"."""
    path = Path(nodeid.partition("::")[0])
    words = path.stem.removeprefix("test_").split("_")
    named = next((FEATURES_BY_FILE[word] for word in words if word in FEATURES_BY_FILE), None)
    folder = FEATURES.get(path.parent.name)
    return folder or named or " ".join(words)


def _reason(report: pytest.TestReport) -> str:
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return said.removeprefix("Skipped: ")


def _cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)

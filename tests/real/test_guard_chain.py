"""The whole chain on real parts: acceptance falls, the guard sees it, NGINX switches under load, nothing is
lost, and it comes back by steps. Then its parts fail one after the other."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from daemons import Daemon, alertmanager, free_port, prometheus, stop, wait_until
from guarded import Deployment, Load, deployment, engine, guard
from relay import Relay
from routers import running

from specops.config import load
from specops.guard.journal import FILE, Entry, history
from specops.phases.monitor.render import FOLDER, render
from specops.progress import SilentProgress

POLICY = {
    "interval_s": 1,
    "cooldown_s": 12,
    "canary_percents": [40],
    "hold_evaluations": 10,
    "max_error_share": 0.5,  # an engine that drains refuses a few, which the other pool then serves
}
WATCH = {"scrape_interval_s": 1, "window_s": 10, "alerts": {"LowAcceptRatio": {"for_s": 0}}}


class Chain:
    """What stays: the standard pool, the router, who watches; and where the speculative pool's engine is."""

    def __init__(self, up: Deployment, pair: tuple[Path, Path], parts: ExitStack) -> None:
        folder = up.folder
        self.up = up
        self._target, self._bad = pair
        self.speculative = parts.enter_context(Relay(up.pools["speculative"]))
        parts.enter_context(engine(up.pools["standard"], self._target, None, folder / "standard.log"))
        render(load(up.file), up.run, SilentProgress())
        alerting = parts.enter_context(alertmanager(up.run / FOLDER / "alertmanager.yml", folder))
        up.add(alertmanagers=[alerting.url.removeprefix("http://")])
        render(load(up.file), up.run, SilentProgress())
        self.prometheus = parts.enter_context(prometheus(up.run / FOLDER / "prometheus.yml", folder))
        up.add(prometheus=self.prometheus.url)
        self.router = parts.enter_context(running(up.run, load(up.file)))

    @contextmanager
    def speculating(self, *, well: bool) -> Iterator[Daemon]:
        """An engine beside the one that is in service, which is drained once this one has taken over."""
        draft = self._target if well else self._bad
        where = f"127.0.0.1:{free_port()}"
        with engine(where, self._target, draft, self.up.folder / "speculative.log") as served:
            self.speculative.to = where
            yield served

    def reaches(self, mode: str, timeout_s: float = 60) -> None:
        wait_until(lambda: self.up.status().state.mode == mode, f"the guard to be {mode}", timeout_s)

    def sees(self, verdict: str) -> bool:
        """Of acceptance, for which it falls back here: without a baseline the rest is unknown."""
        evaluation = self.up.status().evaluation
        found = () if evaluation is None else evaluation.findings
        return verdict == next((one.verdict for one in found if one.signal == "acceptance"), "unknown")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_from_a_bad_draft_to_a_return_and_what_may_fail_on_the_way(tiny_pair, tmp_path) -> None:
    up = deployment(tmp_path / "up", monitor=WATCH, guard=POLICY)
    with ExitStack() as parts:
        chain = Chain(up, tiny_pair, parts)
        router = chain.router
        good = parts.enter_context(chain.speculating(well=True))
        guarding = parts.enter_context(guard(up))
        traffic = parts.enter_context(Load(router.url, pause_s=0.1))  # all the while, of two cores
        wait_until(lambda: chain.sees("healthy"), "speculation to be seen to pay", 60)

        spoilt = time.time()
        bad = parts.enter_context(chain.speculating(well=False))
        stop(good.process)
        chain.reaches("fallen")
        wait_until(lambda: router.percent() == 0, "the router to be switched")

        guarding.signal(signal.SIGKILL)
        guarding.process.wait()
        repaired = parts.enter_context(chain.speculating(well=True))
        stop(bad.process)
        parts.enter_context(guard(up))
        assert up.status().state.mode == "fallen", "the next guard goes on where this one was"
        assert router.percent() == 0
        chain.reaches("canary")
        chain.reaches("on", 120)
        assert router.percent() == 100
        assert traffic.failures == [], "nothing was lost"

        os.killpg(repaired.process.pid, signal.SIGKILL)
        chain.reaches("fallen")
        begun = [failure for failure in traffic.failures if failure != "cut short on speculative"]
        assert begun == [], "only streams that had begun"
        assert len(traffic.failures) <= traffic.clients

        stop(chain.prometheus.process)
        wait_until(lambda: chain.sees("unknown"), "the guard to know nothing")
        assert (up.status().state.mode, router.percent()) == ("fallen", 0), "and to switch nothing"
    _journalled(list(history(up.run / "guard" / FILE)), spoilt)


def _journalled(entries: list[Entry], spoilt: float) -> None:
    ended = [entry for entry in entries if entry.result or not entry.action]
    events = [event for entry in ended for event in entry.evidence.events]
    assert events == ["fell_back", "canary", "step", "returned", "fell_back"]
    first, second = (entry for entry in ended if "fell_back" in entry.evidence.events)
    assert first.evidence.evaluation is not None
    assert "acceptance" in first.evidence.evaluation.reason
    assert "undecided" in (first.evidence.capacity or ""), "the capacity gate was asked"
    assert second.evidence.evaluation is not None
    assert "requests failed" in second.evidence.evaluation.reason
    assert any("LowAcceptRatio" in entry.evidence.alerts for entry in entries if entry.ts > spoilt)

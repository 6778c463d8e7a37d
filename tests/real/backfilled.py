"""A Prometheus with a past: pools of vLLM that were scraped until now, each a rollout's."""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from daemons import Daemon, program, prometheus

SCRAPE_S = 15
PAST_S = 1800
AHEAD_S = 120
"""Samples that are there already of the time in which a test runs."""


@dataclass(frozen=True)
class Pool:
    """Servers that do the same all the time, until they do something else. Figures are of one server."""

    rollout: str
    requests_per_s: float = 2.0
    tokens: float = 101.0
    ttft: float = 0.1
    tpot: float = 0.02
    drafted: float = 90.0
    """Tokens, for a request."""

    acceptance: float = 0.7
    aborted: float = 0.0
    pool: str = "speculative"
    servers: int = 1
    port: int = 8000
    """Of the first of them."""

    job: str | None = None
    """A label of its own, where a server is scraped twice, or by another job since."""

    speculates: bool = True
    prefix: str = "vllm:"
    restarted_s_ago: float | None = None
    until_s_ago: float = -AHEAD_S
    then: Mapping[str, Any] | None = None
    """What has been otherwise for the last `then_s`."""

    then_s: float = 900.0
    then_until_s: float = -AHEAD_S
    """Seconds ago from which it has been as before again."""

    away: tuple[float, float] | None = None
    """From so many seconds ago until so many nothing was scraped: Prometheus was away."""

    silent: tuple[float, float] | None = None
    """The same, while Prometheus was there: `up` is 0."""

    gauges: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)
    """Further ones, by name; counters by what they grow in a second, with labels of their own if need be."""

    nan: bool = False
    """Sums are not a number."""

    past_s: int = PAST_S
    every_s: int = SCRAPE_S

    @property
    def e2e(self) -> float:
        return self.ttft + self.tpot * (self.tokens - 1)

    def lines(self, now: float) -> Iterator[str]:
        for server in range(self.servers):
            yield from self._of_server(now, f"127.0.0.1:{self.port + server}")

    def _of_server(self, now: float, instance: str) -> Iterator[str]:
        totals = dict.fromkeys(self._grown(), 0.0)
        target = f'specops_rollout="{self.rollout}",specops_pool="{self.pool}",instance="{instance}"'
        if self.job is not None:
            target += f',job="{self.job}"'
        labels = f'{{{target},model_name="m",engine="0"}}'
        for at in range(int(now) - self.past_s, int(now) + AHEAD_S, self.every_s):
            ago = now - at
            if self.restarted_s_ago is not None and 0 <= self.restarted_s_ago - ago < self.every_s:
                totals = dict.fromkeys(totals, 0.0)
            then = self.then is not None and self.then_until_s <= ago < self.then_s
            does = replace(self, **dict(self.then or {})) if then else self
            for name, grows in does._grown().items():
                totals[name] = totals.get(name, 0.0) + grows * self.every_s
            if ago < self.until_s_ago:
                return
            if _within(self.away, ago):
                continue
            yield f"up{{{target}}} {int(not _within(self.silent, ago))} {at}"
            if _within(self.silent, ago):
                continue
            load = {"num_requests_running": round(does.requests_per_s * does.e2e), "num_requests_waiting": 0}
            gauges = load | dict(does.gauges)
            for name, value in gauges.items():
                yield f"{self.prefix}{name}{labels} {value} {at}"
            for name, total in totals.items():
                value = "NaN" if self.nan and name.endswith("_sum") else f"{total:.6f}"
                own = name.partition("{")
                matchers = labels if not own[1] else f"{labels[:-1]},{own[2]}"
                yield f"{self.prefix}{own[0]}{matchers} {value} {at}"

    def _grown(self) -> dict[str, float]:
        """Each second."""
        rate = self.requests_per_s
        drafts = {
            "spec_decode_num_drafts_total": rate * self.drafted / 3,
            "spec_decode_num_draft_tokens_total": rate * self.drafted,
            "spec_decode_num_accepted_tokens_total": rate * self.drafted * self.acceptance,
        }
        return (
            {
                'request_success_total{finished_reason="stop"}': rate * (1 - self.aborted),
                'request_success_total{finished_reason="abort"}': rate * self.aborted,
                "generation_tokens_total": rate * self.tokens,
                "e2e_request_latency_seconds_sum": rate * self.e2e,
                "e2e_request_latency_seconds_count": rate,
                "time_to_first_token_seconds_sum": rate * self.ttft,
                "time_to_first_token_seconds_count": rate,
                "request_time_per_output_token_seconds_sum": rate * self.tpot,
                "request_time_per_output_token_seconds_count": rate,
            }
            | (drafts if self.speculates else {})
            | dict(self.counters)
        )


def _within(span: tuple[float, float] | None, ago: float) -> bool:
    return span is not None and span[1] <= ago < span[0]


@contextmanager
def remembering(pools: Sequence[Pool], folder: Path, *more: str) -> Iterator[Daemon]:
    """A Prometheus that scraped `pools`, and `more`: lines of OpenMetrics."""
    lines = [line for pool in pools for line in pool.lines(time.time())]
    # All samples of a name stand together, as OpenMetrics has it.
    text = "\n".join(sorted([*lines, *more], key=lambda line: line.partition("{")[0]))
    (folder / "past.txt").write_text(f"{text}\n# EOF\n")
    # It reads the whole file for each block, of which there would be one for every two hours.
    made = [program("promtool"), "tsdb", "create-blocks-from", "--max-block-duration=720h", "openmetrics"]
    into = ["-q", str(folder / "past.txt"), str(folder / "data")]
    subprocess.run([*made, *into], check=True, capture_output=True)
    with again(folder) as up:
        yield up


@contextmanager
def again(folder: Path) -> Iterator[Daemon]:
    """The same one, started anew."""
    config = folder / "prometheus.yml"
    config.write_text("scrape_configs: []\n")
    with prometheus(config, folder) as up:
        yield up


def answered(rollout: str, means: Mapping[str, tuple[float, float]], now: float) -> Iterator[str]:
    """Lines of a router's histogram on the speculative pool: by class, requests a second and seconds each."""
    for of, (rate, mean) in means.items():
        labels = f'specops_rollout="{rollout}",class="{of}",pool="speculative"'
        for at in range(int(now) - PAST_S, int(now) + AHEAD_S, SCRAPE_S):
            count = rate * (at - now + PAST_S)
            yield f"specops_route_request_duration_seconds_count{{{labels}}} {count:.6f} {at}"
            yield f"specops_route_request_duration_seconds_sum{{{labels}}} {count * mean:.6f} {at}"


def routed(rollout: str, rates: Mapping[tuple[str, str, str, str], float], now: float) -> Iterator[str]:
    """Lines of a router's counter: requests a second by class, pool, served and status."""
    for (of, pool, served, status), rate in rates.items():
        labels = f'specops_rollout="{rollout}",class="{of}",pool="{pool}",served="{served}",status="{status}"'
        for at in range(int(now) - PAST_S, int(now) + AHEAD_S, SCRAPE_S):
            total = math.floor(rate * (at - now + PAST_S))
            yield f"specops_route_requests_total{{{labels}}} {total} {at}"
    for at in range(int(now) - PAST_S, int(now) + AHEAD_S, SCRAPE_S):
        yield f'specops_route_speculative_percent{{specops_rollout="{rollout}"}} 100 {at}'

"""Two weeks of a rollout as servers, routers and Prometheus would have left them, and all their samples.

Four servers that speculate, of which one is added on the way, and a standard one; days and idle nights;
restarts, one of them while nothing is scraped; a server that is not seen for a while, and a Prometheus that
is off for hours; alerts that fire across that hole, begin before the week, and have not ended. What is true
of it is in the samples, by which a test counts again.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from backfilled import again
from daemons import Daemon, program
from numpy.typing import NDArray

END = 1795273200
"""Sunday 2026-11-22 00:00 in Seoul."""

HOUR, DAY = 3600, 86400
START, BEFORE = END - 7 * DAY, END - 14 * DAY
NAME = "a-week"
BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

HISTOGRAMS = {"e2e_request_latency": 2.6, "time_to_first_token": 0.12, "request_time_per_output_token": 0.015}
"""Seconds, on average."""

Key = tuple[tuple[str, str], ...]
"""Sorted, with __name__."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Samples:
    at: Floats
    values: Floats


@dataclass
class Week:
    every_s: int = 600
    positions: int = 5
    standard: int = 1
    bounds: tuple[float, ...] = BOUNDS
    seed: int = 0
    off: tuple[int, int] = (START + 2 * DAY + 9 * HOUR, START + 2 * DAY + 12 * HOUR + 600)
    """Nobody scraped."""

    series: dict[Key, Samples] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        for number in range(4):
            self._server("speculative", number)
        for number in range(self.standard):
            self._server("standard", number)
        self._routers()
        self._alerts()
        for number in range(2):
            self._gpu(number)

    def _server(self, pool: str, number: int) -> None:
        """On the hour, or beside it; the third is added, and the second is lost for a while."""
        begins = BEFORE - HOUR + (9 * DAY // 2 if number == 2 else 0)
        at = np.arange(begins + (0, 17.5, 41.25, 3.125)[number], END + HOUR, self.every_s)
        n = self._random.poisson(_busy(at, 1100 if pool == "speculative" else 300) * self.every_s / 300)
        tokens = self._random.poisson(n * 180.0)
        step = self._random.poisson(tokens / 3.5)
        chance = 0.86 - 0.05 * (at > START) * (number != 1)
        accepted = [self._random.binomial(step, chance**k) for k in range(1, self.positions + 1)]
        slow = 1.0 if pool == "speculative" else 1.7
        n_load = n / self.every_s * 2.6 * slow
        ttft = n * (0.11 + 0.01 * n_load) * self._random.uniform(0.95, 1.05, n.size)
        tpot = n * slow * (0.0135 + 0.001 * n_load) * self._random.uniform(0.97, 1.03, n.size)
        labels = {"specops_pool": pool, "instance": f"10.0.0.{number}:8000", "job": f"specops-{NAME}-{pool}"}
        restarts = {0: (START + 3 * DAY + 5000, START + 5 * DAY - 100), 1: (START + DAY + 1800,)}.get(
            number, ()
        )
        if number == 3:
            restarts = (START + 2 * DAY + 10 * HOUR,)  # while nobody scraped
        grown = {
            "vllm:generation_tokens_total": tokens,
            'vllm:request_success_total{finished_reason="stop"}': n,
            "vllm:num_preemptions_total": self._random.binomial(n, 0.002),
            "vllm:time_to_first_token_seconds_sum": ttft,
            "vllm:time_to_first_token_seconds_count": n,
            "vllm:request_time_per_output_token_seconds_sum": tpot,
            "vllm:request_time_per_output_token_seconds_count": n,
            "vllm:e2e_request_latency_seconds_sum": ttft + tpot * 179,
            "vllm:e2e_request_latency_seconds_count": n,
        }
        for name, mean in HISTOGRAMS.items():
            for bound, count in self._buckets(n, mean * slow):
                grown[f'vllm:{name}_seconds_bucket{{le="{bound}"}}'] = count
        if pool == "speculative":
            grown["vllm:spec_decode_num_drafts_total"] = step
            grown["vllm:spec_decode_num_draft_tokens_total"] = step * self.positions
            grown["vllm:spec_decode_num_accepted_tokens_total"] = np.sum(accepted, axis=0)
            for position, count in enumerate(accepted):
                name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
                grown[f'{name}{{position="{position}"}}'] = count
        dark = (START + 4 * DAY + 3 * HOUR, START + 4 * DAY + 5 * HOUR + 900) if number == 1 else None
        for name, counts in grown.items():
            self._keep(name, labels | {"model_name": "m"}, at, _counter(at, counts, restarts), dark)
        running = self._random.poisson(n_load)
        gauges = {
            "vllm:num_requests_running": running,
            "vllm:num_requests_waiting": self._random.binomial(running, 0.1),
            "vllm:kv_cache_usage_perc": np.clip(running * 0.03 + self._random.uniform(0, 0.05, n.size), 0, 1),
        }
        for name, values in gauges.items():
            self._keep(name, labels | {"model_name": "m"}, at, values, dark)
        self._keep("up", labels, at, np.ones(at.size), None)

    def _routers(self) -> None:
        at = np.arange(BEFORE - HOUR + 5, END + HOUR, self.every_s)
        labels = {"instance": "10.0.1.5:8081", "job": f"specops-{NAME}-routers"}
        for of, rate, mean in (("chat", 3000, 2.4), ("code", 1200, 3.4)):
            n = self._random.poisson(_busy(at, rate) * self.every_s / 300)
            failed = self._random.binomial(n, 0.004)
            where = labels | {"class": of, "pool": "speculative"}
            for status, count in (("2xx", n - failed), ("5xx", failed)):
                served = {"served": "speculative", "status": status}
                values = _counter(at, count, (START + 6 * DAY,))
                self._keep("specops_route_requests_total", where | served, at, values, None)
            for name, long in (("request_duration", mean), ("first_byte", 0.12)):
                seconds = n * long * self._random.uniform(0.9, 1.1, n.size)
                histogram = f"specops_route_{name}_seconds"
                self._keep(f"{histogram}_sum", where, at, _counter(at, seconds, (START + 6 * DAY,)), None)
                self._keep(f"{histogram}_count", where, at, _counter(at, n, (START + 6 * DAY,)), None)
                for bound, count in self._buckets(n, long):
                    values = _counter(at, count, (START + 6 * DAY,))
                    self._keep(f"{histogram}_bucket", where | {"le": bound}, at, values, None)

    def _alerts(self) -> None:
        fired = {
            "LowAcceptRatio": [(START - 2 * HOUR, START + HOUR), (START + DAY, START + DAY + 5400)],
            # It fires while nobody looks, and before and after.
            "SpeculationTargetDown": [(self.off[0] - HOUR, self.off[1] + HOUR)],
            # Last week's, and this one's: of no pool, as `absent` makes it.
            "SpecopsGuardDown": [
                (START - 3 * DAY, START - 2 * DAY),
                (START + 5 * DAY, START + 5 * DAY + HOUR),
            ],
            "SpeculationLatencyRegression": [(END - 2 * HOUR, END + HOUR)],  # still open
        }
        for alert, spans in fired.items():
            labels = {"alertname": alert, "severity": "warning", "specops_rollout": NAME}
            if alert != "SpecopsGuardDown":
                labels |= {"specops_pool": "speculative"}
            for state in ("firing", "pending"):
                when = [np.arange(b, e, self.every_s) + 2.0 for b, e in spans]
                at = np.concatenate(when) if state == "firing" else np.array([b - 60.0 for b, _ in spans])
                self._keep("ALERTS", labels | {"alertstate": state}, at, np.ones(at.size), None)

        # Another rollout's, which the same Prometheus watches.
        labels = {"alertname": "SpecopsGuardDown", "alertstate": "firing", "specops_rollout": "another"}
        at = np.arange(START + 2 * DAY, START + 3 * DAY, self.every_s) + 2.0
        self._keep("ALERTS", labels, at, np.ones(at.size), None)

    def _gpu(self, number: int) -> None:
        at = np.arange(BEFORE - HOUR, END + HOUR, self.every_s) + 1.0
        labels = {"Hostname": "gpu-host", "gpu": str(number), "instance": "10.0.0.9:9400"}
        used = 70000 + np.round(self._random.uniform(0, 3000, at.size))
        self._keep("DCGM_FI_DEV_FB_USED", labels, at, used, None)
        self._keep("DCGM_FI_DEV_FB_FREE", labels, at, 81000 - used, None)

    def _buckets(self, n: NDArray[np.int64], mean: float) -> Iterator[tuple[str, NDArray[np.int64]]]:
        left = np.zeros(n.size, dtype=np.int64)
        for bound in self.bounds:
            share = 1 - np.exp(-((bound / mean) ** 2))
            left = np.maximum(left, self._random.binomial(n, share))
            yield repr(bound), left
        yield "+Inf", n

    def _keep(
        self, name: str, labels: Mapping[str, str], at: Floats, values: Floats, dark: tuple[int, int] | None
    ) -> None:
        base, _, more = name.partition("{")
        own = dict(labels) | {"__name__": base} | ({} if base == "ALERTS" else {"specops_rollout": NAME})
        if more:
            label, _, value = more[:-1].partition("=")
            own[label] = value.strip('"')
        seen = (at < self.off[0]) | (at > self.off[1])
        if dark:
            seen &= (at < dark[0]) | (at > dark[1])
        self.series[tuple(sorted(own.items()))] = Samples(at[seen], np.asarray(values, dtype=float)[seen])

    def lines(self) -> Iterator[str]:
        """OpenMetrics: all samples of a name together."""
        for key in sorted(self.series, key=lambda key: dict(key)["__name__"]):
            labels = dict(key)
            name = labels.pop("__name__")
            said = name + "{" + ",".join(f'{label}="{value}"' for label, value in labels.items()) + "}"
            samples = self.series[key]
            for at, value in zip(samples.at.tolist(), samples.values.tolist(), strict=True):
                yield f"{said} {value!r} {at!r}"


def _busy(at: Floats, rate: float) -> Floats:
    """Requests in five minutes: from 07:00 to 23:00 in Seoul, most at 15:00; none at night."""
    hour = ((at + 9 * HOUR) % DAY) / HOUR
    return np.where((hour >= 7) & (hour < 23), rate * np.sin((hour - 7) / 16 * np.pi), 0.0)


def _counter(at: Floats, grown: NDArray[np.generic], restarts: tuple[int, ...]) -> Floats:
    total = np.cumsum(grown).astype(float)
    for restart in sorted(restarts):
        later = at > restart
        total[later] -= total[~later][-1] if (~later).any() else 0.0
    return np.round(total, 6)


@contextmanager
def remembered(week: Week, folder: Path) -> Iterator[Daemon]:
    """A Prometheus that has it."""
    with (folder / "past.txt").open("w") as out:
        out.writelines(f"{line}\n" for line in week.lines())
        out.write("# EOF\n")
    # Blocks of two hours, its default, would each read the whole file.
    made = [
        program("promtool"),
        "tsdb",
        "create-blocks-from",
        "--max-block-duration=672h",
        "openmetrics",
        "-q",
    ]
    subprocess.run([*made, str(folder / "past.txt"), str(folder / "data")], check=True, capture_output=True)
    with again(folder) as up:
        yield up

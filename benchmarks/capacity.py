"""Does `specops capacity` find the truth? Simulated queues whose capacity is known.

    python benchmarks/capacity.py [--runs 300] [--only queue,batch] [--json FILE]

`queue` is M/M/c: requests wait for one of c places, and the objective limits the wait. Its capacity follows
from Erlang's formula. A share of the requests has another length in the second arm than in the first, as
drafts differ. `batch` is continuous batching: the pace of a token falls with the requests that run, and
TTFT and TPOT are limited. Its capacity is that of one long run.

The search, the judge and their settings are those of the command; only the servers are simulated, in
simulated time. `separate` are the same searches, but that each arm has arrivals and prompts of its own; they
end at the same half-width, and their time is what pairing saves.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specops.phases.capacity.judge import Judged, judge
from specops.phases.capacity.records import ArmName, Probe, ProbePlan
from specops.phases.capacity.search import Search

ATTAIN = 0.95
OWN_LENGTHS = 0.1
"""Share of the requests whose length is an arm's own."""


@dataclass(frozen=True)
class Served:
    """Requests in the order of their arrival: seconds to the end, and whether each met the objective."""

    ended_s: list[float]
    met: list[bool]
    seconds: float


@dataclass(frozen=True)
class Queue:
    """M/M/c. A request meets the objective if it waits for at most `wait_s`."""

    places: int
    mean_s: float
    wait_s: float

    def serve(self, arrivals: Sequence[float], lengths: Sequence[float]) -> Served:
        free = [0.0] * self.places
        ended, met, last = [], [], 0.0
        for arrival, length in zip(arrivals, lengths, strict=True):
            start = max(heapq.heappop(free), arrival)
            end = start + length * self.mean_s
            heapq.heappush(free, end)
            ended.append(end - arrival)
            met.append(start - arrival <= self.wait_s)
            last = max(last, end)
        return Served(ended, met, last)

    def share(self, rate: float) -> float:
        """The share of the requests that meet the objective, by Erlang's formula."""
        load = rate * self.mean_s
        if load >= self.places:
            return 0.0
        below = sum(load**count / math.factorial(count) for count in range(self.places))
        full = load**self.places / math.factorial(self.places) * self.places / (self.places - load)
        return 1 - full / (below + full) * math.exp(-(self.places / self.mean_s - rate) * self.wait_s)

    def capacity(self) -> float:
        return _crossing(self.share, self.places / self.mean_s)


@dataclass(frozen=True)
class Batch:
    """Continuous batching: with n requests running, each gets 1 / (step_s + n * request_s) tokens/s times
    `gain`. A prompt takes as long as `prompt` tokens; an answer has `tokens` tokens on average."""

    places: int = 32
    step_s: float = 0.010
    request_s: float = 0.0005
    gain: float = 1.0
    prompt: float = 20.0
    tokens: float = 120.0
    ttft_s: float = 0.3
    tpot_s: float = 0.022

    def serve(self, arrivals: Sequence[float], lengths: Sequence[float]) -> Served:
        number = len(arrivals)
        first, end = [0.0] * number, [0.0] * number
        running: list[tuple[float, int, bool]] = []  # tokens of the clock at which a phase ends
        clock = now = 0.0
        arrived = started = 0
        while arrived < number or running:
            pace = self.gain / (self.step_s + self.request_s * len(running))
            arrival = arrivals[arrived] if arrived < number else math.inf
            done = now + (running[0][0] - clock) / pace if running else math.inf
            clock += (min(arrival, done) - now) * pace if running else 0.0
            now = min(arrival, done)
            if arrival <= done:
                arrived += 1
            else:
                clock, request, decoding = heapq.heappop(running)
                if decoding:
                    end[request] = now
                else:
                    first[request] = now
                    heapq.heappush(running, (clock + self.tokens * lengths[request], request, True))
            while started < arrived and len(running) < self.places:
                heapq.heappush(running, (clock + self.prompt, started, False))
                started += 1
        met = [
            first[i] - arrivals[i] <= self.ttft_s
            and end[i] - first[i] <= self.tpot_s * self.tokens * lengths[i]
            for i in range(number)
        ]
        return Served([end[i] - arrivals[i] for i in range(number)], met, now)

    def capacity(self, requests: int = 150_000) -> float:
        chance = random.Random(7)
        gaps = [chance.expovariate(1) for _ in range(requests)]
        lengths = [_length(chance) for _ in range(requests)]

        def share(rate: float) -> float:
            met = self.serve(_arrivals(gaps, rate), lengths).met[1000:]
            return sum(met) / len(met)

        return _crossing(share, 2 * self.places / (self.tokens * self.step_s) * self.gain, halvings=12)


Server = Queue | Batch


def _crossing(share: Callable[[float], float], most: float, halvings: int = 60) -> float:
    low, high = 0.0, most
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if share(middle) >= ATTAIN else (low, middle)
    return low


def _arrivals(gaps: Sequence[float], rate: float) -> list[float]:
    now, arrivals = 0.0, []
    for gap in gaps:
        now += gap / rate
        arrivals.append(now)
    return arrivals


def _length(chance: random.Random) -> float:
    return chance.expovariate(1)


def measure(servers: dict[ArmName, Server], plan: ProbePlan, seed: str, *, paired: bool) -> Probe:
    """The probe, as it would be measured of the arm's simulated server."""
    server = servers[plan.arm]
    own = random.Random(f"{seed}:{plan.place}:{plan.number}:{plan.arm}:{plan.rate}")
    in_block = plan.place in ("low", "high")
    shared = random.Random(f"{seed}:{in_block}:{plan.number}" + ("" if paired else plan.arm))
    count = plan.before + plan.counted + plan.after
    gaps = [shared.expovariate(1) for _ in range(count)]
    lengths = [_length(shared) for _ in range(count)]
    lengths = [_length(own) if own.random() < OWN_LENGTHS else length for length in lengths]
    served = server.serve(_arrivals(gaps, plan.rate or 1e-6), lengths)
    counted = slice(plan.before, plan.before + plan.counted)
    return Probe(
        plan=plan,
        attained=sum(served.met[counted]),
        unknown=0,
        failed=0,
        tokens=None,
        answered=plan.counted,
        mean_s=statistics.fmean(served.ended_s[counted]),
        seconds=served.seconds if plan.rate else sum(served.ended_s),
        began=0.0,
        ended_by=None,
        client_bound=None,
        missing=None,
        detail=None,
    )


def search(
    servers: dict[ArmName, Server], seed: str, *, paired: bool = True, precision: float = 0.05
) -> tuple[Judged | None, list[Probe]]:
    """One whole search, without a limit on its time."""
    plan, probes = Search(ATTAIN, precision, budget_s=math.inf), []
    while planned := plan.next_probes(probes):
        probes += [measure(servers, probe, seed, paired=paired) for probe in planned]
    return judge(probes, ATTAIN), probes


WORLDS: dict[str, dict[ArmName, Server]] = {
    "queue": {"standard": Queue(16, 4.0, 0.5), "speculative": Queue(16, 4.0 / 1.22, 0.5)},
    "batch": {"standard": Batch(), "speculative": Batch(request_s=0.0008, prompt=22, gain=1.4)},
}


def figures(world: str, runs: int, *, paired: bool) -> dict[str, float]:
    servers = WORLDS[world]
    truths = {arm: server.capacity() for arm, server in servers.items()}
    truth = truths["speculative"] / truths["standard"]
    ratios, half_widths, covered, seconds, blocks, wrong = [], [], 0, [], [], 0
    rates_covered, errors = 0, []
    for run in range(runs):
        judged, probes = search(servers, f"{world}:{run}", paired=paired)
        assert judged is not None
        interval = judged.ratio
        ratios.append(interval.estimate)
        half_widths.append(judged.half_width)
        covered += interval.low <= truth <= interval.high
        rates_covered += sum(judged.rates[arm].low <= truths[arm] <= judged.rates[arm].high for arm in truths)
        errors += [judged.rates[arm].estimate / truths[arm] - 1 for arm in truths]
        wrong += interval.high < 1 < truth or interval.low > 1 > truth
        seconds.append(sum(probe.seconds for probe in probes))
        blocks.append(len(judged.used) + judged.left_out)
    return {
        "runs": runs,
        "truth": truth,
        "standard": truths["standard"],
        "median": statistics.median(ratios),
        "sd": statistics.stdev(ratios) if runs > 1 else 0.0,
        "covered": covered / runs,
        "rate_error": statistics.median(errors),
        "rates_covered": rates_covered / (2 * runs),
        "half_width": statistics.median(half_widths),
        "widest": max(half_widths),
        "hours": statistics.fmean(seconds) / 3600,
        "blocks": statistics.fmean(blocks),
        "wrong_direction": wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument(
        "--separate", type=int, default=60, help="runs of separate searches; they take longer"
    )
    parser.add_argument("--only", default=",".join(WORLDS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    out: dict[str, dict[str, dict[str, float]]] = {}
    for world in options.only.split(","):
        out[world] = {"paired": figures(world, options.runs, paired=True)}
        if options.separate:
            out[world]["separate"] = figures(world, options.separate, paired=False)
        for kind, row in out[world].items():
            print(world, kind, {name: round(value, 4) for name, value in row.items()}, flush=True)
    if options.json:
        options.json.write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""How long a weekly report takes beside Prometheus' own time, and whether its figures are the samples'.

    python benchmarks/report.py [--every 60] [--json FILE]

Two weeks of a rollout (tests/real/a_week.py) in a real Prometheus: four servers that speculate with eight
positions and two that do not, three histograms of 26 buckets each, two classes at the routers, a sample every
60 s; with restarts, gaps and idle nights. Then one report, as `specops report` makes it: asked, judged, and
written as JSON, Markdown and HTML. Its own time is the wall's less what was spent in HTTP requests, measured
at the client around each (asked: 5 s at most, on a machine that does nothing else).

`differ`: of every counter, pool and hour the increase is counted again from the samples by the definition;
that many differ by more than one in 10⁹ (asked: none).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import requests

BOUNDS = tuple(round(0.005 * 1.45**step, 6) for step in range(25))


class Waited:
    """Seconds in requests, the reading of their answers included, and how many there were."""

    def __init__(self) -> None:
        self.seconds, self.requests, self.megabytes = 0.0, 0, 0.0

    def watch(self) -> None:
        send = requests.Session.send
        waited = self

        def timed(session: requests.Session, request: Any, **options: Any) -> requests.Response:
            began = time.perf_counter()
            answer = send(session, request, **options)
            waited.megabytes += len(answer.content) / 1e6
            waited.seconds += time.perf_counter() - began
            waited.requests += 1
            return answer

        requests.Session.send = timed  # type: ignore[method-assign]


def measured(url: str, folder: Path, pools: dict[str, Any], name: str) -> dict[str, float]:
    """One report, with the modules that it needs loaded within its time."""
    waited = Waited()
    waited.watch()
    began, cpu = time.perf_counter(), time.process_time()
    from specops.config import Rollout
    from specops.phases.report.assembly import report
    from specops.phases.report.delivery import write
    from specops.phases.report.report import window
    from specops.progress import SilentProgress
    from specops.prometheus.api import Api

    where = {"routers": ["10.0.1.5:8081"], "prometheus": url}
    rollout = Rollout.model_validate({"rollout": name, "pools": pools, "addresses": where})
    span = window("7d", "2026-11-21", ZoneInfo("Asia/Seoul"), datetime(2026, 11, 23, tzinfo=UTC))
    api = Api(url, timeout_s=120)
    result = report(rollout, Path("rollout.yaml"), folder, span, api, SilentProgress())
    asked = time.perf_counter()
    write(folder, span, result)
    ended = time.perf_counter()
    api.close()
    return {
        "own_s": ended - began - waited.seconds,
        "of_which_written_s": ended - asked,
        "cpu_s": time.process_time() - cpu,
        "waited_s": waited.seconds,
        "requests": waited.requests,
        "megabytes": waited.megabytes,
    }


def differ(url: str, week: Any) -> tuple[int, int]:
    """Hours that differ, and hours that were compared."""
    from a_week import BEFORE, END, HOUR, NAME
    from recounted import Recount

    from specops.phases.report import prometheus_data
    from specops.phases.report.prometheus_data import counters_of
    from specops.prometheus.api import Api
    from specops.serving.vllm.pool import SERIES as VLLM

    truth, wrong, compared = Recount(week), 0, 0
    api = Api(url, timeout_s=120)
    for pool in ("standard", "speculative"):
        labels = {"specops_rollout": NAME, "specops_pool": pool}
        names = counters_of(VLLM)
        ours = prometheus_data.read_increases(api, names, labels, BEFORE, (END - BEFORE) // HOUR)
        for name in names:
            theirs = truth.hourly(name, BEFORE, END, specops_pool=pool)
            for one, other in zip(ours[name].hourly, theirs, strict=True):
                known = math.isnan(one) == math.isnan(other)
                close = math.isnan(one) or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-6)
                wrong += not (known and close)
                compared += 1
    api.close()
    return wrong, compared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--every", type=int, default=60, help="seconds between samples")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    tests = Path(__file__).parents[1] / "tests"
    # At the front: there is a daemons, and an a_week, nowhere else.
    sys.path[:0] = [str(tests), str(tests / "real")]
    from a_week import NAME, Week, remembered

    week = Week(every_s=asked.every, positions=8, standard=2, bounds=BOUNDS)
    samples = sum(each.at.size for each in week.series.values())
    print(f"week     {len(week.series)} series, {samples} samples", flush=True)
    pools = {
        name: {"engine": "endpoint", "base_url": f"http://{name}:8000/v1", "model": "m"}
        for name in ("standard", "speculative")
    }
    with tempfile.TemporaryDirectory() as folder, remembered(week, Path(folder)) as up:
        found = measured(up.url, Path(folder) / "run", pools, NAME)
        print(
            f"report   {found['own_s']:.2f} s of its own ({found['of_which_written_s']:.2f} s of it to write;"
            f" {found['cpu_s']:.2f} s of CPU in all), {found['waited_s']:.2f} s in {found['requests']:.0f}"
            f" requests ({found['megabytes']:.0f} MB)",
            flush=True,
        )
        wrong, compared = differ(up.url, week)
    print(f"differ   {wrong} of {compared} hours of counters")
    if asked.json:
        size = {"series": len(week.series), "samples": samples}
        figures = found | size | {"differ": wrong, "compared": compared}
        asked.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()

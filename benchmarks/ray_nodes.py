"""A sweep on two nodes of Ray against the same sweep on one.

    python benchmarks/ray_nodes.py [--settings 20] [--sleep 4] [--rounds 1] [--json FILE]

A real cluster on loopback, and real sweeps: every setting is a server that is
started, asked over HTTP and stopped. The servers are stubs that sleep, so that two of them do not share a
core with what is measured. Each machine measures the standard before its first setting and after its last:
n settings are n + 2 starts on one node, and n / 2 + 2 on each of two, so that n must be well above 8 for a
ratio of 0.6. A round is one node, two, two, one; the second node joins and leaves in between.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
import time
from pathlib import Path

from specops.config import Rollout
from specops.phases.sweep.plan import measurements_of
from specops.phases.sweep.ray_executor import RayExecutor
from specops.phases.sweep.spec import SweepSpec, spec_of
from specops.phases.sweep.sweep import sweep
from specops.progress import SilentProgress

STUB = Path(__file__).parents[1] / "tests" / "load" / "stub.py"
PROMPTS, GAPS = 4, 3  # an answer of the stub's is four chunks
NODE: dict[str, object] = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "node_ip_address": "127.0.0.1"}
SETTINGS = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # 127.0.0.1 stays what it is
    "RAY_USAGE_STATS_ENABLED": "0",
}
TO_REACH = 0.6
ROUND = (1, 2, 2, 1)


def wanted(folder: Path, settings: int, sleep_s: float) -> SweepSpec:
    """Servers that answer all prompts of a setting in `sleep_s`, whatever their K."""
    prompts = [{"id": f"p{number}", "text": f"Prompt {number}", "max_tokens": 8} for number in range(PROMPTS)]
    (folder / "prompts.json").write_text(json.dumps(prompts))
    gap_s = sleep_s / PROMPTS / GAPS

    def pool(k: str) -> dict[str, str]:
        words = [sys.executable, str(STUB), "{port}", f"{gap_s:.4f}", k]
        return {"engine": "command", "command": shlex.join(words)}

    rollout = Rollout.model_validate(
        {
            "rollout": "sleeping",
            "prompts": str(folder / "prompts.json"),
            "pools": {"standard": pool("0"), "speculative": pool("{k}")},
            "measure": {"concurrency": [1], "repeats": 1, "warmup": 0},
            "sweep": {"k": list(range(1, settings + 1))},
        }
    )
    return spec_of(rollout, folder)


def seconds(what: SweepSpec, address: str, machines: int) -> float:
    """Of a whole sweep, from the connection to the last server's end."""
    began = time.monotonic()
    with RayExecutor(
        address, what.settings, what.requests, what.prompts.prompts, SilentProgress()
    ) as executor:
        result = sweep(what, executor, SilentProgress())
    took = time.monotonic() - began
    kept = measurements_of(result, "the sweep")
    measured = {cell.setting for cell in kept.cells}
    used = {cell.machine for cell in kept.cells}
    if kept.failed or len(measured) != len(what.settings) or len(used) != machines:
        raise SystemExit(f"{len(measured)} settings on {used}, and {len(kept.failed)} failed")
    return took


def measure(what: SweepSpec, rounds: int) -> dict[int, list[float]]:
    from ray.cluster_utils import Cluster

    head = NODE | {"node_name": "a", "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    took: dict[int, list[float]] = {1: [], 2: []}
    try:
        for nodes in ROUND * rounds:
            other = cluster.add_node(node_name="b", **NODE) if nodes == 2 else None
            took[nodes].append(seconds(what, cluster.address, nodes))
            print(f"{nodes} node{'s' * (nodes > 1)}: {took[nodes][-1]:.1f} s", flush=True)
            if other is not None:
                cluster.remove_node(other)
    finally:
        cluster.shutdown()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", type=int, default=20, help="besides the standard")
    parser.add_argument("--sleep", type=float, default=4.0, help="seconds that a setting's answers take")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    os.environ.update(SETTINGS)  # before Ray is imported
    with tempfile.TemporaryDirectory() as folder:
        what = wanted(Path(folder), options.settings, options.sleep)
        took = measure(what, options.rounds)
    ratio = sum(took[2]) / sum(took[1])
    ideal = (options.settings / 2 + 2) / (options.settings + 2)
    print(f"two nodes over one, {options.settings} settings: {ratio:.2f}×", end=" ")
    print(f"(to reach ≤ {TO_REACH:.2f}×; by the number of starts {ideal:.2f}×)")
    if options.json is not None:
        figures = {"settings": options.settings, "seconds": took, "ratio": ratio, "to_reach": TO_REACH}
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""GPU memory below 95%. A serving engine takes most of it at its start whatever comes, so that the share
alone says little: the KV cache and preemptions, live, say whether it is enough."""

from __future__ import annotations

from pathlib import Path

from specops import results
from specops.phases.checklist.evidence import Evidence, Open
from specops.phases.checklist.item import Decided
from specops.phases.checklist.looking import Found, Look
from specops.phases.checklist.measured import CHALLENGER, deployed
from specops.phases.sweep import report as sweep_report
from specops.phases.sweep.report import Cell
from specops.prometheus.promql import selector
from specops.prometheus.series import GPU_MEMORY, POOL, ROLLOUT, exposed

FULL = 0.95
"""The playbook's, of the memory; and of the KV cache."""
GIB = 2**30
MEMINFO = Path("/proc/meminfo")


def gpu_memory(look: Look) -> Decided:
    """By the sweep's cells of the pool as it is deployed, and by Prometheus where there is one."""
    evidence: list[Evidence] = []
    told: list[str] = []
    passed = True
    live = _live_share(look)
    if live is not None:
        share, where = live
        evidence.append(where)
        told.append(f"GPU memory {share:.0%} at its most within a day")
        passed = share < FULL
    else:
        found = look.sweep()
        passed, said, where = _swept(look, found)
        evidence.append(where)
        told.append(said)
    pressed = _pressed(look)
    if pressed is None:
        why = "no Prometheus to ask" if look.api is None else "Prometheus has nothing of it"
        told.append(f"whether the KV cache is large enough is unknown: {why}")
    else:
        enough, said, where = pressed
        evidence.append(where)
        told.append(said)
        passed = passed and enough
    change = f"draft fewer tokens (K = 3), or serve with a shorter max_model_len: {look.path}"
    return Decided(passed, "; ".join(told), tuple(evidence), change=None if passed else change)


def _live_share(look: Look) -> tuple[float, Evidence] | None:
    if look.api is None or not look.rollout.addresses.gpus:
        return None
    asked = f"max(max_over_time({GPU_MEMORY}{selector({ROLLOUT: look.rollout.rollout})}[1d]))"
    samples = look.api.instant(asked)
    if not samples:
        return None
    return samples[0].value, look.probed(look.api.url, f"{GPU_MEMORY} {samples[0].value:.3f}")


def _swept(look: Look, found: Found) -> tuple[bool, str, Evidence]:
    name = deployed(look)
    report = sweep_report.read(found.result, found.path.name)
    cells = [cell for cell in report.cells if cell.setting == name]
    if not cells:
        raise Open("the sweep did not measure the speculative pool as it is deployed", found.evidence)
    shares = [cell.gpu_memory_share for cell in cells if cell.gpu_memory_share is not None]
    if shares:
        told = f"GPU memory {max(shares):.0%} at its most in the sweep"
        return max(shares) < FULL, told, found.evidence.model_copy(update={"figure": told})
    if look.rollout.pools.speculative.own is None:
        raise Open(
            "the sweep could not see the GPU's memory: nvidia-ml-py was not there, or the server was"
            " elsewhere",
            found.evidence,
            change="pip install nvidia-ml-py on the machine that serves",
            decide=look.command("sweep", fresh=True),
        )
    return _of_host(cells, found)


def _of_host(cells: list[Cell], found: Found) -> tuple[bool, str, Evidence]:
    """The embedded engine serves from a CPU: it has the host's memory, and no GPU's."""
    resident = [cell.resident_gb for cell in cells if cell.resident_gb is not None]
    total = _host_gib()
    here = results.environment()
    same = all(found.result.environment.get(name) == here[name] for name in ("processor", "cores"))
    if not resident or total is None or not same:
        raise Open(
            "it serves from a CPU, and how much of the host's memory is not known here", found.evidence
        )
    share = max(resident) / total
    took = f"{max(resident):.2f} of the host's {total:.1f} GiB ({share:.0%})"
    told = f"no GPU is used; it took {took} in the sweep"
    return share < FULL, told, found.evidence.model_copy(update={"figure": told})


def _host_gib() -> float | None:
    try:
        for line in MEMINFO.read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024 / GIB
    except (OSError, ValueError, IndexError):
        pass
    return None


def _pressed(look: Look) -> tuple[bool, str, Evidence] | None:
    """The KV cache and preemptions within a day; None where nobody can be asked, or it has neither."""
    if look.api is None:
        return None
    labels = {ROLLOUT: look.rollout.rollout, POOL: CHALLENGER} | look.rollout.monitor.labels
    series = exposed(look.rollout, "speculative")
    if series.kv_usage is None:
        return None
    usage = look.api.instant(f"max(max_over_time({series.kv_usage}{selector(labels)}[1d]))")
    preempted = look.api.instant(f"sum(increase({series.preemptions}{selector(labels)}[1d]))")
    if not usage and not preempted:
        return None
    share = usage[0].value if usage else 0.0
    count = preempted[0].value if preempted else 0.0
    told = f"KV cache {share:.0%} at its most, {count:.0f} preemptions within a day"
    return share < FULL and count < 0.5, told, look.probed(look.api.url, told)

"""Is it the load, or the memory? Batches beyond the crossover, a full KV cache, a full GPU."""

from __future__ import annotations

from dataclasses import dataclass

from specops.phases.diagnose.asking.slower import faster_now
from specops.phases.diagnose.asking.thresholds import FEWER_TOKENS, FULL, NEEDS_PROMETHEUS, ROOM
from specops.phases.diagnose.finding import Asks, Evidence, Finding
from specops.phases.diagnose.observations import Live, Observations
from specops.phases.monitor.thresholds import PLAYBOOK

CROSSOVER = Asks("load-beyond-crossover", "slower")
KV = Asks("kv-cache-full", "slower")
MEMORY = Asks("gpu-memory-full", "slower")
LESS = f"fewer tokens drafted (K = {FEWER_TOKENS}), a shorter max_model_len, or kv_cache_dtype fp8"


def crossover(seen: Observations) -> Finding:
    """The load of now, against the loads at which speculation was measured to pay."""
    live, paid = seen.live, _paid(seen)
    if live is None or live.load is None:
        why = f"how many requests a server has at a time is not known: {seen.why_not('live')}"
        return CROSSOVER.unknown(why, show=NEEDS_PROMETHEUS)
    evidence = Evidence(what="requests of a server at a time", value=round(live.load, 2), source=live.source)
    told = f"{live.load:.0f} streams" if live.load >= 10 else f"{live.load:.1f} streams"
    if paid is None:
        why = seen.why_not("swept", "compared")
        told = f"{told}; where it stops paying is not known: {why}"
        return CROSSOVER.unknown(told, evidence, show="specops sweep ROLLOUT")
    limit = paid.off_min if paid.off_min is not None else paid.up_to
    evidence = evidence.model_copy(update={"threshold": limit, "threshold_source": paid.source})
    if live.load <= paid.up_to:
        return CROSSOVER.ruled_out(f"{told}: up to {paid.up_to} it was measured to pay", evidence)
    surely = live.load >= paid.off_min if paid.off_min is not None else live.load > paid.up_to * ROOM
    above = f"it stopped paying above {paid.up_to}" if paid.up_to else "it was not shown to pay at any load"
    cause = (
        "the load is beyond what paid: the batch is so large that the device computes all the time, and"
        " verifying is no longer free"
    )
    fix = (
        "specops route render ROLLOUT: its route.max_in_flight keeps the load below; or K by the"
        " size of the batch (num_speculative_tokens_per_batch_size, vLLM 0.24 and later)"
    )
    if surely and not faster_now(seen):
        return CROSSOVER.cause(f"{told}; {above} ({paid.source})", evidence, cause=cause, fix=fix)
    if faster_now(seen):
        told = f"{told}; {above}, and it is not slower than the baseline now"
    elif paid.off_min is not None:
        told = f"{told}: between {paid.up_to}, where it paid, and {paid.off_min}, where it did not"
    return CROSSOVER.contributing(told, evidence, cause="the load is above what was measured to pay", fix=fix)


@dataclass(frozen=True)
class _Paid:
    up_to: int
    """Streams; 0: at no load."""

    off_min: int | None
    """The fewest above them at which it was measured not to pay."""

    source: str


def _paid(seen: Observations) -> _Paid | None:
    """By the sweep of the setting that is deployed, else by the comparison. None where the comparison was not
    shown to pay at all: then it is not the load."""
    swept, compared = seen.swept, seen.compared
    if swept is not None and (swept.on_max is not None or swept.off_min is not None):
        return _Paid(swept.on_max or 0, swept.off_min, swept.source)
    if compared is not None and compared.up_to:
        return _Paid(compared.up_to, None, compared.source)
    return None


def kv_cache(seen: Observations) -> Finding:
    live = seen.live
    if live is None or live.kv_usage is None:
        return KV.unknown(
            f"the KV cache is not known: {seen.why_not('live')}", show="specops monitor check ROLLOUT"
        )
    preempted = live.preemptions_per_s or 0.0
    told = f"KV cache {live.kv_usage:.0%} full, {preempted:.2g} preemptions a second"
    if _pressed(live):
        return KV.cause(
            told,
            *_kv_evidence(live),
            cause="requests wait for room in the KV cache, or are computed twice: drafts take some of it",
            fix=LESS,
        )
    return KV.ruled_out(told, *_kv_evidence(live))


def gpu_memory(seen: Observations) -> Finding:
    """The share alone says little: an engine takes most of the memory at its start, whatever comes."""
    gpu, live = seen.gpu, seen.live
    if gpu is None:
        return MEMORY.unknown(
            f"GPU memory is not known: {seen.why_not('gpu')}", show="nvidia-smi, where it serves"
        )
    evidence = Evidence(
        what="GPU memory in use",
        value=round(gpu.share, 4),
        source=gpu.source,
        threshold=FULL,
        threshold_source=PLAYBOOK,
    )
    told = f"GPU memory {gpu.used_gib:.1f} of {gpu.total_gib:.1f} GiB ({gpu.share:.0%})"
    if gpu.share < FULL:
        return MEMORY.ruled_out(f"{told}: below {FULL:.0%}", evidence)
    if live is not None and live.kv_usage is not None and not _pressed(live):
        told = (
            f"{told}, taken at the start; its KV cache is {live.kv_usage:.0%} full, and nothing is preempted"
        )
        return MEMORY.ruled_out(told, evidence, *_kv_evidence(live))
    cause = "too little is left for the KV cache, which eats what speculation wins"
    if live is not None and live.kv_usage is not None:
        return MEMORY.cause(told, evidence, *_kv_evidence(live), cause=cause, fix=LESS)
    return MEMORY.contributing(told, evidence, cause=cause, fix=LESS)


def _pressed(live: Live) -> bool:
    return (live.kv_usage or 0.0) >= FULL or (live.preemptions_per_s or 0.0) > 0


def _kv_evidence(live: Live) -> tuple[Evidence, ...]:
    found = []
    if live.kv_usage is not None:
        found.append(
            Evidence(
                what="KV cache in use",
                value=round(live.kv_usage, 4),
                source=live.source,
                threshold=FULL,
                threshold_source=PLAYBOOK,
            )
        )
    if live.preemptions_per_s is not None:
        found.append(
            Evidence(
                what="preemptions a second", value=live.preemptions_per_s, source=live.source, threshold=0.0
            )
        )
    return tuple(found)

"""Checks of speed: whether it is slower than without speculation at all, the playbook's first symptom, and
whether speculation is the reason. And is it speculation?"""

from __future__ import annotations

from dataclasses import dataclass

from specops.defaults import MEMORY_FULL
from specops.phases.diagnose.finding import (
    FEWER_TOKENS,
    NEEDS_PROMETHEUS,
    ROOM,
    SLOWER,
    VETO,
    VETO_MS,
    DiagnosisCheck,
    DiagnosisFinding,
    Evidence,
    TimesAsLong,
    expected,
    times_as_long,
    why_not_expected,
)
from specops.phases.diagnose.observations import Live, Observations
from specops.phases.monitor.thresholds import DEFAULT

SLOW = DiagnosisCheck("slower-than-standard", "slower")
BOTH = DiagnosisCheck("both-pools-slow", "slower")


def slower(observed: Observations) -> DiagnosisFinding:
    """Judge the latency that users have now, over the baseline at the same load; else by the comparison."""
    finding = _live(observed)
    if finding is not None:
        return finding
    comparison = observed.compared
    if comparison is None or comparison.e2e is None:
        why = f"whether it is slower is not known: {why_not_expected(observed)}"
        return SLOW.unknown(why, show="specops run ROLLOUT")
    evidence = Evidence(
        what="E2E speed-up", value=str(comparison.e2e), threshold=1.0, source=comparison.source
    )
    message = f"E2E {comparison.e2e} as fast as the standard pool, when they were compared"
    if comparison.e2e.high < 1:
        return SLOW.symptom_holds(message, evidence)
    if comparison.e2e.low <= 1:
        again = "specops run ROLLOUT --only ab --fresh"
        return SLOW.unknown(f"{message}: the interval includes 1", evidence, show=again)
    load = observed.live.load if observed.live else None
    if load is not None and comparison.streams is not None and load > comparison.streams * ROOM:
        return SLOW.contributing(
            f"{message} at {comparison.streams} streams; {load:.1f} are there now, and the baseline was not"
            " measured at that load",
            evidence,
            cause="what was faster at few streams may be slower at many",
            fix="specops run ROLLOUT --only baseline  # with the current load in measure.concurrency",
        )
    return SLOW.ruled_out(message, evidence)


def _live(observed: Observations) -> DiagnosisFinding | None:
    slowdown = times_as_long(observed.live, observed.baseline)
    if slowdown is None or observed.live is None:
        return None
    message = (
        f"mean {slowdown.name} {slowdown.now_ms:.1f} ms over {observed.live.over}; the standard pool took"
        f" {slowdown.baseline_ms:.1f} ms at this load, {observed.live.load:.1f} streams:"
        f" {slowdown.ratio:.2f} times as long"
    )
    evidence = _over_baseline("speculative", slowdown, observed.live)
    return (
        SLOW.symptom_holds(message, evidence)
        if slowdown.ratio > SLOWER
        else SLOW.ruled_out(message, evidence)
    )


def faster_now(observed: Observations) -> bool:
    """Measured at the load of now to take no longer than the baseline."""
    slowdown = times_as_long(observed.live, observed.baseline)
    return slowdown is not None and slowdown.ratio <= 1.0


def both_pools(observed: Observations) -> DiagnosisFinding:
    """Return whether the standard pool is slow as well, each at its own load."""
    speculative, standard = (
        times_as_long(live, observed.baseline) for live in (observed.live, observed.standard)
    )
    if standard is None or observed.standard is None:
        why = observed.why_not("standard", "baseline")
        if observed.standard is not None and observed.baseline is not None:
            why = "it has too few answers, or a level that the baseline does not cover"
        return BOTH.unknown(f"the standard pool's latency now is not known: {why}", show=NEEDS_PROMETHEUS)
    message = f"the standard pool takes {standard.ratio:.2f} times as long as its baseline"
    evidence: tuple[Evidence, ...] = (_over_baseline("standard", standard, observed.standard),)
    if standard.ratio <= SLOWER:
        return BOTH.ruled_out(message, *evidence)
    if speculative is not None and observed.live is not None:
        message += f", and the speculative pool {speculative.ratio:.2f} times"
        evidence = (_over_baseline("speculative", speculative, observed.live), *evidence)
    cause = "both pools are slow, so speculation is not the cause"
    fix = (
        "check what both pools share: hosts, GPU clocks, network, longer prompts; if the traffic has"
        " changed, specops run ROLLOUT --only baseline --fresh"
    )
    if speculative is not None and SLOWER < speculative.ratio <= standard.ratio * SLOWER:
        return BOTH.cause(message, *evidence, cause=cause, fix=fix)
    cause = "the standard pool is slower too, so speculation causes only part of the slowdown"
    return BOTH.contributing(message, *evidence, cause=cause, fix=fix)


def _over_baseline(pool: str, slowdown: TimesAsLong, live: Live) -> Evidence:
    return Evidence(
        what=f"{slowdown.name} over the baseline's, {pool} pool",
        value=round(slowdown.ratio, 4),
        source=live.source,
        threshold=SLOWER,
        threshold_source=DEFAULT,
    )


TTFT = DiagnosisCheck("first-token-late", "slower")
OF_AB = "the TTFT veto of the comparison"


def first_token(observed: Observations) -> DiagnosisFinding:
    """Judge TTFT by its value now over the baseline's at the same load, else by the comparison."""
    live, without = observed.live, expected(observed.live, observed.baseline)
    if live is not None and live.ttft_ms is not None and without is not None and without.ttft_ms:
        ratio, more = live.ttft_ms / without.ttft_ms, live.ttft_ms - without.ttft_ms
        source, late = live.source, ratio > VETO and more >= VETO_MS
        message = f"mean TTFT {live.ttft_ms:.0f} ms, {ratio:.2f} × the standard pool's at this load"
    elif observed.compared is not None and observed.compared.ttft is not None:
        comparison, ttft = observed.compared, observed.compared.ttft
        ratio, more = 1 / ttft.estimate, comparison.ttft_change_ms or 0.0
        source, late = comparison.source, 1 / ttft.high > VETO and more >= VETO_MS
        message = f"TTFT {ratio:.2f} × the standard pool's ({more:+.0f} ms) in the comparison"
    else:
        why = f"TTFT against the standard pool is not known: {why_not_expected(observed)}"
        return TTFT.unknown(why, show="specops run ROLLOUT")
    evidence = Evidence(
        what="TTFT over the standard's",
        value=round(ratio, 4),
        source=source,
        threshold=VETO,
        threshold_source=f"{OF_AB}, and {VETO_MS:g} ms",
    )
    if not late:
        return TTFT.ruled_out(message, evidence)
    return TTFT.cause(
        message,
        evidence,
        cause="prompts wait for steps that verify drafts, or the draft processes the prompt as well",
        fix="keep short answers standard (route.min_tokens), or a smaller max_num_batched_tokens",
    )


CROSSOVER = DiagnosisCheck("load-beyond-crossover", "slower")
KV = DiagnosisCheck("kv-cache-full", "slower")
MEMORY = DiagnosisCheck("gpu-memory-full", "slower")
LESS = f"fewer tokens drafted (K = {FEWER_TOKENS}), a shorter max_model_len, or kv_cache_dtype fp8"


def crossover(observed: Observations) -> DiagnosisFinding:
    """The load of now, against the loads at which speculation was measured to pay."""
    live, paid = observed.live, _paid(observed)
    if live is None or live.load is None:
        why = f"the load per server is not known: {observed.why_not('live')}"
        return CROSSOVER.unknown(why, show=NEEDS_PROMETHEUS)
    evidence = Evidence(what="requests of a server at a time", value=round(live.load, 2), source=live.source)
    message = f"{live.load:.0f} streams" if live.load >= 10 else f"{live.load:.1f} streams"
    if paid is None:
        why = observed.why_not("sweep", "compared")
        message = f"{message}; the load at which it stops paying is not known: {why}"
        return CROSSOVER.unknown(message, evidence, show="specops sweep ROLLOUT")
    limit = paid.off_min if paid.off_min is not None else paid.up_to
    evidence = evidence.model_copy(update={"threshold": limit, "threshold_source": paid.source})
    if live.load <= paid.up_to:
        return CROSSOVER.ruled_out(f"{message}: measured to pay up to {paid.up_to}", evidence)
    surely = live.load >= paid.off_min if paid.off_min is not None else live.load > paid.up_to * ROOM
    above = (
        f"it stopped paying above {paid.up_to}" if paid.up_to else "it was not measured to pay at any load"
    )
    cause = (
        "the load is above the loads that pay: the batch keeps the device busy, so"
        " verification is no longer free"
    )
    fix = "specops route render ROLLOUT  # route.max_in_flight limits the load"
    if surely and not faster_now(observed):
        return CROSSOVER.cause(f"{message}; {above} ({paid.source})", evidence, cause=cause, fix=fix)
    if faster_now(observed):
        message = f"{message}; {above}, but it is not slower than the baseline now"
    elif paid.off_min is not None:
        message = f"{message}: between {paid.up_to}, where it paid, and {paid.off_min}, where it did not"
    return CROSSOVER.contributing(
        message, evidence, cause="the load is above what was measured to pay", fix=fix
    )


@dataclass(frozen=True)
class _PayingLoad:
    up_to: int
    """Streams; 0: at no load."""

    off_min: int | None
    """The fewest above them at which it was measured not to pay."""

    source: str


def _paid(observed: Observations) -> _PayingLoad | None:
    """Return the load up to which speculation paid: by the sweep of the setting that is deployed, else by the
    comparison. None where the comparison was not shown to pay at all: then the load is not the cause."""
    swept, comparison = observed.sweep, observed.compared
    if swept is not None and (swept.on_max is not None or swept.off_min is not None):
        return _PayingLoad(swept.on_max or 0, swept.off_min, swept.source)
    if comparison is not None and comparison.up_to:
        return _PayingLoad(comparison.up_to, None, comparison.source)
    return None


def kv_cache(observed: Observations) -> DiagnosisFinding:
    live = observed.live
    if live is None or live.kv_usage is None:
        return KV.unknown(
            f"the KV cache is not known: {observed.why_not('live')}", show="specops monitor check ROLLOUT"
        )
    preempted = live.preemptions_per_s or 0.0
    message = f"KV cache {live.kv_usage:.0%} full, {preempted:.2g} preemptions per second"
    if _under_memory_pressure(live):
        return KV.cause(
            message,
            *_kv_evidence(live),
            cause="requests wait for room in the KV cache, or are computed twice; drafts take part of it",
            fix=LESS,
        )
    return KV.ruled_out(message, *_kv_evidence(live))


def gpu_memory(observed: Observations) -> DiagnosisFinding:
    """The share alone says little: an engine takes most of the memory at its start, whatever comes."""
    gpu, live = observed.gpu, observed.live
    if gpu is None:
        return MEMORY.unknown(
            f"GPU memory is not known: {observed.why_not('gpu')}",
            show="nvidia-smi  # on the machine that serves",
        )
    evidence = Evidence(
        what="GPU memory in use",
        value=round(gpu.share, 4),
        source=gpu.source,
        threshold=MEMORY_FULL,
        threshold_source=DEFAULT,
    )
    message = f"GPU memory {gpu.used_gib:.1f} of {gpu.total_gib:.1f} GiB ({gpu.share:.0%})"
    if gpu.share < MEMORY_FULL:
        return MEMORY.ruled_out(f"{message}: below {MEMORY_FULL:.0%}", evidence)
    if live is not None and live.kv_usage is not None and not _under_memory_pressure(live):
        message = f"{message}, reserved at the start; KV cache {live.kv_usage:.0%} full, no preemptions"
        return MEMORY.ruled_out(message, evidence, *_kv_evidence(live))
    cause = "too little is left for the KV cache, which costs more than speculation gains"
    if live is not None and live.kv_usage is not None:
        return MEMORY.cause(message, evidence, *_kv_evidence(live), cause=cause, fix=LESS)
    return MEMORY.contributing(message, evidence, cause=cause, fix=LESS)


def _under_memory_pressure(live: Live) -> bool:
    return (live.kv_usage or 0.0) >= MEMORY_FULL or (live.preemptions_per_s or 0.0) > 0


def _kv_evidence(live: Live) -> tuple[Evidence, ...]:
    evidence = []
    if live.kv_usage is not None:
        evidence.append(
            Evidence(
                what="KV cache in use",
                value=round(live.kv_usage, 4),
                source=live.source,
                threshold=MEMORY_FULL,
                threshold_source=DEFAULT,
            )
        )
    if live.preemptions_per_s is not None:
        evidence.append(
            Evidence(
                what="preemptions per second", value=live.preemptions_per_s, source=live.source, threshold=0.0
            )
        )
    return tuple(evidence)

"""The items in their order, and the verdict: yes where all are passed or attested, no where one failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import get_args

from specops import results
from specops.config import Rollout
from specops.defaults import ACCEPTANCE_GATE, MEMORY_FULL, SPEEDUP_GATE
from specops.errors import FileError, SpecopsError
from specops.phases.checklist import items
from specops.phases.checklist.evidence import (
    ATTESTATIONS,
    CLOCK_SKEW,
    FRESH_DAYS,
    Attestation,
    CheckInput,
    ChecklistData,
    Gate,
    Item,
    ItemDecision,
    OpenItem,
    RefusedFile,
    Spec,
    Status,
    latest,
    read,
)
from specops.phases.checklist.signatures import signer
from specops.phases.inputs import identity
from specops.results import Result, Verdict

PHASE = "checklist"
FILE = f"{PHASE}.json"


def checklist(
    rollout: Rollout, path: Path, folder: Path, now: datetime, signers: Path | None = None
) -> Result:
    """Decide the items of the rollout file at `path`, by its run folder and what answers now; takes seconds,
    changes nothing.

    A damaged result, or a server that does not answer, leaves its item open; a damaged attestations.json
    raises FileError. `signers` is OpenSSH's file of allowed signers, whose signatures then count alone. The
    result is the caller's to write, as `FILE` in the run folder.
    """
    attestations = read(folder)
    if attestations and signers is not None:
        signer(folder / ATTESTATIONS, signers)
    look = CheckInput(rollout, path, folder, now, signers)
    try:
        items = [_item(spec, look, attestations) for spec in ITEMS]
    finally:
        look.close()
    return _result(look, items)


def _item(spec: Spec, look: CheckInput, attestations: Sequence[Attestation]) -> Item:
    status: Status
    gate: Gate | None = None
    refused = False
    """A file is damaged, was changed, or is dated in the future: no attestation takes its place."""
    try:
        decided = spec.look(look)
        status = "passed" if decided.passed else "failed"
        reason, evidence, change = decided.reason, list(decided.evidence), decided.change
        gate = decided.gate
        decide = None if decided.passed else decided.decide or spec.command(look)
    except OpenItem as why:
        status, reason, evidence, change = "open", why.why, list(why.evidence), why.change
        gate = why.gate
        decide = why.decide or spec.command(look)
        refused = isinstance(why, RefusedFile)
    except SpecopsError as error:
        status, reason, evidence = "open", error.message, []
        change = f"fix what this shows: {error.hint}" if error.hint else None
        decide = spec.command(look)
        refused = isinstance(error, FileError)
    if status == "open" and spec.attestable and not refused:
        attestation = latest(list(attestations), spec.name)
        if attestation is not None:
            why_not = _why_not(attestation, look)
            message = f"{attestation.by} said so on {attestation.at:%Y-%m-%d}" + (
                f": {attestation.note}" if attestation.note else ""
            )
            if why_not is None:
                status, reason, change, decide = "attested", message, None, None
            else:
                reason = f"{reason}; {message}, {why_not}"
            evidence = [
                *evidence,
                look.file(
                    look.folder / ATTESTATIONS,
                    attestation.at,
                    f"{attestation.by}, until {attestation.until:%Y-%m-%d}",
                ),
            ]
    return Item(
        name=spec.name,
        asks=spec.asks,
        origin=spec.origin,
        status=status,
        found=reason,
        evidence=evidence,
        change=change,
        decide=decide,
        gate=gate,
    )


def _why_not(attestation: Attestation, look: CheckInput) -> str | None:
    """Return why an attestation does not count."""
    if attestation.at - look.now > CLOCK_SKEW:
        return f"dated {attestation.at:%Y-%m-%d}, in the future"
    if look.now >= attestation.until:
        return f"which counted until {attestation.until:%Y-%m-%d}"
    if attestation.rollout != identity(look.rollout):
        return "of a rollout file that has changed since"
    return None


def _result(look: CheckInput, items: list[Item]) -> Result:
    counts = Counter(item.status for item in items)
    verdict: Verdict = "no" if counts["failed"] else "undecided" if counts["open"] else "yes"
    inputs = {"rollout": identity(look.rollout)}
    inputs |= {
        evidence.source: evidence.sha256
        for item in items
        for evidence in item.evidence
        if evidence.sha256 is not None
    }
    return Result(
        created=look.now,
        phase=PHASE,
        inputs=inputs,
        settings={
            "rollout": look.rollout.rollout,
            "fresh_days": FRESH_DAYS,
            "signers": results.sha256(look.signers) if look.signers else None,
        },
        environment=results.environment(),
        verdict=verdict,
        reason=_reason(items),
        summary={status: counts[status] for status in get_args(Status)},
        data=ChecklistData(rollout_file=str(look.path), items=items).model_dump(mode="json"),
    )


def _reason(items: Sequence[Item]) -> str:
    names = {status: [item.name for item in items if item.status == status] for status in get_args(Status)}
    blocked = [
        f"{', '.join(names[status])} {word}"
        for status, word in (("failed", "failed"), ("open", "open"))
        if names[status]
    ]
    if not blocked:
        return f"ready to go live: all {len(items)} items passed or are attested"
    return f"not ready to go live: {'; '.join(blocked)}"


def by_phase(phase: str) -> Callable[[CheckInput], str]:
    return lambda look: look.command(phase)


def by_words(words: str) -> Callable[[CheckInput], str]:
    return lambda look: look.commands.of(words)


def _said_by_people(_: CheckInput) -> ItemDecision:
    raise OpenItem("only a person can say it")


ITEMS: Sequence[Spec] = (
    Spec(
        "baseline",
        "the baseline is measured: TTFT, TPOT, E2E, throughput",
        by_phase("baseline"),
        items.baseline,
    ),
    Spec(
        "draft-compatible",
        "draft and target fit: their tokenizers were compared",
        by_phase("drafts"),
        items.draft_compatible,
        attestable=True,
    ),
    Spec(
        "k-swept",
        "the best number of speculative tokens was looked for, and is deployed",
        by_phase("sweep"),
        items.k_swept,
    ),
    Spec(
        "acceptance",
        f"acceptance is above {ACCEPTANCE_GATE:g}, or above its measured break-even",
        by_phase("ab"),
        items.acceptance,
    ),
    Spec("speedup", f"E2E is more than {SPEEDUP_GATE:g} times as fast", by_phase("ab"), items.speedup),
    Spec(
        "gpu-memory",
        f"GPU memory is below {MEMORY_FULL:.0%}, and the KV cache is enough",
        by_phase("sweep"),
        items.gpu_memory,
        attestable=True,
    ),
    Spec(
        "fallback-tested",
        "the fallback was rehearsed on the live set-up: the drill",
        by_phase("guard-drill"),
        items.fallback_tested,
    ),
    Spec(
        "routing",
        "routing by traffic class is rendered, and routers run",
        by_phase("route"),
        items.routing,
        attestable=True,
    ),
    Spec(
        "monitoring",
        "rules, alerts and the dashboard are rendered, and Prometheus has their series",
        by_phase("monitor"),
        items.monitoring,
        attestable=True,
    ),
    Spec(
        "weekly-report-scheduled",
        f"the weekly report is scheduled: the last one is younger than {items.REPORT_AGE.days} days",
        by_words("report schedule {rollout}"),
        items.weekly_report,
        attestable=True,
    ),
    Spec(
        "runbook-shared",
        "the people on call have the runbook",
        lambda look: look.attest("runbook-shared"),
        _said_by_people,
        attestable=True,
    ),
    Spec(
        "capacity",
        "the standard pool carries the peak alone",
        by_phase("baseline"),
        items.capacity,
        "specops",
    ),
    Spec(
        "canary",
        "the speculative pool answers as the standard one does",
        by_phase("canary"),
        items.canary,
        "specops",
    ),
    Spec(
        "guard-running",
        "a guard runs and has data",
        by_words("guard run {rollout}"),
        items.guard_running,
        "specops",
        attestable=True,
    ),
)

"""The items, in the playbook's order and then ours. Their names are stable: people attest by them."""

from __future__ import annotations

from collections.abc import Sequence

from specops.phases.checklist import measured, memory, operated, scheduled
from specops.phases.checklist.evidence import Open
from specops.phases.checklist.item import Decided, Spec
from specops.phases.checklist.looking import Look


def _said_by_people(_: Look) -> Decided:
    raise Open("only a person can say it")


ITEMS: Sequence[Spec] = (
    Spec(
        "baseline",
        "the baseline is measured: TTFT, TPOT, E2E, throughput",
        "specops run {rollout} --only baseline",
        measured.baseline,
    ),
    Spec(
        "draft-compatible",
        "draft and target fit: their tokenizers were compared",
        "specops run {rollout} --only drafts",
        measured.draft_compatible,
        attestable=True,
    ),
    Spec(
        "k-swept",
        "the best number of speculative tokens was looked for, and is deployed",
        "specops sweep {rollout}",
        measured.k_swept,
    ),
    Spec(
        "acceptance",
        "acceptance is above 0.55, or above its measured break-even",
        "specops run {rollout}",
        measured.acceptance,
    ),
    Spec("speedup", "E2E is more than 1.3 times as fast", "specops run {rollout}", measured.speedup),
    Spec(
        "gpu-memory",
        "GPU memory is below 95%, and the KV cache is enough",
        "specops sweep {rollout}",
        memory.gpu_memory,
    ),
    Spec(
        "fallback-tested",
        "the fall-back was rehearsed on the live set-up: the drill",
        "specops guard drill {rollout}",
        operated.fallback_tested,
    ),
    Spec(
        "routing",
        "routing by traffic class is rendered, and routers run",
        "specops route render {rollout}",
        operated.routing,
        attestable=True,
    ),
    Spec(
        "monitoring",
        "rules, alerts and the dashboard are rendered, and Prometheus has their series",
        "specops monitor render {rollout}",
        operated.monitoring,
        attestable=True,
    ),
    Spec(
        "weekly-report-scheduled",
        "the weekly report is scheduled",
        "specops report schedule {rollout}",
        scheduled.weekly_report,
        attestable=True,
    ),
    Spec(
        "runbook-shared",
        "the people on call have the runbook",
        "specops checklist attest runbook-shared {rollout} --by NAME",
        _said_by_people,
        attestable=True,
    ),
    Spec(
        "capacity",
        "the standard pool carries the peak alone",
        "specops run {rollout} --only baseline",
        operated.capacity,
        "specops",
    ),
    Spec(
        "canary",
        "the speculative pool answers as the standard one does",
        "specops canary {rollout}",
        operated.canary,
        "specops",
    ),
    Spec(
        "guard-running",
        "a guard runs, and sees",
        "specops guard run {rollout}",
        operated.guard_running,
        "specops",
        attestable=True,
    ),
)

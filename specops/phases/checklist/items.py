"""The items, in the playbook's order and then ours. Their names are stable: people attest by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specops.phases.checklist import measured, memory, operated, scheduled
from specops.phases.checklist.evidence import Open
from specops.phases.checklist.item import Decided, Spec
from specops.phases.checklist.looking import Look


def by_phase(phase: str) -> Callable[[Look], str]:
    return lambda look: look.command(phase)


def by_words(words: str) -> Callable[[Look], str]:
    return lambda look: look.commands.of(words)


def _said_by_people(_: Look) -> Decided:
    raise Open("only a person can say it")


ITEMS: Sequence[Spec] = (
    Spec(
        "baseline",
        "the baseline is measured: TTFT, TPOT, E2E, throughput",
        by_phase("baseline"),
        measured.baseline,
    ),
    Spec(
        "draft-compatible",
        "draft and target fit: their tokenizers were compared",
        by_phase("drafts"),
        measured.draft_compatible,
        attestable=True,
    ),
    Spec(
        "k-swept",
        "the best number of speculative tokens was looked for, and is deployed",
        by_phase("sweep"),
        measured.k_swept,
    ),
    Spec(
        "acceptance",
        "acceptance is above 0.55, or above its measured break-even",
        by_phase("ab"),
        measured.acceptance,
    ),
    Spec("speedup", "E2E is more than 1.3 times as fast", by_phase("ab"), measured.speedup),
    Spec(
        "gpu-memory",
        "GPU memory is below 95%, and the KV cache is enough",
        by_phase("sweep"),
        memory.gpu_memory,
    ),
    Spec(
        "fallback-tested",
        "the fall-back was rehearsed on the live set-up: the drill",
        by_phase("guard-drill"),
        operated.fallback_tested,
    ),
    Spec(
        "routing",
        "routing by traffic class is rendered, and routers run",
        by_phase("route"),
        operated.routing,
        attestable=True,
    ),
    Spec(
        "monitoring",
        "rules, alerts and the dashboard are rendered, and Prometheus has their series",
        by_phase("monitor"),
        operated.monitoring,
        attestable=True,
    ),
    Spec(
        "weekly-report-scheduled",
        "the weekly report is scheduled",
        by_words("report schedule {rollout}"),
        scheduled.weekly_report,
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
        operated.capacity,
        "specops",
    ),
    Spec(
        "canary",
        "the speculative pool answers as the standard one does",
        by_phase("canary"),
        operated.canary,
        "specops",
    ),
    Spec(
        "guard-running",
        "a guard runs, and sees",
        by_words("guard run {rollout}"),
        operated.guard_running,
        "specops",
        attestable=True,
    ),
)

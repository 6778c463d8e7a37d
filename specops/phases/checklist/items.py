"""The items, in the playbook's order and then ours. Their names are stable: people attest by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specops.phases.checklist import live_items, report_schedule, result_items
from specops.phases.checklist.evidence import Look, Open
from specops.phases.checklist.item import Decided, Spec


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
        result_items.baseline,
    ),
    Spec(
        "draft-compatible",
        "draft and target fit: their tokenizers were compared",
        by_phase("drafts"),
        result_items.draft_compatible,
        attestable=True,
    ),
    Spec(
        "k-swept",
        "the best number of speculative tokens was looked for, and is deployed",
        by_phase("sweep"),
        result_items.k_swept,
    ),
    Spec(
        "acceptance",
        "acceptance is above 0.55, or above its measured break-even",
        by_phase("ab"),
        result_items.acceptance,
    ),
    Spec("speedup", "E2E is more than 1.3 times as fast", by_phase("ab"), result_items.speedup),
    Spec(
        "gpu-memory",
        "GPU memory is below 95%, and the KV cache is enough",
        by_phase("sweep"),
        result_items.gpu_memory,
    ),
    Spec(
        "fallback-tested",
        "the fall-back was rehearsed on the live set-up: the drill",
        by_phase("guard-drill"),
        live_items.fallback_tested,
    ),
    Spec(
        "routing",
        "routing by traffic class is rendered, and routers run",
        by_phase("route"),
        live_items.routing,
        attestable=True,
    ),
    Spec(
        "monitoring",
        "rules, alerts and the dashboard are rendered, and Prometheus has their series",
        by_phase("monitor"),
        live_items.monitoring,
        attestable=True,
    ),
    Spec(
        "weekly-report-scheduled",
        "the weekly report is scheduled",
        by_words("report schedule {rollout}"),
        report_schedule.weekly_report,
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
        live_items.capacity,
        "specops",
    ),
    Spec(
        "canary",
        "the speculative pool answers as the standard one does",
        by_phase("canary"),
        live_items.canary,
        "specops",
    ),
    Spec(
        "guard-running",
        "a guard runs, and sees",
        by_words("guard run {rollout}"),
        live_items.guard_running,
        "specops",
        attestable=True,
    ),
)

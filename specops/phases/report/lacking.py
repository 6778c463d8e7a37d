"""What a report does not know, why, and how to come to know it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from specops.config import Rollout
from specops.phases.monitor.before import Before
from specops.phases.report.report import Missing
from specops.phases.report.seen import Seen
from specops.serving import Drafts


def lacking(
    rollout: Rollout, path: Path, seen: Seen, known: Before, no_journal: str | None
) -> Iterator[Missing]:
    """`no_journal`: why nothing is known of the guard; None where something is."""
    check = f"specops monitor check {path}"
    for name, each in seen.pools.items():
        if not each.running:
            yield Missing(what=f"the {name} pool", why="Prometheus has no series of it", mend=check)
    for phase, told in known.missing.items():
        why, _, mend = told.rpartition(": ")  # as `before` writes it
        yield Missing(what=phase, why=why, mend=mend.replace("ROLLOUT", str(path)))
    if not isinstance(seen.pools["speculative"].names.acceptance, Drafts):
        why = "its engine counts no drafted tokens"
        yield Missing(what="acceptance", why=why, mend="look at its own gauge in Grafana")
    if not any(grown.labels for grown in seen.router.values()):
        mend = f"specops route render {path}, and addresses.routers in the rollout file"
        yield Missing(what="latencies by class", why="no router is scraped", mend=mend)
    if not seen.gpu_used:
        mend = "addresses.gpus in the rollout file"
        yield Missing(what="GPU memory", why="no DCGM exporter is scraped", mend=mend)
    if no_journal is not None:
        yield Missing(what="fall-backs", why=no_journal, mend=f"specops guard run {path}")
    if not seen.up:
        yield Missing(what="incidents", why="Prometheus has no `up` of the rollout's targets", mend=check)
    if rollout.costs is None:
        yield Missing(
            what="cost", why="the rollout file has no costs", mend="add costs.standard_per_hour to it"
        )

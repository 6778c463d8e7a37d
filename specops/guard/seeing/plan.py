"""What the guard holds the deployment to: made once, from the rollout file and the results so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from specops import results
from specops.config import Rollout
from specops.guard.evaluation import Threshold
from specops.guard.seeing import baseline
from specops.guard.seeing.baseline import Baseline, Missing
from specops.guard.seeing.break_even import break_even
from specops.guard.seeing.query import Asked
from specops.prometheus.exposed import exposed
from specops.trees import parse_tree

MIN_ACCEPTANCE = 0.4
"""The playbook's, where no sweep measured what it takes to break even."""

BREAK_EVEN_KNOWN = 0.05
"""To how much a measured break-even is taken to be known. It is the ratio of two step times less 1, over the
tokens of a draft: 2.5% of that ratio move it by 0.015. So much acceptance below it makes a token slower by
about 8%, which is less than the rule for latency lets pass."""


@dataclass(frozen=True)
class Plan:
    asked: Asked
    window_s: float
    min_acceptance: Threshold | Missing
    baseline: Baseline | Missing
    regression: Threshold
    """How many times the baseline's latency; 1 and what the rollout file allows."""

    max_error_share: Threshold
    min_requests: int | None
    """That a verdict takes; None: what the noise asks for."""

    break_even_known_to: float = 0.0
    """`BREAK_EVEN_KNOWN` where `min_acceptance` was measured."""


def plan_of(rollout: Rollout, folder: Path, left_out: Mapping[str, str]) -> Plan:
    """From the run folder's sweep.json and baseline.json, where they are there and not `left_out`: by phase,
    why a result is not a yardstick. FileError where one is damaged."""
    guard = rollout.guard
    min_acceptance, measured = _min_acceptance(rollout, folder / "sweep.json", left_out.get("sweep"))
    unfit = left_out.get("baseline")
    return Plan(
        asked=Asked(
            rollout=rollout.rollout,
            series=exposed(rollout, "speculative"),
            standard=exposed(rollout, "standard"),
            labels=rollout.monitor.labels,
            scrape_s=float(rollout.monitor.scrape_interval_s),
            routed=bool(rollout.addresses.routers),
        ),
        window_s=float(rollout.monitor.window_s),
        min_acceptance=min_acceptance,
        baseline=baseline.read(folder / "baseline.json")
        if unfit is None
        else Missing(f"baseline.json does not count: {unfit}"),
        regression=Threshold(
            value=1 + guard.max_regression,
            source=f"guard.max_regression of the rollout file, {guard.max_regression:.0%}",
        ),
        max_error_share=Threshold(
            value=guard.max_error_share, source="guard.max_error_share of the rollout file"
        ),
        min_requests=guard.min_requests,
        break_even_known_to=BREAK_EVEN_KNOWN if measured else 0.0,
    )


def _min_acceptance(rollout: Rollout, path: Path, unfit: str | None) -> tuple[Threshold | Missing, bool]:
    """And whether it was measured."""
    asked = rollout.guard.min_acceptance
    if asked is not None:
        return Threshold(value=asked, source="guard.min_acceptance of the rollout file"), False
    if path.exists() and unfit is None:
        measured = break_even(rollout.pools.speculative, results.read(path))
        if measured is not None:
            source = f"break-even measured by {path.name} {results.sha256(path)[:12]}"
            return Threshold(value=measured, source=source), True
    pool = rollout.pools.speculative
    tree = pool.own and pool.own.tree
    if tree and parse_tree(tree).branches:
        # Of a tree that branches most of what is drafted cannot be accepted, and it may pay well.
        why = "no sweep measured what a tree that branches must have accepted to break even"
        return Missing(f"{why}: specops sweep ROLLOUT, or set guard.min_acceptance"), False
    missing = "no sweep measured break-even" if unfit is None else f"{path.name} does not count: {unfit}"
    return Threshold(value=MIN_ACCEPTANCE, source=f"the playbook; {missing}"), False

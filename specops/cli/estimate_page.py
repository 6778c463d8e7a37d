"""What `verify-draft --measure` says to people: acceptance, the tree, the speed-up, and what it rests on."""

from __future__ import annotations

from collections.abc import Iterator

from specops.phases.verify_draft.estimate import Accepted, Estimate, Prediction
from specops.render.figures import NONE, aligned, bar, count, milliseconds, percent, sentence, times

SHOWN = 5
"""Of the alternatives; all are in the result."""

RANKS = 3
"""Columns of acceptance by rank; further ones are in the result too."""


def lines(estimate: Estimate) -> list[str]:
    """The page's lines, without the verdict on the pair."""
    found = ["", "  measured on the embedded engine", *_acceptance(estimate), "", *_predictions(estimate), ""]
    found += _costs(estimate)
    found += [f"  assumes   {assumption}" for assumption in estimate.assumptions]
    return [*found, sentence(_answer(estimate))]


def _acceptance(estimate: Estimate) -> list[str]:
    ranks = [f"rank {rank}" for rank in range(RANKS)]
    rows = [["  accepted at the root", *ranks, "by depth, first choices", ""]]
    for name, accepted in {"all": estimate.acceptance, **estimate.by_class}.items():
        root = accepted.depths[0].by_rank
        shares = [f"{root[rank]:.2f}" if rank < len(root) else NONE for rank in range(RANKS)]
        of = f"{count(accepted.prompts, 'prompt')}, {count(accepted.tokens, 'token')}"
        rows.append([f"  {name}", *shares, _by_depth(accepted), of])
    return aligned(rows)


def _by_depth(accepted: Accepted) -> str:
    """Of a first choice, where the ones above it were accepted; blank where none ever was."""
    return "".join(bar(at.by_rank[0] if at.parents else None) for at in accepted.depths)


def _predictions(estimate: Estimate) -> list[str]:
    shown = list(estimate.alternatives[:SHOWN])
    shown += [found for found in (estimate.drafted, estimate.best) if found and found not in shown]
    classes = list(estimate.by_class)
    rows = [["  predicted", "E2E", *classes, "tokens a step", "a step"]]
    for found in shown:
        speedups = [times(found.by_class[name].interval, found.by_class[name].estimate) for name in classes]
        rows.append(
            [
                f"  {found.tree}",
                times(found.overall.interval, found.overall.estimate),
                *speedups,
                f"{found.tokens_per_step:.2f}",
                milliseconds(found.step_ms),
            ]
        )
    return aligned(rows)


def _costs(estimate: Estimate) -> Iterator[str]:
    for costs in estimate.costs:
        target = "  ".join(f"{tokens}: {milliseconds(ms)}" for tokens, ms in costs.target.items())
        yield f"  costs     at {count(costs.context, 'token')}: the target's pass, by tokens  {target}"
        level = milliseconds(costs.draft_level[1])
        first = milliseconds(costs.draft_first_pass)
        yield f"            the draft's first pass {first}, each further level of one node {level}"
    api = estimate.api
    yield f"            the API {milliseconds(api.chunk)} a chunk, {milliseconds(api.request)} a request"
    if estimate.any_shape > 1:
        yield f"            a tree of any shape: {percent(estimate.any_shape)} tokens a step at the same size"


def _answer(estimate: Estimate) -> str:
    best, drafted = estimate.best, estimate.drafted
    if best is None:
        return f"no tree is predicted to pay; the best of this draft is {drafted.tree}, {_said(drafted)}"
    if best.tree == drafted.tree:
        return f"take {best.tree}: it is predicted to be {_said(best)}"
    return (
        f"take {best.tree}, which needs no draft model: it is predicted to be {_said(best)}; the best of "
        f"this draft is {drafted.tree}, {_said(drafted)}"
    )


def _said(found: Prediction) -> str:
    overall = found.overall
    unsure = ""
    if overall.interval is not None and overall.interval.low <= 1 <= overall.interval.high:
        unsure = ", too near 1 to tell"
    return f"{times(overall.interval, overall.estimate)} as fast end to end{unsure}"

"""What `plan explain` says to people."""

from __future__ import annotations

from collections.abc import Iterator

from specops.phases.plan import AtBatch, Candidate, Explained
from specops.render.figures import NONE, aligned, count, milliseconds, sentence

RANKS = 3
"""Columns of acceptance by rank."""

SEEN = 20.0
"""Observations below which a rate is mostly what was seen above it; such depths are left out of the page."""


def page(found: Explained) -> list[str]:
    how = "greedy" if found.temperature == 0 else f"temperature {found.temperature:g}"
    draft = found.draft or "no draft, copies alone"
    return [
        f"planner  {found.target} with {draft}, trees of up to {count(found.nodes, 'node')}, {how}",
        "",
        *_chosen(found),
        "",
        *_accepted(found),
        *(line for at in found.by_batch for line in ("", *_batch(at))),
        "",
        "assumes  the embedded engine on this machine now, and these prompts; tree auto goes on measuring",
    ]


def _chosen(found: Explained) -> list[str]:
    rows = [["batch", "chosen", "tokens/s", "why"]]
    for at in found.by_batch:
        rows.append([str(at.batch), at.chosen, f"{at.options[0].tokens_per_s:.0f}", sentence(at.why)])
    return aligned(rows)


def _accepted(found: Explained) -> Iterator[str]:
    if found.acceptance:
        rows = [["accepted", *(f"rank {rank + 1}" for rank in range(RANKS)), "of first children"]]
        for depth, at in enumerate(found.acceptance, start=1):
            if at.observations[0] >= SEEN:
                rates = [
                    f"{rate:.2f}" if seen >= SEEN else NONE
                    for rate, seen in list(zip(at.by_rank, at.observations, strict=True))[:RANKS]
                ]
                rows.append([f"  depth {depth}", *rates, f"{at.observations[0]:.0f}"])
        yield from aligned(rows)
    copies = found.copies
    of = ", ".join(f"{tokens:.2f} with up to {most}" for most, tokens in copies.tokens_per_step.items())
    yield f"copies     tokens a step: {of} ({copies.looked_up:.0f} looked up)"


def _batch(at: AtBatch) -> Iterator[str]:
    yield f"batch {at.batch}, {count(at.steps, 'step')} observed"
    passes = ", ".join(f"{nodes}: {milliseconds(ms)}" for nodes, ms in at.pass_ms.items())
    yield f"  the target's pass, by nodes of each tree   {passes}"
    if at.draft_first_ms is not None:
        further = ", ".join(f"{nodes}: {milliseconds(ms)}" for nodes, ms in at.draft_level_ms.items())
        first = milliseconds(at.draft_first_ms)
        yield f"  the draft's first pass {first}, further levels by nodes   {further}"
    yield f"  a plain step {milliseconds(at.plain_ms)}, of which committing {milliseconds(at.rest_ms)}"
    rows = [["  tree", "tokens a step", "a step", "tokens/s", "× none", "would win at", "any shape"]]
    rows += [_row(option, first=option.tree == at.chosen) for option in at.options]
    yield from aligned(rows)


def _row(option: Candidate, *, first: bool) -> list[str]:
    wins = "chosen" if first else f"{option.wins_at_tokens:.2f} tokens"
    if option.wins_at_rate is not None and not first:
        wins += f", {option.wins_at_rate:.2f} accepted"
    return [
        f"  {option.tree}" + ("" if option.within else " (beyond the limits)"),
        f"{option.tokens_per_step:.2f}",
        milliseconds(option.step_ms),
        f"{option.tokens_per_s:.0f}",
        f"{option.over_none:.2f}",
        wins,
        NONE if option.any_shape is None else f"{option.any_shape:.2f}",
    ]

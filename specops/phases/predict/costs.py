"""What steps cost, from the requests of a comparison or a sweep in a run folder. Pure but for reading it.

A request of t tokens of which a were accepted took t - a steps: each yields one token of the target's own.
The time after its first token is fitted, at each load, to

    step_ms * steps + draft_ms * steps with a draft + token_ms * drafted tokens

with coefficients of at least 0. So a K that was not measured is predicted from the tokens that its steps
draft, up to the largest K that was. Nothing is predicted beyond, nor at a load that was not measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from specops import results
from specops.config import Rollout
from specops.errors import SpecopsError
from specops.load.record import CellRecord, Row
from specops.phases.ab.earlier import measurements_of as compared_windows
from specops.phases.inputs import unlike
from specops.phases.predict.acceptance import Floats
from specops.phases.predict.records import MeasuredCosts, StepCosts
from specops.phases.sweep.plan import measurements_of as swept_cells
from specops.results import Result
from specops.serving import Pool, pool_of
from specops.trees import COPYING, parse_tree

STANDARD = "standard"
FEWEST_REQUESTS = 12
"""Requests of a kind at a load, below which its costs are not fitted."""


@dataclass
class _Measured:
    """Cells of one kind of draft at one level."""

    cells: list[CellRecord] = field(default_factory=list)
    ks: set[int] = field(default_factory=set)


def kind_of(pool: Pool) -> tuple[str, int] | None:
    """The kind of draft of a pool, whose costs are fitted as one line, and its K; None where they are not
    known. Drafts of a model cost by their shape, so that each tree is a kind of its own."""
    if pool.speculates is False:
        return STANDARD, 0
    own = pool.own
    if own is not None and own.tree is not None:
        spec = parse_tree(own.tree)
        return (spec.kind if spec.kind in COPYING else own.tree), spec.nodes
    return (pool.method, pool.drafted_tokens) if pool.method and pool.drafted_tokens else None


def _copies(pool: Pool) -> bool:
    kind = kind_of(pool)
    return kind is not None and kind[0] in COPYING


def measured_costs(rollout: Rollout, folder: Path) -> MeasuredCosts | str:
    """The costs by the run folder's sweep.json, else its ab.json; or why there are none."""
    reasons = []
    for name, read in (("sweep", _of_sweep), ("ab", _of_comparison)):
        path = folder / f"{name}.json"
        if not path.exists():
            reasons.append(f"there is no {path}")
            continue
        try:
            result = results.read(path)
            changed = unlike(rollout, result)
            if changed is not None:
                reasons.append(f"{path} is not used: {changed} changed since")
                continue
            cells = list(read(result, path))
            if name == "sweep" and rollout.sweep.drafts:  # drafts of one tree differ in what they cost
                cells = [(pool, cell) for pool, cell in cells if pool.speculates is False or _copies(pool)]
            fitted = fit(cells, f"{path} of {result.created:%Y-%m-%d}")
        except SpecopsError as error:
            reasons.append(error.message)
            continue
        if fitted is not None:
            return fitted
        reasons.append(f"{path} has too few requests whose drafts were counted")
    return "; ".join(reasons)


Cells = Iterable[tuple[Pool, CellRecord]]


def _of_comparison(result: Result, path: Path) -> Iterator[tuple[Pool, CellRecord]]:
    pools = {name: _pool(stored) for name, stored in (result.settings.get("arms") or {}).items()}
    for window in compared_windows(result, str(path)).windows:
        pool = pools.get(window.arm)
        if pool is not None and window.kind == "measured" and window.cell.complete:
            yield pool, window.cell


def _of_sweep(result: Result, path: Path) -> Iterator[tuple[Pool, CellRecord]]:
    pools = {name: _pool(stored) for name, stored in (result.settings.get("settings") or {}).items()}
    for cell in swept_cells(result, str(path)).cells:
        pool = pools.get(cell.setting)
        if pool is not None and cell.cell.complete:
            yield pool, cell.cell


def _pool(stored: Mapping[str, object]) -> Pool | None:
    try:
        return pool_of(stored)
    except ValueError:
        return None


def fit(cells: Cells, source: str) -> MeasuredCosts | None:
    """The costs by kind and level; None without those of the standard and of one kind of draft."""
    by_kind: dict[str, dict[int, _Measured]] = defaultdict(lambda: defaultdict(_Measured))
    contexts = []
    for pool, cell in cells:
        kind = kind_of(pool)
        if kind is None or cell.concurrency is None:
            continue
        measured = by_kind[kind[0]][cell.concurrency]
        measured.cells.append(cell)
        measured.ks.add(kind[1])
        contexts += [
            row.prompt_tokens + row.tokens / 2
            for row in _timed(cell)
            if row.prompt_tokens is not None and row.tokens is not None
        ]
    plain = {streams: _fit(streams, m, None) for streams, m in by_kind.pop(STANDARD, {}).items()}
    fitted = {STANDARD: [costs for costs in plain.values() if costs is not None]}
    for name, levels in by_kind.items():
        costs = [
            _fit(streams, m, plain.get(streams))
            for streams, m in sorted(levels.items())
            if plain.get(streams)
        ]
        fitted[name] = [level for level in costs if level is not None]
    by_level = {
        name: sorted(levels, key=lambda costs: costs.streams) for name, levels in fitted.items() if levels
    }
    if STANDARD not in by_level or len(by_level) < 2:
        return None
    context = round(float(np.mean(contexts)), 1) if contexts else None
    return MeasuredCosts(source=source, context=context, by_kind=by_level)


def _timed(cell: CellRecord) -> list[Row]:
    return [
        row for row in cell.rows if row.error is None and row.tpot_ms is not None and row.tokens is not None
    ]


def _fit(streams: int, measured: _Measured, plain: StepCosts | None) -> StepCosts | None:
    """Fit one kind at one level. `plain`: the standard's costs there; None: it is the standard's own fit."""
    rows = [row for cell in measured.cells for row in _timed(cell)]
    if len(rows) < FEWEST_REQUESTS:
        return None
    first, prompt = _first_token(rows)
    largest = max(measured.ks)
    if plain is None:
        features = np.array([[(row.tokens or 0) - (row.n_first or 1)] for row in rows], dtype=np.float64)
    elif all(row.draft_steps is not None for row in rows):
        features = np.array([_features(row) for row in rows], dtype=np.float64)
    else:
        return _by_counters(streams, measured, plain, (first, prompt), largest, len(rows))
    times_ms = np.array([_decode_ms(row) for row in rows])
    step, *rest = _nonnegative(features, times_ms)
    if step <= 0:
        return None
    draft, token = rest or (0.0, 0.0)
    return StepCosts(
        streams=streams,
        step_ms=round(step, 5),
        draft_ms=round(draft, 5),
        token_ms=round(token, 5),
        first_ms=round(first, 5),
        prompt_ms=round(prompt, 6),
        requests=len(rows),
        largest_k=largest,
    )


def _decode_ms(row: Row) -> float:
    return (row.tpot_ms or 0.0) * ((row.tokens or 0) - (row.n_first or 1))


def _features(row: Row) -> tuple[float, float, float]:
    """Steps after the first, and the drafts of those: the first step is in the time to the first token."""
    steps = (row.tokens or 0) - (row.accepted or 0)
    share = (steps - 1) / steps if steps else 0.0
    return steps - 1, (row.draft_steps or 0) * share, (row.drafted or 0) * share


def _by_counters(
    streams: int,
    measured: _Measured,
    plain: StepCosts,
    opening: tuple[float, float],
    largest: int,
    requests: int,
) -> StepCosts | None:
    """Where answers report no drafts, the server's counters over whole cells: one cost of a drafted token
    beyond the standard's step."""
    cells = [cell for cell in measured.cells if cell.drafts is not None and cell.drafts.draft_tokens]
    times_ms = steps = drafted = 0.0
    for cell in cells:
        rows = _timed(cell)
        # Counters know no requests: an answer's accepted tokens are taken to be spread over its tokens.
        tokens = sum(row.tokens or 0 for row in rows)
        after = sum((row.tokens or 0) - (row.n_first or 1) for row in rows)
        counted = cell.server_tokens or tokens
        if cell.drafts is None or not tokens or not counted:
            continue
        times_ms += sum(map(_decode_ms, rows))
        steps += after * max(0.0, 1 - cell.drafts.accepted_tokens / counted)
        drafted += after * cell.drafts.draft_tokens / counted
    if not steps or not drafted:
        return None
    token = (times_ms - plain.step_ms * steps) / drafted
    return StepCosts(
        streams=streams,
        step_ms=round(plain.step_ms if token > 0 else times_ms / steps, 5),
        draft_ms=0.0,
        token_ms=round(max(token, 0.0), 5),
        first_ms=round(opening[0], 5),
        prompt_ms=round(opening[1], 6),
        requests=requests,
        largest_k=largest,
    )


def _first_token(rows: Sequence[Row]) -> tuple[float, float]:
    """Milliseconds of the time to the first token, fixed and for each token of the prompt."""
    timed = [(row.ttft_ms, row.prompt_tokens) for row in rows if row.ttft_ms is not None]
    ttft = np.array([ttft_ms for ttft_ms, _ in timed])
    lengths = np.array([tokens or 0 for _, tokens in timed], dtype=np.float64)
    if not len(ttft):
        return 0.0, 0.0
    if any(tokens is None for _, tokens in timed) or lengths.std() == 0:
        return float(ttft.mean()), 0.0
    first, prompt = _nonnegative(np.stack((np.ones(len(ttft)), lengths), axis=1), ttft)
    return first, prompt


def _nonnegative(features: Floats, values: Floats) -> list[float]:
    """Least squares with coefficients of at least 0: the most negative is set to 0 until none is."""
    active = list(range(features.shape[1]))
    while active:
        solved, *_ = np.linalg.lstsq(features[:, active], values, rcond=None)
        worst = int(solved.argmin())
        if solved[worst] >= 0:
            coefficients = [0.0] * features.shape[1]
            for index, value in zip(active, solved.tolist(), strict=True):
                coefficients[index] = value
            return coefficients
        active.pop(worst)
    return [0.0] * features.shape[1]

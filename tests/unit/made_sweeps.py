"""Cells as a sweep would have measured them, with latencies that a test chooses."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from made_cells import cell, row

from specops.config import Ab, Pool
from specops.load.arrivals import Level
from specops.load.record import CellRecord, Row
from specops.phases.sweep.judging import SweepJudgement, judge, picked_by
from specops.phases.sweep.plan import ANY_LENGTH, FailedJob, Load, Memory, SweptCell
from specops.prometheus.exposition import DraftCounts
from specops.serving import Setting
from specops.serving.embedded import EmbeddedPool, Speculation

FEW_REQUESTS = Ab(failure_margin=0.2, answer_margin=0.2)
"""Margins within which some dozens of requests bound rare events: most tests are of speed."""

BOUND_BY_96 = Ab(failure_margin=0.04, answer_margin=0.04)
"""Of 96 requests, none may fail."""

AGAIN = 16

CLASSES = ("edit", "long", "short")
TOKENS = 60
HOST = Memory(resident_gib=1.5)
Speed = Callable[[str, Load, str], float]
"""How many times as fast as the standard: of the setting, the load and the traffic class."""

Slower = Callable[[int, str, int, float], float]
"""What latencies are multiplied by: of the rung, the setting, the turn, and seconds since the start."""


def setting(k: int, **fields: Any) -> Setting:
    """K = 0 is the standard."""
    speculation = Speculation(tree=f"ngram:{k}") if k else None
    pool: Pool = EmbeddedPool(engine="embedded", speculation=speculation)
    known: dict[str, Any] = {"name": f"k={k}" if k else "standard", "pool": pool, "k": k}
    return Setting(**known | fields)


def settings(*ks: int) -> list[Setting]:
    return [setting(k) for k in (0, *ks)]


def loads(
    *concurrency: int, temperatures: Sequence[float] = (0.0,), lengths: Sequence[str] = (ANY_LENGTH,)
) -> list[Load]:
    return [Load(c, t, length) for length in lengths for t in temperatures for c in concurrency or (1,)]


def drafts(k: int, acceptance: float = 0.7, steps: float = 1000.0) -> DraftCounts:
    """Every position accepted with the same probability, given that the one before was."""
    reached = tuple(round(steps * acceptance**i, 3) for i in range(1, k + 1))
    return DraftCounts(
        drafts=steps, draft_tokens=k * steps, accepted_tokens=sum(reached), accepted_per_position=reached
    )


def sampled(rows: Sequence[Row]) -> CellRecord:
    """Some of the prompts a second time, sampled: of both arms alike."""
    update = {"temperature": 0.7, "prompt_tokens": None}
    again = [answer.model_copy(update=update | {"text": f"sampled {answer.text}"}) for answer in rows[:AGAIN]]
    return cell(again, Level(concurrency=1), 0)


def swept(
    speed: Speed | Mapping[str, float],
    asked: Sequence[Setting],
    at: Sequence[Load] | None = None,
    *,
    prompts: int = 48,
    classes: Sequence[str] = CLASSES,
    rungs: int = 2,
    confirming: int = 2,
    noise: float = 0.03,
    seed: int = 0,
    slower: Slower = lambda rung, name, turn, now: 1.0,
    counted: bool = True,
    memory: Memory = HOST,
    machine: Callable[[int, str], str] = lambda rung, name: "here",
) -> list[SweptCell]:
    """Rungs begin and end with the standard and go through the others forwards and backwards in turn. The
    last ones, `confirming` of them, are of the confirmation, which measures all settings here."""
    dealer = random.Random(seed)
    usual = {f"p{n:03}": 100 * dealer.lognormvariate(0, 0.4) for n in range(prompts)}
    of_class = {name: classes[n % len(classes)] for n, name in enumerate(usual)}
    lengths = sorted({load.length for load in at or loads()})
    of_length = {name: lengths[n % len(lengths)] for n, name in enumerate(usual)}
    standard, *others = asked
    now, made = 0.0, []
    for rung in range(rungs + confirming):
        order = [(standard, 0), *((one, 0) for one in (others[::-1] if rung % 2 else others)), (standard, 1)]
        for one, turn in order:
            for load in at or loads():
                rows: list[Row] = []
                began = now
                for prompt in (name for name in usual if of_length[name] == load.length):
                    e2e = usual[prompt] * dealer.lognormvariate(0, noise) * slower(rung, one.name, turn, now)
                    if one is not standard:
                        of = of_class[prompt]
                        e2e /= speed[one.name] if isinstance(speed, Mapping) else speed(one.name, load, of)
                    answered = {"ttft_ms": e2e / 5, "tpot_ms": 0.8 * e2e / TOKENS, "tokens": TOKENS}
                    rows.append(row(prompt, of_class[prompt], e2e, now - began, **answered))
                    now += e2e / 1000 / load.concurrency
                counts = {"drafts": drafts(one.k), "drafts_missing": None} if counted and one.k else {}
                measured = cell(rows, Level(concurrency=load.concurrency), rung, **counts)
                made.append(
                    SweptCell(
                        rung=rung,
                        setting=one.name,
                        turn=turn,
                        stage="choice" if rung < rungs else "confirmation",
                        machine=machine(rung, one.name),
                        temperature=load.temperature,
                        length=load.length,
                        began=1000.0 + began,
                        memory=memory,
                        cell=measured,
                        again=sampled(rows) if rung >= rungs else None,
                    )
                )
    return made


def died(name: str, why: str = "it died") -> FailedJob:
    return FailedJob(rung=0, setting=name, turn=0, machine="here", why=why, log="the last line")


def judged(
    asked: Sequence[Setting],
    at: Sequence[Load],
    cells: Sequence[SweptCell],
    failed: Sequence[FailedJob] = (),
    **judging: Any,
) -> SweepJudgement:
    """As a sweep does: what the choice picks is confirmed. Cells of a confirmation of others are left out."""
    choice = [cell for cell in cells if cell.stage == "choice"]
    fresh = judging.pop("fresh", True)
    picking = {"confidence": judging.get("confidence", 0.95), "skipped": judging.get("skipped", ())}
    finalists = judging.pop("finalists", None) or picked_by(asked, at, choice, failed, fresh=fresh, **picking)
    names = {asked[0].name, *finalists.settings} if finalists else set[str]()
    streams = finalists.streams if finalists else ()
    again = [
        cell
        for cell in cells
        if cell.stage == "confirmation" and cell.setting in names and cell.cell.concurrency in streams
    ]
    return judge(
        asked, at, [*choice, *again], failed, finalists=finalists, **{"margins": FEW_REQUESTS} | judging
    )

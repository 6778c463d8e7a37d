"""Visits as a comparison would have made them, with latencies that a test chooses."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from specops.phases.ab.visits import AbSettings, Visit, VisitRecord, schedule

from specops.load.arrivals import Level
from specops.load.record import CellRecord, DraftCountsRecord, Row, Spread
from specops.phases.ab.judging import AbJudgement, judge

ARMS = ("standard", "draft")
CLASSES = ("edit", "long", "short")
NOTHING = Spread(n=0)

Answer = Callable[[Visit, str, float], dict[str, Any]]
"""What a request gives, beside what is usual: of the visit, the prompt and the seconds since the start."""


def row(prompt: str, traffic_class: str, e2e: float, sent_s: float = 0.0, **fields: Any) -> Row:
    known: dict[str, Any] = {
        "prompt": prompt,
        "class": traffic_class,
        "sent_s": sent_s,
        "lag_ms": 0.0,
        "ttft_ms": 20.0,
        "tpot_ms": e2e / 10,
        "e2e_ms": e2e,
        "e2e_with_retries_ms": e2e,
        "retries": 0,
        "chunks": 5,
        "n_first": 1,
        "tokens": 10,
        "tokens_from": "usage",
        "prompt_tokens": 30,
        "finish_reason": "length",
        "text": f"answer to {prompt}",
        "error": None,
        "detail": None,
    }
    return Row(**known | fields)


def cell(rows: list[Row], level: Level, round_: int, **fields: Any) -> CellRecord:
    wall = sum(row.e2e_ms for row in rows) / 1000 / (level.concurrency or 1)
    tokens = sum(row.tokens or 0 for row in rows)
    known: dict[str, Any] = {
        "concurrency": level.concurrency,
        "rate": level.rate,
        "burstiness": level.burstiness,
        "repeat": round_,
        "complete": True,
        "aborted": None,
        "wall_s": wall,
        "tokens": tokens,
        "tokens_per_sec": tokens / wall,
        "requests_per_sec": len(rows) / wall,
        "goodput_per_sec": None,
        "goodput_tokens_per_sec": None,
        "peak_tokens_per_sec": None,
        "chunk_gap_ms": NOTHING,
        "amortised_itl_ms": NOTHING,
        "tokens_per_chunk": NOTHING,
        "drafts_missing": "the server exposes no counters",
        "rows": tuple(rows),
    }
    return CellRecord(**known | fields)


DRAFTS = {
    "drafts": DraftCountsRecord(
        drafts=100.0, draft_tokens=300.0, accepted_tokens=180.0, accepted_per_position=(90.0, 60.0, 30.0)
    ),
    "drafts_missing": None,
}


def visits(
    speed: Callable[[str, str], float] | float = 2.0,
    *,
    arms: tuple[str, ...] = ARMS,
    prompts: int = 48,
    classes: tuple[str, ...] = CLASSES,
    concurrency: tuple[int, ...] = (1,),
    rounds: int = 2,
    looks: int = 4,
    design: str = "interleaved",
    noise: float = 0.03,
    seed: int = 0,
    answer: Answer = lambda visit, prompt, at: {},
) -> list[VisitRecord]:
    """Every challenger is `speed` times as fast as the standard, or as fast as it says by arm and class."""
    dealer = random.Random(seed)
    of_class = {f"p{n:03}": classes[n % len(classes)] for n in range(prompts)}
    usual = {name: 100 * dealer.lognormvariate(0, 0.4) for name in of_class}
    plan = schedule(
        design,  # type: ignore[arg-type]
        arms,
        [Level(concurrency=n) for n in concurrency],
        list(of_class.items()),
        rounds=rounds,
        looks=looks,
        seed=seed,
    )
    now = 0.0
    made = []
    for visit in plan:
        rows, began = [], now
        for prompt in visit.prompts:
            name = of_class[prompt]
            factor = speed if isinstance(speed, float) else speed(visit.arm, name)
            e2e = usual[prompt] * dealer.lognormvariate(0, noise)
            e2e /= factor if visit.arm != arms[0] or not isinstance(speed, float) else 1.0
            fields = ({"chunks": 10} if visit.arm == arms[0] else {}) | answer(visit, prompt, now)
            e2e *= fields.pop("slower", 1.0)
            e2e += fields.pop("added_ms", 0.0)
            rows.append(row(prompt, name, e2e, now - began, **fields))
            now += e2e / 1000
        counts = DRAFTS if visit.arm != arms[0] else {}
        made.append(
            VisitRecord(
                stage=visit.stage,
                block=visit.block,
                round=visit.round,
                order=visit.order,
                period=visit.period,
                arm=visit.arm,
                began=1000.0 + began,
                cell=cell(rows, visit.level, visit.round, **counts),
            )
        )
    return made


def judged(records: list[VisitRecord], arms: tuple[str, ...] = ARMS, **asked: Any) -> AbJudgement:
    known: dict[str, Any] = {"looks_done": 4, "looks": 4, "failed": {}, "temperature": 0.0}
    settings = asked.pop("settings", AbSettings())
    mixed = asked.pop("mixed", [])
    return judge(records, mixed, arms, settings, **known | asked)

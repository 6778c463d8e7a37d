"""Windows as an experiment would have measured them, with times and answers that a test chooses."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from specops.experiment.arms import Arm
from specops.experiment.claims import Evidence
from specops.experiment.decide import Confidences, Judged, judge_challenger, over_all
from specops.experiment.plan import Plan, Request, Window
from specops.experiment.records import WindowRecord
from specops.experiment.run import LONG_RUN, Experiment
from specops.load.arrivals import Level
from specops.load.record import CellRecord, Row, Spread
from specops.load.settings import BaselineSettings
from specops.load.workload import Prompt, PromptSet
from specops.phases.ab.judging import AbJudgement, judge
from specops.phases.ab.settings import AbSettings
from specops.progress import SilentProgress
from specops.prometheus.exposition import DraftCounts
from specops.serving.endpoint import EndpointPool

ARMS = ("standard", "draft")
CLASSES = ("edit", "long", "short")
NOTHING = Spread(n=0)

Answer = Callable[[Window, str, float], dict[str, Any]]
"""What a request gives, beside what is usual: of the window, the prompt and the seconds since the start.
The keys `slower` and `added_ms` change its time, all others are fields of its row."""


def row(prompt: str, traffic_class: str, e2e: float, sent_s: float = 0.0, **fields: Any) -> Row:
    known: dict[str, Any] = {
        "prompt": prompt,
        "class": traffic_class,
        "due_s": sent_s,
        "sent_s": sent_s,
        "lag_ms": 0.0,
        "ttft_ms": 0.2 * e2e,
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
        "connection": 1,
    }
    return Row(**known | fields)


def cell(rows: Sequence[Row], level: Level, repeat: int, **fields: Any) -> CellRecord:
    counted = [row for row in rows if row.part == "counted"]
    wall = sum(row.e2e_ms for row in counted) / 1000 / (level.concurrency or 1)
    tokens = sum(row.tokens or 0 for row in counted)
    known: dict[str, Any] = {
        "concurrency": level.concurrency,
        "rate": level.rate,
        "burstiness": level.burstiness,
        "repeat": repeat,
        "complete": True,
        "aborted": None,
        "wall_s": wall,
        "tokens": tokens,
        "tokens_per_sec": tokens / wall,
        "requests_per_sec": len(counted) / wall,
        "goodput_per_sec": None,
        "goodput_tokens_per_sec": None,
        "peak_tokens_per_sec": None,
        "chunk_gap_ms": NOTHING,
        "amortised_itl_ms": NOTHING,
        "tokens_per_chunk": NOTHING,
        "drafts_missing": "the server exposes no counters",
        "rows": tuple(counted),
        "beside": tuple(row for row in rows if row.part != "counted"),
    }
    return CellRecord(**known | fields)


DRAFTS = {
    "drafts": DraftCounts(
        drafts=100.0, draft_tokens=300.0, accepted_tokens=180.0, accepted_per_position=(90.0, 60.0, 30.0)
    ),
    "drafts_missing": None,
}


def plan(
    prompts: int = 48,
    classes: Sequence[str] = CLASSES,
    concurrency: Sequence[int] = (1,),
    arms: Sequence[str] = ARMS,
    **fields: Any,
) -> Plan:
    known: dict[str, Any] = {
        "arms": tuple(arms),
        "levels": tuple(Level(concurrency=n) for n in concurrency),
        "prompts": tuple((f"p{n:03}", classes[n % len(classes)]) for n in range(prompts)),
        "design": "interleaved",
        "seed": 0,
        "temperature": 0.0,
        "mixed_prompts": 4,
        "mixed_temperature": 0.7,
        "same_prompts": False,
        "rounds": 2,
        "long_run": LONG_RUN,
    }
    return Plan(**known | fields)


def windows(
    speed: Callable[[str, str], float] | float = 2.0,
    *,
    cycles: int = 20,
    noise: float = 0.03,
    seed: int = 0,
    answer: Answer = lambda window, prompt, at: {},
    **planned: Any,
) -> list[WindowRecord]:
    """Every challenger is `speed` times as fast as the standard, or as fast as it says by arm and class."""
    made = plan(seed=seed, **planned)
    dealer = random.Random(seed)
    class_of = dict(made.prompts)
    usual = {prompt: 100 * dealer.lognormvariate(0, 0.4) for prompt in class_of}
    turns = dict.fromkeys(class_of, 1)
    for first, later in made.later_turns.items():
        for turn, prompt in enumerate(later, start=2):
            class_of[prompt], usual[prompt], turns[prompt] = class_of[first], usual[first], turn
    now, records = 0.0, []
    for window in takewhile(lambda window: window.cycle < cycles, made.windows()):
        rows, began = [], now
        streams = window.level.concurrency or 1
        listed = [*((one, "counted") for one in window.requests), *((one, "fill") for one in window.fillers)]
        for request, part in listed:
            fields = _request(window, request, made.temperature, dealer) | answer(window, request.prompt, now)
            factor = speed if isinstance(speed, float) else speed(window.arm, class_of[request.prompt])
            e2e = usual[request.prompt] * dealer.lognormvariate(0, noise)
            if window.arm != made.arms[0] or not isinstance(speed, float):
                e2e /= factor
            e2e = e2e * fields.pop("slower", 1.0) + fields.pop("added_ms", 0.0)
            fields = {"part": part, "turn": turns[request.prompt]} | fields
            rows.append(row(request.prompt, class_of[request.prompt], e2e, now - began, **fields))
            now += e2e / 1000 / streams
        counts = {} if window.arm == made.arms[0] else DRAFTS
        level = Level(rate=5.0) if window.kind == "open" else window.level
        records.append(
            WindowRecord(
                cycle=window.cycle,
                kind=window.kind,
                level=window.level,
                order=window.order,
                period=window.period,
                arm=window.arm,
                began=1000.0 + began,
                cell=cell(rows, level, window.cycle, **counts),
            )
        )
    return records


def _request(window: Window, request: Request, temperature: float, dealer: random.Random) -> dict[str, Any]:
    heat = temperature if request.temperature is None else request.temperature
    fields: dict[str, Any] = {
        "variant": request.variant,
        "temperature": heat,
        "connection": window.cycle // 2,
        "text": f"answer to {request.prompt} as {request.variant}",
    }
    if heat > 0:
        words = [dealer.choice(("one", "two", "three", "four", "five", "six")) for _ in range(12)]
        fields["text"] = " ".join(words)
    return fields


def evidence(
    records: Sequence[WindowRecord], challenger: str = "draft", standard: str = "standard", **fields: Any
) -> Evidence:
    settings = fields.pop("settings", AbSettings())
    known: dict[str, Any] = {"temperature": 0.0, "timeout_ms": 60_000.0}
    return Evidence(records, standard, challenger, settings, **known | fields)


def judged(records: Sequence[WindowRecord], **fields: Any) -> Judged:
    """The judgement at the last look."""
    found = evidence(records, **fields)
    confidences = Confidences.at(0.95, len(found.classes), 1, 4, (0.4, 0.6, 0.8, 1.0))
    return over_all(judge_challenger(found, confidences))


def experiment(records: Sequence[WindowRecord], arms: Sequence[str] = ARMS, **fields: Any) -> Experiment:
    """An experiment with endpoints that has measured `records`."""
    prompts = {row.prompt: row.traffic_class for record in records for row in record.cell.sent}
    prompts = prompts or {"p000": CLASSES[0]}
    settings = AbSettings(**fields)
    levels = [w.level.concurrency for w in records if w.kind == "measured" and w.level.concurrency]
    made = Experiment(
        [
            Arm(name, EndpointPool(engine="endpoint", base_url=f"http://127.0.0.1:{port}/v1", model="m"))
            for port, name in enumerate(arms, start=9001)
        ],
        BaselineSettings(
            base_url="http://127.0.0.1:9/v1", model="m", concurrency=tuple(dict.fromkeys(levels)) or (1,)
        ),
        settings,
        PromptSet(
            tuple(Prompt(i, name, i) for i, name in prompts.items()), "prompts.json", "playbook", "0" * 64
        ),
        SilentProgress(),
        Path("logs"),
        mixed_temperature=settings.mixed_temperature,
        same_server=settings.same_server,
        store=lambda _: None,
    )
    made.windows = {record.key: record for record in records}
    return made


def judgement(
    records: Sequence[WindowRecord],
    arms: Sequence[str] = ARMS,
    facts: Mapping[str, Any] | None = None,
    **fields: Any,
) -> AbJudgement:
    """What a comparison that has measured `records` concludes."""
    failed = fields.pop("failed", {})
    made = experiment(records, arms, **fields)
    made.failed |= failed
    made.facts |= facts or {}
    return judge(made)

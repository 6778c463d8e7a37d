"""Faults that `ab` and a sweep must survive alike: the challenger is K 3 of the sweep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fault_rows import EQUAL, FASTER, MANY, SAMPLED, STANDARD, ab, failing, sweep
from fault_runs import Row
from zoo_knobs import Server


def both(
    name: str, fault: str, challenger: Server, right: Any, *says: str, fast: bool = False, **more: Any
) -> list[Row]:
    """The row of each command. Only that of `ab` may be `fast`."""
    swept = fault.replace("the challenger", "K 3")
    return [
        ab(name, fault, challenger, right, *says, fast=fast, **more),
        sweep(name, swept, [challenger], right, *says, **more),
    ]


COMPARED = [
    *both(
        "half_sampled",
        "answers of the challenger end at half; temperature 0.7",
        replace(EQUAL, length=0.5),
        "not deploy",
        r"shorter|stump|sampled answers are not the standard's|answers are not acceptable",
        options=SAMPLED,
        fast=True,
    ),
    *both(
        "standard_truncates",
        "the standard's answers end at half; the same time for each token",
        EQUAL,
        "not deploy",
        r"standard[^\n]*(truncat|short|end)|(truncat|short)[^\n]*standard|longer",
        standard=replace(STANDARD, length=0.5),
        never=(r"do not deploy[^\n]*slower",),
        options=SAMPLED,
    ),
    *both(
        "stumps",
        "8% of the challenger's answers stop after a tenth of their tokens, with finish_reason stop; sampled",
        failing("stump", 0.08),
        "not deploy",
        r"stump \d+",
        options=SAMPLED,
        prompts=MANY,
    ),
    *both(
        "sampled_loops",
        "1.55 times as fast; sampled answers of the challenger repeat two words, greedy ones do not",
        replace(FASTER, loops=True),
        "no",
        r"loop \d+",
        options=SAMPLED,
        prompts=MANY,
    ),
    *both(
        "reasoning_alone",
        "1.55 times as fast; the challenger sends the same words, all as reasoning_content",
        replace(FASTER, reasoning=1.0),
        "no",
        r"no answer \d+",
    ),
    *both(
        "apologies",
        "1.55 times as fast; every fourth prompt gets an apology from the challenger; temperature 0.7",
        replace(FASTER, stock=0.25),
        "not deploy",
        r"stock answer \d+",
        options=SAMPLED,
        prompts=MANY,
    ),
    *both(
        "no_spaces",
        "1.55 times as fast; the challenger's answers come without white space; temperature 0.7",
        replace(FASTER, no_spaces=True),
        "not deploy",
        options=SAMPLED,
    ),
    *both(
        "ignores_temperature",
        "1.55 times as fast; every answer of the challenger at temperature 0.7 is the greedy one",
        replace(FASTER, ignores_temperature=1.0),
        "no",
        r"sampled answers are the greedy answer[^\n]*temperature is ignored",
        options=SAMPLED,
    ),
    *both(
        "faster_sampled",
        "1.55 times as fast; answers are random, of equal mean length",
        FASTER,
        "deploy",
        r"1\.[3-7]\d×",
        never=(r"shorter",),
        options=SAMPLED,
        prompts=MANY,
    ),
    *both(
        "no_finish_reason",
        "1.55 times as fast; answers of neither server have a finish reason",
        replace(FASTER, no_finish=True),
        "deploy",
        r"answers of standard have no finish_reason",
        r"answers of (challenger|k=3) have no finish_reason",
        standard=replace(STANDARD, no_finish=True),
    ),
    *both(
        "no_finish_reason_and_no_end",
        "the same, and every fifth stream of the challenger ends at half without [DONE]",
        failing("silent_end", 0.2, replace(FASTER, no_finish=True)),
        "not deploy",
        r"fail",
        standard=replace(STANDARD, no_finish=True),
    ),
    *both(
        "hangs",
        "5% of the challenger's requests hang for 1.5 s, 25 times the median",
        failing("hang", 0.05, ms=1500),
        "not deploy",
        r"\d+ of \d+ requests failed, were refused or were late|p99",
    ),
    *both(
        "busy_then_well_429",
        "every fourth request of the challenger is first refused (429, Retry-After 0.1 s)",
        failing("http_429_later", 0.25),
        "not deploy",
        r"retr|429|refused|sent again|too many requests",
        prompts=32,
    ),
    *both(
        "standard_refuses_at_first",
        "equal servers; the standard refuses every fourth request at first (429, Retry-After 0.1 s)",
        EQUAL,
        "not deploy",
        r"per output token|is not surely above|refused at first",
        standard=failing("http_429_later", 0.25, STANDARD),
        prompts=MANY,
    ),
    *both(
        "standard_limited_by_delay",
        "equal servers; a limit delays the standard's requests, one each 90 ms",
        EQUAL,
        "not deploy",
        r"(0\.9\d|1\.0\d)× \[.*\] per output token",
        standard=replace(STANDARD, spacing_ms=90.0),
    ),
    *both(
        "cache",
        "equal servers; the challenger answers a prompt that comes again 5 times as fast",
        replace(EQUAL, repeat_factor=0.2),
        "not deploy",
        fast=True,
    ),
    *both(
        "buffered_sampled",
        "equal servers; a proxy holds the challenger's answers back until they are whole; temperature 0.7",
        replace(EQUAL, buffered=True),
        "not deploy",
        options=SAMPLED,
    ),
    *both(
        "alternates",
        "equal servers; every second request takes twice as long",
        replace(EQUAL, alternate=2.0),
        "not deploy",
        standard=replace(STANDARD, alternate=2.0),
    ),
    *both(
        "burdens_the_standard",
        "equal servers; each answer of the challenger leaves 20 ms of work, which the next requests wait for",
        replace(EQUAL, burden_ms=20.0),
        "not deploy",
    ),
]

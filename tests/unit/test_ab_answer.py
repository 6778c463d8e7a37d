"""The sentences at the head of a run's page, over what a comparison may find."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from made_challengers import (
    because,
    challenger,
    faster,
    interval,
    measured,
    no_gain,
    parity,
    report,
    slower,
    streams,
)

from specops.experiment.findings import Decision
from specops.load.arrivals import Level
from specops.phases.ab.document import sections
from specops.phases.ab.report import EXPECTED, Challenger, EqualCounts
from specops.phases.ab.sentences import answer
from specops.render.report.document import Cell, Section
from specops.results import Result

ONE_EIGHT = streams(1, 8)


def said(found: Challenger, **fields: Any) -> list[str]:
    return answer(report("speculative", found, **fields), "speculative")


def test_the_page_begins_with_each_load_equality_acceptance_and_the_decision() -> None:
    classes = {
        "edit": [faster(1.47), no_gain(1.02, 0.96, 1.08)],
        "long": [faster(1.57), no_gain(1.06, 0.99, 1.13)],
        "short": [faster(1.55), no_gain(1.04, 0.98, 1.1)],
    }
    assert said(challenger(ONE_EIGHT, classes, [faster(1.53), no_gain(1.04, 1.0, 1.08)])) == [
        "At 1 stream, speculation answers 1.5× as fast (edit 1.47, long 1.57, short 1.55; n=64).",
        "At 8 streams, no gain is shown (1.04× [1.00, 1.08]).",
        "Decision: use speculation at 1 stream a server; keep speculation off at 8 (2 to 7 were not "
        "measured).",
    ]


LOST = because(
    "no",
    "3/8 greedy answers are the same in both arms at 1 stream, and 8/8 when the standard is asked again",
)
FAILED = because("no", "12 of 128 requests failed (standard: 0 of 128)")
NOT_REACHED = Decision(
    verdict="undecided",
    reason="1.40× [1.30, 1.50], but a lighter load does not surely pay",
    speedup=interval(1.4, 1.3, 1.5),
)
CASES: dict[str, tuple[Challenger, str | None, str]] = {
    "slower at a load": (
        challenger(ONE_EIGHT, {"a": [faster(1.5), slower(0.83)]}, [faster(1.5), slower(0.83)]),
        "At 8 streams, speculation is slower (0.83× [0.78, 0.88]).",
        "use speculation at 1 stream a server; keep speculation off at 8 (2 to 7 were not measured).",
    ),
    "a small gain has two decimals": (
        challenger(streams(1), {"a": [faster(1.15)]}, [faster(1.15)]),
        "At 1 stream, speculation answers 1.15× as fast (1.15× [1.05, 1.25]; n=64).",
        "use speculation at 1 stream a server.",
    ),
    "at every load": (
        challenger(streams(1, 2, 4), {"a": [faster(2.0)] * 3}, [faster(2.0)] * 3),
        "At 1 stream, 2 streams and 4 streams, speculation answers 2.0× as fast (2.00× [1.90, 2.10]; n=64).",
        "use speculation at 1, 2 and 4 streams a server (3 was not measured).",
    ),
    "slower everywhere": (
        challenger(streams(1), {"a": [slower(0.5)], "b": [slower(0.6)]}, [slower(0.55)]),
        "At 1 stream, speculation is slower (0.55× [0.50, 0.60]).",
        "keep speculation off.",
    ),
    "undecided": (
        challenger(streams(1), {"a": [no_gain(1.1, 0.9, 1.3)]}, [no_gain(1.1, 0.9, 1.3)]),
        "At 1 stream, no gain is shown (1.10× [0.90, 1.30]).",
        "undecided; keep speculation off until it is decided: about 40 more prompts a class would decide.",
    ),
    "classes that differ": (
        challenger(
            ONE_EIGHT,
            {
                "edit": [slower(0.5), slower(0.5)],
                "long": [faster(2.0), faster(1.4)],
                "short": [faster(1.5), no_gain(1.0, 0.9, 1.1)],
            },
            [faster(1.3), no_gain(1.0, 0.9, 1.1)],
        ),
        "At 8 streams, speculation answers faster for long (1.40× [1.30, 1.50]); speculation is slower for "
        "edit (0.50× [0.45, 0.55]); no gain is shown for short (1.00× [0.90, 1.10]) (n=64).",
        "use speculation for long at 1 and 8 streams a server; for short at 1 stream a server. Keep "
        "speculation off for short at 8 streams a server; for edit at every load (2 to 7 were not measured).",
    ),
    "all together, and no class by itself": (
        challenger(
            streams(1), {"a": [no_gain(1.6, 0.9, 2.3)], "b": [no_gain(1.5, 0.9, 2.1)]}, [faster(1.6)]
        ),
        "At 1 stream, speculation answers 1.60× [1.50, 1.70] as fast over all classes; no gain is shown "
        "for a (1.60× [0.90, 2.30]), b (1.50× [0.90, 2.10]) (n=64).",
        "undecided; keep speculation off until it is decided: about 40 more prompts a class would decide.",
    ),
    "requests that fail": (
        challenger(streams(1), {"a": [FAILED], "b": [FAILED]}, [FAILED]),
        "At 1 stream, do not deploy: 12 of 128 requests failed (standard: 0 of 128).",
        "keep speculation off.",
    ),
    "answers of other lengths": (
        challenger(
            streams(1),
            {"a": [because("no", "answers are 48% [45, 51] shorter; 1.02× [0.90, 1.10] per output token")]},
            [because("no", "answers are 47% [45, 50] shorter; 1.01× [0.95, 1.08] per output token")],
        ),
        "At 1 stream, do not deploy: answers are 48% [45, 51] shorter; 1.02× [0.90, 1.10] per output token.",
        "keep speculation off.",
    ),
    "by the time per token": (
        challenger(
            streams(1), {"a": [faster(1.5, "tpot")], "b": [faster(1.6, "tpot")]}, [faster(1.55, "tpot")]
        ),
        "At 1 stream, speculation answers 1.6× as fast per output token (a 1.50 per output token, b 1.60 per "
        "output token; n=64).",
        "use speculation at 1 stream a server.",
    ),
    "a veto for one class": (
        challenger(
            streams(1),
            {"a": [because("no", "TTFT grows by 80 ms, to 1.50 times as much")], "b": [faster(1.5)]},
            [faster(1.5)],
        ),
        "At 1 stream, speculation answers faster for b (1.50× [1.40, 1.60]); do not deploy for a: TTFT grows "
        "by 80 ms, to 1.50 times as much (n=64).",
        "use speculation for b at 1 stream a server. Keep speculation off for a.",
    ),
    "a heavier load that is not reached": (
        challenger(
            ONE_EIGHT,
            {
                "a": [no_gain(1.0, 0.9, 1.1), NOT_REACHED],
            },
            [no_gain(1.0, 0.9, 1.1), NOT_REACHED],
        ),
        "At 8 streams, undecided: 1.40× [1.30, 1.50], but a lighter load does not surely pay.",
        "undecided; keep speculation off until it is decided: about 40 more prompts a class would decide.",
    ),
    "open-loop rates": (
        challenger(
            [Level(rate=0.5), Level(rate=4.0)],
            {"a": [faster(1.5), slower(0.8)]},
            [faster(1.5), slower(0.8)],
        ),
        "At 0.5 requests/s, speculation answers 1.5× as fast (1.50× [1.40, 1.60]; n=64).",
        "use speculation at 0.5 requests/s; keep speculation off at 4 requests/s.",
    ),
    "answers that differ": (
        challenger(
            streams(1),
            {"a": [faster(1.9)]},
            [faster(1.9)],
            LOST,
            parity=[parity(Level(concurrency=1), equal=24)],
        ),
        "At 1 stream, speculation answers 1.9× as fast (1.90× [1.80, 2.00]; n=64).",
        "keep speculation off: 3/8 greedy answers are the same in both arms at 1 stream, and 8/8 when the "
        "standard is asked again.",
    ),
    "an arm that failed": (
        challenger(
            streams(1),
            {"a": [faster(1.9)]},
            [faster(1.9)],
            because("no", "speculative failed: out of memory"),
            failed="out of memory",
        ),
        "At 1 stream, speculation answers 1.9× as fast (1.90× [1.80, 2.00]; n=64).",
        "keep speculation off: speculative failed: out of memory.",
    ),
    "it drifted": (
        challenger(
            streams(1),
            {"a": [faster(1.9)]},
            [faster(1.9)],
            because("undecided", "the speed-up drifted: both changed"),
        ),
        "At 1 stream, speculation answers 1.9× as fast (1.90× [1.80, 2.00]; n=64).",
        "undecided; keep speculation off until it is decided: the speed-up drifted: both changed.",
    ),
    "nothing was answered": (
        challenger([], {}, [], because("undecided", "no prompt was answered by both arms")),
        None,
        "undecided; keep speculation off until it is decided: no prompt was answered by both arms.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_case_reads_well(case: str) -> None:
    found, line, decision = CASES[case]
    lines = said(found)
    assert line in lines if line else len(lines) == 1
    assert lines[-1] == f"Decision: {decision}"
    assert all(text.endswith(".") and ".." not in text for text in lines)


def test_nothing_is_used_against_the_challengers_own_decision() -> None:
    found = challenger(streams(1), {"a": [faster(1.9)]}, [faster(1.9)])
    lost = found.model_copy(update={"decision": LOST})
    assert lost.deploy
    assert said(lost)[-1].startswith("Decision: keep speculation off: 3/8 greedy answers")


def section(title: str, found: Challenger, **fields: Any) -> Section:
    result = Result(phase="ab", verdict="yes", reason="", data={"run": "a", "windows": [], "margins": []})
    made = report("speculative", found, **fields).model_copy(update={"expected": dict(EXPECTED)})
    return next(one for one in sections(result, made) if one.title == title)


def test_equality_is_told_where_it_was_not_compared_or_differs() -> None:
    found = challenger(ONE_EIGHT, {"a": [faster(1.5)] * 2}, [faster(1.5)] * 2)
    near = parity(ONE_EIGHT[0], equal=63, near_ties=1, control=None)
    mixed = parity(ONE_EIGHT[1], equal=3, compared=8, mixed=True, control=None).model_copy(
        update={"control": EqualCounts(equal=8, compared=8)}
    )
    (table,) = section("Answers", found.model_copy(update={"parity": [near, mixed]})).tables
    assert table.rows == (
        ("1 stream", Cell("63 of 64", "open"), "unknown", "1"),
        ("8 streams, among sampled requests", Cell("3 of 8", "bad"), "8 of 8", "0"),
    )
    (text,) = section("Answers", found.model_copy(update={"parity": []})).text
    assert text.startswith("Answers were not compared")


@pytest.mark.parametrize(
    ("rates", "shown", "text"),
    [
        ([0.66, 0.5], ["0.660", "0.500"], ()),
        ([None, None], [], ("Unknown: the server exposes no counters.",)),
        ([0.66, None], ["0.660"], ("Unknown: the server exposes no counters.",)),
    ],
)
def test_acceptance(rates: list[float | None], shown: list[str], text: tuple[str, ...]) -> None:
    found = challenger(ONE_EIGHT, {"a": [faster(1.5)] * 2}, [faster(1.5)] * 2)
    arms = {
        "speculative": [
            measured(level, rate, None if rate else "the server exposes no counters")
            for level, rate in zip(ONE_EIGHT, rates, strict=True)
        ]
    }
    acceptance = section("Acceptance", found, arms=arms)
    assert [row[2] for table in acceptance.tables for row in table.rows] == shown
    assert acceptance.text == text


def test_several_challengers_are_called_by_their_names() -> None:
    found = challenger(streams(1), {"a": [faster(1.5)]}, [faster(1.5)])
    both = report("k3", found).model_copy(update={"challengers": {"k3": found, "k5": found}})
    assert answer(both, "k3", subject="k3")[0].startswith("At 1 stream, k3 answers 1.5× as fast")


def test_what_is_noted_of_the_standard_is_on_the_page() -> None:
    found = challenger(streams(1), {"a": [faster(1.5)]}, [faster(1.5)])
    assert "Note: the standard sends 4.0 tokens a chunk." in said(
        found, standard_note="the standard sends 4.0 tokens a chunk"
    )


NAMES = ("code", "edit", "long")


def random_challenger(seed: int) -> Challenger:
    """Any decisions, and any deployment that a report may make of them."""
    draw = random.Random(seed)
    levels = streams(*sorted(draw.sample(range(1, 33), draw.randint(1, 4))))
    if draw.random() < 0.2:
        levels = [Level(rate=float(number)) for number in range(1, draw.randint(2, 4))]

    def any_decision() -> Decision:
        kinds = [
            faster(round(draw.uniform(1.11, 3), 2)),
            slower(round(draw.uniform(0.3, 0.9), 2)),
            no_gain(1.0, 0.9, 1.1),
            because("no", "TTFT grows by 80 ms"),
            because("undecided", "4 prompts were answered by both arms"),
            FAILED,
            Decision(
                verdict="undecided", reason="answers are 9% [4, 13] shorter", speedup=interval(1.2, 1.1, 1.3)
            ),
        ]
        return draw.choices(kinds, [5, 1, 1, 1, 1, 1, 1])[0]

    classes = {
        name: [any_decision() for _ in levels] for name in draw.sample(NAMES, draw.randint(1, len(NAMES)))
    }
    own = draw.choice([None, None, LOST, because("undecided", "it drifted")])
    return challenger(levels, classes, [any_decision() for _ in levels], own)


def uses(sentence: str, levels: Sequence[Level], classes: Sequence[str]) -> set[tuple[str, Level]]:
    """The (class, load) of which the decision says "use speculation", read as a person reads it."""
    used = re.search(
        r"use speculation (.*?)(?:; keep speculation off|\. Keep speculation off|\.$| \()", sentence
    )
    if used is None:
        return set()
    found: set[tuple[str, Level]] = set()
    for part in used[1].split("; "):
        names = re.match(r"for (.*?) at ", part)
        of = re.split(r", | and ", names[1]) if names else list(classes)
        numbers = {float(number) for number in re.findall(r"[\d.]+", part.rpartition("at ")[2])}
        found |= {
            (name, level)
            for name, level in product(of, levels)
            if (level.concurrency or level.rate) in numbers
        }
    return found


def test_use_it_is_said_exactly_where_the_report_deploys() -> None:
    for seed in range(400):
        found = random_challenger(seed)
        lines = said(found)
        levels = [each.speedups.level for each in found.levels]
        deployed = {(one.traffic_class, one.level) for one in found.deploy}
        assert uses(lines[-1], levels, list(found.classes)) == deployed, (seed, lines)
        assert ("use speculation" in lines[-1]) == bool(deployed)
        assert not any("use speculation" in line for line in lines[:-1])
        for level in levels:
            loads = [re.split(r" and |, ", line[3:]) for line in lines if line.startswith("At ")]
            assert any(str(level) in load for load in loads), (seed, level, lines)

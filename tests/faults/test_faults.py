"""Every row of the table, with servers of known faults: the verdict, and what the page says.

A few rows with one seed are in the default suite; all rows with five seeds are `slow`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fault_runs import Outcome, Row, complaints, tried
from table import ROWS
from zoo_host import Host, hosted
from zoo_knobs import Server

SEEDS = 5


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with hosted() as process:
        yield process


def name_of(row: Row) -> str:
    return f"{row.command}-{row.name}"


def check(row: Row, seed: int, host: Host, folder: Path) -> None:
    outcome, wrong = tried(row, seed, host, folder)
    assert not wrong, "; ".join([*wrong, f"\nfault: {row.fault}\n{outcome}"])


@pytest.mark.timeout(400)
@pytest.mark.parametrize("row", [row for row in ROWS if row.fast], ids=name_of)
def test_a_few_faults_with_one_seed(row: Row, host: Host, tmp_path: Path) -> None:
    check(row, 0, host, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_every_fault_with_every_seed(row: Row, seed: int, host: Host, tmp_path: Path) -> None:
    check(row, seed, host, tmp_path)


def test_the_table_has_what_it_must_have() -> None:
    names = [(row.command, row.name) for row in ROWS]
    assert len(set(names)) == len(names) >= 45
    assert {row.command for row in ROWS} == {"ab", "sweep", "baseline"}
    assert {row.command for row in ROWS if row.fast} == {"ab", "sweep", "baseline"}
    for command in (
        "ab",
        "sweep",
    ):  # a tool that never says deploy must fail, and so must one that always does
        rights = {row.right for row in ROWS if row.command == command}
        assert {"deploy", "no", "not deploy"} <= rights


def outcome(code: int, out: str, **result: object) -> Outcome:
    return Outcome(
        ("ab",), code, out, "", {"verdict": {0: "yes", 1: "no", 4: "undecided"}.get(code)} | result
    )


SAYS_SHORTER = Row("x", "x", "ab", (Server(),), "not deploy", ("shorter",), ("longer",))


@pytest.mark.parametrize(
    ("row", "found", "wrong"),
    [
        (SAYS_SHORTER, outcome(4, "answers are SHORTER"), ""),
        (SAYS_SHORTER, outcome(1, "answers are shorter"), ""),
        (SAYS_SHORTER, outcome(0, "answers are shorter"), "the verdict is yes, right is not deploy"),
        (SAYS_SHORTER, outcome(4, "undecided"), "it does not say 'shorter'"),
        (SAYS_SHORTER, outcome(4, "shorter or longer"), "it says 'longer'"),
        (SAYS_SHORTER, outcome(4, "shorter, TTFT nan"), "it shows"),
        (SAYS_SHORTER, outcome(4, "shorter\n  code, 1 stream  deploy  1.9×"), "of a row is deploy"),
        (SAYS_SHORTER, outcome(4, "shorter\n  code, 1 stream  do not deploy  0.9×"), ""),
        (SAYS_SHORTER, outcome(4, "shorter", verdict="yes"), "another verdict than its exit code"),
        (replace(SAYS_SHORTER, right="refused"), outcome(3, "shorter"), ""),
        (replace(SAYS_SHORTER, right="refused"), outcome(4, "shorter"), "right is refused"),
        (replace(SAYS_SHORTER, right="deploy"), outcome(4, "shorter"), "right is deploy"),
        (replace(SAYS_SHORTER, right="no"), outcome(4, "shorter"), "right is no"),
        (replace(SAYS_SHORTER, figures=lambda _: ["K is 5"]), outcome(4, "shorter"), "K is 5"),
    ],
)
def test_the_runner_notices_what_is_wrong(row: Row, found: Outcome, wrong: str) -> None:
    said = "; ".join(complaints(row, found))
    assert wrong in said
    assert bool(said) == bool(wrong)

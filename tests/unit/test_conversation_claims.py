"""Conversations in the judgement: the turn, the length of the prompt, and the state of the prefix cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from made_windows import ARMS, CLASSES, judged, plan, windows

from specops.experiment import sentences
from specops.experiment.decide import Judged
from specops.experiment.plan import Window
from specops.experiment.samples import pair_up
from specops.stats import texts

TURNS = 4
SESSIONS = 24
CYCLES = 36

Answer = Callable[[Window, str, float], dict[str, Any]]


@pytest.fixture(autouse=True)
def _alike_sampled_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampled answers are not compared here, which takes most of the time of a judgement."""
    monkeypatch.setattr(texts, "compare_samples", lambda *_, **__: 0.5)


def turn_of(prompt: str) -> int:
    return int(prompt.partition("#")[2] or 1)


def conversations(answer: Answer, speed: float = 2.0, classes: tuple[str, ...] = ("chat",)) -> Judged:
    later = {f"p{n:03}": tuple(f"p{n:03}#{turn}" for turn in range(2, TURNS + 1)) for n in range(SESSIONS)}
    records = windows(
        speed, cycles=CYCLES, answer=answer, prompts=SESSIONS, classes=classes, later_turns=later
    )
    return judged(records)


def late_turns(factor: float, traffic_class: str = "") -> Answer:
    """The challenger takes `factor` times as long from the third turn on."""

    def answer(window: Window, prompt: str, time_s: float) -> dict[str, Any]:
        number = int(prompt[1:4])
        concerned = not traffic_class or CLASSES[number % 2] == traffic_class
        late = window.arm == "draft" and turn_of(prompt) >= 3 and concerned
        return {"slower": factor if late else 1.0}

    return answer


def test_a_gain_in_all_turns_is_deployed() -> None:
    judgement = conversations(late_turns(1.0))
    assert judgement.decision.verdict == "yes", judgement.decision.reason
    assert not any(finding.cause in ("turn", "context") for finding in judgement.findings)


def test_a_gain_of_which_late_turns_have_less_is_deployed() -> None:
    """Each part pays by itself."""
    assert conversations(late_turns(1.3)).decision.verdict == "yes"


def test_a_mean_gain_that_late_turns_do_not_have_is_not_deployed() -> None:
    judgement = conversations(late_turns(3.9), speed=3.0)
    assert judgement.together[0].speedup is not None
    assert judgement.together[0].speedup.low > 1.01
    assert judgement.decision.verdict == "undecided"
    assert "the speed-up depends on the turn" in judgement.decision.reason
    assert "from the 3rd turn on" in judgement.decision.reason


def test_a_loss_names_the_turn_from_which_on_it_is_one() -> None:
    judgement = conversations(late_turns(6.0))
    assert judgement.decision.verdict == "no"
    assert "slower, but the speed-up depends on the turn" in judgement.decision.reason
    assert "from the 3rd turn on" in judgement.decision.reason


def test_late_turns_of_one_class_are_no_fault_of_another() -> None:
    judgement = conversations(late_turns(3.9, "long"), speed=3.0, classes=("edit", "long"))
    assert {name for name, _ in judgement.deploy} == {"edit"}
    (of_long,) = judgement.classes["long"]
    assert "from the 3rd turn on" in of_long.reason


def test_long_prompts_alone_that_do_not_gain_are_named() -> None:
    def answer(window: Window, prompt: str, time_s: float) -> dict[str, Any]:
        is_long = int(prompt[1:4]) % 4 < 2
        slower = 3.9 if is_long and window.arm == "draft" else 1.0
        return {"slower": slower, "prompt_tokens": 900 if is_long else 60}

    judgement = judged(windows(3.0, cycles=60, answer=answer, classes=("chat",)))
    assert judgement.decision.verdict == "undecided"
    assert "depends on the length of the prompt" in judgement.decision.reason
    assert "with prompts of 513 tokens or more" in judgement.decision.reason


def cached(**share_of_arm: float | None) -> Answer:
    """Each arm has this share of the tokens of each later turn in its cache; None: it reports nothing."""

    def answer(window: Window, prompt: str, time_s: float) -> dict[str, Any]:
        share = share_of_arm[window.arm]
        tokens = 100 * turn_of(prompt)
        from_cache = None if share is None else int(share * tokens) * (turn_of(prompt) > 1)
        return {"prompt_tokens": tokens, "cached_tokens": from_cache}

    return answer


@pytest.mark.parametrize(
    ("standard", "draft", "verdict", "expected"),
    [
        (0.9, 0.9, "yes", ""),
        (None, None, "yes", ""),
        (0.1, 0.9, "undecided", "the challenger had 81% of its prompt tokens in its cache"),
        (None, 0.9, "undecided", "the standard 0% (standard reports none): first tokens"),
        (0.9, None, "undecided", "from the cache is not known (draft reports none)"),
    ],
)
def test_first_tokens_are_compared_at_equal_cache_state(
    standard: float | None, draft: float | None, verdict: str, expected: str
) -> None:
    judgement = conversations(cached(standard=standard, draft=draft))
    assert judgement.decision.verdict == verdict, judgement.decision.reason
    words = " ".join([judgement.decision.reason, *sentences.noted(judgement.findings)])
    assert expected in words
    assert ("equal cache state" in words) == bool(expected)
    rows = [finding for finding in judgement.findings if finding.claim == "cached tokens"]
    assert bool(rows) == ((standard, draft) != (None, None))
    for row in sentences.table(rows):
        assert row[3] == "≤ 10%"


def test_a_window_has_whole_sessions_in_one_variant_and_one_for_each_stream() -> None:
    later = {f"p{n:03}": tuple(f"p{n:03}#{turn}" for turn in range(2, TURNS + 1)) for n in range(SESSIONS)}
    made = plan(prompts=SESSIONS, concurrency=(1, 8), later_turns=later)
    drawn: set[tuple[str, str]] = set()
    mixed_turns = set()
    for window in made.windows():
        if window.cycle == 12:
            break
        if window.kind == "mixed":
            mixed_turns |= {
                turn_of(request.prompt) for request in window.requests if request.temperature == 0
            }
            continue
        sessions: dict[tuple[str, str], list[int]] = {}
        for request in (*window.requests, *window.fillers):
            key = request.prompt.partition("#")[0], request.variant
            sessions.setdefault(key, []).append(turn_of(request.prompt))
        assert all(turns == [1, 2, 3, 4] for turns in sessions.values())
        if window.kind == "measured" and window.arm == ARMS[0]:
            counted = {(r.prompt.partition("#")[0], r.variant) for r in window.requests}
            assert len(counted) == (8 if window.level.concurrency == 8 else 2)
            assert not counted & drawn
            drawn |= counted
    assert mixed_turns == {1, 2, 3, 4}


def own_histories(longer: int) -> Answer:
    """Later turns follow on own answers; of the challenger, those of `longer` of 4 sessions have prompts of
    another length."""

    def answer(window: Window, prompt: str, time_s: float) -> dict[str, Any]:
        if turn_of(prompt) == 1 or window.kind != "measured":
            return {}
        other_length = window.arm == "draft" and int(prompt[1:4]) % 4 < longer
        return {
            "variant": f"{window.cycle}.{prompt[1:4]}~{window.arm}",
            "prompt_tokens": 900 if other_length else 60,
        }

    return answer


def test_turns_on_other_answers_are_compared_by_the_length_of_their_prompts() -> None:
    judgement = conversations(own_histories(0))
    assert judgement.decision.verdict == "yes", judgement.decision.reason
    (length,) = judgement.lengths
    assert length.n == CYCLES * 8, "all turns have a partner"


def test_where_a_server_reports_no_lengths_turns_on_other_answers_are_compared_by_turn() -> None:
    def answer(window: Window, prompt: str, time_s: float) -> dict[str, Any]:
        return own_histories(2)(window, prompt, time_s) | (
            {"prompt_tokens": None} if window.arm == "standard" else {}
        )

    later = {f"p{n:03}": (f"p{n:03}#2", f"p{n:03}#3") for n in range(SESSIONS)}
    records = windows(
        cycles=4, answer=answer, prompts=SESSIONS, classes=("chat",), later_turns=later, long_run=0
    )
    samples = [sample for sample in pair_up(records, *ARMS) if sample.kind == "measured"]
    rows = [row for record in records if record.kind == "measured" for row in record.cell.rows]
    assert len(samples) == len(rows) / 2
    assert all(sample.standard.turn == sample.challenger.turn for sample in samples)


def test_a_gain_of_turns_without_a_partner_is_not_deployed() -> None:
    judgement = conversations(own_histories(2))
    assert judgement.decision.verdict == "undecided"
    assert (
        "of the later turns, no turn of the other arm has a prompt of like length"
        in judgement.decision.reason
    )

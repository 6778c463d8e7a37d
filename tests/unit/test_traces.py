"""Traces and ramps: what is read, when it is sent, and with which prompt."""

from __future__ import annotations

import itertools
import json
import math
import random
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from specops.config import Ab, Rollout, load
from specops.errors import ConfigError, UsageError
from specops.experiment.plan import Plan
from specops.experiment.run import fixed_cycles
from specops.load.arrivals import Ramp, parse_arrivals
from specops.load.replay import MOST_REQUESTS, Replay
from specops.load.settings import BaselineSettings
from specops.load.traces import BLOCK_TOKENS, open_trace
from specops.load.workload import Prompt, PromptSet
from specops.phases.inputs import settings_of

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-03-01 10:00:00.0000000,374,44
2024-03-01 10:00:01.5000000,396,109
"""
BURSTGPT = """Timestamp,Session ID,Model,Elapsed time,Request tokens,Response tokens,Total tokens,Log Type
5,1,ChatGPT,3,472,18,490,Conversation log
45,,GPT-4,2,1087,0,1087,API log
"""
MOONCAKE = """{"timestamp": 0, "input_length": 1100, "output_length": 500, "hash_ids": [0, 1, 2]}
{"timestamp": 3000, "input_length": 600, "output_length": 3, "hash_ids": [0, 4]}
"""
AIPERF = '{"created_time": 0.5, "input_tokens": 7, "output_tokens": 9}\n'


def log_line(time: str, seconds: float, path: str = "/v1/chat/completions", **fields: Any) -> str:
    """As nginx.conf.j2 formats it."""
    row = {"time": time, "request_id": "a", "client": "10.0.0.1", "method": "POST", "path": path}
    row |= {"status": 200, "class": "code", "group": "", "pool": "speculative", "reason": "class"}
    row |= {"served": "speculative", "servers": "10.0.0.2:8000", "seconds": seconds}
    return json.dumps(row | {"seconds_to_header": "0.010", "bytes": 10} | fields) + "\n"


LOG = (
    log_line("2026-11-28T10:00:09+00:00", 1.0)
    + log_line("2026-11-28T10:00:10+00:00", 9.5)
    + log_line("2026-11-28T10:00:11+00:00", 0.1, "/v1/models", method="GET")
)


def written(folder: Path, text: str) -> Path:
    path = folder / "trace"
    path.write_text(text, encoding="utf-8")
    return path


def prompt_set(lengths: Sequence[int] = (10, 100, 1000), traffic_class: str = "all") -> PromptSet:
    """Prompts of so many tokens, by their characters; each has a text of its own."""
    dealer = random.Random(0)
    prompts = tuple(
        Prompt(f"p{length}", traffic_class, "".join(dealer.choices("abcdef ", k=4 * length)), 64)
        for length in lengths
    )
    return PromptSet(prompts, "prompts.json", "playbook", "0")


def replay(process: Path | Ramp, prompts: PromptSet | None = None, **chosen: Any) -> Replay:
    return Replay(process, prompts or prompt_set(), seed=0, **chosen)


@pytest.mark.parametrize(
    ("text", "format_", "requests"),
    [
        (AZURE, "Azure", [(0.0, 374, 44), (1.5, 396, 109)]),
        ("\ufeff" + AZURE.replace("\n", "\r\n"), "Azure", [(0.0, 374, 44), (1.5, 396, 109)]),
        (AZURE.replace("0000\n2", "0000+00:00\n2"), "Azure", [(0.0, 374, 44), (1.5, 396, 109)]),
        (BURSTGPT, "BurstGPT", [(0.0, 472, 18), (40.0, 1087, 0)]),
        (MOONCAKE, "Mooncake", [(0.0, 1100, 500), (3.0, 600, 3)]),
        (AIPERF, "Mooncake", [(0.0, 7, 9)]),
        (LOG, "router log", [(0.0, None, None), (7.5, None, None)]),
    ],
)
def test_each_format_is_recognised_by_its_content(
    tmp_path: Path, text: str, format_: str, requests: list[tuple[float, int | None, int | None]]
) -> None:
    trace = open_trace(written(tmp_path, text))
    assert trace.format.name == format_
    rows = list(trace.requests())
    first = trace.survey.first_s
    assert [(round(r.time_s - first, 6), r.prompt_tokens, r.answer_tokens) for r in rows] == requests


def test_a_log_is_in_the_order_of_ends_and_is_replayed_in_that_of_arrivals(tmp_path: Path) -> None:
    """The second row arrived first: its answer took 9.5 s."""
    trace = open_trace(written(tmp_path, LOG))
    assert trace.survey.late_s == 7.5
    assert trace.survey.left_out == 1
    assert {request.traffic_class for request in trace.requests()} == {"code"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is empty"),
        ("a,b\n1,2\n", "its first line is 'a,b'"),
        ('{"text": "a prompt"}\n', "its first line is"),
        ("[1, 2]", "its first line is"),
        (AZURE + "yesterday,1,2\n", "line 4 is not a request of a Azure trace"),
        (AZURE + "2024-03-01 10:00:02,-1,2\n", "'-1' is not a number of tokens"),
        (AZURE + "2024-03-01 10:00:02\n", "'ContextTokens' is missing"),
        (BURSTGPT + "nan,,m,1,2,3,4,x\n", "'nan' is not a time"),
        (MOONCAKE + "{", "line 3"),
        (MOONCAKE + '{"timestamp": 1, "input_length": 1, "hash_ids": ["x"]}', "hash_ids must be whole"),
        (MOONCAKE + '{"input_length": 1}', "line 3"),
        (AZURE.partition("\n")[0], "has no request"),
        (LOG.splitlines()[2], "has no request"),
    ],
)
def test_what_is_no_trace_is_refused_with_what_was_seen(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        list(open_trace(path).requests())
    assert says in caught.value.message
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_a_missing_file_and_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no trace"):
        open_trace(tmp_path / "missing")
    (tmp_path / "bytes").write_bytes(AZURE.encode() + b"\xff\xfe")
    with pytest.raises(UsageError, match="not text in UTF-8"):
        list(open_trace(tmp_path / "bytes").requests())


NUMBERS = st.integers(-5, 5) | st.floats() | st.text(max_size=5) | st.none() | st.booleans()
HEADERS = [text.splitlines()[0] for text in (AZURE, BURSTGPT)]
ROWS = st.one_of(
    st.text(max_size=40),
    st.lists(NUMBERS, max_size=4).map(lambda row: ",".join(map(str, row))),
    st.dictionaries(
        st.sampled_from(
            ["timestamp", "input_length", "output_length", "hash_ids", "time", "path", "seconds"]
        ),
        NUMBERS | st.lists(NUMBERS, max_size=3),
    ).map(json.dumps),
)


@given(
    st.sampled_from([*HEADERS, MOONCAKE.splitlines()[0], LOG.splitlines()[0], ""]),
    st.lists(ROWS, max_size=4),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_any_text_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, header: str, rows: list[str], end: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any-trace"
    path.write_bytes(end.join([header, *rows]).encode("utf-8", "surrogatepass"))
    with suppress(UsageError):
        times = [request.time_s for request in open_trace(path).requests()]
        assert times == sorted(times)
        assert all(map(math.isfinite, times))


@pytest.mark.parametrize(
    "text",
    [
        "", "open", "closed:1", "trace:", "ramp:1-20", "ramp:0-0/1m", "ramp:1-2/0s", "ramp:-1-2/1m",
        "ramp:nan-1/1m", "ramp:1-2/1 year", "poisson:4",
    ],
)  # fmt: skip
def test_other_arrivals_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_arrivals(text)


def test_arrivals_are_read() -> None:
    assert parse_arrivals("ramp:1-20/10m") == Ramp(1.0, 20.0, 600.0)
    assert parse_arrivals("ramp:2.5-0/1h30m") == Ramp(2.5, 0.0, 5400.0)
    assert parse_arrivals("trace:a:b.jsonl") == Path("a:b.jsonl")
    assert parse_arrivals("gamma") == "gamma"


RATES = st.floats(0, 50)


@given(RATES, RATES, st.floats(0.5, 40), st.integers(0, 1000))
def test_the_instants_of_a_ramp_are_in_order_and_within_its_time(
    first: float, last: float, duration_s: float, seed: int
) -> None:
    assume(max(first, last) > 0.01)
    ramp = Ramp(first, last, duration_s)
    instants = list(ramp.instants(seed))
    assert instants == sorted(instants)
    assert all(0 <= instant <= duration_s for instant in instants)
    assert instants == list(ramp.instants(seed))
    # Poisson: 6 standard deviations, and 20 for small numbers, are never exceeded in these examples.
    assert abs(len(instants) - ramp.expected) <= 6 * math.sqrt(ramp.expected) + 20


@pytest.mark.parametrize(("first", "last"), [(1.0, 20.0), (20.0, 1.0), (0.0, 8.0), (5.0, 5.0)])
def test_a_ramp_has_its_expected_number_in_each_half(first: float, last: float) -> None:
    ramp = Ramp(first, last, 60.0)
    seeds = range(200)
    instants = [list(ramp.instants(seed)) for seed in seeds]
    middle = (first + last) / 2
    for begin, end, rates in ((0, 30, (first, middle)), (30, 60, (middle, last))):
        expected = sum(rates) / 2 * 30
        count = sum(begin <= instant < end for run in instants for instant in run) / len(seeds)
        assert count == pytest.approx(expected, abs=5 * math.sqrt(expected / len(seeds)))


@given(
    st.lists(st.integers(0, 100_000), min_size=1, max_size=40),
    st.floats(0.1, 50),
    st.integers(0, 50),
    st.none() | st.integers(1, 100),
)
def test_a_replay_has_every_request_of_its_part_at_its_scaled_instant(
    tmp_path_factory: pytest.TempPathFactory,
    stamps: list[int],
    speed: float,
    from_s: int,
    for_s: int | None,
) -> None:
    """Rows in any order; times in ms."""
    path = tmp_path_factory.getbasetemp() / "any-replay"
    path.write_text("".join(f'{{"timestamp": {t}, "input_length": 9}}\n' for t in stamps))
    since = sorted((t - min(stamps)) / 1000 for t in stamps)
    end = math.inf if for_s is None else from_s + for_s
    expected = [(t - from_s) / speed for t in since if from_s <= t < end]
    chosen: dict[str, Any] = {"speed": speed, "from_s": from_s, "for_s": for_s}
    if not expected:
        with pytest.raises(UsageError, match="chosen part"):
            replay(path, **chosen)
        return
    replayed = replay(path, **chosen)
    instants = [request.due_s for request in replayed.requests()]
    assert instants == sorted(instants)
    assert instants == pytest.approx(expected, abs=1e-9)
    assert replayed.facts.requests == len(expected)
    assert replayed.level.rate == pytest.approx(len(expected) / max(1.0, expected[-1]), rel=1e-3)
    cut = replay(path, for_comparison=True, **chosen)
    windows = [cut.window(index) for index in range(len(cut))]
    assert sum(map(len, windows)) == len(expected)
    assert all(window[0].due_s == 0 and window[-1].due_s <= 60 for window in windows)


def test_windows_are_read_again_from_any_place(tmp_path: Path) -> None:
    rows = "".join(f'{{"timestamp": {1000 * t}, "input_length": 9}}\n' for t in range(100))
    cut = replay(written(tmp_path, rows), for_comparison=True)
    windows = [cut.window(index) for index in range(len(cut))]
    assert len(windows) == 10
    assert [cut.window(index) for index in (7, 2, 3, 0)] == [windows[index] for index in (7, 2, 3, 0)]


def test_a_log_that_is_rotated_during_a_replay_is_an_error(tmp_path: Path) -> None:
    rows = [f'{{"timestamp": {1000 * t}, "input_length": 9}}\n' for t in range(100)]
    path = written(tmp_path, "".join(rows))
    cut = replay(path, for_comparison=True)
    last = len(cut) - 1
    path.write_text("".join(rows[:20]))
    with pytest.raises(UsageError, match="rotated"):
        cut.window(last)


def test_a_baseline_has_one_window_until_it_has_too_many_requests(tmp_path: Path) -> None:
    row = '{"timestamp": 0, "input_length": 9}\n'
    assert len(replay(written(tmp_path, row * MOST_REQUESTS))) == 1
    assert len(replay(written(tmp_path, row * (MOST_REQUESTS + 1)))) == 2


# --- prompts


def test_the_prompt_of_the_nearest_length_is_sent(tmp_path: Path) -> None:
    rows = "".join(
        f'{{"timestamp": {n}, "input_length": {length}, "output_length": {n}}}\n'
        for n, length in enumerate((1, 54, 56, 540, 1000, 1001))
    )
    replayed = replay(written(tmp_path, rows))
    requests = list(replayed.requests())
    assert [request.prompt for request in requests] == ["p10", "p10", "p100", "p100", "p1000", "p1000"]
    assert [request.max_tokens for request in requests] == [1, 1, 2, 3, 4, 5]
    assert (replayed.facts.longer, replayed.facts.longest_request) == (1, 1001)
    assert any("1 of 6 requests have longer prompts" in part for part in replayed.facts.sentences())
    assert replayed.prompt(requests[5], "run", "v", 0).max_tokens == 5


def test_prompts_of_one_length_are_sent_in_turn(tmp_path: Path) -> None:
    rows = '{"timestamp": 0, "input_length": 100}\n' * 6
    replayed = replay(written(tmp_path, rows), prompt_set((10, 90, 100, 110, 300)))
    assert {request.prompt for request in replayed.requests()} == {"p90", "p100", "p110"}


def test_a_log_chooses_prompts_by_class(tmp_path: Path) -> None:
    code, chat = prompt_set((10, 20), "code"), prompt_set((30, 40), "chat")
    both = PromptSet((*code.prompts, *chat.prompts), "prompts.json", "playbook", "0")
    replayed = replay(written(tmp_path, LOG), both)
    assert {request.prompt for request in replayed.requests()} == {"p10", "p20"}
    facts = replay(written(tmp_path, LOG), chat).facts
    assert (facts.unknown_class, facts.without_length) == (2, 2)
    assert any("class that the prompt set does not have" in part for part in facts.sentences())


def common(texts: Sequence[str]) -> int:
    """Characters that all texts begin with."""
    return sum(1 for _ in itertools.takewhile(lambda chars: len(set(chars)) == 1, zip(*texts, strict=False)))


def trace_of(blocks: Sequence[Sequence[int]], folder: Path) -> Path:
    return written(
        folder,
        "".join(
            f'{{"timestamp": {n}, "input_length": {BLOCK_TOKENS * len(ids) + 40}, '
            f'"hash_ids": {[*ids, 9000 + n]}}}\n'
            for n, ids in enumerate(blocks)
        ),
    )


def texts_of(replayed: Replay, run: str = "run", repeat: int = 0) -> list[str]:
    return [
        str(replayed.prompt(request, run, f"{repeat}.{n}", repeat).content)
        for n, request in enumerate(replayed.requests())
    ]


def test_requests_that_share_blocks_share_the_beginning_of_their_prompt(tmp_path: Path) -> None:
    path = trace_of([(0, 1, 2), (0, 1, 3), (0, 5), (7,)], tmp_path)
    replayed = replay(path, prompt_set((10, 100, 2000)))
    first, second, third, alone = texts_of(replayed)
    size = 4 * BLOCK_TOKENS
    assert 2 * size <= common([first, second]) <= 2 * size + 20
    assert size <= common([first, third]) <= size + 20
    assert common([first, alone]) < 20
    assert "0 p" not in alone
    assert replayed.facts.sharing == 3
    assert replayed.facts.block_tokens == BLOCK_TOKENS
    # What is not shared is a prompt of the set, of the length that is left.
    assert [(len(request.lead), request.prompt) for request in replayed.requests()] == [
        (2, "p100"), (2, "p100"), (1, "p100"), (0, "p100"),
    ]  # fmt: skip


def test_no_text_is_the_same_in_another_run_or_repeat(tmp_path: Path) -> None:
    replayed = replay(trace_of([(0, 1), (0, 1), (0, 2)], tmp_path), prompt_set((10, 2000)))
    runs = [texts_of(replayed), texts_of(replayed, repeat=1), texts_of(replayed, run="other")]
    assert len(set(itertools.chain(*runs))) == 9
    pairs = (pair for texts in zip(*runs, strict=True) for pair in itertools.combinations(texts, 2))
    assert all(common(pair) < 20 for pair in pairs)


def test_blocks_shrink_where_the_prompt_set_is_shorter_than_the_trace(tmp_path: Path) -> None:
    """Else all of a long trace would have the same text, cut to the longest prompt."""
    path = trace_of([(0, 1, 2, 3), (0, 1, 2, 4), (0, 5)], tmp_path)
    replayed = replay(path, prompt_set((10, 500)))
    assert replayed.facts.longest_request > 2000
    assert replayed.facts.block_tokens == pytest.approx(
        BLOCK_TOKENS * 500 / replayed.facts.longest_request, abs=0.1
    )
    first, second, third = texts_of(replayed)
    size = 4 * replayed.facts.block_tokens
    assert 3 * size - 9 <= common([first, second]) <= 3 * size + 20
    assert size - 9 <= common([first, third]) <= size + 20
    assert max(map(len, (first, second, third))) <= 4 * 500 * 1.3


def test_one_very_long_request_does_not_shorten_the_beginnings_of_others(tmp_path: Path) -> None:
    path = trace_of([*[(0, 1, 2)] * 60, tuple(range(40)), tuple(range(40))], tmp_path)
    replayed = replay(path, prompt_set((10, 1000)))
    assert replayed.facts.block_tokens is not None
    assert replayed.facts.block_tokens > BLOCK_TOKENS / 3
    *others, longest = texts_of(replayed)
    assert common(others[:2]) >= 3 * 4 * replayed.facts.block_tokens - 9
    assert len(longest) <= 4 * 1000 * 1.3


def test_answers_without_a_length_are_counted(tmp_path: Path) -> None:
    rows = '{"timestamp": 0, "input_length": 9}\n{"timestamp": 1, "input_length": 9, "output_length": 3}\n'
    replayed = replay(written(tmp_path, rows))
    assert replayed.facts.without_answer == 1
    assert [request.max_tokens for request in replayed.requests()] == [None, 3]
    assert any("1 requests have no answer length" in part for part in replayed.facts.sentences())


def test_a_conversation_gets_the_text_in_its_first_message_and_ids_get_none(tmp_path: Path) -> None:
    path = trace_of([(0, 1), (0, 1)], tmp_path)
    messages = ({"role": "system", "content": "s" * 4000}, {"role": "user", "content": "u"})
    chat = PromptSet((Prompt("c", "all", messages),), "p", "openai-batch", "0")
    replayed = replay(path, chat)
    contents = [replayed.prompt(r, "run", f"{n}", 0).messages() for n, r in enumerate(replayed.requests())]
    assert common([content[0]["content"] for content in contents]) > 4 * BLOCK_TOKENS
    assert [content[1]["content"] for content in contents] == ["u", "u"]
    ids = PromptSet((Prompt("i", "all", tuple(range(600))),), "p", "openai-batch", "0")
    assert replay(path, ids).facts.sharing == 0


# --- comparisons


def plan_of_a_replay(replayed: Replay, prompts: PromptSet, **chosen: Any) -> Plan:
    fields: dict[str, Any] = {"design": "interleaved", "seed": 0, "temperature": 0.0, "mixed_prompts": 2}
    fields |= {"mixed_temperature": 0.7, "same_prompts": False, "rounds": 2, "long_run": 2}
    named = tuple((prompt.id, prompt.traffic_class) for prompt in prompts.prompts)
    return Plan(("a", "b"), (replayed.level,), named, replay=replayed, **fields | chosen)


@pytest.mark.parametrize("design", ["interleaved", "abba-restart"])
def test_both_arms_have_each_window_once_in_a_replay(tmp_path: Path, design: str) -> None:
    rows = "".join(
        f'{{"timestamp": {2000 * t}, "input_length": 1200, "hash_ids": [0, 1, {t}]}}\n' for t in range(20)
    )
    prompts = prompt_set((10, 2000))
    replayed = replay(written(tmp_path, rows), prompts, for_comparison=True)
    plan = plan_of_a_replay(replayed, prompts, design=design)
    assert len(replayed) == 4
    windows = list(itertools.takewhile(lambda window: window.cycle < 8, plan.windows()))
    measured = {(w.arm, w.cycle): w.requests for w in windows if w.kind == "measured"}
    assert set(measured) == set(itertools.product("ab", range(8)))
    for cycle in range(8):
        requests = measured["a", cycle]
        assert requests == measured["b", cycle]
        assert tuple(request.replayed for request in requests) == replayed.window(cycle % 4)
        assert {request.repeat for request in requests} == {cycle // 4}
        # A margin is requested of the same text that was answered.
        assert [plan.request(request.prompt, request.variant) for request in requests] == list(requests)
    for window in windows:
        if window.kind == "mixed":
            again = [request for request in window.requests if request.temperature == 0]
            assert again
            for request in again:
                assert request.replayed is not None
                assert plan.request(request.prompt, request.variant).replayed == request.replayed
    variants = [request.variant for requests in measured.values() for request in requests]
    assert len(set(variants)) == len(variants) / 2


def test_a_replay_is_long_enough_for_the_evidence(tmp_path: Path) -> None:
    rows = "".join(f'{{"timestamp": {2000 * t}, "input_length": 9}}\n' for t in range(20))
    prompts = prompt_set()
    plan = plan_of_a_replay(replay(written(tmp_path, rows), prompts, for_comparison=True), prompts)
    assert fixed_cycles(plan, Ab(requests=750, min_duration_s=0.0)) == 24  # six times four windows
    assert fixed_cycles(plan, Ab(requests=60, min_duration_s=0.0)) == 4
    assert fixed_cycles(plan, Ab(requests=60, min_duration_s=200.0)) == 12  # 76 s a replay in both arms
    assert fixed_cycles(replace(plan, replay=None), Ab()) is None


POOLS = {
    "standard": {"engine": "embedded"},
    "speculative": {"engine": "embedded", "speculation": {"tree": "ngram:8"}},
}


def rollout(folder: Path, **measure: Any) -> Rollout:
    path = folder / "rollout.yaml"
    path.write_text(json.dumps({"rollout": "x", "pools": POOLS, "measure": measure}))
    return load(path)


def comparison(folder: Path, **measure: Any) -> BaselineSettings:
    file = rollout(folder, **measure)
    return settings_of(file, file.pools.standard, for_comparison=True)


def test_a_rollout_file_names_what_the_comparison_replays(tmp_path: Path) -> None:
    path = written(tmp_path, MOONCAKE)
    measure = {"trace": "trace", "trace_speed": 2, "trace_for_s": "10m", "concurrency": [1, 4]}
    settings = comparison(tmp_path, **measure)
    assert parse_arrivals(settings.arrivals) == path
    assert (settings.trace_speed, settings.trace_for_s, settings.concurrency) == (2.0, 600.0, (1,))
    file = rollout(tmp_path, **measure)
    of_the_baseline = settings_of(file, file.pools.standard)
    assert (of_the_baseline.arrivals, of_the_baseline.concurrency) == ("closed", (1, 4))
    assert comparison(tmp_path, ramp="1-20/10m").arrivals == "ramp:1-20/10m"


@pytest.mark.parametrize(
    "measure",
    [
        {"ramp": "1-20"},
        {"ramp": "1-20/10m", "trace": "trace"},
        {"trace": "missing"},
        {"trace": "trace", "max_rps": 5.0},
    ],
)
def test_a_wrong_replay_in_a_rollout_file_is_refused(tmp_path: Path, measure: dict[str, Any]) -> None:
    written(tmp_path, MOONCAKE)
    with pytest.raises(ConfigError):
        comparison(tmp_path, **measure)


# --- memory


def rows_of(count: int) -> Iterator[str]:
    for number in range(count):
        row = {"timestamp": 10 * number, "input_length": 700, "output_length": 5, "hash_ids": [0, number]}
        yield json.dumps(row) + "\n"


def test_reading_takes_no_memory_for_each_request(tmp_path: Path) -> None:
    """Both traces have more requests than a window: what is held is two windows and the table of blocks."""

    def peak(count: int) -> int:
        path = tmp_path / f"{count}"
        with path.open("w") as file:
            file.writelines(rows_of(count))
        prompts = prompt_set()
        tracemalloc.start()
        assert sum(1 for _ in replay(path, prompts).requests()) == count
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(10)  # what is cached at the first call
    assert peak(10_000) - peak(4000) < 200_000  # a request that stays takes 200 bytes at least

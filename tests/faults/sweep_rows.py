"""Faults that a sweep over settings must survive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fault_rows import (
    BETTER,
    EQUAL,
    FASTER,
    OTHER_ANSWERS,
    SAMPLED,
    STANDARD,
    failing,
    slowed,
    sweep,
)
from fault_runs import Figures
from zoo_knobs import Fault


def speedup_of(k: int, low: float, high: float) -> Figures:
    """The recommended K, and its reported speed-up."""

    def check(result: dict[str, Any]) -> list[str]:
        summary = result["summary"]
        reported = (summary.get("e2e_speedup") or {}).get("estimate")
        wrong = (
            []
            if summary.get("recommended") == k
            else [f"it recommends {summary.get('recommended')}, not {k}"]
        )
        if reported is None or not low <= reported <= high:
            wrong.append(f"the reported speed-up is {reported}, true is {low} to {high}")
        return wrong

    return check


def candidates_get_two_fifths(result: dict[str, Any]) -> list[str]:
    """Of all requests of a sweep."""
    cells = result["data"]["stored"]["cells"]
    of_standard = sum(len(cell["cell"]["rows"]) for cell in cells if cell["setting"] == "standard")
    everything = sum(len(cell["cell"]["rows"]) for cell in cells)
    share = 1 - of_standard / everything
    return [] if share >= 0.4 else [f"candidates had {share:.0%} of {everything} requests"]


def narrow(k: int) -> Figures:
    """K is recommended with an interval as narrow as its own requests allow."""

    def check(result: dict[str, Any]) -> list[str]:
        speedup = result["summary"].get("e2e_speedup") or {}
        wide = not speedup or speedup["high"] > 1.5 * speedup["low"]
        return [*speedup_of(k, 1.3, 1.8)(result), *([f"the interval is {speedup}"] if wide else [])]

    return check


NOT_THE_STANDARDS = (
    r"answers (differ from the standard|are not acceptable)|sampled answers are not the standard"
)

SWEEPS = [
    sweep(
        "warm_ups_hang",
        "K 3 is 2.5 times as fast, and its warm-ups hang for 4 s; K 5 is 1.55 times as fast",
        [
            replace(slowed(STANDARD, 1.2), faults=(Fault("hang", ms=4000, after=1, in_a_row=2, until=3),)),
            slowed(FASTER),
        ],
        "deploy",
        r"k=3[^\n]*late[^\n]*in the warm-up",
        standard=slowed(STANDARD),
        figures=speedup_of(5, 1.40, 1.70),
    ),
    sweep(
        "warm_ups_time_out",
        "the only setting is 1.55 times as fast, and its warm-ups never answer; the timeout is 1 s",
        [replace(FASTER, faults=(Fault("hang", ms=5000, after=1, in_a_row=2, until=3),))],
        "not deploy",
        r"timeout",
        rollout=(("measure.timeout_s", 1.0), ("measure.max_error_share", 0.2)),
    ),
    sweep(
        "one_hung_request",
        "K 3 is 1.55 times as fast; of K 5, which is as fast, single requests take 3 s",
        [slowed(FASTER), failing("hang", 0.02, slowed(FASTER), ms=3000)],
        "deploy",
        r"k=3",
        standard=slowed(STANDARD),
        figures=narrow(3),
    ),
    sweep(
        "cache_of_an_earlier_run",
        "two equal settings, which answer what they know three times as fast; the same sweep ran before",
        [replace(EQUAL, repeat_factor=1 / 3)] * 2,
        "not deploy",
        again=True,
    ),
    sweep(
        "cache_of_another_setting",
        "equal settings behind one cache, which answers what it knows three times as fast",
        [replace(EQUAL, repeat_factor=1 / 3, shares_cache=True)] * 2,
        "not deploy",
        r"cache",
        standard=replace(STANDARD, repeat_factor=1 / 3, shares_cache=True),
    ),
    sweep(
        "nothing_accepted",
        "K 3 is 1.55 times as fast, and none of its drafted tokens is accepted",
        [replace(FASTER, metrics=True, speculates=True, accepts=False)],
        "no",
        r"not speculation's",
    ),
    sweep(
        "candidate_other_model",
        "K 3 is 1.55 times as fast, and every answer of it is another one from the first token on",
        [replace(FASTER, stock=1.0, tokens=(9, 9))],
        "not deploy",
        NOT_THE_STANDARDS,
        standard=replace(STANDARD, tokens=(9, 9)),
    ),
    sweep(
        "two_candidates",
        "K 3 is 1.55 times as fast, K 5 1.18 times",
        [slowed(FASTER), slowed(BETTER)],
        "deploy",
        r"k=3",
        r"n=\d+|\d+ requests",
        standard=slowed(STANDARD),
        figures=speedup_of(3, 1.40, 1.65),
    ),
    sweep("all_equal", "five equal settings", [EQUAL] * 4, "not deploy", prompts=24),
    sweep(
        "all_slower",
        "every setting takes twice as long",
        [slowed(STANDARD, 2)] * 2,
        "no",
        prompts=24,
        fast=True,
    ),
    sweep(
        "lucky_winner",
        "seven equal settings, each request slower or faster by 30%",
        [replace(EQUAL, request_sd=0.3, seed=number) for number in range(1, 8)],  # each its own noise
        "not deploy",
        standard=replace(STANDARD, request_sd=0.3),
        prompts=24,
    ),
    sweep(
        "lucky_winner_one_rung",
        "the same with visits that are slower or faster by 5%, each prompt sent once",
        [replace(EQUAL, visit_sd=0.05)] * 5,
        "not deploy",
        standard=replace(STANDARD, visit_sd=0.05),
        prompts=24,
        options=("--repeats=1",),
    ),
    sweep(
        "winner_with_noise",
        "three settings are 1.55 times as fast, each request slower or faster by 30%",
        [replace(slowed(FASTER, 2), request_sd=0.3)] * 3,
        "deploy",
        standard=replace(slowed(STANDARD, 2), request_sd=0.3),
        prompts=96,
        figures=lambda result: speedup_of(result["summary"].get("recommended"), 1.30, 1.75)(result),
    ),
    sweep(
        "candidate_truncates",
        "K 3 ends its answers at half, K 5 is 2.5 times as fast; temperature 0.7",
        [replace(slowed(EQUAL), length=0.5), slowed(STANDARD, 1.2)],
        "deploy",
        r"k=3[^\n]*short|short[^\n]*k=3",
        standard=slowed(STANDARD),
        prompts=64,
        options=SAMPLED,
        figures=speedup_of(5, 1.8, 3.2),
    ),
    sweep(
        "truncation_accepted",
        "the only setting ends its answers at half, 1.55 times as fast a token; the rollout file accepts it",
        [replace(slowed(FASTER), tokens=(12, 24), length=0.5)],
        "deploy",
        r"deploy[^\n]*shorter[^\n]*: accepted",
        standard=replace(slowed(STANDARD), tokens=(12, 24)),
        options=SAMPLED,
        rollout=(("ab.accept_length_change", True),),
    ),
    sweep(
        "candidate_hangs",
        "5% of K 3's requests hang into the timeout of 0.6 s; it is 1.55 times as fast otherwise",
        [failing("hang", 0.05, ms=5000)],
        "not deploy",
        r"fail|timeout|hang",
        rollout=(("measure.timeout_s", 0.6),),
    ),
    sweep(
        "candidate_fails_fast",
        "20% of K 3's requests fail at once; K 5 is 1.55 times as fast",
        [failing("http_500", 0.2, slowed(FASTER, 2)), slowed(FASTER, 2)],
        "deploy",
        r"k=3[^\n]*fail|fail[^\n]*k=3",
        standard=slowed(STANDARD, 2),
        figures=speedup_of(5, 1.35, 1.70),
    ),
    sweep(
        "candidate_aborts",
        "15% of K 3's answers are aborted; temperature 0.7",
        [failing("abort", 0.15, replace(STANDARD, token_ms=5.0))],
        "not deploy",
        r"abort|fail",
        options=SAMPLED,
    ),
    sweep(
        "candidate_garbles",
        "K 3 is 1.55 times as fast, and 60% of its greedy answers are other ones at random",
        [replace(FASTER, unsteady=0.6)],
        "any verdict",
        OTHER_ANSWERS,
    ),
    sweep(
        "candidate_empty",
        "every second answer of K 3 is empty",
        [failing("empty", 0.5)],
        "not deploy",
        r"empty|no output|fail",
    ),
    sweep(
        "standard_drifts",
        "equal settings; the standard takes twice as long after its first 60 requests",
        [EQUAL],
        "not deploy",
        standard=replace(STANDARD, drift=((60, 1.0), (61, 2.0))),
    ),
    sweep(
        "standard_dead",
        "the standard answers 500",
        [FASTER],
        "refused",
        r"standard",
        standard=failing("http_500", 1.0, STANDARD, after=0),
    ),
    sweep(
        "one_url", "one URL is the standard and K 3", [EQUAL], "refused", r"same|one server|both", urls=(0, 0)
    ),
    sweep(
        "budget_below_the_starts",
        "a budget of 6 s for servers that take 4 s each to start",
        [replace(FASTER, start_s=4.0)],
        "refused",
        r"budget",
        r"start",
        standard=replace(STANDARD, start_s=4.0),
        started=True,
        options=("--budget=0.1",),
    ),
    sweep(
        "budget_goes_to_candidates",
        "a budget of 90 s; of four settings one is 1.55 times as fast",
        [FASTER, EQUAL, BETTER, EQUAL],
        "deploy",
        r"k=3",
        options=("--budget=1.5",),
        figures=candidates_get_two_fifths,
    ),
    sweep(
        "budget_null",
        "a budget of 20 s for four equal settings, each request slower or faster by 20%",
        [replace(EQUAL, request_sd=0.2)] * 4,
        "not deploy",
        standard=replace(STANDARD, request_sd=0.2),
        options=("--budget=0.33",),
        figures=candidates_get_two_fifths,
    ),
    sweep(
        "other_model_sampled",
        "K 3 is 1.55 times as fast, by another model whose answers are as long; temperature 0.7",
        [replace(FASTER, other_model=True)],
        "not deploy",
        NOT_THE_STANDARDS,
        options=SAMPLED,
    ),
    sweep(
        "ignores_temperature_among_two",
        "the same, and temperatures 0 and 0.7 are swept",
        [replace(FASTER, ignores_temperature=1.0)],
        "not deploy",
        r"temperature is ignored",
        options=("--temperature=0,0.7",),
    ),
    sweep(
        "faster_at_two_temperatures",
        "K 3 is 1.55 times as fast at temperatures 0 and 0.7",
        [FASTER],
        "deploy",
        r"k=3",
        never=(r"ignored",),
        options=("--temperature=0,0.7",),
    ),
    sweep(
        "standard_wakes_up",
        "equal settings; after another server's requests the standard's first 6 take 4 times as long",
        [EQUAL, EQUAL],
        "not deploy",
        standard=replace(STANDARD, wake=(6, 4.0)),
    ),
    sweep(
        "wakes_up_and_slower",
        "K 3 takes 1.18 times as long; the standard's first 6 requests take 4 times as long",
        [replace(STANDARD, ttft_ms=11.8, token_ms=7.7)],
        "not deploy",
        standard=replace(STANDARD, wake=(6, 4.0)),
    ),
    sweep(
        "both_wake_up",
        "K 3 is 1.55 times as fast; the first 6 requests after each start of both take 4 times as long",
        [replace(slowed(FASTER, 2), wake=(6, 4.0))],
        "deploy",
        r"k=3",
        standard=replace(slowed(STANDARD, 2), wake=(6, 4.0)),
        started=True,
    ),
    sweep(
        "equal_and_both_wake_up",
        "equal settings; the first 6 requests of both take 4 times as long, and K 3 has its turns in a row",
        [replace(EQUAL, wake=(6, 4.0))],
        "not deploy",
        standard=replace(STANDARD, wake=(6, 4.0)),
    ),
    sweep(
        "clock_is_set",
        "K 3 is 1.55 times as fast; the wall clock is set back and forth by an hour, twice a second",
        [slowed(FASTER, 2), slowed(EQUAL, 2)],
        "deploy",
        r"k=3",
        standard=slowed(STANDARD, 2),
        never=(r"changed during",),
        figures=speedup_of(3, 1.40, 1.70),
        clock_step_s=3600.0,
    ),
    sweep(
        "clock_is_set_budgeted",
        "the same with a budget of 72 s",
        [FASTER, EQUAL],
        "deploy",
        r"k=3",
        options=("--budget=1.2",),
        clock_step_s=3600.0,
    ),
    sweep(
        "unsteady_other_model",
        "K 3 is 1.55 times as fast, by another model; both differ from themselves at temperature 0",
        [replace(FASTER, unsteady=0.9, other_model=True)],
        "not deploy",
        r"answers are not acceptable",
        standard=replace(STANDARD, unsteady=0.9),
    ),
    sweep(
        "cuts_few_prompts",
        "K 3 is 1.55 times as fast and cuts one prompt in 16; both differ from themselves",
        [replace(FASTER, cut_prompts=("long",), unsteady=0.3)],
        "not deploy",
        r"tokens in \d+ of \d+ prompts.*cuts prompts",
        standard=replace(STANDARD, unsteady=0.3),
        classes=(*["chat"] * 15, "long"),
        prompts=64,
    ),
    sweep(
        "fast_at_first",
        "K 3 takes half as long for its first 60 requests, then as long as the standard",
        [replace(EQUAL, drift=((60, 0.5), (61, 1.0)))],
        "not deploy",
    ),
    sweep(
        "fast_until_the_last_turn",
        "K 3 takes half as long in nine of its ten turns, then as long as the standard",
        [replace(EQUAL, drift=((255, 0.5), (256, 1.0)))],
        "not deploy",
        r"the speed-up changed during the run[^\n]*in turn \d of rung [45]",
        options=("--repeats=5",),
        prompts=80,
    ),
    sweep(
        "standard_limited",
        "equal settings; the standard refuses more than 6 requests a second, however often they come",
        [EQUAL],
        "refused",
        r"too many requests",
        standard=replace(STANDARD, per_second=6),
    ),
]

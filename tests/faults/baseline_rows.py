"""Faults that the measurement of one server (`baseline`) must survive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fault_rows import (
    DRIFTED,
    EVERY,
    STANDARD,
    TWELVE,
    baseline,
    failing,
    slowed,
)
from fault_runs import Figures
from zoo_knobs import Fault


def time_per_token(milliseconds: float, tokens: int, first: int = 1) -> Figures:
    """TPOT, amortised ITL and peak throughput are right, or unknown.

    `tokens` of each answer, `first` of its first chunk. The tolerance is the server's own: its clock
    wakes it up to a millisecond late, and more on a busy machine. The faults are off by far more.
    """

    def check(result: dict[str, Any]) -> list[str]:
        wrong = []
        for level in result["data"]["by_concurrency"]:
            at, over = f"at {level['concurrency']}", level["over_repeats"] or {}
            itl = (over.get("amortised_itl_p50_ms") or {}).get("estimate")
            peak = (over.get("peak_tokens_per_sec") or {}).get("estimate")
            for what, found, within in (("TPOT", level["tpot_ms"]["p50"], 0.03), ("amortised ITL", itl, 0.1)):
                if found is not None and abs(found / milliseconds - 1) > within:
                    wrong.append(f"{what} {at} is {found} ms, true is {milliseconds}")
            most = level["concurrency"] * 1000 * tokens / ((tokens - first) * milliseconds + TWELVE.ttft_ms)
            if peak is not None and peak > 1.15 * most:
                wrong.append(f"peak {at} is {peak} tokens/s, more than {most:.0f}")
            if level["total_tokens"] not in (None, tokens * level["requests"]):
                wrong.append(f"{level['total_tokens']} tokens in {level['requests']} answers of {tokens}")
        return wrong

    return check


def no_tokens_per_second(result: dict[str, Any]) -> list[str]:
    """Where tokens are not known, throughput is not 0 but unknown."""
    found = [
        (level["over_repeats"] or {}).get("tokens_per_sec") for level in result["data"]["by_concurrency"]
    ]
    return [f"tokens/s is {rate['estimate']}" for rate in found if rate and rate["estimate"] == 0]


BASELINES = [
    baseline(
        "only_apologies",
        "every prompt gets an apology as text with status 200",
        replace(STANDARD, stock=1.0, tokens=(8, 8)),
        "undecided",
        r"(48|96) of \d+ requests got the same answer as another prompt",
        r"[Nn]ot usable as a baseline[^\n]*measure again",
    ),
    baseline(
        "baseline_caches",
        "repeats are answered 5 times as fast as first requests",
        replace(STANDARD, repeat_factor=0.2),
        "undecided",
        r"repeats are faster[^\n]*cache",
        r"[Nn]ot usable as a baseline[^\n]*--repeats 1 --warmup 0",
        options=("--same-prompts",),
    ),
    baseline(
        "fresh_prompts",
        "repeats are answered 5 times as fast, and the same baseline ran before: no request is a repeat",
        replace(TWELVE, repeat_factor=0.2),
        "yes",
        never=(r"cache", r"same answer"),
        figures=time_per_token(10.0, 12),
        options=EVERY,
        again=True,
    ),
    baseline(
        "warm_ups_hang",
        "the first requests after the probe hang into the timeout of 0.6 s",
        replace(STANDARD, faults=(Fault("hang", ms=5000, after=1, until=5),)),
        "yes",
        r"[34] failed: [34] timeout",
        options=("--timeout=0.6",),
    ),
    baseline(
        "first_requests_of_a_cache",
        "the same, and each prompt is sent once, as the advice says",
        replace(STANDARD, repeat_factor=0.2),
        "yes",
        never=(r"repeats are faster", r"not usable"),
        options=("--repeats=1", "--warmup=0", "--same-prompts"),
    ),
    baseline(
        "counts_half",
        "usage counts half of the tokens, one in each chunk",
        replace(STANDARD, usage_factor=0.5, tokens=(12, 12)),
        "undecided",
        r"counts fewer tokens than it sends chunks|counts \d tokens in an answer with max_tokens 8",
        r"[Nn]ot usable as a baseline[^\n]*fix the token count",
    ),
    baseline(
        "counts_half_again",
        "usage counts 1.5 times the tokens, three of them in each chunk",
        replace(STANDARD, usage_factor=1.5, tokens=(12, 12), first_chunk=3, chunk=3),
        "undecided",
        r"counts 12 tokens in an answer with max_tokens 8 \(finish_reason length\)",
        r"[Nn]ot usable as a baseline[^\n]*fix the token count",
    ),
    baseline(
        "counts_above_the_limit",
        "the same with answers that max_tokens 10 ends",
        replace(STANDARD, usage_factor=1.5, tokens=(12, 12), first_chunk=3, chunk=3),
        "undecided",
        r"in 48 of 48 answers the server counts more tokens than max_tokens allows, such as 15 of at most 10",
        options=("--max-tokens=10", "--repeats=1"),
    ),
    baseline(
        "counts_two_thirds",
        "usage counts two thirds of the tokens, three of them in each chunk",
        replace(STANDARD, usage_factor=0.667, tokens=(12, 12), first_chunk=3, chunk=3),
        "undecided",
        r"counts 5 tokens in an answer with max_tokens 8",
    ),
    baseline(
        "counts_well",
        "three tokens in each chunk, counted rightly, at the end only",
        replace(STANDARD, tokens=(12, 12), first_chunk=3, chunk=3),
        "yes",
        never=(r"counts \d+ tokens",),
    ),
    baseline(
        "no_cache",
        "repeats take as long as first requests, and each prompt has its own answer",
        STANDARD,
        "yes",
        never=(r"cache", r"same answer"),
    ),
    baseline(
        "steady",
        "a steady server",
        TWELVE,
        "yes",
        never=(r"drift", r"client[^\n]*(bottleneck|bound)", r"slower at the end"),
        figures=time_per_token(10.0, 12),
        options=EVERY,
    ),
    baseline(
        "slows_down",
        "it takes 3 times as long at the end",
        replace(STANDARD, drift=((15, 1.0), (70, 3.0))),
        "not yes",
        DRIFTED,
        prompts=32,
    ),
    baseline(
        "slows_in_a_step",
        "it takes twice as long after half of its requests",
        replace(STANDARD, drift=((50, 1.0), (51, 2.0))),
        "not yes",
        DRIFTED,
        options=("--repeats=1",),
        prompts=96,
    ),
    baseline(
        "wakes_up",
        "the first 18 of 96 requests take 4 times as long",
        replace(STANDARD, drift=((6, 4.0), (24, 4.0), (25, 1.0))),
        "not yes",
        r"TPOT at 1 stream, repeat 1 was [34]\.\d+×[^\n]*about the first (16|20|24) requests[^\n]*--warmup",
        options=("--repeats=1",),
        prompts=96,
    ),
    baseline(
        "noisy_visits",
        "a steady server; each 8 requests in a row are slower or faster by 10%",
        replace(STANDARD, visit_sd=0.1),
        "yes",
        never=(r"not steady",),
        prompts=96,
        options=("--repeats=1",),
    ),
    baseline(
        "noisy",
        "a steady server, each request slower or faster by 20%",
        replace(slowed(STANDARD), request_sd=0.2),
        "yes",
        prompts=96,
        options=("--repeats=1",),
    ),
    baseline(
        "aborts",
        "every fifth answer ends with finish_reason abort after a quarter of its tokens",
        failing("abort", 0.2, STANDARD),
        "no",
        r"abort",
        options=EVERY,
    ),
    baseline(
        "finish_reason_error",
        "every fifth answer ends with finish_reason error after a quarter of its tokens",
        failing("finish_error", 0.2, STANDARD),
        "no",
        r"error|fail",
        options=EVERY,
    ),
    baseline(
        "speeds_up",
        "it takes half as long after the first third of its requests",
        replace(STANDARD, drift=((36, 1.0), (37, 0.5))),
        "any verdict",
        DRIFTED,
        options=("--repeats=1",),
        prompts=96,
    ),
    baseline(
        "error_objects",
        "every fifth stream says {object: error}, then [DONE]",
        failing("error_object", 0.2, STANDARD),
        "no",
        r"fail",
        options=EVERY,
    ),
    baseline(
        "error_json",
        "every fifth answer is an error as JSON, with status 200",
        failing("error_json", 0.2, STANDARD),
        "no",
        r"fail",
        options=EVERY,
    ),
    baseline(
        "fails",
        "every fifth request fails",
        failing("http_500", 0.2, STANDARD),
        "no",
        r"http_500|500",
        options=EVERY,
    ),
    baseline(
        "empty",
        "every fifth answer is empty",
        failing("empty", 0.2, STANDARD),
        "no",
        r"empty",
        options=EVERY,
    ),
    baseline(
        "hangs_into_the_timeout",
        "every tenth request hangs; --timeout 0.6",
        failing("hang", 0.1, STANDARD, ms=5000),
        "no",
        r"timeout",
        options=("--concurrency=4", "--timeout=0.6"),
    ),
    baseline(
        "stalls",
        "every tenth answer pauses in the middle; --stall 0.5",
        failing("stall", 0.1, STANDARD, ms=5000),
        "no",
        r"stall",
        options=("--concurrency=4", "--stall=0.5"),
    ),
    baseline(
        "usage_with_the_last_text",
        "usage comes with the last chunk of text",
        replace(TWELVE, usage="last_text"),
        "yes",
        figures=time_per_token(10.0, 12),
        options=EVERY,
        fast=True,
    ),
    baseline(
        "finishes_late",
        "the finish reason comes alone, 60 ms after the last text",
        replace(TWELVE, finish_apart=True, linger_ms=60.0),
        "yes",
        figures=time_per_token(10.0, 12),
        options=EVERY,
    ),
    baseline(
        "textless",
        "tokens are counted, and none has text",
        replace(TWELVE, textless=True),
        "refused",
        r"no output, and its usage counts",
        options=EVERY,
    ),
    baseline(
        "null_usage",
        "usage is null in every chunk",
        replace(TWELVE, usage="null"),
        "any verdict",
        r"usage|tokens (are )?(not known|unknown)|tokenizer",
        figures=lambda result: [*time_per_token(10.0, 12)(result), *no_tokens_per_second(result)],
        options=EVERY,
    ),
    baseline(
        "zero_usage",
        "completion_tokens is 0 beside text",
        replace(TWELVE, usage="zero"),
        "any verdict",
        r"completion_tokens|usage|tokenizer|0 tokens",
        figures=lambda result: [*time_per_token(10.0, 12)(result), *no_tokens_per_second(result)],
        options=EVERY,
    ),
    baseline(
        "first_chunk_of_several",
        "the first chunk has 4 of 12 tokens, and usage with every chunk",
        replace(TWELVE, usage="every", first_chunk=4),
        "yes",
        figures=time_per_token(10.0, 12, first=4),
        options=EVERY,
    ),
    baseline(
        "first_chunk_unknown",
        "the first chunk has 4 of 12 tokens, and no usage says so",
        replace(TWELVE, first_chunk=4),
        "any verdict",
        figures=time_per_token(10.0, 12, first=4),
        options=EVERY,
    ),
    baseline(
        "three_a_chunk",
        "three tokens in each chunk, usage with every chunk",
        replace(TWELVE, usage="every", first_chunk=3, chunk=3),
        "yes",
        figures=time_per_token(10.0, 12, first=3),
        options=EVERY,
    ),
    baseline(
        "closing",
        "each connection is closed after a stream that advertised keep-alive",
        replace(STANDARD, closing="race"),
        "yes",
        never=(r"\bcut\b", r"[1-9]\d* failed"),
    ),
    baseline(
        "closing_at_once",
        "the same, as soon as the stream has ended; 4 streams",
        replace(STANDARD, closing="fin"),
        "yes",
        never=(r"\bcut\b", r"[1-9]\d* failed"),
        options=EVERY,
    ),
    baseline(
        "resets",
        "every eighth connection ends before the first byte, new ones too",
        failing("reset", 0.125, STANDARD),
        "no",
        r"fail",
        options=EVERY,
    ),
    baseline(
        "client_bound",
        "two other threads of the client's process compute without end",
        STANDARD,
        "undecided",
        r"client",
        options=("--concurrency=16",),
        prompts=64,
        busy_threads=2,
    ),
    baseline(
        "done_in_the_middle",
        "every fifth answer ends at half with [DONE] and no finish reason",
        failing("unended", 0.2, STANDARD),
        "no",
        r"\d+ cut",
        options=EVERY,
    ),
    baseline(
        "no_finish_reason",
        "answers end with [DONE] and usage, and never with a finish reason",
        replace(STANDARD, no_finish=True),
        "yes",
        r"96 of 96 answers have no finish_reason",
        options=EVERY,
    ),
    baseline(
        "no_finish_reason_and_no_end",
        "the same, and every fifth stream ends at half without [DONE]",
        failing("silent_end", 0.2, replace(STANDARD, no_finish=True)),
        "no",
        r"\d+ cut",
        options=EVERY,
    ),
    baseline(
        "no_finish_reason_and_no_usage",
        "the same with [DONE], and no usage",
        failing("unended", 0.2, replace(STANDARD, no_finish=True)),
        "no",
        r"\d+ cut",
        options=EVERY,
    ),
    baseline(
        "refused_until_a_date",
        "every eighth request is refused until the next second (429, Retry-After as a date); the client's "
        "wall clock is set back and forth by an hour, twice a second",
        failing("http_429_until", 0.125, STANDARD),
        "any verdict",
        r"retried",
        never=(r"[1-9]\d* failed",),
        options=EVERY,
        clock_step_s=-3600.0,
    ),
    baseline(
        "neither_finish_reason_nor_usage",
        "answers end with [DONE], and never with a finish reason or usage",
        replace(STANDARD, no_finish=True, usage="none"),
        "refused",
        r"ended without a finish reason",
    ),
    baseline(
        "clock_is_set",
        "the wall clock is set back and forth by an hour, twice a second",
        TWELVE,
        "yes",
        never=(r"not steady", r"[1-9]\d* failed"),
        figures=time_per_token(10.0, 12),
        options=EVERY,
        clock_step_s=3600.0,
    ),
    baseline(
        "filtered",
        "a content filter ends every fifth answer",
        failing("filtered", 0.2, STANDARD),
        "any verdict",
        r"\d+ of 96 answers were ended by a content filter",
        options=EVERY,
    ),
    baseline(
        "reasoning_alone",
        "all output is reasoning",
        replace(STANDARD, reasoning=1.0),
        "any verdict",
        r"96 of 96 requests got reasoning and no answer",
        options=EVERY,
    ),
    baseline(
        "cap_of_its_own",
        "answers end after 5 tokens with finish_reason length",
        replace(STANDARD, cap=5),
        "any verdict",
        r"below max_tokens, such as after 5 of 64 tokens",
        options=EVERY,
    ),
    baseline(
        "chunks_come_twice",
        "a proxy sends each chunk twice",
        replace(TWELVE, copies=2),
        "undecided",
        r"counts fewer tokens than it sends chunks",
        options=EVERY,
    ),
    baseline(
        "comments",
        "20 comments, which keep the connection alive, before each chunk",
        replace(TWELVE, token_ms=40.0, comments=20),
        "yes",
        figures=time_per_token(40.0, 12),
        options=EVERY,
    ),
    baseline(
        "total_with_every_chunk",
        "usage with every chunk is that of the whole answer",
        replace(TWELVE, usage="total"),
        "any verdict",
        figures=lambda result: [*time_per_token(10.0, 12)(result), *no_tokens_per_second(result)],
        options=EVERY,
    ),
    baseline(
        "buffered",
        "a proxy holds each answer back until it is whole",
        replace(TWELVE, buffered=True),
        "any verdict",
        figures=time_per_token(10.0, 12),
        options=EVERY,
    ),
    baseline(
        "lines_of_windows",
        "lines end with CR LF, and each event has an id",
        replace(TWELVE, crlf=True),
        "yes",
        figures=time_per_token(10.0, 12),
        options=EVERY,
    ),
    baseline(
        "alternates",
        "every second request takes twice as long",
        replace(STANDARD, alternate=2.0),
        "yes",
        never=(r"not steady",),
        prompts=96,
        options=("--repeats=1",),
    ),
    baseline(
        "limited",
        "it refuses more than 12 requests a second",
        replace(STANDARD, per_second=12),
        "any verdict",
        r"retried",
        options=EVERY,
    ),
    baseline(
        "closes_every_fifth",
        "it closes a connection after five answers, without notice",
        replace(STANDARD, closing_after=5),
        "yes",
        never=(r"\bcut\b", r"[1-9]\d* failed"),
        options=EVERY,
    ),
    baseline(
        "speeds_up_at_once",
        "the first request on each connection takes 200 ms longer",
        replace(STANDARD, connection_ms=200.0),
        "yes",
        never=(DRIFTED,),
        options=EVERY,
    ),
]

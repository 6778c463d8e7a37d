"""The fault zoo's table: fault, servers, command, the right verdict, and what the page must say.

A verdict here follows from what the servers do, never from what the tool says today.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fault_runs import Figures, Row
from zoo import Fault, Server

STANDARD = Server()
EQUAL = Server()
FASTER = Server(ttft_ms=6.5, token_ms=4.2)
"""1.55 times as fast."""

SLOWER = Server(ttft_ms=15.0, token_ms=9.4)

LATE = Server(ttft_ms=60.0)
LATE_FASTER = Server(ttft_ms=35.0, token_ms=4.2)
"""Requests that are sent together meet: their first tokens come later than the last request."""

MIXED = ("--mixed-prompts=8",)
SAMPLED = ("--temperature=0.7",)
LOADED = ("--concurrency=8",)
BOTH_LOADS = ("--concurrency=1,8",)

DRIFTED = r"drifted|not steady|[1-9]\d* of \d+ found drift|drift of|(slow(s|ed)|sped) (down|up)"
OTHER_ANSWERS = r"answers (are|differ|change)|other answers|same answers|answers[^\n]*(differ|same)"
MANY = 64


def failing(kind: Any, share: float, base: Server = FASTER, **more: Any) -> Server:
    return replace(base, faults=(Fault(kind, share, **more),))


def ab(
    name: str,
    fault: str,
    challenger: Server,
    right: Any,
    *says: str,
    standard: Server = STANDARD,
    **more: Any,
) -> Row:
    return Row(name, fault, "ab", (standard, challenger), right, says, **more)


def sweep(name: str, fault: str, candidates: Sequence[Server], right: Any, *says: str, **more: Any) -> Row:
    standard = more.pop("standard", STANDARD)
    return Row(name, fault, "sweep", (standard, *candidates), right, says, **more)


def baseline(name: str, fault: str, server: Server, right: Any, *says: str, **more: Any) -> Row:
    return Row(name, fault, "baseline", (server,), right, says, **more)


SPEED = [
    ab("faster", "the challenger is 1.55 times as fast", FASTER, "deploy", r"1\.[3-7]\d×"),
    ab(
        "twice_as_fast",
        "the challenger is twice as fast",
        Server(ttft_ms=10.0, token_ms=8.0),
        "deploy",
        r"(1\.[7-9]|2\.[0-3])\d×",
        standard=Server(ttft_ms=20.0, token_ms=16.0),
        prompts=24,
        options=("--looks=1",),
        fast=True,
    ),
    ab("equal", "two equal servers", EQUAL, "not deploy"),
    ab("slower", "the challenger takes 1.45 times as long", SLOWER, "no", r"slower"),
    ab(
        "faster_sampled",
        "1.55 times as fast; answers are random, of equal mean length",
        FASTER,
        "deploy",
        r"1\.[3-7]\d×",
        never=(r"shorter",),
        options=SAMPLED,
        prompts=MANY,
    ),
    ab(
        "faster_at_8",
        "1.55 times as fast at 8 streams",
        FASTER,
        "deploy",
        r"8 streams",
        options=LOADED,
        prompts=MANY,
    ),
    ab(
        "faster_at_1_slower_at_8",
        "1.55 times as fast alone, half as fast while 8 requests are in flight",
        replace(FASTER, loaded_factor=3.0, loaded_above=3),
        "deploy",
        r"1 stream",
        r"8 streams.*(slower|off|no gain|not)|(slower|off|no gain|not)[^\n]*8 streams",
        options=BOTH_LOADS,
        prompts=MANY,
    ),
    ab(
        "one_class_gains",
        "chat answers take half as long, code 1.5 times as long",
        replace(STANDARD, class_factors={"chat": 0.5, "code": 1.5}),
        "deploy",
        r"chat",
        r"(not for code|code[^\n]*(do not deploy|slower|\bno\b|keep it off))",
        never=(r"deploy for [^;\n]*code",),
        prompts=MANY,
    ),
    ab(
        "first_token_late",
        "the whole answer takes 1.5 times less, its first token 15 times as long",
        Server(ttft_ms=75.0, token_ms=0.5),
        "no",
        r"TTFT",
        standard=Server(ttft_ms=5.0, token_ms=14.0),
        prompts=32,
    ),
    ab(
        "unsteady_and_faster",
        "1.55 times as fast; both servers differ from themselves at temperature 0",
        replace(FASTER, unsteady=0.9, length_sd=0.1),
        "deploy",
        standard=replace(STANDARD, unsteady=0.9, length_sd=0.1),
        never=(r"\d% (\[[^\]]*\] )?shorter",),
        prompts=MANY,
    ),
    Row(
        "two_challengers",
        "one challenger ends its answers at half, the other is 1.55 times as fast; temperature 0.7",
        "ab",
        (STANDARD, replace(STANDARD, length=0.5), FASTER),
        "deploy",
        (r"third", r"challenger[^\n]*short|short[^\n]*challenger"),
        (r"fastest that may be deployed is challenger",),
        options=SAMPLED,
        prompts=MANY,
    ),
    ab(
        "both_logged_counters",
        "1.55 times as fast; the challenger's counters of drafts grow, the standard's do not exist",
        replace(FASTER, metrics=True, speculates=True),
        "deploy",
        r"accepted",
        standard=replace(STANDARD, metrics=True),
        never=(r"standard[^\n]*speculates",),
    ),
]

LENGTH = [
    ab(
        "half_sampled",
        "answers end at half; temperature 0.7",
        replace(EQUAL, length=0.5),
        "not deploy",
        r"(4[5-9]|5[0-5])% (\[[^\]]*\] )?shorter",
        options=SAMPLED,
        fast=True,
    ),
    ab(
        "half_unsteady",
        "answers end at half; the standard differs from itself at temperature 0",
        replace(EQUAL, length=0.5, unsteady=0.9),
        "not deploy",
        r"shorter",
        standard=replace(STANDARD, unsteady=0.9),
    ),
    ab(
        "half_greedy",
        "answers end at half; temperature 0, a steady standard",
        replace(EQUAL, length=0.5),
        "no",
        r"shorter",
        r"0/|0 of",
    ),
    ab(
        "four_fifths",
        "answers end at 80%; temperature 0.7",
        replace(EQUAL, length=0.8),
        "not deploy",
        r"(1[5-9]|2[0-5])% (\[[^\]]*\] )?shorter",
        options=SAMPLED,
        prompts=MANY,
    ),
    ab(
        "half_and_faster",
        "answers end at half, and each token takes 1.55 times less",
        replace(FASTER, length=0.5),
        "not deploy",
        r"shorter",
        options=SAMPLED,
    ),
    ab(
        "half_and_accepted",
        "the same, and other lengths are accepted by the operator",
        replace(FASTER, length=0.5),
        "deploy",
        r"\d% (\[[^\]]*\] )?shorter[^\n]*accepted",
        r"per output token",
        options=(*SAMPLED, "--accept-length-change"),
        prompts=MANY,
    ),
    ab(
        "half_as_fast_and_accepted",
        "answers end at half, each token takes as long, and other lengths are accepted",
        replace(EQUAL, length=0.5),
        "not deploy",
        r"shorter",
        options=(*SAMPLED, "--accept-length-change"),
    ),
    ab(
        "one_class_truncated",
        "only answers of the class code end at half",
        replace(EQUAL, length=0.5, length_classes=("code",)),
        "not deploy",
        r"code[^\n]*shorter|shorter[^\n]*code",
        options=SAMPLED,
    ),
    ab(
        "standard_truncates",
        "the standard's answers end at half; the same time for each token",
        EQUAL,
        "not deploy",
        r"standard[^\n]*(truncat|short|end)|(truncat|short)[^\n]*standard|longer",
        standard=replace(STANDARD, length=0.5),
        never=(r"do not deploy[^\n]*slower",),
        options=SAMPLED,
    ),
    ab(
        "longer_as_fast",
        "half as many tokens again, each in 1.55 times less: the user waits as long",
        replace(FASTER, length=1.5),
        "not deploy",
        r"longer",
        options=SAMPLED,
    ),
    ab(
        "padded",
        "as many tokens of white space again, each in half the time",
        replace(EQUAL, token_ms=3.25, padding=1.0),
        "not deploy",
        r"longer|differ",
        options=SAMPLED,
    ),
    ab(
        "counted_twice",
        "equal servers; the challenger's usage counts each token twice",
        replace(EQUAL, usage_factor=2.0),
        "not deploy",
        r"longer|differ|count",
    ),
    ab(
        "half_counted_twice",
        "answers end at half, and usage counts each token twice; temperature 0.7",
        replace(EQUAL, length=0.5, usage_factor=2.0),
        "not deploy",
        options=SAMPLED,
    ),
    ab(
        "within_the_margin",
        "1.55 times as fast; answers are 1% shorter",
        replace(FASTER, length=0.99, tokens=(20, 30)),
        "deploy",
        standard=replace(STANDARD, tokens=(20, 30)),
        options=(*SAMPLED, "--concurrency=4"),
        prompts=MANY,
    ),
    ab(
        "empty_answers",
        "every fifth answer is empty; temperature 0.7",
        failing("empty", 0.2),
        "not deploy",
        r"empty|no output|without",
        options=SAMPLED,
    ),
    ab(
        "all_empty",
        "every answer is empty after the first",
        failing("empty", 1.0),
        "no",
        r"empty|no output",
    ),
]

FAILURES = [
    ab(
        "hangs_into_the_timeout",
        "10% of the requests hang for 5 s; --timeout 0.6",
        failing("hang", 0.1, ms=5000),
        "not deploy",
        r"\d+ of \d+[^\n]*(fail|timeout)|fail",
        options=("--timeout=0.6",),
        prompts=32,
    ),
    ab(
        "hangs",
        "5% of the requests hang for 1.5 s, 25 times the median",
        failing("hang", 0.05, ms=1500),
        "not deploy",
        r"\d+ of \d+ requests took (over|more than) 10×|p99",
    ),
    ab(
        "standard_hangs",
        "5% of the standard's requests hang for 1.5 s; equal otherwise",
        EQUAL,
        "not deploy",
        standard=failing("hang", 0.05, STANDARD, ms=1500),
    ),
    ab(
        "stalls",
        "5% of the answers pause for 1.5 s in the middle",
        failing("stall", 0.05, ms=1500),
        "not deploy",
        r"10×|p99",
    ),
    ab(
        "hangs_at_8",
        "1.55 times as fast; 10% hang for 1.5 s while more than 4 are in flight",
        failing("hang", 0.1, ms=1500, above=4),
        "any verdict",
        r"8 streams[^\n]*(tail|10×|slower|not|undecided|off)|(tail|10×|not|off)[^\n]*8 streams",
        never=(r"pays at every load", r"use it at 1 (and|to|through) 8"),
        options=BOTH_LOADS,
        prompts=MANY,
    ),
    ab(
        "fails_at_8",
        "1.55 times as fast; every third request fails while more than 4 are in flight",
        failing("http_500", 0.33, above=4),
        "any verdict",
        r"8 streams[^\n]*fail|fail[^\n]*8 streams",
        never=(r"pays at every load", r"use it at 1 (and|to|through) 8"),
        options=BOTH_LOADS,
        prompts=MANY,
    ),
    ab(
        "html_sometimes",
        "every eighth answer is an HTML page with status 200",
        failing("html", 0.125),
        "not deploy",
        r"fail|html|malformed",
    ),
    ab(
        "a_few_500",
        "3% of the requests fail; all prompts are sent, so that some of the failures are seen",
        failing("http_500", 0.03),
        "not deploy",
        r"\d of \d+[^\n]*fail|fail",
        options=("--looks=1",),
    ),
    ab(
        "fails_fast",
        "20% of the requests fail at once",
        failing("http_500", 0.2),
        "no",
        r"fail",
    ),
    ab(
        "busy_then_well",
        "every fourth request is first refused (503) and succeeds when it is sent again",
        failing("http_503", 0.25),
        "not deploy",
        r"retr|503|refused|sent again",
        prompts=32,
    ),
    ab(
        "busy_then_well_429",
        "every fourth request is first refused (429, Retry-After 0.1 s)",
        failing("http_429_later", 0.25),
        "not deploy",
        r"retr|429|refused|sent again",
        prompts=32,
    ),
    ab(
        "cut",
        "8% of the answers end in the middle",
        failing("cut", 0.08),
        "not deploy",
        r"fail|cut",
    ),
    ab(
        "reset",
        "8% of the connections end before the first byte",
        failing("reset", 0.08),
        "not deploy",
        r"fail|cut|connection",
    ),
    ab(
        "aborts",
        "15% of the answers end with finish_reason abort after a quarter of their tokens",
        failing("abort", 0.15),
        "not deploy",
        r"abort",
        options=SAMPLED,
    ),
    ab(
        "error_objects",
        "15% of the streams say {object: error}, then [DONE]",
        failing("error_object", 0.15),
        "not deploy",
        r"fail|error",
        options=SAMPLED,
    ),
    ab(
        "error_json",
        "15% of the answers are an error as JSON, with status 200",
        failing("error_json", 0.15),
        "not deploy",
        r"fail|error|malformed",
        options=SAMPLED,
    ),
    ab(
        "standard_fails",
        "12% of the standard's requests fail; as fast otherwise",
        EQUAL,
        "not deploy",
        r"standard[^\n]*fail|fail[^\n]*standard",
        standard=failing("http_500", 0.12, STANDARD),
    ),
    ab(
        "one_class_fails",
        "every eighth request of the class code fails",
        failing("http_500", 0.125, classes=("code",)),
        "not deploy",
        r"fail",
    ),
    ab(
        "dies",
        "every request fails after the first 30",
        failing("http_500", 1.0, after=30),
        "no",
        r"fail",
    ),
    ab(
        "fails_among_sampled",
        "greedy requests fail while sampled ones share the batch",
        failing("http_500", 1.0, LATE_FASTER, mixed=True),
        "no",
        r"sampled",
        standard=LATE,
        options=MIXED,
        prompts=32,
    ),
]

UNLIKE_ANSWERS = [
    ab(
        "sampled_loops",
        "1.55 times as fast; sampled answers repeat two words, greedy ones are the standard's",
        replace(FASTER, loops=True),
        "no",
        r"requests got an answer that repeats one passage",
        options=SAMPLED,
        prompts=MANY,
    ),
    ab(
        "reasoning_alone",
        "1.55 times as fast; the same words, all sent as reasoning_content",
        replace(FASTER, reasoning=True),
        "no",
        r"got reasoning and no answer",
    ),
    ab(
        "done_in_the_middle",
        "1.55 times as fast; 6% of the answers end at half with [DONE] and no finish reason",
        failing("unended", 0.06),
        "not deploy",
        r"fail",
        options=SAMPLED,
        prompts=MANY,
    ),
    ab(
        "end_in_the_middle",
        "the same without [DONE]: the connection ends well",
        failing("silent_end", 0.06),
        "not deploy",
        r"fail",
        options=SAMPLED,
        prompts=MANY,
    ),
    ab(
        "filtered",
        "1.55 times as fast; a content filter ends 6% of the answers at half",
        failing("filtered", 0.06),
        "not deploy",
        r"content filter",
        options=SAMPLED,
        prompts=MANY,
    ),
    ab(
        "cap_of_its_own",
        "1.55 times as fast; answers end after 5 tokens with finish_reason length",
        replace(FASTER, cap=5),
        "not deploy",
        r"shorter",
        options=SAMPLED,
    ),
    ab(
        "chunks_come_twice",
        "1.55 times as fast; a proxy sends each chunk twice; both servers refuse temperature 0",
        replace(FASTER, copies=2, refuses_greedy=True),
        "not deploy",
        r"longer, in characters",
        standard=replace(STANDARD, refuses_greedy=True),
        options=SAMPLED,
    ),
    ab(
        "half_blank",
        "the second half of each answer is white space, fast; both servers refuse temperature 0",
        replace(FASTER, length=0.5, padding=1.0, refuses_greedy=True),
        "not deploy",
        r"shorter, in characters",
        standard=replace(STANDARD, refuses_greedy=True),
        options=SAMPLED,
        prompts=MANY,
    ),
    ab(
        "coalesced_and_accepted",
        "a third slower in all; chunks of 6 tokens without a count; other lengths are accepted",
        replace(EQUAL, length=1.2, first_chunk=6, chunk=6, ttft_ms=42.5),
        "not deploy",
        r"longer",
        options=(*SAMPLED, "--accept-length-change"),
    ),
    ab(
        "comments",
        "1.55 times as fast; 20 comments, which keep the connection alive, before each chunk",
        replace(FASTER, comments=20),
        "deploy",
        r"1\.[3-7]\d×",
        never=(r"shorter|longer",),
    ),
    ab(
        "standard_refuses_at_first",
        "equal servers; the standard refuses every fourth request at first (429, Retry-After 0.1 s)",
        EQUAL,
        "not deploy",
        r"only because of requests that failed or were refused",
        standard=failing("http_429_later", 0.25, STANDARD),
        prompts=MANY,
    ),
    ab(
        "standard_warms_up",
        "equal servers; the standard's first 12 requests take 5 times as long",
        EQUAL,
        "not deploy",
        standard=replace(STANDARD, drift=((14, 5.0), (15, 1.0))),
    ),
    sweep(
        "candidate_reasons_alone",
        "K 3 is 1.55 times as fast; the same words, all sent as reasoning_content",
        [replace(FASTER, reasoning=True)],
        "no",
        r"got reasoning and no answer",
    ),
    sweep(
        "candidate_loops",
        "K 3 is 1.55 times as fast; sampled answers repeat two words",
        [replace(FASTER, loops=True)],
        "no",
        r"got an answer that repeats one passage",
        options=SAMPLED,
    ),
    sweep(
        "standard_refuses_at_first",
        "equal servers; the standard refuses every fourth request at first (429, Retry-After 0.1 s)",
        [EQUAL],
        "not deploy",
        standard=failing("http_429_later", 0.25, STANDARD),
    ),
]

CACHES = [
    ab(
        "cache",
        "equal servers; the challenger answers a prompt that comes again 5 times as fast",
        replace(EQUAL, repeat_factor=0.2),
        "not deploy",
        r"cache",
        fast=True,
    ),
    ab(
        "cache_in_both",
        "equal servers, both answer a prompt that comes again 5 times as fast",
        replace(EQUAL, repeat_factor=0.2),
        "not deploy",
        standard=replace(STANDARD, repeat_factor=0.2),
    ),
    ab(
        "cache_of_both",
        "equal servers with one cache: who is sent a prompt second answers 5 times as fast",
        replace(EQUAL, repeat_factor=0.2, shares_cache=True),
        "not deploy",
        standard=replace(STANDARD, repeat_factor=0.2, shares_cache=True),
    ),
    ab(
        "cache_and_faster",
        "1.55 times as fast, and repeats come from a cache",
        replace(FASTER, repeat_factor=0.2),
        "deploy",
        r"cache",
        r"1\.[3-7]\d×",
        prompts=MANY,
    ),
    ab(
        "cache_of_one_file",
        "equal servers; 48 prompts are 6 texts, and the challenger answers a text that comes again 5 times "
        "as fast",
        replace(EQUAL, repeat_factor=0.2),
        "not deploy",
        r"42 of 48 prompts repeat",
        texts=6,
        options=("--repeats=1",),
    ),
    ab(
        "standard_caches",
        "equal servers; the standard answers repeats 5 times as fast",
        EQUAL,
        "not deploy",
        r"cache",
        standard=replace(STANDARD, repeat_factor=0.2),
        never=(r"do not deploy[^\n]*slower",),
    ),
]

ANSWERS = [
    ab(
        "apologies",
        "1.55 times as fast; every fourth prompt gets an apology as text with status 200; temperature 0.7",
        replace(FASTER, stock=0.25),
        "not deploy",
        r"the same answer as another prompt",
        options=SAMPLED,
        prompts=MANY,
    ),
    ab(
        "random_at_temperature_0",
        "1.55 times as fast; all greedy answers of both servers are random",
        replace(FASTER, seed=7, random_greedy=True, tokens=(9, 9)),
        "undecided",
        r"hardly repeats itself cannot show",
        r"compare again",
        r"0/\d+ at 2 streams \(control 0/\d+\)",
        standard=replace(STANDARD, random_greedy=True, tokens=(9, 9)),
        prompts=MANY,
    ),
    ab(
        "another_random_model",
        "the same, and the standard is another model",
        replace(FASTER, seed=7, random_greedy=True, tokens=(9, 9)),
        "undecided",
        r"hardly repeats itself cannot show",
        standard=replace(STANDARD, random_greedy=True, other_model=True, tokens=(9, 9)),
        prompts=MANY,
    ),
    ab(
        "random_at_temperature_0_sampled",
        "random at temperature 0; measured at temperature 0.7",
        replace(FASTER, seed=7, random_greedy=True),
        "undecided",
        r"hardly repeats itself cannot show",
        standard=replace(STANDARD, random_greedy=True),
        options=SAMPLED,
        prompts=MANY,
    ),
    ab(
        "unsteady_other_model",
        "1.55 times as fast, by another model; both servers differ from themselves at temperature 0",
        replace(FASTER, unsteady=0.9, length_sd=0.1, other_model=True),
        "no",
        r"begin the same",
        standard=replace(STANDARD, unsteady=0.9, length_sd=0.1),
        prompts=MANY,
    ),
    ab(
        "other_model_sampled",
        "1.55 times as fast, by another model whose answers are as long; temperature 0.7",
        replace(FASTER, other_model=True),
        "no",
        r"0/12 greedy answers are the same",
        r"temperature 0, by 36 requests",
        options=SAMPLED,
        prompts=MANY,
    ),
    ab(
        "same_model_sampled",
        "1.55 times as fast, by the same model; temperature 0.7",
        FASTER,
        "deploy",
        r"12/12 at 2 streams \(control 12/12\); at temperature 0, by 36 requests",
        options=SAMPLED,
        prompts=MANY,
    ),
    ab(
        "garbage_at_8_sampled",
        "greedy answers change while more than 4 requests are in flight; measured at temperature 0.7",
        replace(FASTER, garble_share=1.0, garble_above=4),
        "no",
        r"greedy answers are the same in both arms at 8 streams",
        options=(*SAMPLED, "--concurrency=8"),
        prompts=MANY,
    ),
    ab(
        "both_refuse_temperature_0",
        "1.55 times as fast; both servers refuse temperature 0",
        replace(FASTER, refuses_greedy=True),
        "deploy",
        r"unchecked: standard answers no request at temperature 0",
        standard=replace(STANDARD, refuses_greedy=True),
        options=SAMPLED,
        prompts=MANY,
    ),
    ab(
        "challenger_refuses_temperature_0",
        "1.55 times as fast; the challenger alone refuses temperature 0",
        replace(FASTER, refuses_greedy=True),
        "undecided",
        r"challenger refuses requests at temperature 0",
        options=SAMPLED,
        prompts=MANY,
    ),
    sweep(
        "candidate_apologises",
        "K 3 is 1.55 times as fast; every fourth prompt gets an apology as text; temperature 0.7",
        [replace(FASTER, stock=0.25)],
        "not deploy",
        r"the same answer as another prompt",
        options=SAMPLED,
    ),
    sweep(
        "candidate_other_model",
        "K 3 is 1.55 times as fast, and every answer of it is another one from the first token on",
        [replace(FASTER, stock=1.0, tokens=(9, 9))],
        "not deploy",
        r"differ from the first character on",
        standard=replace(STANDARD, tokens=(9, 9)),
    ),
    baseline(
        "only_apologies",
        "every prompt gets an apology as text with status 200",
        replace(STANDARD, stock=1.0, tokens=(8, 8)),
        "undecided",
        r"(48|96) of \d+ requests got the same answer as another prompt",
        r"no baseline to compare with[^\n]*measure again",
    ),
    baseline(
        "baseline_caches",
        "repeats are answered 5 times as fast as first requests",
        replace(STANDARD, repeat_factor=0.2),
        "undecided",
        r"repeats are faster[^\n]*cache",
        r"no baseline to compare with[^\n]*--repeats 1 --warmup 0",
    ),
    baseline(
        "first_requests_of_a_cache",
        "the same, and each prompt is sent once, as the advice says",
        replace(STANDARD, repeat_factor=0.2),
        "yes",
        never=(r"cache",),
        options=("--repeats=1", "--warmup=0"),
    ),
    baseline(
        "counts_half",
        "usage counts half of the tokens, one in each chunk",
        replace(STANDARD, usage_factor=0.5, tokens=(12, 12)),
        "undecided",
        r"counts fewer tokens than it sends chunks|counts \d tokens in an answer with max_tokens 8",
        r"no baseline to compare with[^\n]*repair",
    ),
    baseline(
        "counts_half_again",
        "usage counts 1.5 times the tokens, three of them in each chunk",
        replace(STANDARD, usage_factor=1.5, tokens=(12, 12), first_chunk=3, chunk=3),
        "undecided",
        r"counts 12 tokens in an answer with max_tokens 8 \(finish_reason length\)",
        r"no baseline to compare with[^\n]*repair",
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
    ab(
        "challenger_counts_half_again",
        "equal servers, three tokens in each chunk; the challenger's usage is 1.5 times the truth; sampled",
        replace(EQUAL, usage_factor=1.5, tokens=(12, 12), first_chunk=3, chunk=3),
        "not deploy",
        r"challenger: the server counts 12 tokens in an answer with max_tokens 8",
        standard=replace(STANDARD, tokens=(12, 12), first_chunk=3, chunk=3),
        options=SAMPLED,
    ),
    ab(
        "both_count_half_again",
        "the same of both servers",
        replace(FASTER, usage_factor=1.5, tokens=(12, 12), first_chunk=3, chunk=3),
        "not deploy",
        r"standard: the server counts 12 tokens[^\n]*challenger: the server counts 12 tokens",
        standard=replace(STANDARD, usage_factor=1.5, tokens=(12, 12), first_chunk=3, chunk=3),
    ),
    baseline(
        "no_cache",
        "repeats take as long as first requests, and each prompt has its own answer",
        STANDARD,
        "yes",
        never=(r"cache", r"same answer"),
    ),
    ab(
        "garbage_among_sampled",
        "3 of 8 greedy answers, or a few more, change while sampled requests share the batch; no logprobs",
        replace(LATE_FASTER, garble_share=0.4, garble_mixed=True),
        "not deploy",
        r"sampled",
        standard=LATE,
        options=MIXED,
        prompts=32,
    ),
    ab(
        "much_garbage_among_sampled",
        "all greedy answers change while sampled requests share the batch; no logprobs",
        replace(LATE_FASTER, garble_share=1.0, garble_mixed=True),
        "no",
        r"sampled",
        standard=LATE,
        options=MIXED,
        prompts=32,
    ),
    ab(
        "sure_garbage_among_sampled",
        "3 of 8 change, or a few more, and log-probabilities say that every token was sure",
        replace(LATE_FASTER, garble_share=0.4, garble_mixed=True),
        "not deploy",
        r"sampled",
        standard=replace(LATE, logprobs=True),
        options=MIXED,
        prompts=32,
    ),
    ab(
        "steady_among_sampled",
        "1.6 times as fast, answers stay the same among sampled requests; no logprobs",
        LATE_FASTER,
        "deploy",
        standard=LATE,
        options=MIXED,
        prompts=32,
    ),
    ab(
        "garbage_at_8",
        "half of the greedy answers change while more than 4 requests are in flight",
        replace(FASTER, garble_share=0.5, garble_above=4),
        "not deploy",
        OTHER_ANSWERS,
        options=LOADED,
        prompts=MANY,
    ),
    ab(
        "garbage_at_8_not_at_1",
        "the same, measured at 1 and at 8 streams",
        replace(FASTER, garble_share=0.5, garble_above=4),
        "any verdict",
        r"8 streams",
        never=(r"pays at every load", r"use it at 1 (and|to|through) 8"),
        options=BOTH_LOADS,
        prompts=MANY,
    ),
    ab(
        "repeats_garbled",
        "answers change where a prompt comes again, as after a corrupted cache",
        replace(FASTER, garble_share=0.6, garble_repeats=True),
        "not deploy",
        OTHER_ANSWERS,
    ),
    ab(
        "other_answers",
        "faster, but every third greedy answer is another one",
        replace(FASTER, unsteady=0.35),
        "no",
        OTHER_ANSWERS,
        prompts=MANY,
    ),
]

NOISE = [
    ab(
        "visit_noise",
        "equal servers; each visit is slower or faster by 10%, at 8 streams",
        replace(EQUAL, visit_sd=0.1, visit_requests=16),
        "not deploy",
        standard=replace(STANDARD, visit_sd=0.1, visit_requests=16),
        options=LOADED,
        prompts=MANY,
    ),
    ab(
        "bursts",
        "equal servers; every 2 s the machine's speed is drawn again, 25% apart",
        replace(EQUAL, burst_s=2.0, burst_share=0.25),
        "not deploy",
        standard=replace(STANDARD, burst_s=2.0, burst_share=0.25),
        prompts=MANY,
    ),
    ab(
        "short_bursts",
        "the same, drawn again about once a visit",
        replace(EQUAL, burst_s=0.25, burst_share=0.25),
        "not deploy",
        standard=replace(STANDARD, burst_s=0.25, burst_share=0.25),
        prompts=MANY,
    ),
    ab(
        "same_server",
        "one URL against itself with --same-server; every 2 s the speed is drawn again, 25% apart",
        EQUAL,
        "not deploy",
        r"same server|A/A|noise",
        standard=replace(STANDARD, burst_s=2.0, burst_share=0.25),
        urls=(0, 0),
        options=("--same-server",),
    ),
    ab(
        "faster_with_visit_noise",
        "1.55 times as fast; each visit is slower or faster by 5%",
        replace(FASTER, visit_sd=0.05),
        "deploy",
        standard=replace(STANDARD, visit_sd=0.05),
        prompts=MANY,
    ),
]

DRIFT = [
    ab(
        "standard_drifts",
        "equal at first; the standard takes 3 times as long at the end",
        EQUAL,
        "not deploy",
        DRIFTED,
        standard=replace(STANDARD, drift=((20, 1.0), (100, 3.0))),
    ),
    ab(
        "fast_at_first",
        "the challenger takes half as long for its first 40 requests, then as long as the standard",
        replace(EQUAL, drift=((40, 0.5), (41, 1.0))),
        "not deploy",
        DRIFTED,
        prompts=MANY,
        options=("--looks=1",),
    ),
    ab(
        "standard_wakes_up",
        "equal servers; after the challenger's visits the standard's first 2 requests take 4 times as long",
        EQUAL,
        "not deploy",
        r"may have to wake up",
        standard=replace(STANDARD, wake=(2, 4.0)),
    ),
    ab(
        "both_wake_up",
        "1.55 times as fast; the first 2 requests of both take 4 times as long after the other's visits",
        replace(FASTER, wake=(2, 4.0)),
        "deploy",
        standard=replace(STANDARD, wake=(2, 4.0)),
        prompts=MANY,
    ),
    ab(
        "both_drift",
        "both take twice as long at the end; the challenger is 1.55 times as fast throughout",
        replace(FASTER, drift=((0, 1.0), (100, 2.0))),
        "deploy",
        standard=replace(STANDARD, drift=((0, 1.0), (100, 2.0))),
        prompts=MANY,
    ),
]

CHUNKS = [
    ab(
        "closing",
        "1.55 times as fast; it closes each connection after a stream while advertising keep-alive",
        replace(FASTER, closing="race"),
        "deploy",
        never=(r"\d+ of \d+[^\n]*failed", r"cut"),
        fast=True,
    ),
    ab(
        "closing_both",
        "the same of both servers",
        replace(FASTER, closing="fin"),
        "deploy",
        standard=replace(STANDARD, closing="fin"),
        never=(r"\d+ of \d+[^\n]*failed", r"cut"),
    ),
    ab(
        "at_once",
        "equal servers; the challenger sends its whole answer in one chunk at the end",
        replace(EQUAL, ttft_ms=62.0, token_ms=0.0, first_chunk=99, tokens=(9, 9)),
        "not deploy",
        standard=replace(STANDARD, tokens=(9, 9)),
    ),
    ab(
        "zero_tokens",
        "equal servers; the challenger says completion_tokens: 0 beside its text",
        replace(EQUAL, usage="zero"),
        "not deploy",
        r"0 tokens|completion_tokens|usage|not known|unknown|count",
        never=(r"\b0 tok/s", r"100% (\[[^\]]*\] )?shorter"),
    ),
    ab(
        "no_usage_of_one",
        "the challenger says no usage and ends its answers at half; temperature 0.7",
        replace(EQUAL, usage="none", length=0.5),
        "not deploy",
        r"shorter|lengths?[^\n]*(unknown|not known|not compared)|usage",
        options=SAMPLED,
    ),
    ab(
        "no_usage_half",
        "neither server says usage; answers end at half, temperature 0.7",
        replace(EQUAL, usage="none", length=0.5),
        "not deploy",
        r"shorter|lengths?[^\n]*(unknown|not known|not compared)|usage",
        standard=replace(STANDARD, usage="none"),
        options=SAMPLED,
    ),
]

IDENTITY = [
    ab(
        "one_url",
        "one URL is both arms",
        EQUAL,
        "refused",
        r"same|one server|both",
        urls=(0, 0),
        fast=True,
    ),
    ab(
        "one_process",
        "two URLs, one process start time and one model in the metrics",
        replace(FASTER, metrics=True, started=1_750_000_000.25),
        "refused",
        r"same|one server|one process",
        standard=replace(STANDARD, metrics=True, started=1_750_000_000.25),
    ),
    ab(
        "standard_counts_drafts",
        "the standard's counters of drafts grow",
        FASTER,
        "any verdict",
        r"standard[^\n]*speculat|speculat[^\n]*standard",
        standard=replace(STANDARD, metrics=True, speculates=True),
    ),
    ab(
        "standard_sends_several",
        "the standard sends three tokens in each chunk, without metrics",
        replace(FASTER, chunk=3),
        "any verdict",
        r"standard[^\n]*(speculat|tokens (a|per|in (a|each)) chunk)|speculat[^\n]*standard",
        standard=replace(STANDARD, chunk=3),
    ),
]

BAD_INPUT = [
    ab(
        "html",
        "the challenger answers HTML",
        replace(EQUAL, bad="html"),
        "refused",
        r"html|web page",
        fast=True,
    ),
    ab("needs_a_key", "the challenger answers 401", replace(EQUAL, bad="401"), "refused", r"API key|401"),
    ab("not_found", "the challenger answers 404", replace(EQUAL, bad="404"), "refused", r"404"),
    ab("always_busy", "the challenger answers 429 without end", replace(EQUAL, bad="429"), "refused", r"429"),
    ab("no_models", "the challenger lists no model", replace(EQUAL, bad="no_models"), "refused", r"no model"),
    ab("loading", "the challenger answers 503", replace(EQUAL, bad="loading"), "refused", r"503|loading"),
]

BETTER = replace(STANDARD, ttft_ms=8.5, token_ms=5.5)
"""1.18 times as fast."""

EVERY = ("--concurrency=4",)
TWELVE = replace(STANDARD, tokens=(12, 12), token_ms=10.0)
"""Slow enough that the loop's millisecond is small beside a token."""


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


def not_recommended(*ks: int) -> Figures:
    def check(result: dict[str, Any]) -> list[str]:
        chosen = result["summary"].get("recommended")
        return [f"it recommends {chosen}"] if chosen in ks else []

    return check


def candidates_get_two_fifths(result: dict[str, Any]) -> list[str]:
    """Of all requests of a sweep."""
    cells = result["data"]["stored"]["cells"]
    of_standard = sum(len(cell["cell"]["rows"]) for cell in cells if cell["setting"] == "standard")
    everything = sum(len(cell["cell"]["rows"]) for cell in cells)
    share = 1 - of_standard / everything
    return [] if share >= 0.4 else [f"candidates had {share:.0%} of {everything} requests"]


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


SWEEPS = [
    sweep(
        "two_candidates",
        "K 3 is 1.55 times as fast, K 5 1.18 times",
        [FASTER, BETTER],
        "deploy",
        r"k=3",
        r"n=\d+|\d+ requests",
        figures=speedup_of(3, 1.40, 1.65),
    ),
    sweep("all_equal", "five equal settings", [EQUAL] * 4, "not deploy", prompts=24),
    sweep("all_slower", "every setting takes 1.45 times as long", [SLOWER] * 2, "no", prompts=24, fast=True),
    sweep(
        "lucky_winner",
        "seven equal settings, each request slower or faster by 30%",
        [replace(EQUAL, request_sd=0.3)] * 7,
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
        [replace(FASTER, request_sd=0.3)] * 3,
        "deploy",
        standard=replace(STANDARD, request_sd=0.3),
        prompts=48,
        figures=lambda result: speedup_of(result["summary"].get("recommended"), 1.30, 1.75)(result),
    ),
    sweep(
        "candidate_truncates",
        "K 3 ends its answers at half, K 5 is 1.55 times as fast; temperature 0.7",
        [replace(EQUAL, length=0.5), FASTER],
        "deploy",
        r"k=3[^\n]*short|short[^\n]*k=3",
        options=SAMPLED,
        figures=speedup_of(5, 1.35, 1.70),
    ),
    sweep(
        "only_candidate_truncates",
        "the only setting ends its answers at half; temperature 0.7",
        [replace(EQUAL, length=0.5)],
        "not deploy",
        r"shorter",
        options=SAMPLED,
    ),
    sweep(
        "truncation_accepted",
        "the only setting ends its answers at half, 1.55 times as fast a token; the rollout file accepts it",
        [replace(FASTER, length=0.5)],
        "deploy",
        r"deploy[^\n]*shorter, which is accepted",
        options=SAMPLED,
        rollout=(("ab.accept_length_change", True),),
    ),
    sweep(
        "standard_truncates",
        "the standard ends its answers at half; the same time for each token",
        [EQUAL],
        "not deploy",
        r"short|longer|truncat",
        standard=replace(STANDARD, length=0.5),
        options=SAMPLED,
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
        "candidate_hangs_long",
        "5% of K 3's requests hang for 1.5 s within the timeout",
        [failing("hang", 0.05, ms=1500)],
        "not deploy",
        r"10×|p99|tail|slowest",
    ),
    sweep(
        "candidate_fails_fast",
        "20% of K 3's requests fail at once; K 5 is 1.55 times as fast",
        [failing("http_500", 0.2), FASTER],
        "deploy",
        r"k=3[^\n]*fail|fail[^\n]*k=3",
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
        "candidate_caches",
        "K 3 answers repeats 5 times as fast; equal otherwise",
        [replace(EQUAL, repeat_factor=0.2)],
        "not deploy",
        r"cache",
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
        "candidate_html",
        "K 3 answers HTML; its model is asked before anything is measured",
        [replace(EQUAL, bad="html"), FASTER],
        "refused",
        r"html|web page",
        rollout=(("measure.timeout_s", 5.0),),
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
        "a budget of 48 s; of four settings one is 1.55 times as fast",
        [FASTER, EQUAL, BETTER, EQUAL],
        "deploy",
        r"k=3",
        options=("--budget=0.8",),
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
]

BASELINES = [
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
        "noisy",
        "a steady server, each request slower or faster by 20%",
        replace(STANDARD, request_sd=0.2),
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
        "filtered",
        "a content filter ends every fifth answer",
        failing("filtered", 0.2, STANDARD),
        "any verdict",
        r"(19|20|21) of 96 answers were ended by a content filter",
        options=EVERY,
    ),
    baseline(
        "reasoning_alone",
        "all output is reasoning",
        replace(STANDARD, reasoning=True),
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
        replace(TWELVE, comments=20),
        "yes",
        figures=time_per_token(10.0, 12),
        options=EVERY,
    ),
    baseline("html", "it answers HTML", Server(bad="html"), "refused", r"html|web page", fast=True),
    baseline("needs_a_key", "it answers 401", Server(bad="401"), "refused", r"API key|401"),
    baseline("not_found", "it answers 404", Server(bad="404"), "refused", r"404"),
    baseline("always_busy", "it answers 429 without end", Server(bad="429"), "refused", r"429|limit"),
    baseline("no_models", "it lists no model", Server(bad="no_models"), "refused", r"no model"),
    baseline("loading", "it answers 503", Server(bad="loading"), "refused", r"503|loading"),
]

ROWS: list[Row] = [
    *SPEED,
    *LENGTH,
    *FAILURES,
    *UNLIKE_ANSWERS,
    *CACHES,
    *ANSWERS,
    *NOISE,
    *DRIFT,
    *CHUNKS,
    *IDENTITY,
    *BAD_INPUT,
    *SWEEPS,
    *BASELINES,
]

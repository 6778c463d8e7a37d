"""Faults of `ab` in requests, moments or fields that a comparison of some figures would not read."""

from __future__ import annotations

from dataclasses import replace

from fault_rows import FASTER, MANY, SAMPLED, STANDARD, ab, failing, slowed
from fault_runs import Row
from zoo_knobs import Fault, Server

LONGER = replace(STANDARD, tokens=(8, 40), token_ms=10.0)
NOISY = replace(STANDARD, request_sd=0.15)

MOMENTS = [
    ab(
        "fast_after_a_pause",
        "each token 1.55 times as fast; the first one comes late unless there was a pause",
        replace(FASTER, unpaused_ttft_ms=110.0),
        "not deploy",
        options=("--concurrency=1",),
        prompts=MANY,
    ),
    ab(
        "slow_when_full",
        "time a token 3 ms up to 6 in flight and 11 above, the standard's 10; answers of 8 to 40 tokens",
        replace(LONGER, ttft_ms=6.5, token_ms=3.0, loaded_factor=11 / 3, loaded_above=6),
        "not deploy",
        standard=LONGER,
        options=("--concurrency=8",),
        prompts=MANY,
    ),
    ab(
        "stops_again_and_again",
        "1.55 times as fast; nothing is served for 1.5 s of each 25 s",
        replace(FASTER, outage_s=(25.0, 1.5)),
        "not deploy",
        options=("--min-duration=40",),
        prompts=MANY,
    ),
    ab(
        "fast_for_twenty_seconds",
        "1.55 times as fast, and after 20 s 1.5 times as slow as the standard",
        replace(FASTER, drift_s=((20.0, 2.3),)),
        "not deploy",
        options=("--min-duration=60",),
        prompts=MANY,
    ),
    ab(
        "odd_connections",
        "equal servers; the challenger takes twice as long on every second connection, half on the others",
        replace(STANDARD, odd_connections=2.0),
        "not deploy",
        prompts=MANY,
    ),
    ab(
        "odd_connections_of_one_stream",
        "the same with one stream",
        replace(STANDARD, odd_connections=2.0),
        "not deploy",
        options=("--concurrency=1",),
        prompts=MANY,
    ),
    ab(
        "cache_of_an_earlier_run",
        "equal servers; the challenger answers what it was asked before 3 times as fast, and the command ran "
        "before",
        replace(STANDARD, repeat_factor=0.33),
        "not deploy",
        prompts=MANY,
        again=True,
    ),
    *(
        ab(
            f"noise_that_lasts_{number}",
            "equal servers; each has noise of its own that goes over from request to request",
            replace(STANDARD, seed=number, lasting_sd=0.15, lasting_phi=phi),
            "not deploy",
            standard=replace(STANDARD, seed=100 + number, lasting_sd=0.15, lasting_phi=phi),
            prompts=MANY,
        )
        for number, phi in ((1, 0.95), (2, 0.98))
    ),
]

ANSWERS = [
    ab(
        "two_garbled_prompts",
        "1.55 times as fast; the answers to 2 of 64 prompts are garbage after a third",
        replace(FASTER, garbled_prompts=(7, 40)),
        "no",
        prompts=MANY,
    ),
    ab(
        "two_garbled_prompts_of_an_unknown_standard",
        "the same; the standard is not asked anything twice, so it is not known to be steady",
        replace(FASTER, garbled_prompts=(7, 40)),
        "not deploy",
        options=("--mixed-prompts=0",),
        prompts=MANY,
    ),
    ab(
        "two_garbled_prompts_with_logprobs",
        "the same; the standard says that every token is sure",
        replace(FASTER, garbled_prompts=(7, 40), logprobs=True),
        "no",
        standard=replace(STANDARD, logprobs=True),
        prompts=MANY,
    ),
    ab(
        "gibberish",
        "1.55 times as fast; greedy answers are right, sampled ones are random letters",
        replace(FASTER, gibberish=1.0),
        "no",
        prompts=MANY,
    ),
    ab(
        "gibberish_sampled",
        "1.55 times as fast; a third of the answers are random letters; temperature 0.7",
        replace(FASTER, gibberish=0.33),
        "no",
        options=SAMPLED,
        prompts=MANY,
    ),
    ab(
        "some_cut",
        "1.55 times as fast; a tenth of the answers end at 40%; temperature 0.7",
        replace(FASTER, sampled_cut=0.1),
        "not deploy",
        options=SAMPLED,
        prompts=MANY,
    ),
    *(
        ab(
            f"reasoning_{round(100 * share)}",
            f"1.55 times as fast; the first {share:.0%} of each answer are sent as reasoning_content",
            replace(FASTER, reasoning=share),
            "no",
            prompts=MANY,
        )
        for share in (0.25, 0.8)
    ),
    *(
        ab(
            f"sent_as_{field}",
            f"1.55 times as fast; the same words arrive in the field {field}",
            replace(FASTER, field=field),
            "no",
            r"other field \d+",
            prompts=MANY,
        )
        for field in ("refusal", "tool_calls")
    ),
    ab(
        "no_usage_of_the_challenger",
        "1.55 times as fast, the same text, no usage",
        replace(FASTER, usage="none"),
        "deploy",
        prompts=MANY,
    ),
    ab(
        "byte_order_mark",
        "1.55 times as fast, with a byte order mark before the stream",
        replace(FASTER, byte_order_mark=True),
        "deploy",
        prompts=MANY,
    ),
    ab(
        "nothing_accepted",
        "1.55 times as fast; its counters say that no drafted token was accepted",
        replace(FASTER, metrics=True, speculates=True, accepts=False),
        "no",
        r"accepted",
        standard=replace(STANDARD, metrics=True),
        prompts=MANY,
    ),
]

FAILURES = [
    ab(
        "one_percent_fails",
        "1.55 times as fast; 1% of the requests fail, and 0.5% may",
        failing("http_500", 0.01),
        "not deploy",
        options=("--failure-margin=0.005",),
        prompts=MANY,
    ),
    ab(
        "two_percent_hang",
        "1.55 times as fast; 2% of the requests hang until the timeout",
        failing("hang", 0.02, ms=30_000),
        "no",
        options=("--timeout=3",),
        prompts=MANY,
    ),
    ab(
        "one_prompt_fails_in_both",
        "1.55 times as fast; one prompt gets status 400 from both",
        replace(FASTER, refused_prompts=(17,)),
        "deploy",
        r"p17\b",
        standard=replace(STANDARD, refused_prompts=(17,)),
        prompts=MANY,
    ),
    ab(
        "one_prompt_fails",
        "1.55 times as fast; one prompt gets status 400, which the standard answers",
        replace(FASTER, refused_prompts=(17,)),
        "any verdict",
        r"p17\b",
        never=(r"deploy for [^;\n]*code",),
        prompts=MANY,
    ),
    ab(
        "sampled_fail",
        "1.55 times as fast; all sampled requests get status 500",
        replace(FASTER, faults=(Fault("http_500", sampled=True),)),
        "no",
        r"sampled",
        prompts=MANY,
    ),
    ab(
        "warm_up_hangs",
        "1.55 times as fast; its first requests hang until the timeout",
        replace(FASTER, faults=(Fault("hang", ms=30_000, after=1, last=4),)),
        "not deploy",
        options=("--timeout=3",),
        prompts=MANY,
    ),
]

POWER = [
    ab(
        "thirty_percent_at_8",
        "1.3 times as fast at 8 streams; each request has noise of 15%",
        Server(ttft_ms=10 / 1.3, token_ms=6.5 / 1.3, request_sd=0.15, seed=1),
        "deploy",
        standard=NOISY,
        options=("--concurrency=8", "--requests=750"),
        prompts=MANY,
    ),
    ab(
        "ten_percent_of_mixed_lengths",
        "1.1 times as fast; answers of 6 to 30 tokens, noise of 15%",
        replace(slowed(NOISY, 1 / 1.1), tokens=(6, 30), seed=1),
        "deploy",
        standard=replace(NOISY, tokens=(6, 30)),
        options=("--requests=750",),
        prompts=MANY,
    ),
]

AB_UNREAD: list[Row] = [*MOMENTS, *ANSWERS, *FAILURES, *POWER]

"""A pool of SGLang, what it answers, and the names of its series.

The names were read in the source of 0.5.23 (srt/observability/metrics_collector.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specops.foreign_json import object_at
from specops.serving.acceptance import Drafts, RequestDrafts
from specops.serving.argv import Finding
from specops.serving.engine import EVERYWHERE, Container, MultiHost, PairQuestion, Rendering, Start
from specops.serving.metrics import PrefixCache, Responses, Series
from specops.serving.sglang.lint import lint
from specops.serving.sglang.releases import table
from specops.serving.sglang.settings import VERSION, SglangSettings, command

SERIES = Series(
    ttft="sglang:time_to_first_token_seconds",
    tpot="sglang:request_time_per_output_token_seconds",
    e2e="sglang:e2e_request_latency_seconds",
    running="sglang:num_running_reqs",
    waiting="sglang:num_queue_reqs",
    kv_usage="sglang:token_usage",
    generated="sglang:generation_tokens_total",
    finished="sglang:num_requests_total",
    preemptions="sglang:num_retracted_requests_total",
    acceptance=(
        Drafts(
            drafts="sglang:spec_verify_calls_total",
            rate="sglang:spec_accept_rate",
            length="sglang:spec_accept_length",
        ),
    ),
    aborted="sglang:num_aborted_requests_total",
    http=Responses("sglang:http_responses_total", path="endpoint", status="status_code"),
    prefix_cache=(PrefixCache("sglang:cached_tokens_total", lookups="sglang:prompt_tokens_total"),),
    counts_at_end=True,
)


ASK_FOR_DRAFTS = {"return_spec_tokens_details": True}
"""A field of requests, without which answers do not report their drafts (PR 33518)."""

NAMES = (
    ("spec_num_proposed_drafts", "spec_num_correct_drafts", "spec_correct_drafts_histogram"),
    ("spec_proposed_drafts", "spec_accepted_drafts", "spec_accept_histogram"),
    ("spec_draft_token_num", "spec_accept_token_num", "spec_accept_histogram"),
)
"""What an answer calls its drafted and accepted tokens and the histogram, the current names first."""


def answer_drafts(body: Mapping[str, Any]) -> RequestDrafts | None:
    """The drafts in `sglext.spec_tokens_details`, which comes once, in the last chunk; earlier in the
    choice's `meta_info`."""
    places = [object_at(body, "sglext", "spec_tokens_details"), object_at(body, "meta_info")]
    choices = body.get("choices")
    if isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], Mapping):
        places.append(object_at(choices[0], "meta_info"))
    for reported in places:
        for drafted, accepted, histogram in NAMES:
            drafts = RequestDrafts.read(
                reported.get(drafted),
                reported.get(accepted),
                reported.get("spec_verify_ct"),
                reported.get(histogram),
            )
            if drafts is not None:
                return drafts
    return None


IMAGE = "lmsysorg/sglang"
DIST_PORT = 20000
"""Port over which the hosts of one server meet."""


class SglangPool(SglangSettings):
    """Servers of SGLang that specops configures: it renders how to start them, and can start one itself."""

    def start(self, port: int, name: str) -> Start:
        words = command(self, port=port)
        return Start(self._startable(words), timeout_s=self.start_timeout_s)

    def rendering(self, port: int | str, name: str) -> Rendering:
        version, words = self.version or VERSION, command(self, port=port)
        judged = table().release(version).version
        why = f"SGLang {version} is not in the table; the flags were checked for {judged}"
        return Rendering(
            words,
            version,
            judged=f"SGLang {judged}",
            findings=lint(words, version),
            notes=[] if version == judged else [Finding(level="warning", flag="version", why=why)],
        )

    def container(self, port: int, name: str, version: str | None, drain_s: int) -> Container:
        called = self.model_copy(update={"program": "python3 -m sglang.launch_server"})
        words = command(called, port=port, host=EVERYWHERE)
        image = f"{IMAGE}:v{version or VERSION}"
        return Container(image, words, self.gpus, downloads=True, drains=True)

    def spread(self, words: Sequence[str], nodes: int, address: str, rank: str) -> MultiHost:
        common = (*words, "--nnodes", str(nodes), "--dist-init-addr", f"{address}:{DIST_PORT}")
        return MultiHost(first=(*common, "--node-rank", "0"), worker=(*common, "--node-rank", rank))

    def at_k(self, k: int) -> dict[str, object]:
        assert self.speculation is not None
        update: dict[str, object] = {"num_steps": k}
        update |= {"num_draft_tokens": None} if self.speculation.eagle_topk == 1 else {}
        words = self.speculation.arguments
        if "--speculative-adaptive" in words:  # it would set the steps itself
            update["arguments"] = [word for word in words if word != "--speculative-adaptive"]
        return update

    @property
    def gpus(self) -> int:
        return (self.tp_size or 1) * (self.pp_size or 1) * (self.dp_size or 1)

    @property
    def series(self) -> Series:
        return SERIES

    @property
    def method(self) -> str | None:
        return self.speculation.algorithm if self.speculation else None

    @property
    def pair(self) -> PairQuestion:
        assert self.speculation is not None  # Pools refuses a speculative pool without it
        ngram = self.speculation.algorithm == "NGRAM"
        return PairQuestion(
            target=self.model_path,
            draft="ngram" if ngram else self.speculation.draft_model_path or self.model_path,
            version=self.version,
            tensor_parallel=self.tp_size or 1,
        )

"""A pool of TensorRT-LLM, what it answers, and the names of its series.

The names were read in the main branch between 1.3.0rc27 and 1.4.0rc1 (tensorrt_llm/metrics/collector.py). It
writes trtllm_ where this table has trtllm:.

They are at /prometheus/metrics: /metrics answers with JSON, and removes what it has answered. Counters of
requests need `return_perf_metrics: true` in the YAML file, gauges need `enable_iter_perf_stats: true`.
1.1.0rc5 had five of these series and no counters of drafts. Which release added the others is not known.
"""

from __future__ import annotations

import shlex

import yaml

from specops.serving.acceptance import Drafts
from specops.serving.argv import Files, Finding
from specops.serving.engine import EVERYWHERE, Container, PairQuestion, Rendering, Start, check_program
from specops.serving.metrics import PrefixCache, Series
from specops.serving.trtllm.lint import lint
from specops.serving.trtllm.releases import Version, installed, table
from specops.serving.trtllm.settings import TrtllmSettings, command, config, server

SERIES = Series(
    path="/prometheus/metrics",
    ttft="trtllm:time_to_first_token_seconds",
    tpot="trtllm:time_per_output_token_seconds",
    e2e="trtllm:e2e_request_latency_seconds",
    running="trtllm:num_requests_running",
    waiting="trtllm:num_requests_waiting",
    kv_usage="trtllm:kv_cache_utilization",
    generated="trtllm:generation_tokens_total",
    finished="trtllm:request_success_total",
    preemptions=None,
    acceptance=(
        Drafts(
            drafts="trtllm:spec_decode_drafted_tokens_total",
            draft_tokens="trtllm:spec_decode_drafted_tokens_total",
            accepted_tokens="trtllm:spec_decode_accepted_tokens_total",
            per_position="trtllm:spec_decode_accepted_tokens_total",
            position="token_position",
            of_first=True,
        ),
        Drafts(
            draft_tokens="trtllm:spec_decode_num_draft_tokens_total",
            accepted_tokens="trtllm:spec_decode_num_accepted_tokens_total",
            length="trtllm:spec_decode_acceptance_length",
        ),
    ),
    aborted="trtllm:request_error_total",
    prefix_cache=(
        PrefixCache("trtllm:kv_cache_reused_blocks_total", misses="trtllm:kv_cache_missed_blocks_total"),
    ),
    counts_at_end=True,
)


IMAGE = "nvcr.io/nvidia/tensorrt-llm/release"


class TrtllmPool(TrtllmSettings):
    """Servers of TensorRT-LLM that specops configures: it renders how to start them, and can start one."""

    def start(self, port: int, name: str) -> Start:
        check_program(shlex.split(self.program)[0])
        words = command(self, port=port, release=table().release(self._version))
        return Start(self._startable(words), timeout_s=self.start_timeout_s, model=self.model)

    def rendering(self, port: int | str, name: str) -> Rendering:
        release = table().release(self._version)
        text = yaml.safe_dump(config(self, release), sort_keys=False)
        words = server(self, port=port, host="127.0.0.1", file="config.yaml")
        notes = []
        if release.version != release.requested:
            why = f"the table has no TensorRT-LLM {release.requested}; judged as {release.version}"
            notes = [Finding("warning", "version", why)]
        elif self.version is None and installed(shlex.split(self.program)) is None:
            why = f"no version is set and '{self.program}' is not installed here; used: {release.version}"
            notes = [Finding("note", "version", why)]
        return Rendering(
            command(self, port=port, release=release),
            str(release.requested),
            judged=f"TensorRT-LLM {release.version}",
            findings=lint(words, release, Files({"config.yaml": text})),
            notes=notes,
        )

    def container(self, port: int, name: str, version: str | None, drain_s: int) -> Container:
        requested = Version.parse(version) if version else self._version
        called = self.model_copy(update={"program": "trtllm-serve"})
        words = command(called, port=port, host=EVERYWHERE, release=table().release(requested))
        return Container(f"{IMAGE}:{requested}", words, self.gpus, downloads=True)

    @property
    def _version(self) -> Version:
        if self.version is not None:
            return Version.parse(self.version)
        return installed(shlex.split(self.program)) or table().newest

    def at_k(self, k: int) -> dict[str, object]:
        # A schedule by batch size, or a limit, would set it itself.
        return {"max_draft_len": k, "draft_len_schedule": None, "max_concurrency": None}

    @property
    def fixed_k(self) -> str | None:
        if self.method == "AUTO":
            return "TensorRT-LLM chooses what AUTO drafts, and how much"
        return None

    @property
    def gpus(self) -> int:
        return (self.tensor_parallel_size or 1) * (self.pipeline_parallel_size or 1)

    @property
    def series(self) -> Series:
        return SERIES

    @property
    def method(self) -> str | None:
        return self.speculation.decoding_type if self.speculation else None

    @property
    def ends_speculation(self) -> str | None:
        gate = self.speculation.gate if self.speculation else None
        return f"TensorRT-LLM's acceptance gate ({gate})" if gate else None

    @property
    def pair(self) -> PairQuestion:
        assert self.speculation is not None  # Pools refuses a speculative pool without it
        drafted = self.speculation.decoding_type not in ("NGram", "SA", "AUTO")
        return PairQuestion(
            target=self.model,
            draft=(self.speculation.speculative_model or self.model) if drafted else "ngram",
            version=self.version,
            tensor_parallel=self.tensor_parallel_size or 1,
        )

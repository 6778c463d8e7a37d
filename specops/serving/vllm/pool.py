"""A pool of vLLM, what it answers, and the names of its series.

The names were read in the sources of 0.8 to 0.33 (vllm/v1/metrics/loggers.py).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace

from specops.serving import known_issues
from specops.serving.acceptance import Drafts
from specops.serving.argv import Finding
from specops.serving.engine import EVERYWHERE, Container, MultiHost, PairQuestion, Rendering, Start
from specops.serving.metrics import PrefixCache, Responses, Series
from specops.serving.place_drafts import PlaceDrafts
from specops.serving.vllm.arguments import CALL, CONFIG, ParsedCommand
from specops.serving.vllm.execution import conditions, model_in
from specops.serving.vllm.lint import lint
from specops.serving.vllm.lookup import lookup_drafts
from specops.serving.vllm.rules.sampling import SCHEDULE
from specops.serving.vllm.settings import VllmSettings, command
from specops.serving.vllm.versions import Version, installed, table, version_of

SERIES = Series(
    ttft="vllm:time_to_first_token_seconds",
    tpot="vllm:request_time_per_output_token_seconds",
    e2e="vllm:e2e_request_latency_seconds",
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    kv_usage="vllm:kv_cache_usage_perc",
    generated="vllm:generation_tokens_total",
    finished="vllm:request_success_total",
    preemptions="vllm:num_preemptions_total",
    acceptance=(
        Drafts(
            drafts="vllm:spec_decode_num_drafts_total",
            draft_tokens="vllm:spec_decode_num_draft_tokens_total",
            accepted_tokens="vllm:spec_decode_num_accepted_tokens_total",
            per_position="vllm:spec_decode_num_accepted_tokens_per_pos_total",
        ),
    ),
    aborted="vllm:request_success_total",
    aborted_reasons="abort|error",
    http=Responses("http_requests_total", path="handler", status="status"),
    cache_config="vllm:cache_config_info",
    prefix_cache=(
        PrefixCache("vllm:prefix_cache_hits_total", lookups="vllm:prefix_cache_queries_total"),
        PrefixCache("vllm:gpu_prefix_cache_hits_total", lookups="vllm:gpu_prefix_cache_queries_total"),
    ),
    drafts_come_late=True,
)

SERIES_BEFORE_0_11 = replace(
    SERIES,
    tpot="vllm:time_per_output_token_seconds",
    tpot_of_events=True,
    kv_usage="vllm:gpu_cache_usage_perc",
)

NAMINGS = {"vllm": SERIES, "vllm-0.10": SERIES_BEFORE_0_11}
"""By the words of `monitor.names`."""

IMAGE = "vllm/vllm-openai"
DRAINS = "--shutdown-timeout"
"""Since 0.18: without it SIGTERM ends running requests at once."""


class VllmPool(VllmSettings):
    """Servers of vLLM that specops configures: it renders how to start them, and can start one itself."""

    def start(self, port: int, name: str) -> Start:
        """Return how the server starts, for the version that the program says it has."""
        words = command(self, port=port, version=version_of(self.version, self.program))
        return Start(self._startable(words), timeout_s=self.start_timeout_s)

    def rendering(self, port: int | str, name: str) -> Rendering:
        """Return what is rendered, for the rollout file's version before the program's: it need not be
        rendered where it serves."""
        chosen = Version.parse(self.version) if self.version else installed(shlex.split(self.program))
        version = chosen or table().newest
        words = command(self, port=port, version=version)
        release = table().release(version)
        notes = []
        if release.version != version:
            why = f"vLLM {version} is not in the table; the flags were checked for {release.version}"
            notes = [Finding(level="warning", flag="version", why=why)]
        elif chosen is None:
            why = f"no version is set and '{self.program}' is not installed here; used: {version}"
            notes = [Finding(level="note", flag="version", why=why)]
        return Rendering(
            words,
            str(version),
            judged=f"vLLM {release.version}",
            findings=lint(words, version, self.environment),
            notes=notes,
            conditions=conditions(
                ParsedCommand.parse(words, self.environment), release, model_in(self.model)
            ),
        )

    def container(self, port: int, name: str, version: str | None, drain_s: int) -> Container:
        release = table().release(Version.parse(version) if version else None)
        called = self.model_copy(update={"program": "vllm serve"})
        words = command(called, port=port, host=EVERYWHERE, version=release.requested)
        drains = DRAINS in release.flags
        if drains and DRAINS not in words:
            words += [DRAINS, str(drain_s)]
        return Container(f"{IMAGE}:v{release.requested}", words, self.gpus, downloads=True, drains=drains)

    def spread(self, words: Sequence[str], nodes: int, address: str, rank: str) -> MultiHost | None:
        """Return the containers of several hosts, with the multiprocessing backend, without Ray."""
        release = table().release(Version.parse(self.version) if self.version else None)
        if "--nnodes" not in release.flags:
            return None
        common = (*words, "--nnodes", str(nodes), "--master-addr", address)
        return MultiHost(
            first=(*common, "--node-rank", "0"), worker=(*common, "--node-rank", rank, "--headless")
        )

    def at_k(self, k: int) -> dict[str, object]:
        # A schedule by batch size would set K itself.
        return {"num_speculative_tokens": k, "num_speculative_tokens_per_batch_size": None}

    def against_schedule(self, ranges: Sequence[Sequence[int]]) -> list[str]:
        version = Version.parse(self.version) if self.version else table().newest
        words = command(self, port=0, version=version)
        before = known_issues.settings_of(ParsedCommand.parse(words).as_words(), CALL)
        after = before | {f"{CONFIG.lstrip('-')}.{SCHEDULE}": json.dumps([list(entry) for entry in ranges])}
        return known_issues.objections("vllm", str(version), before, after)

    @property
    def gpus(self) -> int:
        tensor, pipeline = self.tensor_parallel_size or 1, self.pipeline_parallel_size or 1
        return tensor * pipeline * (self.data_parallel_size or 1)

    @property
    def series(self) -> Series:
        if self.version is not None and Version.parse(self.version) < Version((0, 11, 0)):
            return SERIES_BEFORE_0_11
        return SERIES

    @property
    def method(self) -> str | None:
        return self.speculation.method if self.speculation else None

    @property
    def drafted_tokens(self) -> int | None:
        return self.speculation.num_speculative_tokens if self.speculation else None

    def copied_drafts(self, prompt: Sequence[int], written: Sequence[int], most: int) -> PlaceDrafts | None:
        chosen = self.speculation
        if chosen is None or chosen.method != "ngram":
            return None
        shortest, longest = chosen.prompt_lookup_min, chosen.prompt_lookup_max
        if shortest is None or longest is None:  # the defaults changed between releases
            return None
        return lookup_drafts(prompt, written, shortest, longest, most)

    @property
    def pair(self) -> PairQuestion:
        assert self.speculation is not None  # Pools refuses a speculative pool without it
        method = self.speculation.method
        without_model = {"ngram": "ngram", "ngram_gpu": "ngram", "suffix": "suffix"}
        version = self.version or installed(shlex.split(self.program))
        return PairQuestion(
            target=self.model,
            draft=without_model.get(method) or self.speculation.model or self.model,
            version=str(version) if version else None,
            tensor_parallel=self.tensor_parallel_size or 1,
        )

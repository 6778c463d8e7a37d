"""A pool of llama.cpp's server, what it answers, and the names of its series.

The names, which `--metrics` turns on, were read in b11549 (tools/server/server-task.cpp). Its server counts
tokens and no requests: how many there were and how long they took, the router's own series say. It has
nothing on the time to the first token, the KV cache, or preemptions, which it does not do.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from specops.errors import ConfigError
from specops.foreign_json import object_at
from specops.hints import in_rollout
from specops.serving.acceptance import Drafts, RequestDrafts
from specops.serving.argv import Finding, Level
from specops.serving.engine import EVERYWHERE, Container, Grid, PairQuestion, Rendering, Setting, Start
from specops.serving.llamacpp.builds import WHEEL, installed, packaged, parse, table
from specops.serving.llamacpp.lint import lint
from specops.serving.llamacpp.settings import LlamacppSettings, command, on_a_hub, program
from specops.serving.metrics import Series

SERIES = Series(
    ttft="specops_route_first_byte_seconds",
    tpot="llamacpp:tokens_predicted_seconds_total",
    tpot_of_events=True,
    tpot_counts_seconds=True,
    e2e="specops_route_request_duration_seconds",
    running="llamacpp:requests_processing",
    waiting="llamacpp:requests_deferred",
    kv_usage=None,
    generated="llamacpp:tokens_predicted_total",
    finished="specops_route_requests_total",
    preemptions=None,
    acceptance=(
        Drafts(
            drafts="llamacpp:spec_decode_num_drafts_total",
            draft_tokens="llamacpp:spec_decode_num_draft_tokens_total",
            accepted_tokens="llamacpp:spec_decode_num_accepted_tokens_total",
            per_position="llamacpp:spec_decode_num_accepted_tokens_per_pos_total",
        ),
    ),
    aborted="specops_route_requests_total",
    counts_at_end=True,
    requests_by_router=True,
)


def answer_drafts(body: Mapping[str, Any]) -> RequestDrafts | None:
    """The drafts in `timings`, in the last chunk of a stream. The fields are missing while nothing is
    drafted; with `timings_per_token` each chunk has a running count."""
    timings = object_at(body, "timings")
    return RequestDrafts.read(timings.get("draft_n"), timings.get("draft_n_accepted"))


IMAGE = "ghcr.io/ggml-org/llama.cpp"
WITHOUT_K = "ngram-cache"
"""It always drafts up to 8 tokens (common/speculative.cpp)."""


class LlamacppPool(LlamacppSettings):
    """Servers of llama.cpp that specops configures: it renders how to start them, and can start one."""

    def start(self, port: int, name: str) -> Start:
        """Return how the server starts, for the build that the program says it has."""
        if self.program == WHEEL and packaged() is None:
            raise ConfigError(
                f"could not start a server: the package {WHEEL} is not installed",
                hint=f"pip install {WHEEL}  # or set program to the path of llama-server",
            )
        called = self.model_copy(update={"program": shlex.join(program(self.program))})
        words = command(called, port=port, build=table().build(self._build))
        return Start(called._startable(words), timeout_s=self.start_timeout_s)

    def rendering(self, port: int | str, name: str) -> Rendering:
        """Return what is rendered, for the rollout file's build before the program's: it need not be rendered
        where it serves."""
        build = table().build(self._build)
        words = command(self, port=port, build=build)
        notes = []
        if build.number != build.requested:
            why = f"llama.cpp {build} is not in the table; the flags were checked for {build.judged}"
            level: Level = "warning" if build.requested > table().newest else "note"
            notes = [Finding(level=level, flag="version", why=why)]
        elif self.version is None and self._installed is None:
            why = f"no version is set and '{self.program}' is not installed here; used: {build}"
            notes = [Finding(level="note", flag="version", why=why)]
        return Rendering(
            words,
            str(build),
            judged=f"llama.cpp {build.judged}",
            findings=lint(words, build),
            notes=notes,
        )

    def container(self, port: int, name: str, version: str | None, drain_s: int) -> Container:
        build = table().build(parse(version) if version else self._build)
        called = self.model_copy(update={"program": "/app/llama-server"})
        words = command(called, port=port, host=EVERYWHERE, build=build)
        image = f"{IMAGE}:server{'-cuda' if self.gpu_count else ''}-{build}"
        return Container(image, words, self.gpu_count, downloads=on_a_hub(self.model))

    @property
    def _installed(self) -> int | None:
        return installed(program(self.program))

    @property
    def _build(self) -> int:
        return parse(self.version) if self.version else self._installed or table().newest

    @property
    def programs(self) -> Sequence[str]:
        return (shlex.join(program(self.program)),)

    @property
    def series(self) -> Series:
        return SERIES

    @property
    def method(self) -> str | None:
        return self.speculation.type if self.speculation else None

    def variants(self, grid: Grid) -> list[Setting]:
        if self.fixed_k is not None:
            raise ConfigError(
                self.fixed_k, hint=in_rollout("type", "write another type, such as ngram-simple")
            )
        return super().variants(grid)

    @property
    def fixed_k(self) -> str | None:
        if self.method == WITHOUT_K:
            return f"{WITHOUT_K} has no setting for the tokens that it drafts"
        return None

    @property
    def pair(self) -> PairQuestion:
        assert self.speculation is not None  # Pools refuses a speculative pool without it
        return PairQuestion(
            target=self.model,
            draft=self.speculation.model or ("ngram" if "ngram" in self.speculation.type else self.model),
            version=f"b{self._build}" if self.version or self._installed else None,
        )

    def at_k(self, k: int) -> dict[str, object]:
        return {"n_max": k}

    @property
    def gpus(self) -> int:
        return self.gpu_count

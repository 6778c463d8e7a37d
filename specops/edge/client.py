"""The client's engine, whose target is elsewhere; opened from an address and a draft's folder."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from specops.edge.client_metrics import ClientState, EdgeCounters
from specops.edge.client_sessions import ClientSession, ClientSessions, Stage, derived
from specops.edge.connection import Destination, connect
from specops.edge.drafting import CopyDrafts, Drafts, ModelDrafts
from specops.edge.fallback import Fallback
from specops.edge.link import Link, tokenizer_digest
from specops.edge.settings import DEFAULT, DraftedTree, Drafting
from specops.engine.heads import needs_target
from specops.engine.models import load_model
from specops.engine.models.model import Model
from specops.engine.request import Counters, Emission, Sampling, Streaming, refuse_bad
from specops.engine.rng import Dice
from specops.engine.sequence import Sequence
from specops.engine.text import load_tokenizer
from specops.errors import ModelError, UsageError
from specops.hints import listing

STEP_S = 0.02
"""Longest time of a step without output, in seconds, so that its caller can react to cancellations."""


class EdgeEngine(Streaming):
    """An engine whose target is on a server. Not thread-safe: one thread owns an engine."""

    def __init__(
        self,
        link: Link,
        tokenizer: Any,
        draft: Model | None,
        settings: Drafting = DEFAULT,
        fallback: Fallback | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """draft: the draft model; None to draft by copying from the text. clock: the link's."""
        limits = link.limits
        self.tokenizer, self.max_length = tokenizer, limits.max_length
        self.counters, self._own = Counters(), EdgeCounters()
        self._link, self._clock = link, clock
        streams = max(1, min(settings.streams, limits.max_sessions))
        self._settings = settings = replace(settings, streams=streams)
        self._drafts = self._drafts_of(draft)
        self._talks = ClientSessions(
            link,
            self._drafts,
            fallback or Fallback.always(server_drafts=False),
            self.counters,
            self._own,
            patience_s=settings.patience_s,
            clock=clock,
        )
        self._pass_s: float | None = None  # of a pass of the draft, of late
        self._waiting: deque[Sequence] = deque()
        self._ids = count()

    def _drafts_of(self, draft: Model | None) -> Drafts:
        settings, limits = self._settings, self._link.limits
        if draft is None:
            return CopyDrafts(min(settings.nodes, limits.max_nodes))
        return ModelDrafts(
            draft,
            settings,
            limits.max_length,
            nodes=limits.max_nodes,
            support=limits.max_support,
            counters=self._own,
        )

    @torch.inference_mode()
    def step(self) -> list[Emission]:
        """The output that has arrived. Until there is some, the step drafts. Without anything to draft it
        waits, for `STEP_S` at most."""
        until = self._clock() + STEP_S
        self._admit()
        while True:
            emissions = self._talks.hear(self._link.receive(0.0)) + self._talks.tend()
            if emissions or not self._talks:
                return emissions
            self._send_what_is_ready()
            self._send_ahead(at_once=False)
            left = until - self._clock()
            waits = len(self._talks) == 1 and self._talks.due_within(self._pass_s)
            if waits or not self._pass():
                self._send_ahead(at_once=not waits)
                return self._talks.hear(self._link.receive(max(left, 0.0)))
            if left <= 0:
                return []

    def _send_what_is_ready(self) -> None:
        for talk in self._talks.in_stages(Stage.HERE):
            if self._ready(talk):
                self._talks.propose(talk)

    def _send_ahead(self, *, at_once: bool) -> None:
        count = min(self._settings.ahead, self._link.limits.max_ahead)
        if count > 0:
            self._talks.send_ahead(count, self._settings.depth, self._pass_s, at_once=at_once)

    def _ready(self, talk: ClientSession) -> bool:
        promise = self._drafts.promise(talk.sequence)
        if promise is None or promise <= 0:
            return promise is not None
        pace = self._talks.pacing[talk.sequence.greedy].pace(self._pass_s)
        return not self._settings.depth.more(DraftedTree(talk.passes, talk.retained, promise), pace)

    def _pass(self) -> bool:
        """Run one pass of the draft. Returns False if there is nothing to run."""
        due = [talk.sequence for talk in self._talks.in_stages(Stage.HERE)]
        away = [talk.sequence for talk in self._talks.in_stages(Stage.AWAY, Stage.UNCLEAR, Stage.CLOSED)]
        reads = max((sequence.uncached for sequence in (*due, *away)), default=0)
        started = self._clock()
        ran = self._drafts.work(due, away)
        if not ran:
            return False
        took = self._clock() - started
        if reads <= self._settings.nodes:  # and not a prompt
            self._pass_s = took if self._pass_s is None else 0.9 * self._pass_s + 0.1 * took
        for sequence in ran:
            self._talks[sequence.id].passes += 1
        return True

    # --- requests -----------------------------------------------------------------------------

    def submit(self, prompt: list[int], sampling: Sampling) -> int:
        """Queue a sequence and return its id. Output ends at `max_tokens` or `max_length`, whichever comes
        first."""
        limits = self._link.limits
        refuse_bad(prompt, sampling, room=self.max_length, vocabulary=limits.vocabulary)
        if sampling.logprobs is not None:
            raise UsageError(
                "logprobs are unsupported here: the verification server sends none",
            )
        sequence = Sequence(
            next(self._ids),
            prompt,
            sampling,
            room=self.max_length,
            chunk=self._settings.chunk,
            eos=limits.eos,
            tokenizer=self.tokenizer.backend_tokenizer,
        )
        # The server's own, for its verification, come from the seed itself: none may be met twice.
        sequence.chance = Dice(derived(sampling.seed, "drafts"))
        self._waiting.append(sequence)
        return sequence.id

    def cancel(self, sequence_id: int) -> None:
        """Drop a sequence; nothing more is emitted for it. Unknown ids are ignored."""
        if sequence_id in self._talks:
            self._talks.end(self._talks[sequence_id])
        self._waiting = deque(s for s in self._waiting if s.id != sequence_id)

    def close(self) -> None:
        """Drop every sequence and close the link, so that the server need not keep the sessions."""
        self._waiting.clear()
        for talk in self._talks.in_stages(*Stage):
            self._talks.end(talk)
        self._link.close()

    def _admit(self) -> None:
        while self._waiting and len(self._talks) < self._settings.streams:
            self._talks.begin(self._waiting.popleft())

    # --- status -------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        return len(self._talks)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        return not self._talks and not self._waiting

    @property
    def kv_usage(self) -> float:
        """Share of the draft's KV cache that committed tokens fill."""
        return self._drafts.kv_usage

    @property
    def model(self) -> str:
        return self._link.limits.model

    @property
    def unavailable(self) -> str | None:
        return self._talks.unavailable

    @property
    def looks_up(self) -> float:
        return 1.0

    @property
    def own(self) -> EdgeCounters:
        return self._own

    @property
    def extra(self) -> ClientState:
        fallback = self._talks.fallback
        return ClientState(
            self._own,
            self._link.traffic,
            {str(cause): count for cause, count in fallback.switches.items()},
            fallback.server_drafts,
            self._talks.connected,
        )


DIFFERENCES = "specops verify-draft TARGET DRAFT  # says where they differ, on a machine that has both"


def open_client(
    destination: Destination,
    draft: Path,
    settings: Drafting = DEFAULT,
    fallback: Fallback | None = None,
    *,
    copies: bool = False,
    threads: int | None = None,
) -> EdgeEngine:
    """A client's engine for the server at `destination`.

    draft: folder of a draft model, whose tokenizer also serves for the server's. copies: draft without the
    model, by copying from the text. threads: of torch; None leaves them as they are.

    Raises the errors of `connect`, and ModelError for a draft that cannot be loaded or does not fit.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    link = connect(destination)
    try:
        return _over(link, draft, settings, fallback, copies=copies)
    except BaseException:
        link.close()
        raise


def _over(
    link: Link, draft: Path, settings: Drafting, fallback: Fallback | None, *, copies: bool
) -> EdgeEngine:
    if not draft.is_dir():
        raise ModelError(
            f"could not draft with {draft}: there is no such folder: expected one in transformers' format, "
            "with "
            "config.json, weights and tokenizer",
            hint=listing(draft.parent),
        )
    if not copies and needs_target(draft):
        raise ModelError(
            f"could not draft with {draft}: it is a head or an early exit; those read the target's "
            "features, which stay on the server. Expected a model of its own with the target's vocabulary",
            hint=listing(draft),
        )
    limits, tokenizer = link.limits, load_tokenizer(draft)
    if tokenizer_digest(tokenizer) != limits.tokenizer:
        raise ModelError(
            f"could not draft for {limits.model} with {draft}: their tokenizers have different tokens",
            DIFFERENCES,
        )
    model = None if copies else load_model(draft)
    if model is not None and model.shape.vocab != limits.vocabulary:
        raise ModelError(
            f"could not draft for {limits.model} with {draft}: their vocabularies have {limits.vocabulary} "
            f"and {model.shape.vocab} entries",
            DIFFERENCES,
        )
    return EdgeEngine(link, tokenizer, model, settings, fallback)

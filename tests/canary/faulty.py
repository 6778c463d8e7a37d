"""The shipped pair behind two servers of this process, one of which can be made to do wrong.

A fault is a context manager: inside it the speculative server has it, and the standard one never. Each is
put in at the place where a server would have it: the verifier, the batch, the text, the stream, the count.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from live import Live
from torch import Tensor

from specops.config.rollout import Canary, CheckName
from specops.engine import load_engine
from specops.engine import step as engine_step
from specops.engine.request import Emission, Sampling
from specops.engine.rng import Dice
from specops.engine.tree import TokenTree
from specops.engine.verifiers.naive import verify_greedy
from specops.engine.verifiers.verifier import Proposals, Verified
from specops.launch.servers import Server
from specops.load.settings import BaselineSettings
from specops.phases.canary import conform
from specops.progress import SilentProgress
from specops.results import Result
from specops.serve import responses
from specops.serve.responses import OpenAIResponse

PAIR = Path(__file__).parents[2] / "playbooks" / "embedded"
SPECULATIVE = "speculative"
"""What its model is called; what is patched in both servers acts by this name alone."""


class Servers:
    """`standard` and `speculative`, until `close`."""

    def __init__(self) -> None:
        kept: dict[str, Any] = {"max_batch": 8, "threads": 1}
        self.engine = load_engine(PAIR / "target", PAIR / "head", tree="chain:3", **kept)
        self.standard = Live(
            load_engine(PAIR / "target", speculate=False, **kept), model="standard", speculative=False
        )
        self.speculative = Live(self.engine, model=SPECULATIVE)

    def canary(self, folder: Path, *only: CheckName, turned: int = 0, **settings: Any) -> Result:
        """`turned`: so many prompts further on in the shipped set, for a run unlike the one before."""
        prompts = json.loads((PAIR / "prompts.json").read_text(encoding="utf-8"))
        path = folder / "prompts.json"
        path.write_text(json.dumps(prompts[turned:] + prompts[:turned]), encoding="utf-8")
        asked = BaselineSettings(
            base_url=self.standard.url + "/v1", model="", endpoint="completions", prompts=path
        )
        return conform(
            Server(self.standard.url + "/v1", "standard"),
            Server(self.speculative.url + "/v1", SPECULATIVE),
            asked,
            Canary(**settings),
            SilentProgress(),
            folder=folder,
            only=only,
        )

    def close(self) -> None:
        self.speculative.close()
        self.standard.close()

    # --- in the verifier ----------------------------------------------------------------------

    @contextmanager
    def wrong_residual(self) -> Iterator[None]:
        """After a rejection what the draft claims beyond the target is sampled: a sign is wrong."""
        right = Proposals.reject

        def swapped(children: Proposals, p: Tensor, weight: float = 1.0) -> Tensor:
            assert children._source is not None
            q = children._q[children._source]
            right(children, p, weight)
            return (q - weight * p).clamp_(min=0)

        with patch.object(Proposals, "reject", swapped):
            yield

    @contextmanager
    def accepts_too_much(self) -> Iterator[None]:
        """Every drafted token that the target may write is accepted."""
        with patch.object(Dice, "accept", lambda dice, p: p > 0):
            yield

    @contextmanager
    def swapped_token(self) -> Iterator[None]:
        """A greedy token that follows a whole accepted draft is another one."""

        def swapped(tree: TokenTree, choices: Any) -> Verified:
            found = verify_greedy(tree, choices)
            bad = len(tree) > 1 and len(found.path) == len(tree) - 1
            return Verified(found.path, (found.bonus + 1) % 2048) if bad else found

        with patch.object(engine_step, "verify_greedy", swapped):
            yield

    @contextmanager
    def accepts_a_wrong_draft(self) -> Iterator[None]:
        """The greedy verifier takes the first drafted token unseen, where it had none to take."""

        def careless(tree: TokenTree, choices: Any) -> Verified:
            found = verify_greedy(tree, choices)
            children = tree.topology.children[0]
            if found.path or not children:
                return found
            return Verified([children[0]], choices[children[0]])

        with patch.object(engine_step, "verify_greedy", careless):
            yield

    @contextmanager
    def another_distribution_s_logprobs(self) -> Iterator[None]:
        """Log-probabilities are of a flatter distribution, as a smaller model's would be."""
        right = engine_step._logprobs

        def flat(sampling: Sampling, tree: TokenTree, verified: Verified, logits: Tensor) -> Any:
            return right(sampling, tree, verified, logits * 0.7 if len(tree) > 1 else logits)

        with patch.object(engine_step, "_logprobs", flat):
            yield

    # --- in the batch -------------------------------------------------------------------------

    @contextmanager
    def temperature_leaks(self) -> Iterator[None]:
        """Where one sequence of a batch is sampled, all are."""
        right = self.engine._verify

        def leaking(pairs: Any, logits: Tensor) -> Any:
            if all(sequence.greedy for sequence, _ in pairs):
                return right(pairs, logits)
            before = [sequence.sampling for sequence, _ in pairs]
            for sequence, _ in pairs:
                if sequence.greedy:
                    sequence.sampling = replace(sequence.sampling, temperature=0.7)
            try:
                return right(pairs, logits)
            finally:
                for (sequence, _), sampling in zip(pairs, before, strict=True):
                    sequence.sampling = sampling

        with patch.object(self.engine, "_verify", leaking):
            yield

    @contextmanager
    def cancelling_ends_a_neighbour(self) -> Iterator[None]:
        right = self.engine.cancel

        def ending(sequence_id: int) -> None:
            right(sequence_id)
            for sequence in self.engine._running[:1]:
                sequence._end = min(sequence._end, len(sequence.tokens) + 1)

        with patch.object(self.engine, "cancel", ending):
            yield

    @contextmanager
    def cancelling_leaks_a_slot(self) -> Iterator[None]:
        """What was cancelled is still counted as running."""
        right, leaked = self.engine.cancel, [0]

        def leaking(sequence_id: int) -> None:
            right(sequence_id)
            leaked[0] += 1

        class Leaking(type(self.engine)):  # type: ignore[misc]
            running = property(lambda engine: len(engine._running) + leaked[0])

        before = type(self.engine)
        with patch.object(self.engine, "cancel", leaking):
            self.engine.__class__ = Leaking
            try:
                yield
            finally:
                self.engine.__class__ = before

    # --- in what the engine is asked ----------------------------------------------------------

    @contextmanager
    def _asked_for(
        self, change: Callable[[list[int], Sampling], tuple[list[int], Sampling]]
    ) -> Iterator[None]:
        right = self.engine.submit
        with patch.object(self.engine, "submit", lambda prompt, sampling: right(*change(prompt, sampling))):
            yield

    def dropped_stop(self) -> Any:
        return self._asked_for(lambda prompt, sampling: (prompt, replace(sampling, stop=())))

    def ignored_seed(self) -> Any:
        return self._asked_for(lambda prompt, sampling: (prompt, replace(sampling, seed=None)))

    def ignored_top_p(self) -> Any:
        return self._asked_for(lambda prompt, sampling: (prompt, replace(sampling, top_p=1.0)))

    def cut_prompt(self) -> Any:
        return self._asked_for(lambda prompt, sampling: (prompt[-256:], sampling))

    def ignored_temperature(self) -> Any:
        """Whatever temperature is asked for above 0, it samples at 1."""
        return self._asked_for(
            lambda prompt, sampling: (
                prompt,
                replace(sampling, temperature=1.0) if sampling.temperature > 0 else sampling,
            )
        )

    def stop_is_lost_in_a_batch(self) -> Any:
        """A stop string counts only for a request that comes while none is running."""
        return self._asked_for(
            lambda prompt, sampling: (
                prompt,
                replace(sampling, stop=()) if self.engine._running else sampling,
            )
        )

    @contextmanager
    def cross_talk(self) -> Iterator[None]:
        """One in ten of the requests that come while another is running gets that one's answer."""
        dice, earlier = Random(1), [[0]]

        def swapped(prompt: list[int], sampling: Sampling) -> tuple[list[int], Sampling]:
            other, earlier[0] = earlier[0], prompt
            swaps = bool(self.engine._running) and dice.random() < 0.1 and len(other) > 1
            return (other if swaps else prompt), sampling

        with self._asked_for(swapped):
            yield

    # --- in what comes back -------------------------------------------------------------------

    @contextmanager
    def _emitted(self, change: Callable[[Emission], Emission]) -> Iterator[None]:
        right = self.engine.step
        with patch.object(self.engine, "step", lambda: [change(emission) for emission in right()]):
            yield

    def leaked_stop(self) -> Any:
        """The stop string is part of the text."""

        def leaking(emission: Emission) -> Emission:
            met = isinstance(emission.stop_reason, str)
            return replace(emission, text=f"{emission.text}{emission.stop_reason}") if met else emission

        return self._emitted(leaking)

    def wrong_finish_reason(self) -> Any:
        return self._emitted(lambda one: replace(one, finish_reason="stop") if one.finish_reason else one)

    @contextmanager
    def _streamed(self, change: Callable[[dict[str, Any]], list[dict[str, Any]]]) -> Iterator[None]:
        """What `change` makes of each chunk with text goes out in its place.

        Of each chunk, not of the first in a write: on a busy machine many chunks go out in one write.
        """
        right = responses._events

        def changed(objects: Iterable[dict[str, Any]]) -> bytes:
            return right(event for one in objects for event in sent(one))

        def sent(event: dict[str, Any]) -> list[dict[str, Any]]:
            ours = event.get("model") == SPECULATIVE and event.get("choices")
            return change(event) if ours else [event]

        with patch.object(responses, "_events", changed):
            yield

    def duplicated_chunk(self) -> Any:
        return self._streamed(lambda event: [event, event] if _middle(event) else [event])

    def dropped_chunk(self) -> Any:
        return self._streamed(lambda event: [] if _middle(event) else [event])

    @contextmanager
    def _counted(self, more: int, where: str) -> Iterator[None]:
        right = getattr(OpenAIResponse, where)

        def miscounted(answer: OpenAIResponse) -> dict[str, Any]:
            body: dict[str, Any] = right(answer)
            if answer._head["model"] == SPECULATIVE:
                body["usage"]["completion_tokens"] += more
                body["usage"]["total_tokens"] += more
            return body

        with patch.object(OpenAIResponse, where, miscounted):
            yield

    def usage_off_by_one(self) -> Any:
        return self._counted(1, "whole")

    def stream_s_usage_off_by_one(self) -> Any:
        return self._counted(-1, "usage_chunk")


def _middle(event: dict[str, Any]) -> bool:
    """Of a stream: neither its end nor without text. About one in five, by what it says."""
    choice = event["choices"][0]
    text = choice.get("text") or choice.get("delta", {}).get("content") or ""
    return bool(text) and choice["finish_reason"] is None and sum(map(ord, text)) % 5 == 0


FAULTS: dict[str, CheckName] = {
    "wrong_residual": "distribution",
    "accepts_too_much": "distribution",
    "swapped_token": "parity",
    "cross_talk": "overlap",
    "ignored_temperature": "temperature",
    "stop_is_lost_in_a_batch": "stop",
    "accepts_a_wrong_draft": "parity",
    "temperature_leaks": "mixed",
    "another_distribution_s_logprobs": "logprobs",
    "cancelling_ends_a_neighbour": "cancel",
    "cancelling_leaks_a_slot": "cancel",
    "dropped_stop": "stop",
    "leaked_stop": "stop",
    "wrong_finish_reason": "length",
    "ignored_seed": "seed",
    "ignored_top_p": "top_p",
    "cut_prompt": "long_prompt",
    "duplicated_chunk": "stream",
    "dropped_chunk": "stream",
    "usage_off_by_one": "usage",
    "stream_s_usage_off_by_one": "usage",
}
"""Each fault, and the check that must find it."""


def found(servers: Servers, fault: str, folder: Path, **settings: Any) -> Result:
    """What the canary says of `fault` by the check that is to find it."""
    with getattr(servers, fault)():
        return servers.canary(folder, FAULTS[fault], **settings)

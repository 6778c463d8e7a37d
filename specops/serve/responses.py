"""Answers: OpenAI's objects with vLLM's additions, whole or as a stream of server-sent events."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from secrets import token_hex
from typing import Any, ClassVar

from aiohttp import web

from specops.engine.request import Emission, TokenLogprob
from specops.serve.admission import FAULT, Refusal
from specops.serve.engine_loop import Generation
from specops.serve.protocol import GenerationRequest

_LEAST_LOGPROB = -9999.0  # JSON has no -Infinity; vLLM writes this


def _written(logprob: float) -> float:
    """The log-probability as JSON can hold it: also a NaN, which `max` would return, is the least."""
    return logprob if logprob > _LEAST_LOGPROB else _LEAST_LOGPROB


@dataclass
class ChoiceOutput:
    """The output of one choice so far."""

    tokens: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    draft_tokens: int = 0
    accepted_by_step: list[int] = field(default_factory=list)
    """Accepted tokens of each verification that had a draft."""
    restored: int | None = None
    """Tokens of its prompt that came from the prefix cache; None without one."""

    def add(self, emission: Emission) -> None:
        self.tokens += emission.tokens
        self.text.append(emission.text)
        self.logprobs += emission.logprobs
        self.finish_reason = emission.finish_reason
        self.stop_reason = emission.stop_reason
        self.restored = emission.restored
        if emission.drafted:
            self.draft_tokens += emission.drafted
            self.accepted_by_step.append(emission.accepted)


class OpenAIResponse(ABC):
    """The answer to one request, as a whole or as chunks. Choices are numbered by prompt, then by `n`."""

    id_prefix: ClassVar[str]
    kind: ClassVar[str]
    chunk_kind: ClassVar[str]

    def __init__(
        self,
        request: GenerationRequest,
        model: str,
        prompts: list[list[int]],
        tokenizer: Any,
        *,
        speculative: bool = False,
    ) -> None:
        """`speculative`: answers report their drafts, also where there were none."""
        self._request = request
        self._speculative = speculative
        self._prompts = prompts
        self._tokenizer = tokenizer
        self._choices = [ChoiceOutput() for _ in range(len(prompts) * request.n)]
        self._head = {"id": f"{self.id_prefix}-{token_hex(16)}", "created": int(time.time()), "model": model}

    def opening(self) -> list[dict[str, Any]]:
        """The chunks that go before the first output."""
        return []

    def chunk(self, index: int, emission: Emission) -> dict[str, Any]:
        """The chunk that carries `emission` to choice `index`."""
        choice = self._choices[index]
        body = self._delta(index, emission)
        choice.add(emission)
        return self._chunk(body, index)

    def usage_chunk(self) -> dict[str, Any]:
        """The last chunk: no choices, and the usage of all of them."""
        usage = self._usage(self._prompts, self._choices)
        return {**self._head, "object": self.chunk_kind, "choices": [], "usage": usage} | self._metrics()

    def add(self, index: int, emission: Emission) -> None:
        """Store `emission` for `whole`."""
        self._choices[index].add(emission)

    def whole(self) -> dict[str, Any]:
        """The answer of a request that is not streamed."""
        return {
            **self._head,
            "object": self.kind,
            "choices": [self._whole_choice(index, choice) for index, choice in enumerate(self._choices)],
            "usage": self._usage(self._prompts, self._choices),
        } | self._metrics()

    def _metrics(self) -> dict[str, Any]:
        """The drafts of an answer with one choice, under the names of vLLM's
        --per-request-spec-decode-metrics (0.29 and newer)."""
        if not self._speculative or len(self._choices) != 1:
            return {}
        drafted, by_step = self._choices[0].draft_tokens, self._choices[0].accepted_by_step
        accepted, steps = sum(by_step), len(by_step)
        reported = {
            "mean_acceptance_length": 1 + accepted / steps if steps else 1.0,
            "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
            "acceptance_histogram": [by_step.count(number) for number in range(max(by_step, default=0) + 1)],
            "num_spec_steps": steps,
            "num_accepted_draft_tokens": accepted,
            "num_draft_tokens": drafted,
        }
        return {"metrics": {"speculative_decoding": reported}}

    def _chunk(self, choice: dict[str, Any], index: int) -> dict[str, Any]:
        body = {**self._head, "object": self.chunk_kind, "choices": [choice]}
        if self._request.continuous_usage:
            body["usage"] = self._usage([self._prompt(index)], [self._choices[index]])
        return body

    def _prompt(self, index: int) -> list[int]:
        return self._prompts[index // self._request.n]

    @staticmethod
    def _usage(prompts: list[list[int]], choices: list[ChoiceOutput]) -> dict[str, Any]:
        prompt_tokens = sum(map(len, prompts))
        completion_tokens = sum(len(choice.tokens) for choice in choices)
        usage: dict[str, Any] = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        }
        # A prompt counts once, so of its choices the first one does.
        restored = [choice.restored for choice in choices[:: len(choices) // len(prompts)]]
        if None not in restored:
            usage["prompt_tokens_details"] = {"cached_tokens": sum(count or 0 for count in restored)}
        return usage

    def _token_text(self, token: int) -> str:
        text: str = self._tokenizer.backend_tokenizer.decode([token], skip_special_tokens=False)
        return text

    @abstractmethod
    def _delta(self, index: int, emission: Emission) -> dict[str, Any]: ...

    @abstractmethod
    def _whole_choice(self, index: int, choice: ChoiceOutput) -> dict[str, Any]: ...


class ChatAnswer(OpenAIResponse):
    id_prefix = "chatcmpl"
    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def opening(self) -> list[dict[str, Any]]:
        chunks = []
        for index in range(len(self._choices)):
            delta = {"role": "assistant", "content": ""}
            choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
            chunks.append(self._chunk(choice, index))
            if self._request.return_token_ids:
                chunks[-1]["prompt_token_ids"] = self._prompt(index)
        return chunks

    def whole(self) -> dict[str, Any]:
        body = super().whole()
        if self._request.return_token_ids:
            body["prompt_token_ids"] = self._prompt(0)
        return body

    def _delta(self, index: int, emission: Emission) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": index,
            "delta": {"content": emission.text},
            "logprobs": self._logprobs(emission.logprobs),
            "finish_reason": emission.finish_reason,
        }
        if emission.finish_reason is not None:
            choice["stop_reason"] = emission.stop_reason
        if self._request.return_token_ids:
            choice["token_ids"] = emission.tokens
        return choice

    def _whole_choice(self, index: int, choice: ChoiceOutput) -> dict[str, Any]:
        return {
            "index": index,
            "message": {"role": "assistant", "content": "".join(choice.text), "refusal": None},
            "logprobs": self._logprobs(choice.logprobs),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
            "token_ids": choice.tokens if self._request.return_token_ids else None,
        }

    def _logprobs(self, entries: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if self._request.top_count is None:
            return None
        return {
            "content": [
                {
                    **self._logprob(entry.token, entry.logprob),
                    "top_logprobs": [self._logprob(token, logprob) for token, logprob in entry.top],
                }
                for entry in entries
            ]
        }

    def _logprob(self, token: int, logprob: float) -> dict[str, Any]:
        text = self._token_text(token)
        return {"token": text, "logprob": _written(logprob), "bytes": list(text.encode())}


class CompletionAnswer(OpenAIResponse):
    id_prefix = "cmpl"
    kind = chunk_kind = "text_completion"

    def __init__(
        self,
        request: GenerationRequest,
        model: str,
        prompts: list[list[int]],
        tokenizer: Any,
        *,
        speculative: bool = False,
    ) -> None:
        super().__init__(request, model, prompts, tokenizer, speculative=speculative)
        self._offsets = [0] * len(self._choices)  # where each choice's next token begins, in characters

    def _delta(self, index: int, emission: Emission) -> dict[str, Any]:
        choice = {
            "index": index,
            "text": emission.text,
            "logprobs": self._logprobs(index, emission.logprobs),
            "finish_reason": emission.finish_reason,
            "stop_reason": emission.stop_reason,
        }
        if self._request.return_token_ids:
            choice["token_ids"] = emission.tokens
            choice["prompt_token_ids"] = None if self._choices[index].tokens else self._prompt(index)
        return choice

    def _whole_choice(self, index: int, choice: ChoiceOutput) -> dict[str, Any]:
        return {
            "index": index,
            "text": "".join(choice.text),
            "logprobs": self._logprobs(index, choice.logprobs),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
            "token_ids": choice.tokens if self._request.return_token_ids else None,
            "prompt_token_ids": self._prompt(index) if self._request.return_token_ids else None,
        }

    def _logprobs(self, index: int, entries: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        """OpenAI's older shape: parallel lists; `text_offset` counts characters from the answer's start."""
        if self._request.top_count is None:
            return None
        texts = [self._token_text(entry.token) for entry in entries]
        *offsets, self._offsets[index] = accumulate(map(len, texts), initial=self._offsets[index])
        return {
            "tokens": texts,
            "token_logprobs": [_written(entry.logprob) for entry in entries],
            "top_logprobs": [self._top(entry) for entry in entries],
            "text_offset": offsets,
        }

    def _top(self, entry: TokenLogprob) -> dict[str, float]:
        pairs = (*entry.top, (entry.token, entry.logprob))
        return {self._token_text(token): _written(logprob) for token, logprob in pairs}


log = logging.getLogger(__name__)

_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # NGINX would hold the chunks back
}
_DONE = b"data: [DONE]\n\n"
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


async def send_stream(
    request: web.Request,
    generation: Generation,
    answer: OpenAIResponse,
    *,
    include_usage: bool,
    write_s: float,
) -> web.StreamResponse:
    """Send `answer` as it grows; all output that is available at one time goes out in one write.

    write_s: seconds after which a client that reads nothing is gone.

    Raises Refusal for an error before the first output, so that it gets a status of its own. Later the
    status has been sent, so the error is an event, as in vLLM.
    """
    batch = await generation.next()
    response = web.StreamResponse(headers=_HEADERS)
    await response.prepare(request)
    payload = _events(answer.opening())
    try:
        while True:
            payload += _events(answer.chunk(index, emission) for index, emission in batch)
            if generation.finished:
                break
            waiting = 0 if request.transport is None else request.transport.get_write_buffer_size()
            if waiting + len(payload) < NEVER_WAITS:
                await response.write(payload)
            else:
                async with patience(request, write_s):
                    await response.write(payload)
            batch = await generation.next()
            payload = b""
        if include_usage:
            payload += _events([answer.usage_chunk()])
    except Refusal as refusal:
        payload = _events([refusal.body()])
    except ConnectionError:  # the client has gone
        raise
    except Exception:
        log.exception("a stream of %s broke off", request.path)
        payload = _events([FAULT.body()])
    async with patience(request, write_s):
        await response.write_eof(payload + _DONE)
    return response


NEVER_WAITS = 2**15
"""Bytes in a connection's buffer, half of those at which a writer waits for its client."""


@asynccontextmanager
async def patience(request: web.Request, write_s: float) -> AsyncIterator[None]:
    """Close the connection, and raise ConnectionResetError, if the block takes longer: the client reads
    nothing."""
    try:
        async with asyncio.timeout(write_s):
            yield
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the client does not read") from None


def _events(objects: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(b"data: %b\n\n" % _encode(item).encode() for item in objects)

"""The routes of the OpenAI-compatible API."""

from __future__ import annotations

import asyncio
import ctypes
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiohttp import web

from specops import __version__
from specops.serve.admission import FAULT, Refusal, RequestGate, bearer_token
from specops.serve.engine_loop import EngineLoop, Job
from specops.serve.limits import Limits
from specops.serve.metrics import CONTENT_TYPE, ServerMetrics
from specops.serve.protocol import (
    ChatRequest,
    CompletionRequest,
    GenerationRequest,
    PromptEncoder,
    Request,
    count_prompts,
    over_context,
    parse,
)
from specops.serve.responses import ChatAnswer, CompletionAnswer, OpenAIResponse, patience, send_stream

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Api:
    """The handlers of all routes, with the engine, tokenizer and metrics that they answer from."""

    model: str
    max_length: int  # prompt and output tokens of one sequence
    tokenizer: Any
    engine: EngineLoop
    metrics: ServerMetrics
    api_key: str | None
    limits: Limits
    gate: RequestGate = field(default_factory=RequestGate)
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self._encoder = PromptEncoder(self.tokenizer, self.max_length)

    def application(self) -> web.Application:
        """The routes as an aiohttp application."""
        most = self.limits.body_bytes
        app = web.Application(middlewares=[refuse, self._authorise], client_max_size=most)
        app.add_routes(
            [
                web.post("/v1/chat/completions", self.chat),
                web.post("/v1/completions", self.completions),
                web.get("/v1/models", self.models),
                web.get("/health", self.health),
                web.get("/version", self.version),
                web.get("/metrics", self.metrics_page),
            ]
        )
        return app

    async def chat(self, request: web.Request) -> web.StreamResponse:
        with self.gate.passage():
            body = await self._read(ChatRequest, request)
            self.engine.refuse_more_than_fits(body.n)
            prompts = [await self._encoder.chat(body.messages, body.add_special_tokens)]
            answer = ChatAnswer(
                body, self.model, prompts, self.tokenizer, speculative=self.metrics.speculative
            )
            return await self._answer(request, body, prompts, answer)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        with self.gate.passage():
            body = await self._read(CompletionRequest, request)
            # Before they are encoded: a small body can ask for millions of sequences.
            self.engine.refuse_more_than_fits(count_prompts(body.prompt) * body.n)
            prompts = await self._encoder.completion(body.prompt, body.add_special_tokens)
            answer = CompletionAnswer(
                body, self.model, prompts, self.tokenizer, speculative=self.metrics.speculative
            )
            return await self._answer(request, body, prompts, answer)

    async def models(self, request: web.Request) -> web.Response:
        model = {
            "id": self.model,
            "object": "model",
            "created": self.created,
            "owned_by": "specops",
            "root": self.model,
            "parent": None,
            "max_model_len": self.max_length,
            "permission": [],
        }
        return web.json_response({"object": "list", "data": [model]})

    async def health(self, request: web.Request) -> web.Response:
        if self.engine.failure is not None:
            return web.Response(status=503, text=f"the engine has failed: {self.engine.failure}\n")
        if self.engine.unavailable is not None:
            return web.Response(status=503, text=f"{self.engine.unavailable}\n")
        if self.gate.closed:
            return web.Response(status=503, text="shutting down\n")
        if not await self.engine.answers():
            return web.Response(status=503, text="the engine does not answer\n")
        return web.Response()

    async def version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": __version__})

    async def metrics_page(self, request: web.Request) -> web.Response:
        return web.Response(body=self.metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    async def _read(self, kind: type[Request], request: web.Request) -> Request:
        most, time_s = self.limits.body_bytes, self.limits.body_s
        if (request.content_length or 0) > most:  # before a byte of it is read
            raise Refusal(
                413,
                f"the request body is too large: {request.content_length} bytes, of at most {most}",
                code="body_too_large",
            )
        try:
            async with asyncio.timeout(time_s):
                data = await request.read()
        except TimeoutError:
            raise Refusal(
                408, f"the request body did not arrive in {time_s:g} s", code="body_timeout"
            ) from None
        body = parse(kind, data)
        if len(data) > LARGE_BODY:
            give_back_memory()
        if body.model is not None and body.model != self.model:
            raise Refusal(
                404,
                f"there is no model {body.model!r} here; this server serves {self.model!r}",
                param="model",
                code="model_not_found",
            )
        return body

    async def _answer(
        self, request: web.Request, body: GenerationRequest, prompts: list[list[int]], answer: OpenAIResponse
    ) -> web.StreamResponse:
        jobs = [
            Job(prompt, body.sampling(choice, self._token_limit(body, prompt)))
            for prompt in prompts
            for choice in range(body.n)
        ]
        with self.engine.generation(jobs) as generation:
            if body.stream:
                usage, write_s = body.include_usage, self.limits.write_s
                return await send_stream(request, generation, answer, include_usage=usage, write_s=write_s)
            while not generation.finished:
                for index, emission in await generation.next():
                    answer.add(index, emission)
        response = web.json_response(answer.whole(), dumps=partial(json.dumps, allow_nan=False))
        async with patience(request, self.limits.write_s):
            await response.prepare(request)
            await response.write_eof()
        return response

    def _token_limit(self, body: GenerationRequest, prompt: list[int]) -> int:
        """Return how many tokens may follow `prompt`. Raises Refusal (400) if the client requests more than
        fit."""
        if not prompt:
            raise Refusal(400, "the prompt is empty", param=body.prompt_field)
        room = self.max_length - len(prompt)
        if room < 1:
            raise over_context(f"{len(prompt)} tokens", self.max_length, body.prompt_field)
        limit = body.token_limit
        if limit is None:
            return room
        if limit > room:
            raise Refusal(
                400,
                f"{limit} tokens of output were requested; with {len(prompt)} tokens of prompt, {room} are "
                f"left of this model's context of {self.max_length} tokens",
                param="max_tokens" if body.max_completion_tokens is None else "max_completion_tokens",
                code="context_length_exceeded",
            )
        return limit

    @web.middleware
    async def _authorise(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self.api_key is not None and request.path.startswith("/v1/"):
            header = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
            if not hmac.compare_digest(bearer_token(header), self.api_key.encode()):
                raise Refusal(
                    401, "wrong or missing API key; send it as a bearer token", code="invalid_api_key"
                )
        return await handler(request)


LARGE_BODY = 2**19  # bytes


def give_back_memory() -> None:
    """Return freed memory to the operating system, which glibc's allocator would keep after large bodies."""
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


@web.middleware
async def refuse(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every exception of a handler into an error that OpenAI clients can read."""
    try:
        return await handler(request)
    except Refusal as refusal:
        answer = refusal
    except web.HTTPRequestEntityTooLarge as error:
        answer = Refusal(413, f"the request body is too large: {error.text}", code="body_too_large")
    except web.HTTPException as error:  # aiohttp's own: no such path, or not by this method
        allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
        answer = Refusal(error.status, f"{request.method} {request.path}: {error.reason}", headers=allow)
    except web.RequestPayloadError as error:
        answer = Refusal(400, f"the request body cannot be read: {error}")
    except ConnectionError:  # the client has gone; nobody reads an answer
        raise
    except Exception:
        log.exception("%s %s failed", request.method, request.path)
        answer = FAULT
    return web.json_response(answer.body(), status=answer.status, headers=answer.headers)

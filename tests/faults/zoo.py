"""Servers with known faults: OpenAI endpoints on loopback whose speed, answers and failures are set by knobs.

    python tests/faults/zoo.py              reads commands from stdin, one JSON object a line, until it closes
    python tests/faults/zoo.py PORT FILE K  one server at PORT; FILE has `Server`'s fields as JSON, by K

All servers of a process share one clock and one sequence of visits, so that two of them can have the same
noise. Everything that is random follows from the seeds in the knobs.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import random
import re
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

from aiohttp import web
from zoo_knobs import Body, Fault, Server, server_of


class Clock:
    """What all servers of a process share."""

    def __init__(self) -> None:
        self._last: object = None
        self._in_visit = 0
        self.since_another = 0
        """Requests of the present server since the last one of another."""

        self.visit = 0
        self.burdened_until = 0.0
        """When the work is done that answers have left behind."""

        self.answered: dict[str, int] = {}
        """By prompt, of servers that share a cache."""

    def arrive(self, server: object, visit_requests: int) -> None:
        if server is not self._last or self._in_visit >= visit_requests:
            self.visit += 1
            self._in_visit = 0
        self.since_another = 1 + (self.since_another if server is self._last else 0)
        self._last = server
        self._in_visit += 1


def event(payload: Any) -> bytes:
    return f"data: {payload if isinstance(payload, str) else json.dumps(payload)}\n\n".encode()


DONE = event("[DONE]")
PAUSE_S = 0.02
HTTP2_SETTINGS = bytes.fromhex("000000040000000000")
COMMENT = b": keep-alive\n\n"
PAGE = "<!DOCTYPE html><html><title>Sign in</title><h1>Welcome</h1></html>"
STARTS = itertools.count(1_700_000_000)
WORDS = [
    f" {first}{second}" for first, second in itertools.product("bdfgklmnprst", ("a", "e", "i", "o", "u"))
]


BETWEEN = "\x1e"
"""Between the messages of a prompt."""


def beginnings(prompt: str) -> list[str]:
    """The prompt cut off after each of its pieces: its messages, and a prefix before a second nonce."""
    ends = [match.start() for match in re.finditer(rf"{BETWEEN}|(?<=\n\n)(?=\[)", prompt)]
    return [*(prompt[:end] for end in ends), prompt]


def class_of(prompt: str) -> str:
    """The first word, behind the nonce where there is one."""
    return prompt.rpartition("] ")[2].split(":", 1)[0]


def number_of(prompt: str) -> int:
    """Of a row's prompt (fault_runs.py); -1 of any other."""
    found = re.search(r"question (\d+) of", prompt)
    return int(found[1]) if found else -1


@dataclass
class Answer:
    words: list[str]
    finish: str = "stop"


class Keeper:
    """One server: decides what a request gets, and when."""

    def __init__(self, knobs: Server, clock: Clock) -> None:
        self.knobs = knobs
        self.clock = clock
        self.started = next(STARTS) if knobs.started is None else knobs.started
        self.requests = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.sampled = 0
        self.answered: dict[str, int] = clock.answered if knobs.shares_cache else {}
        self.generated = 0
        self.finished = 0
        self._beginnings: set[str] = set()
        """Of all prompts that it was sent."""

        self.looked_up = 0
        self.hits = 0
        """Tokens of prompts, and those of them that were in the cache."""

        self._rng = random.Random(f"{knobs.seed} server")
        self._turns = [self._share(number, fault.share) for number, fault in enumerate(knobs.faults)]
        self._served: weakref.WeakKeyDictionary[asyncio.BaseTransport, int] = weakref.WeakKeyDictionary()
        """The answers of each connection that has had one."""

        self._free_from = 0.0
        """When the next request may begin."""

        self._began: float | None = None
        self._ended = 0.0
        """When the last answer ended."""

        self._connections: weakref.WeakKeyDictionary[asyncio.BaseTransport, int] = weakref.WeakKeyDictionary()
        """Their numbers, from 1."""

        self._lasting = self._rng.gauss(0, 1)
        self._recent: deque[float] = deque()
        """When the requests of the last second came."""

    def _share(self, number: int, share: float) -> Iterator[bool]:
        """True for `share` of its values: one at a random place of each 1/share."""
        rng = random.Random(f"{self.knobs.seed} fault {number}")
        due = 0.0
        while True:
            every = max(1, round(1 / share)) if share else 100
            # A share that is no 1/n keeps its count too: what is left over is carried on.
            due += share * every
            hits = int(due + 1e-9)
            due -= hits
            places = set(rng.sample(range(every), min(hits, every)))
            yield from (place in places for place in range(every))

    # --- what is answered

    def text_of(self, prompt: str, limit: int) -> Answer:
        """The answer that every server with the same knobs gives to a greedy request."""
        if self.knobs.loses_history:
            prompt = prompt.rpartition(BETWEEN)[2]
        own = random.Random(f"{prompt} cut" if self._cuts(prompt) else prompt)
        count = own.randint(*self.knobs.tokens)
        words = [own.choice(WORDS) for _ in range(count)]
        if self.knobs.other_model:
            other = random.Random(f"{prompt} of another model")
            words = [other.choice(WORDS) for _ in words]
        return Answer(words[:limit], "length" if count > limit else "stop")

    def answer_to(self, prompt: str, temperature: float, limit: int) -> Answer:
        knobs, rng = self.knobs, self._rng
        answer = self.text_of(prompt, 10**6)
        words = answer.words
        if knobs.ignores_temperature and rng.random() < knobs.ignores_temperature:
            temperature = 0.0
        if temperature > 0 or knobs.random_greedy:
            words = [rng.choice(WORDS) for _ in words]
            if knobs.loops and temperature > 0:
                two = random.Random(prompt).sample(WORDS, 2)
                words = [two[at % 2] for at in range(len(words))]
        elif knobs.unsteady and rng.random() < knobs.unsteady:
            part = rng.randrange(len(words))
            words = words[:part] + [rng.choice(WORDS) for _ in words[part:]]
        spread = knobs.sampled_sd if temperature > 0 else knobs.length_sd
        if spread:
            words = self._of_length(words, len(words) * math.exp(spread * rng.gauss(0, 1)))
        if temperature > 0 and rng.random() < knobs.sampled_cut:
            words = words[: max(1, round(0.4 * len(words)))]
        if temperature > 0 and rng.random() < knobs.gibberish:
            words = ["".join(rng.choice("qwxzjv#%") for _ in word) for word in words]
        if knobs.length != 1.0 and self._in(prompt, knobs.length_classes):
            words = self._of_length(words, len(words) * knobs.length)
        if temperature == 0 and self._garbles(prompt):
            part = random.Random(f"{prompt} part").randrange(max(1, len(words) // 2))
            words = words[:part] + [rng.choice(WORDS) for _ in words[part:]]
        if temperature == 0 and number_of(prompt) in knobs.garbled_prompts:
            words = [*words[: len(words) // 3], *(rng.choice(WORDS) for _ in words[len(words) // 3 :])]
        if random.Random(f"{prompt} {knobs.seed} stock").random() < knobs.stock:
            words = WORDS[:9]
        if knobs.other_language:
            words = [word[:2] for word in words]
        if knobs.padding:
            words = words + ["\n"] * round(knobs.padding * len(words))
        limit = min(limit, knobs.cap or limit)
        return Answer(words[:limit], "length" if len(words) > limit else "stop")

    def _of_length(self, words: list[str], length: float) -> list[str]:
        count = int(length + self._rng.random())  # without bias, where the length is no whole number
        more = [self._rng.choice(WORDS) for _ in range(count - len(words))]
        if self.knobs.loops:
            more = [words[at % 2] for at in range(len(words), count)]
        return [*words[:count], *more] or words[:1]

    def _garbles(self, prompt: str) -> bool:
        knobs = self.knobs
        if not knobs.garble_share:
            return False
        met = (
            (knobs.garble_above > 0 and self.in_flight > knobs.garble_above)
            or (knobs.garble_mixed and self.sampled > 0)
            or (knobs.garble_repeats and self.answered.get(prompt, 0) > 0)
        )
        return met and random.Random(f"{prompt} {knobs.seed} garbled").random() < knobs.garble_share

    @staticmethod
    def _in(prompt: str, classes: tuple[str, ...]) -> bool:
        return not classes or class_of(prompt) in classes

    # --- how long it takes

    def slowness(self, prompt: str) -> float:
        """How many times as long this request takes."""
        knobs = self.knobs
        factor = knobs.class_factors.get(class_of(prompt), 1.0) * self._drifted()
        since = time.monotonic() - (self._began or 0.0)
        factor *= next((by for start, by in reversed(knobs.drift_s) if since >= start), 1.0)
        if knobs.lasting_sd:
            phi = knobs.lasting_phi
            self._lasting = phi * self._lasting + math.sqrt(1 - phi * phi) * self._rng.gauss(0, 1)
            factor *= math.exp(knobs.lasting_sd * self._lasting)
        if self.requests % 2:
            factor *= knobs.alternate
        if self.in_flight > knobs.loaded_above:
            factor *= knobs.loaded_factor
        if self.clock.since_another <= knobs.wake[0]:
            factor *= knobs.wake[1]
        if knobs.burst_s:
            period = int(asyncio.get_running_loop().time() / knobs.burst_s)
            factor *= 1 + knobs.burst_share * random.Random(f"{knobs.seed} {period}").randrange(2)
        if knobs.visit_sd:
            factor *= self._noise(knobs.visit_sd, random.Random(f"{knobs.seed} {self.clock.visit}"))
        if knobs.request_sd:
            factor *= self._noise(knobs.request_sd, self._rng)
        if self.answered.get(self._cache_key(prompt)):
            factor *= knobs.repeat_factor
        return factor

    def _cache_key(self, prompt: str) -> str:
        return prompt.partition("] ")[2] or prompt if self.knobs.ignores_nonce else prompt

    def _cached(self, body: Body) -> int:
        """How many of the prompt's pieces are in the cache."""
        pieces = beginnings(_prompt_of(body))
        cached = 0
        if self.knobs.prefix_cache:
            cached = max((n for n, piece in enumerate(pieces, 1) if piece in self._beginnings), default=0)
            self._beginnings.update(pieces)
        self.looked_up += self.knobs.prompt_tokens * len(pieces)
        self.hits += self.knobs.prompt_tokens * cached
        return cached

    def _too_many(self) -> bool:
        if not self.knobs.per_second:
            return False
        now = asyncio.get_running_loop().time()
        while self._recent and self._recent[0] < now - 1:
            self._recent.popleft()
        if len(self._recent) >= self.knobs.per_second:
            return True
        self._recent.append(now)
        return False

    @staticmethod
    def _noise(sd: float, rng: random.Random) -> float:
        return math.exp(sd * rng.gauss(0, 1) - sd * sd / 2)

    def _drifted(self) -> float:
        points = self.knobs.drift
        if not points:
            return 1.0
        before = [point for point in points if point[0] <= self.requests]
        after = [point for point in points if point[0] > self.requests]
        if not before or not after:
            return (before[-1] if before else after[0])[1]
        (x0, y0), (x1, y1) = before[-1], after[0]
        return y0 + (y1 - y0) * (self.requests - x0) / (x1 - x0)

    def fault_of(self, prompt: str, temperature: float, *, mixed: bool) -> Fault | None:
        """The first fault that is due, of those with this `mixed`.

        Each counts only the requests that meet its conditions.
        """
        for fault, turns in zip(self.knobs.faults, self._turns, strict=True):
            if fault.mixed != mixed or self.requests <= fault.after or self.in_flight <= fault.above:
                continue
            if (fault.last and self.requests > fault.last) or (fault.sampled and temperature == 0):
                continue
            if fault.until and self.clock.since_another > fault.until:
                continue
            if self.clock.since_another < fault.in_a_row or not self._in(prompt, fault.classes):
                continue
            if mixed and (temperature > 0 or not self.sampled):
                continue
            if next(turns):
                return fault
        return None

    # --- requests

    async def complete(self, request: web.Request) -> web.StreamResponse:
        if refused := self._refusal():
            return refused
        transport = request.transport
        assert transport is not None
        if self.knobs.closing == "race" and transport in self._served:
            transport.close()
            await asyncio.sleep(3600)  # ended by the loss of the connection
        body = await request.json()
        prompt = _prompt_of(body)
        temperature = float(body.get("temperature", 1.0))
        if self.knobs.refuses_greedy and temperature == 0:
            return _refused(400, "temperature must be above 0")
        if number_of(prompt) in self.knobs.refused_prompts:
            return _refused(400, "the prompt is too long")
        if self._too_many():
            return _refused(429, "too many requests", {"Retry-After": "0.1"})
        self.clock.arrive(self, self.knobs.visit_requests)
        self.requests += 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.sampled += temperature > 0
        try:
            return await self._answer(request, body, prompt, temperature)
        finally:
            self._ended = asyncio.get_running_loop().time()
            self.in_flight -= 1
            self.sampled -= temperature > 0
            self._served[transport] = answers = self._served.get(transport, 0) + 1
            if self.knobs.closing == "fin" or answers == self.knobs.closing_after:
                transport.close()  # what was written is sent first

    async def _answer(
        self, request: web.Request, body: Body, prompt: str, temperature: float
    ) -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        began = max(loop.time(), self.clock.burdened_until)
        if request.transport not in self._served:
            began += self.knobs.connection_ms / 1000
        if self.knobs.spacing_ms:
            began = max(began, self._free_from)
            self._free_from = began + self.knobs.spacing_ms / 1000
        self._began = self._began or loop.time()
        every, lasts = self.knobs.outage_s
        if lasts:
            began += max(0.0, lasts - (began - self._began) % every)
        cached = body["cached messages"] = self._cached(body)
        turn = prompt.count(BETWEEN) // 2 + 1
        factor = self.slowness(prompt) * (
            self.knobs.from_turn[1] if 0 < self.knobs.from_turn[0] <= turn else 1.0
        )
        factor *= self.knobs.hit_factor if cached else 1.0
        assert request.transport is not None
        number = self._connections.setdefault(request.transport, len(self._connections) + 1)
        factor *= self.knobs.odd_connections ** (1 if number % 2 else -1)
        fault = self.fault_of(prompt, temperature, mixed=False)
        limit = int(body.get("max_tokens") or body.get("max_completion_tokens") or 256)
        if not body.get("stream"):
            return self._whole(prompt, limit, body)
        unpaused = self.knobs.unpaused_ttft_ms and loop.time() - self._ended < PAUSE_S
        ttft = (self.knobs.unpaused_ttft_ms if unpaused else self.knobs.ttft_ms) * factor / 1000
        ttft += self.knobs.prefill_ms * (len(beginnings(prompt)) - cached) / 1000
        if fault is None:
            await _until(began + ttft)
            fault = self.fault_of(prompt, temperature, mixed=True)
        kind = fault.kind if fault else ""
        transport = request.transport
        assert transport is not None
        if kind == "http_429_later":
            return _refused(429, "too many requests", {"Retry-After": "0.1"})
        if kind == "http_429_until":
            return _refused(
                429, "too many requests", {"Retry-After": formatdate(time.time() + 1, usegmt=True)}
            )
        if kind.startswith("http_"):
            return _refused(int(kind.removeprefix("http_")), "the engine is overloaded")
        if kind == "reset":
            transport.abort()
            await asyncio.sleep(3600)
        if kind == "html":
            return web.Response(text=PAGE, content_type="text/html")
        if kind == "error_json":
            return web.json_response({"object": "error", "message": "CUDA error", "code": 500})
        if fault and kind == "hang":
            await asyncio.sleep(fault.ms / 1000)
            began += fault.ms / 1000
        if not self.knobs.role_first:
            await _until(began + ttft)
        # What is in flight is looked at when the first token is there: requests sent together have met.
        misread = bool(cached) and self.knobs.other_prefix
        answer = self.answer_to(f"another beginning {prompt}" if misread else prompt, temperature, limit)
        if kind in ("abort", "finish_error"):
            finish = kind.removeprefix("finish_")
            answer = Answer(answer.words[: max(1, len(answer.words) // 4)], finish)
        if kind in ("unended", "silent_end", "filtered"):
            finish = "content_filter" if kind == "filtered" else ""
            answer = Answer(answer.words[: max(1, len(answer.words) // 2)], finish)
        if kind == "empty":
            answer = Answer([])
        if kind == "stump":
            answer = Answer(answer.words[: max(1, len(answer.words) // 10)])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        if self.knobs.closing == "fin":
            response.headers["Connection"] = "keep-alive"
        await response.prepare(request)
        if self.knobs.byte_order_mark:
            await response.write(b"\xef\xbb\xbf")
        if self.knobs.role_first:
            await response.write(
                event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
            )
        half, held, send_at = len(answer.words) // 2, b"", 0.0
        instant = began + ttft
        for at, words, piece in self._chunks(answer, body):
            due = instant + at * self.knobs.token_ms * factor / 1000
            if self.knobs.flush_ms:
                flush = self.knobs.flush_ms / 1000
                flushed = began + math.ceil((due - began) / flush) * flush
                if held and flushed > send_at:
                    await _until(send_at)
                    await response.write(held)
                    held = b""
                send_at = flushed
            else:
                await _until(due)
            if fault and words >= half:
                if kind == "stall":
                    await asyncio.sleep(fault.ms / 1000)
                    instant += fault.ms / 1000
                    fault = None
                elif kind == "cut":
                    transport.abort()
                    return response
                elif kind in ("error_object", "error_event"):
                    message = {"object": "error", "message": "the engine is dead", "code": 500}
                    told = message if kind == "error_object" else {"error": message}
                    await response.write(event(told) + DONE)
                    return response
            held += COMMENT * self.knobs.comments + piece * self.knobs.copies
            if not (self.knobs.buffered or self.knobs.flush_ms):
                await response.write(held)
                held = b""
        await _until(send_at)
        await response.write(held)
        await asyncio.sleep(self.knobs.linger_ms / 1000)
        ending = {"unended": DONE, "silent_end": b""}.get(kind)
        await response.write(self._end(answer, body) if ending is None else ending)
        await response.write_eof()
        cache_key = self._cache_key(prompt)
        self.answered[cache_key] = self.answered.get(cache_key, 0) + 1
        self.clock.burdened_until = max(loop.time(), self.clock.burdened_until) + self.knobs.burden_ms / 1000
        self.generated += len(answer.words)
        self.finished += 1
        return response

    def _chunks(self, answer: Answer, body: Body) -> Iterator[tuple[float, int, bytes]]:
        """Each chunk: how many tokens' time after the first one it is due, the tokens so far, its bytes."""
        knobs, words = self.knobs, answer.words
        start = 0
        while start < len(words) or (start == 0 and not words):
            size = knobs.chunk if start else knobs.first_chunk
            piece = words[start : start + size]
            start += len(piece)
            last = start >= len(words)
            finish = answer.finish if last and not (knobs.no_finish or knobs.finish_apart) else ""
            text = "" if knobs.textless else "".join(piece).replace(" ", "" if knobs.no_spaces else " ")
            payload = _payload(text, finish or None, body)
            if start <= knobs.reasoning * len(words):
                payload["choices"][0]["delta"] = {"reasoning_content": text}
            elif knobs.field == "refusal":
                payload["choices"][0]["delta"] = {"refusal": text}
            elif knobs.field == "tool_calls":
                call = {"index": 0, "function": {"arguments": text}}
                payload["choices"][0]["delta"] = {"tool_calls": [call]}
            if knobs.usage == "every" or (knobs.usage == "last_text" and last):
                payload["usage"] = self._usage(body, start)
            elif knobs.usage == "total":
                payload["usage"] = self._usage(body, len(words))
            elif knobs.usage == "null":
                payload["usage"] = None
            # The tokens of a chunk are all there when its last one is; those of the first one come at once.
            sent = event(payload)
            if knobs.crlf:
                sent = b"id: %d\r\n" % start + sent.replace(b"\n", b"\r\n")
            yield max(0, start - knobs.first_chunk), start, sent
            if not words:
                return

    def _end(self, answer: Answer, body: Body) -> bytes:
        usage, asked = self.knobs.usage, (body.get("stream_options") or {}).get("include_usage")
        finish = event(_payload("", answer.finish, body)) if self.knobs.finish_apart else b""
        if not asked or usage in ("none", "last_text"):
            return finish + DONE
        count = 0 if usage == "zero" else len(answer.words)
        told = None if usage == "null" else self._usage(body, count)
        payload = {"id": "z", "object": "chat.completion.chunk", "choices": [], "usage": told}
        return finish + event(payload) + DONE

    def _cuts(self, prompt: str) -> bool:
        return class_of(prompt) in self.knobs.cut_prompts

    def _usage(self, body: Body, count: int) -> Body:
        tokens = round(count * self.knobs.usage_factor)
        read = self.knobs.prompt_tokens // (2 if self._cuts(_prompt_of(body)) else 1)
        read *= len(beginnings(_prompt_of(body)))
        usage: Body = {"prompt_tokens": read, "completion_tokens": tokens, "total_tokens": read + tokens}
        if self.knobs.prefix_cache and self.knobs.cache_usage:
            cached = self.knobs.prompt_tokens * body.get("cached messages", 0)
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        return usage

    def _whole(self, prompt: str, limit: int, body: Body) -> web.Response:
        words = self.text_of(prompt, limit).words
        choice: Body = {"index": 0, "finish_reason": "stop"}
        choice |= (
            {"message": {"role": "assistant", "content": "".join(words)}}
            if "messages" in body
            else {"text": "".join(words)}
        )
        if self.knobs.logprobs:
            top = [{"token": "x", "logprob": -0.01}, {"token": "y", "logprob": -5.0}]
            choice["logprobs"] = {"content": [{"token": word, "top_logprobs": top} for word in words]}
        return web.json_response({"id": "z", "choices": [choice], "usage": self._usage(body, len(words))})

    def _refusal(self) -> web.Response | None:
        match self.knobs.bad:
            case "html":
                return web.Response(text=PAGE, content_type="text/html")
            case "401":
                return _refused(401, "Unauthorized")
            case "404":
                return web.json_response({"detail": "Not Found"}, status=404)
            case "429":
                return _refused(429, "rate limit reached")
            case "loading":
                return _refused(503, "the model is loading")
        return None

    # --- the other pages

    async def models(self, _: web.Request) -> web.Response:
        if refused := self._refusal():
            return refused
        data = [] if self.knobs.bad == "no_models" else [{"id": self.knobs.model, "object": "model"}]
        return web.json_response({"object": "list", "data": data})

    async def version(self, _: web.Request) -> web.Response:
        return self._refusal() or web.json_response({"version": "zoo-1"})

    async def health(self, _: web.Request) -> web.Response:
        return self._refusal() or web.Response()

    async def metrics(self, _: web.Request) -> web.Response:
        if refused := self._refusal():
            return refused
        return web.Response(text=self.exposition()) if self.knobs.metrics else web.Response(status=404)

    def exposition(self) -> str:
        model = f'model_name="{self.knobs.model}"'
        lines = [
            "# TYPE process_start_time_seconds gauge",
            f"process_start_time_seconds {self.started}",
            "# TYPE vllm:generation_tokens counter",
            f"vllm:generation_tokens_total{{{model}}} {self.generated}",
            "# TYPE vllm:request_success counter",
            f'vllm:request_success_total{{finished_reason="stop",{model}}} {self.finished}',
            "# TYPE vllm:num_requests_running gauge",
            f"vllm:num_requests_running{{{model}}} {self.in_flight}",
        ]
        for name, count in (("queries", self.looked_up), ("hits", self.hits)):
            lines += [
                f"# TYPE vllm:prefix_cache_{name} counter",
                f"vllm:prefix_cache_{name}_total{{{model}}} {count}",
            ]
        if self.knobs.speculates:
            drafts = self.generated // 3
            for name, count in (
                ("drafts", drafts),
                ("draft_tokens", 3 * drafts),
                ("accepted_tokens", 2 * drafts * self.knobs.accepts),
            ):
                lines += [
                    f"# TYPE vllm:spec_decode_num_{name} counter",
                    f"vllm:spec_decode_num_{name}_total{{{model}}} {count}",
                ]
            lines.append("# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter")
            lines += [
                f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{at}",{model}}} '
                f"{drafts if at < 2 and self.knobs.accepts else 0}"
                for at in range(3)
            ]
        return "\n".join(lines) + "\n"

    async def start(self, port: int = 0) -> web.AppRunner:
        app = web.Application(middlewares=[_other_protocol] if self.knobs.bad == "http2" else [])
        for path in ("/v1/chat/completions", "/v1/completions"):
            app.router.add_post(path, self.complete)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/version", self.version)
        app.router.add_get("/health", self.health)
        app.router.add_get("/metrics", self.metrics)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        self.port: int = runner.addresses[0][1]
        return runner


@web.middleware
async def _other_protocol(request: web.Request, handler: Any) -> web.StreamResponse:
    """Answers as a server of HTTP/2 does that is sent HTTP/1.1."""
    del handler
    assert request.transport is not None
    request.transport.write(HTTP2_SETTINGS)
    request.transport.close()
    await asyncio.sleep(3600)  # ended by the loss of the connection
    raise AssertionError


async def _until(instant: float) -> None:
    left = instant - asyncio.get_running_loop().time()
    if left > 0:
        await asyncio.sleep(left)


def _refused(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status, headers=headers)


def _prompt_of(body: Body) -> str:
    return (
        BETWEEN.join(str(m["content"]) for m in body["messages"])
        if "messages" in body
        else str(body["prompt"])
    )


def _payload(text: str, finish: str | None, body: Body) -> Body:
    inner: Body = {"delta": {"content": text}} if "messages" in body else {"text": text}
    return {
        "id": "z",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "finish_reason": finish} | inner],
    }


async def _serve_commands() -> None:
    """{"open": [knobs, …]} answers {"ports": […]}; {"close": true} stops those and answers what they saw."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, "")

    threading.Thread(target=read, daemon=True).start()
    keepers: list[Keeper] = []
    runners: list[web.AppRunner] = []
    while line := await lines.get():
        command = json.loads(line)
        if "open" in command:
            clock = Clock()
            keepers = [Keeper(server_of(knobs), clock) for knobs in command["open"]]
            runners = [await keeper.start() for keeper in keepers]
            said: Body = {"ports": [keeper.port for keeper in keepers]}
        else:
            said = {"requests": [keeper.requests for keeper in keepers]}
            for runner in runners:
                await runner.cleanup()
            keepers, runners = [], []
        print(json.dumps(said), flush=True)


async def _serve_one(port: int, knobs: Server) -> None:
    await asyncio.sleep(knobs.start_s)
    await Keeper(knobs, Clock()).start(port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        by_k = json.loads(Path(sys.argv[2]).read_text())
        asyncio.run(_serve_one(int(sys.argv[1]), server_of(by_k[sys.argv[3]])))
    else:
        asyncio.run(_serve_commands())

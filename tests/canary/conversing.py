"""Two scripted servers that answer as a small model would, with a cache of prefixes, slots, drafts, schemas,
tools and reasoning; the speculative one can be made to do wrong.

The model is a chain of hashes: what it writes next follows from its row, and the row from every token before.
So an answer from another request's row is another answer, as from a real cache. What a pool does differently
is a word in `traits`: a fault, which the speculative pool has, or a quirk, which a healthy pool may have.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

from aiohttp import web

from specops.config.rollout import Canary, CheckName
from specops.launch.servers import Server
from specops.load.settings import BaselineSettings
from specops.phases.canary import conform
from specops.progress import SilentProgress
from specops.results import Result

WORDS = [f" {a}{b}" for a in ("ba", "de", "fi", "go", "ku", "la") for b in ("n", "r", "s", "t", "mo", "zi")]
LIMIT = 1024
BLOCK = 16
SCALE = 3.0
"""Nats: of Gumbel noise, so that two tokens are within 0.25 nats of each other in one of twelve places."""
FLAT = 6.0
"""The same for what only schemas ask for."""
BOOST = 12.0
"""Nats: a model that is asked for such a string is about as likely to begin it as to write a word."""
K = 3
ACCEPTED = 0.7
STEP_S = 0.0005
SHORT_OF_LIMIT = 4
Scored = tuple[tuple[float, str], ...]
"""Log-probabilities and tokens, the likeliest first."""


def tokens_of(text: str) -> list[str]:
    return re.findall(r"\s*\w+|\s*[^\w\s]", text)


def after(row: int, token: str) -> int:
    return crc32(token.encode(), row ^ 0x5BD1E995)


@lru_cache(maxsize=50_000)
def scored(row: int, tokens: frozenset[str]) -> Scored:
    """The model's log-probabilities of `tokens` and of all words."""
    logits = {
        token: (SCALE if token in WORDS else FLAT)
        * -math.log(-math.log(Random(crc32(token.encode(), row)).random() or 0.5))
        + (0.0 if token in WORDS else BOOST)
        for token in tokens.union(WORDS)
    }
    most = max(logits.values())
    total = most + math.log(sum(math.exp(value - most) for value in logits.values()))
    return tuple(sorted(((value - total, token) for token, value in logits.items()), reverse=True))


def valid_answers(schema: dict[str, Any]) -> list[str]:
    """All texts that a small schema allows."""
    if "enum" in schema:
        return [json.dumps(value) for value in schema["enum"]]
    if schema.get("type") == "boolean":
        return ["true", "false"]
    parts = [[f'"{key}": {v}' for v in valid_answers(s)] for key, s in schema["properties"].items()]
    return [f"{{{', '.join(chosen)}}}" for chosen in product(*parts)]


@dataclass
class Written:
    """An answer: its tokens, their log-probabilities with the likeliest there, and its drafts."""

    tokens: list[str] = field(default_factory=list)
    tops: list[tuple[float, Scored]] = field(default_factory=list)
    row: int = 0
    drafted: int = 0
    accepted: int = 0
    reason: str = "length"

    @property
    def text(self) -> str:
        return "".join(self.tokens)


class Pool:
    """One server's state. `traits` may change between requests."""

    def __init__(self, name: str, traits: frozenset[str] = frozenset()) -> None:
        self.name, self.traits = name, traits
        self.dice = Random(name)
        self.restart()

    def restart(self) -> None:
        self.cache: OrderedDict[int, int] = OrderedDict()
        self.evicted = self.latest = self.served = self.running = 0
        self.poisoned: dict[int, int] = {}
        self.schemas: list[dict[str, Any]] = []
        """Of the requests that run."""

    # --- the cache ----------------------------------------------------------------------------

    def prefill(self, tokens: Sequence[str]) -> tuple[int, int]:
        """Return the last row of a prompt, and how many of its tokens were cached."""
        row = key = cached = 0
        capacity = 64 if "small_cache" in self.traits else 512
        before, whole = self.latest, len(tokens) // BLOCK * BLOCK
        for start in range(0, whole, BLOCK):
            for token in tokens[start : start + BLOCK]:
                row, key = after(row, token), after(key, token)
            if key in self.cache:
                cached += BLOCK
                row = self.cache[key]
                self.cache.move_to_end(key)
                if "disturber_rows" in self.traits and start + BLOCK == whole:
                    row = before
                continue
            if "stale_after_eviction" in self.traits and self.evicted:
                row = self.evicted
            self.cache[key] = self.latest = row
            if len(self.cache) > capacity:
                _, self.evicted = self.cache.popitem(last=False)
        for token in tokens[whole:]:
            row = after(row, token)
        return row, min(cached, len(tokens) - 1)

    def prompt_row(self, tokens: Sequence[str]) -> tuple[int, int]:
        row, cached = self.prefill(tokens)
        if "neighbour_s_row" in self.traits and self.running > 2 and self.dice.random() < 0.6:
            row = self.latest
        if "half_a_block" in self.traits:
            row = self.poisoned.pop(row, row)
        return row, cached

    # --- the answer ---------------------------------------------------------------------------

    def acceptance(self, prompt: int) -> float:
        rate = ACCEPTED
        if "falls_with_slots" in self.traits:
            rate *= max(0.0, 1 - self.running / 8)
        if "falls_with_uptime" in self.traits:
            rate *= max(0.2, 1 - self.served / 200)
        if "falls_with_context" in self.traits and prompt > 256:
            rate *= 0.2
        return rate

    def drafts(self, written: Written, rows: Sequence[int], prompt: int) -> None:
        """Count what a verification of K drafts at a time accepts."""
        rate, place = self.acceptance(prompt), 0
        most = 1 if "fewer_drafts_in_batches" in self.traits and self.running > 4 else K
        while place < len(rows):
            run = 0
            while (
                run < most and place + run < len(rows) and crc32(b"draft", rows[place + run]) < rate * 2**32
            ):
                run += 1
            written.drafted += most
            written.accepted += run
            place += run + 1

    def write(self, row: int, prompt: int, body: dict[str, Any], dice: Random) -> Written:
        written, rows = Written(), []
        most = min(body.get("max_tokens") or 16, LIMIT - prompt)
        if "cut_near_limit" in self.traits:
            most = max(1, min(most, LIMIT - prompt - SHORT_OF_LIMIT))
        for _ in range(most):
            choices = scored(row, frozenset())
            if not body.get("ignore_eos") and row % 199 == 0 and written.tokens:
                written.reason = "stop"
                break
            logprob, token = self.choose(choices, body.get("temperature", 1.0), dice)
            written.tokens.append(token)
            written.tops.append((logprob, choices[:20]))
            rows.append(row)
            row = after(row, token)
        written.row = row
        self.drafts(written, rows, prompt)
        return written

    def choose(self, choices: Scored, temperature: float, dice: Random) -> tuple[float, str]:
        if temperature == 0:
            tie = choices[0][0] - choices[1][0] < 0.2
            rounds = "near_ties" in self.traits and tie and self.dice.random() < 0.1
            return choices[1] if rounds else choices[0]
        weights = [math.exp(value / temperature) for value, _ in choices]
        return dice.choices(choices, weights)[0]

    def follow(self, row: int, texts: Sequence[str], temperature: float, dice: Random) -> Written:
        """Write one of `texts`, by masking and renormalising each token; or by what is likely as a whole."""
        paths = [tokens_of(text) for text in texts]
        if temperature and "conditional" in self.traits:
            logs = [sum(logprob for logprob, _ in self.trace(row, path, paths).tops) for path in paths]
            paths = [dice.choices(paths, [math.exp(value - max(logs)) for value in logs])[0]]
        if "sharp_grammar" in self.traits:
            temperature *= 0.2
        written: list[str] = []
        at, every = row, [tokens_of(text) for text in texts]
        while any(len(path) > len(written) for path in paths):
            allowed = {path[len(written)] for path in paths if len(path) > len(written)}
            choices = tuple(entry for entry in scored(at, frozenset(allowed)) if entry[1] in allowed)
            _, token = self.choose(choices, temperature, dice) if len(choices) > 1 else choices[0]
            written.append(token)
            at = after(at, token)
            paths = [path for path in paths if path[: len(written)] == written]
        return self.trace(row, written, every)

    def trace(self, row: int, path: list[str], paths: Sequence[list[str]]) -> Written:
        """Return an answer of these tokens, one of `paths`, with the model's own log-probabilities."""
        written = Written(reason="stop")
        for place, token in enumerate(path):
            allowed = {
                other[place] for other in paths if other[:place] == path[:place] and len(other) > place
            }
            choices = scored(row, frozenset(allowed))
            written.tokens.append(token)
            written.tops.append((next(value for value, text in choices if text == token), choices[:20]))
            row = after(row, token)
        return written

    # --- the protocol -------------------------------------------------------------------------

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        chat = "messages" in body
        text = "".join(f"<{m['role']}>{m['content']}" for m in body["messages"]) if chat else body["prompt"]
        tokens = tokens_of(text)
        if len(tokens) + (body.get("max_tokens") or 16) > LIMIT:
            message = f"the limit is {LIMIT} tokens"
            return web.json_response({"error": {"message": message}}, status=400)
        schema = self.schema(body)
        self.served += 1
        self.running += 1
        if schema is not None:
            self.schemas.append(schema)
        try:
            return await self.respond(request, body, tokens, schema)
        finally:
            self.running -= 1
            if schema is not None:
                self.schemas.remove(schema)

    @staticmethod
    def schema(body: dict[str, Any]) -> dict[str, Any] | None:
        if body.get("tools"):
            return dict(body["tools"][0]["function"]["parameters"])
        form = body.get("response_format") or {}
        return dict(form["json_schema"]["schema"]) if form.get("type") == "json_schema" else None

    async def respond(
        self, request: web.Request, body: dict[str, Any], tokens: list[str], schema: dict[str, Any] | None
    ) -> web.StreamResponse:
        row, cached = self.prompt_row(tokens)
        before = self.schemas[:]
        await asyncio.sleep(self.dice.random() * 0.02 if "waits" in self.traits else 20 * STEP_S)
        seeded = "seed" in body and "no_seed" not in self.traits
        dice = Random(f"{body['seed']}") if seeded else self.dice
        temperature = body.get("temperature", 1.0)
        others = [other for other in self.schemas if other != schema]
        wrong = bool(others) and self.dice.random() < 0.15
        crossed = wrong and ("crossed_tools" if body.get("tools") else "crossed_schemas") in self.traits
        ignored = "schema_ignored_in_batch" in self.traits and self.running > 1 and self.dice.random() < 0.25
        beside = [*before, *self.schemas]
        leaks = "mask_leaks" in self.traits and bool(beside) and schema is None
        if schema is not None and not ignored:
            chosen = others[0] if crossed else schema
            written = self.follow(row, valid_answers(chosen), temperature, dice)
        elif leaks and self.dice.random() < 0.5:
            written = self.follow(row, valid_answers(beside[0]), temperature, dice)
        else:
            written = self.write(row, len(tokens), body, dice)
        if body.get("stream"):
            return await self.stream(request, body, tokens, row, written, schema)
        return web.json_response(self.whole(body, len(tokens), cached, written, schema))

    def message(self, body: dict[str, Any], written: Written, schema: Any) -> dict[str, Any]:
        message: dict[str, Any] = {"content": written.text}
        if body.get("tools"):
            name = body["tools"][0]["function"]["name"]
            call = {"function": {"name": name, "arguments": written.text}}
            message = {"content": None, "tool_calls": [{"index": 0} | call]}
        if "reasons" in self.traits:
            thought = " I think it is small."
            message["reasoning_content"] = thought
            if schema is not None and "reasoning_leaks" in self.traits:
                message |= {"content": f"{thought}</think>{written.text}", "reasoning_content": None}
            if schema is not None and "reasoning_lost" in self.traits:
                message["reasoning_content"] = None
        return message

    def whole(
        self, body: dict[str, Any], prompt: int, cached: int, written: Written, schema: Any
    ) -> dict[str, Any]:
        chat = "messages" in body
        choice: dict[str, Any] = {"index": 0, "finish_reason": written.reason}
        choice |= {"message": self.message(body, written, schema)} if chat else {"text": written.text}
        if body.get("logprobs") and "no_logprobs" not in self.traits:
            most = body.get("top_logprobs", body["logprobs"])
            listed = list(zip(written.tokens, written.tops, strict=True))
            content = [
                {
                    "token": token,
                    "logprob": logprob,
                    "top_logprobs": [{"token": t, "logprob": v} for v, t in tops[:most]],
                }
                for token, (logprob, tops) in listed
            ]
            choice["logprobs"] = {"content": content}
        usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": len(written.tokens)}
        usage["total_tokens"] = prompt + len(written.tokens)
        if "counts_no_cached" not in self.traits:
            shown = 0 if "no_cached_tokens" in self.traits else cached
            usage["prompt_tokens_details"] = {"cached_tokens": shown}
        answer = {"choices": [choice], "usage": usage}
        if self.name == "speculative" and "silent_drafts" not in self.traits:
            drafts = {"num_draft_tokens": written.drafted, "num_accepted_draft_tokens": written.accepted}
            answer["metrics"] = {"speculative_decoding": drafts}
        return answer

    async def stream(
        self,
        request: web.Request,
        body: dict[str, Any],
        tokens: list[str],
        row: int,
        written: Written,
        schema: Any,
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        chat = "messages" in body
        message = self.message(body, written, schema) if chat else {}
        structured = bool(message.get("tool_calls") or message.get("reasoning_content"))
        parts = [message] if structured or schema else [{"content": token} for token in written.tokens]
        at = row
        try:
            for delta, token in zip(parts, written.tokens, strict=False):
                choice = {"index": 0, "finish_reason": None} | (
                    {"delta": delta} if chat else {"text": delta["content"]}
                )
                await response.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
                at = after(at, token)
                await asyncio.sleep(STEP_S)
            last = {"index": 0, "finish_reason": written.reason} | ({"delta": {}} if chat else {"text": ""})
            usage = self.whole(body, len(tokens), 0, written, schema)["usage"]
            for event in ({"choices": [last]}, {"choices": [], "usage": usage}):
                await response.write(f"data: {json.dumps(event)}\n\n".encode())
            await response.write(b"data: [DONE]\n\n")
        except ConnectionResetError:  # its client left
            self.poisoned[row] = at
        return response

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "toy", "max_model_len": LIMIT}]})


QUESTIONS = ("explain", "sort", "count", "name", "compare", "list")


def prompts_of(turned: int, number: int = 12) -> list[dict[str, str]]:
    """Prompts of some fifty words, other ones for each `turned`."""
    dice = Random(turned)
    return [
        {"id": f"p{n}", "text": dice.choice(QUESTIONS) + "".join(dice.choices(WORDS, k=40 + n))}
        for n in range(number)
    ]


class Toys:
    """Both servers, until `close`."""

    def __init__(self) -> None:
        self.standard, self.speculative = Pool("standard"), Pool("speculative")
        self._loop, ready = asyncio.new_event_loop(), threading.Event()
        self._runners: list[web.AppRunner] = []
        self.urls: list[str] = []

        async def start() -> None:
            for pool in (self.standard, self.speculative):
                app = web.Application(client_max_size=2**24)
                app.router.add_post("/v1/chat/completions", pool.answer)
                app.router.add_post("/v1/completions", pool.answer)
                app.router.add_get("/v1/models", pool.models)
                runner = web.AppRunner(app)
                await runner.setup()
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                self._runners.append(runner)
                self.urls.append(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
            ready.set()

        def serve() -> None:
            self._loop.create_task(start())
            self._loop.run_forever()

        self._thread = threading.Thread(target=serve, daemon=True)
        self._thread.start()
        assert ready.wait(30)

    def close(self) -> None:
        for runner in self._runners:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    @contextmanager
    def having(self, standard: Sequence[str] = (), speculative: Sequence[str] = ()) -> Iterator[None]:
        """Both pools anew, with these traits."""
        for pool, traits in ((self.standard, standard), (self.speculative, speculative)):
            pool.traits = frozenset(traits)
            pool.restart()
        try:
            yield
        finally:
            self.standard.traits = self.speculative.traits = frozenset()

    def canary(self, folder: Path, *only: CheckName, turned: int = 0, **settings: Any) -> Result:
        path = folder / "conversing.json"
        path.write_text(json.dumps(prompts_of(turned)), encoding="utf-8")
        requested = BaselineSettings(base_url=self.urls[0], model="toy", endpoint="chat", prompts=path)
        standard, speculative = (Server(url, "toy") for url in self.urls)
        return conform(
            standard,
            speculative,
            requested,
            Canary(**settings),
            SilentProgress(),
            folder=folder,
            only=only,
        )


@dataclass(frozen=True)
class Seeded:
    """A fault of the speculative pool, the check that must find it, and traits that both pools have."""

    fault: str
    check: CheckName
    both: tuple[str, ...] = ()
    standard: tuple[str, ...] = ()

    def canary(self, toys: Toys, folder: Path, turned: int = 0) -> Result:
        with toys.having((*self.both, *self.standard), (*self.both, self.fault)):
            return toys.canary(folder, self.check, turned=turned)


SEEDED = (
    Seeded("disturber_rows", "after_conversation"),
    Seeded("stale_after_eviction", "after_eviction", ("small_cache",)),
    Seeded("half_a_block", "after_cancel"),
    Seeded("neighbour_s_row", "saturated"),
    Seeded("mask_leaks", "beside_schemas"),
    Seeded("no_cached_tokens", "cached_tokens"),
    Seeded("falls_with_slots", "acceptance_slots"),
    Seeded("falls_with_uptime", "acceptance_uptime"),
    Seeded("falls_with_context", "acceptance_context"),
    Seeded("schema_ignored_in_batch", "own_schema"),
    Seeded("crossed_schemas", "own_schema"),
    Seeded("crossed_tools", "own_tool"),
    Seeded("reasoning_leaks", "reasoning", ("reasons",)),
    Seeded("reasoning_lost", "reasoning", ("reasons",)),
    Seeded("cut_near_limit", "near_limit"),
    Seeded("masked_token_by_token", "grammar", (), ("conditional",)),
    Seeded("conditional", "grammar"),
    Seeded("sharp_grammar", "grammar"),
)
"""`masked_token_by_token` is what every pool does: here the standard draws from the exact distribution."""

HEALTHY: tuple[tuple[str, ...], ...] = (
    (),
    ("near_ties",),
    ("waits", "no_seed"),
    ("small_cache", "fewer_drafts_in_batches"),
    ("reasons", "conditional"),
    ("no_logprobs", "silent_drafts"),
    ("near_ties", "waits", "no_seed", "small_cache", "counts_no_cached"),
)
"""Quirks that both pools have, and that are nobody's fault."""
CONVERSATIONS: tuple[CheckName, ...] = ("parity", "mixed", *dict.fromkeys(one.check for one in SEEDED))
"""The checks of a healthy run."""

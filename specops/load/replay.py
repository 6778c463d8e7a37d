"""Replays: the requests of a trace or of a ramp, each with its instant and a prompt of the set, in windows.

A trace has lengths and no texts, so its prompts are drawn from the prompt set: one of the nearest length, of
the request's class where the set has it. Requests whose prompts begin with the same blocks get the same text
in front, block by block, so that a cache of prefixes has as much to reuse as it had. A prompt that is longer
than the longest of the set is sent as long as that one, and counted.

A file is read again for each pass, row by row: memory holds one window of requests, not the trace.
"""

from __future__ import annotations

import bisect
import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from specops.errors import UsageError
from specops.hints import with_options
from specops.load.answer import CountTokens
from specops.load.arrivals import Level, Ramp
from specops.load.shared_prefix import CHARACTERS_A_TOKEN, characters_a_token
from specops.load.traces import BLOCK_TOKENS, TraceRequest, empty_part, open_trace
from specops.load.workload import Prompt, PromptSet
from specops.results import sha256
from specops.section import Frozen

MOST_REQUESTS = 2000
"""Requests of one window: their answers are read after it, and stay in memory until then."""

WINDOWS = 24
"""Windows of a comparison, about: pairs of windows are its evidence."""

SHORTEST_S, LONGEST_S = 10.0, 60.0
"""Length of a window of a comparison, in seconds. A shorter one has no queue; in a longer one the
machine may change before the other arm is measured."""

_ALIKE = 1.25
"""Prompts whose length differs from the nearest one by less than this factor are drawn alike: a trace has
many requests of one length."""

USUAL = 0.95
"""Where the prompt set has no prompt so long, blocks are shortened so that this share of the requests with
blocks keep all of theirs. Longer ones are cut: one very long request shortens no other's."""

_TABLE = 1 << 22
"""Places in the table of blocks that occurred. Two blocks that share a place count as one that occurred
twice: then a text stands in front that no other request has."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """A request as it is to be sent."""

    due_s: float
    """Seconds since the beginning: of the replay, or of its window."""

    prompt: str
    """Id of a prompt of the set."""

    max_tokens: int | None = None
    """None: the prompt's own."""

    lead: tuple[int, ...] = ()
    """Blocks in front of the prompt, which other requests have too."""


class ReplayFacts(Frozen):
    """What is replayed, and what of it the prompt set cannot serve."""

    source: str
    format: str
    sha256: str | None = None
    """Hash of the trace's bytes; None for a ramp."""

    speed: float
    requests: int
    duration_s: float
    windows: int
    left_out: int = 0
    """Rows of the whole trace that are no requests to a model."""

    without_length: int = 0
    """Requests whose length the trace does not have."""

    without_answer: int = 0
    """Requests of which the trace has the prompt's length and not the answer's."""

    unknown_class: int = 0
    """Requests of a class that the prompt set does not have."""

    longer: int = 0
    """Requests with a longer prompt than the longest of the set."""

    longest_request: int = 0
    """Tokens of the longest prompt in the trace."""

    longest_answer: int = 0
    """Tokens of the longest answer in the trace."""

    longest_prompt: int
    """Tokens of the longest prompt in the set."""

    estimated: bool
    """Whether the lengths of prompts are estimated from their characters: there is no tokenizer."""

    sharing: int = 0
    """Requests whose prompt begins like that of another one."""

    block_tokens: float | None = None
    """Tokens that are sent for a shared block of the trace; None where no prompts share one."""

    def sentences(self) -> Iterator[str]:
        """Yield what was replayed, and each difference from the trace."""
        count = f"{self.requests:,} requests in {self.duration_s:.0f} s"
        many = f", in {self.windows} windows; each begins on an idle server" if self.windows > 1 else ""
        kind = f" ({self.format}, speed {self.speed:g})" if self.sha256 else ""
        yield f"{self.source}{kind}: {count}{many}"
        if self.left_out:
            yield f"{self.left_out:,} rows of the trace are not requests to a model"
        if self.without_length and self.sha256:
            yield (
                f"{self.without_length:,} requests have no length in the trace: their prompts are drawn from "
                "all, with their own max_tokens"
            )
        if self.without_answer:
            yield (
                f"{self.without_answer:,} requests have no answer length in the trace: they are sent with "
                "the max_tokens of their prompt"
            )
        if self.unknown_class:
            yield (
                f"{self.unknown_class:,} requests are of a class that the prompt set does not have: their "
                "prompts are drawn from all classes"
            )
        if self.longer:
            counted = "estimated from characters" if self.estimated else "by the tokenizer"
            yield (
                f"{self.longer:,} of {self.requests:,} requests have longer prompts than the prompt set, up "
                f"to {self.longest_request:,} tokens: they are sent with at most {self.longest_prompt:,} "
                f"({counted})"
            )
        if self.block_tokens is not None:
            yield (
                f"{self.sharing:,} requests share the beginning of their prompt with another one: "
                f"{self.block_tokens:.0f} tokens for each shared block of {BLOCK_TOKENS}"
            )


class Replay:
    """The requests of a trace or of a ramp. The same arguments give the same requests."""

    def __init__(
        self,
        process: Ramp | Path,
        prompts: PromptSet,
        *,
        seed: int,
        speed: float = 1.0,
        from_s: float = 0.0,
        for_s: float | None = None,
        for_comparison: bool = False,
        count_tokens: CountTokens | None = None,
    ) -> None:
        """`from_s` and `for_s` choose a part of a trace, in seconds of the trace; `for_comparison` cuts it
        into windows. Raises UsageError for a file that is not a trace, or a part without requests."""
        self._trace = open_trace(process) if isinstance(process, Path) else None
        self._ramp = process if isinstance(process, Ramp) else None
        self._seed, self._speed, self._from_s, self._for_s = seed, speed, from_s, for_s
        self._prompts = {prompt.id: prompt for prompt in prompts.prompts}
        self._choice = _Choice(prompts, seed, count_tokens)
        self._repeated = bytearray(_TABLE)
        """By the place of a block, how many requests have it; 2 stands for more."""

        self._lead_tokens = float(BLOCK_TOKENS)
        self._window_s = math.inf
        self.facts = self._measured(for_comparison)
        self.level = Level(
            rate=float(f"{self.facts.requests / max(self.facts.duration_s, 1.0):.4g}"), replay=self._name
        )
        self._coming = self._windows()
        self._current: tuple[int, tuple[ReplayRequest, ...]] = -1, ()

    @property
    def _name(self) -> str:
        if self._trace is None:
            return str(self._ramp)
        at_speed = f" at speed {self._speed:g}" if self._speed != 1 else ""
        return f"the load of {self._trace.path.name}{at_speed}"

    def __len__(self) -> int:
        return self.facts.windows

    def window(self, index: int) -> tuple[ReplayRequest, ...]:
        """The requests of a window, due since its first one. Reading on is fast; to go back, the file is read
        from its beginning. Raises UsageError for a file that has become shorter meanwhile."""
        if index < self._current[0]:
            self._coming, self._current = self._windows(), (-1, ())
        while self._current[0] < index:
            requests = next(self._coming, None)
            if requests is None:
                raise UsageError(
                    f"{self._name} has fewer requests than at its start: a log may have been rotated",
                    hint="cp LOG trace.jsonl  # then replay the copy",
                )
            self._current = self._current[0] + 1, requests
        return self._current[1]

    def requests(self) -> Iterator[ReplayRequest]:
        """Yield every request in the order of its instant."""
        for number, request in enumerate(self._arriving()):
            lead = self._lead(request)
            tokens = request.prompt_tokens
            if tokens is not None:
                tokens -= BLOCK_TOKENS * len(lead)
                tokens = min(tokens, math.floor(self._choice.longest - self._lead_tokens * len(lead)))
            yield ReplayRequest(
                request.time_s,
                self._choice.prompt(number, tokens, request.traffic_class),
                None if request.answer_tokens is None else max(1, request.answer_tokens),
                lead,
            )

    def prompt(self, request: ReplayRequest, run: str, variant: str, repeat: int) -> Prompt:
        """The prompt of `request`. No server has it in a cache, but for the blocks that it shares with other
        requests of the same `run` and `repeat`."""
        prompt = self._prompts[request.prompt].fresh(run, variant)
        if request.lead:
            text = "".join(map(self._block, request.lead))[: int(self._choice.longest * self._choice.size)]
            nonce = sha256([run, "lead", repeat])[:8]
            prompt = prompt.behind(f"[{nonce}] {text}\n\n")
        max_tokens = request.max_tokens or prompt.max_tokens
        # A turn of a conversation comes when the trace says, not when an earlier one is answered.
        return replace(prompt, max_tokens=max_tokens, due_s=request.due_s, session="", turn=1, think_s=0.0)

    # --- passes

    def _arriving(self) -> Iterator[TraceRequest]:
        """The chosen part; times since its beginning, at the speed of the replay."""
        if self._ramp is not None:
            yield from map(TraceRequest, self._ramp.instants(self._seed))
        if self._trace is None:
            return
        begin_s = self._trace.survey.first_s + self._from_s
        latest = 0.0
        for request in self._trace.requests():
            time_s = request.time_s - begin_s
            if self._for_s is not None and time_s >= self._for_s:
                return
            if time_s >= 0:
                latest = max(latest, time_s / self._speed)
                yield replace(request, time_s=latest)

    def _measured(self, for_comparison: bool) -> ReplayFacts:
        """Read the chosen part: once for what it has, and once for what of it can be sent."""
        requests = without_length = without_answer = unknown_class = longest = longest_answer = 0
        last_s = 0.0
        block_counts = Counter[int]()
        for request in self._arriving():
            requests += 1
            last_s = request.time_s
            longest = max(longest, request.prompt_tokens or 0)
            longest_answer = max(longest_answer, request.answer_tokens or 0)
            without_length += request.prompt_tokens is None
            without_answer += request.prompt_tokens is not None and request.answer_tokens is None
            block_counts[-(-(request.prompt_tokens or 0) // BLOCK_TOKENS)] += bool(request.blocks)
            unknown_class += request.traffic_class not in self._choice.classes
            for block in request.blocks if self._choice.text else ():
                place = block % _TABLE
                self._repeated[place] = min(2, self._repeated[place] + 1)
        if not requests:
            if self._trace:
                raise empty_part(self._trace.path)
            raise UsageError(
                f"{self._ramp} has no request with seed {self._seed}: expected a higher rate or more time",
                hint=with_options({"--arrivals": "ramp:1-20/10m"}),
            )
        usual = min(longest, BLOCK_TOKENS * _quantile(block_counts, USUAL))
        if usual > self._choice.longest:
            self._lead_tokens *= self._choice.longest / usual
        if for_comparison:
            self._window_s = min(LONGEST_S, max(SHORTEST_S, last_s / WINDOWS))
        longer = sharing = 0
        for request in self._arriving():
            longer += (request.prompt_tokens or 0) > self._choice.longest
            sharing += bool(self._lead(request))
        return ReplayFacts(
            source=self._trace.path.name if self._trace else str(self._ramp),
            format=self._trace.format.name if self._trace else "ramp",
            sha256=self._trace.sha256 if self._trace else None,
            speed=self._speed,
            requests=requests,
            duration_s=round(self._ramp.duration_s if self._ramp else last_s, 3),
            windows=sum(1 for _ in self._windows()),
            left_out=self._trace.survey.left_out if self._trace else 0,
            without_length=without_length,
            without_answer=without_answer,
            unknown_class=unknown_class,
            longer=longer,
            longest_request=longest,
            longest_answer=longest_answer,
            longest_prompt=math.floor(self._choice.longest),
            estimated=self._choice.estimated,
            sharing=sharing,
            block_tokens=round(self._lead_tokens, 1) if sharing else None,
        )

    def _windows(self) -> Iterator[tuple[ReplayRequest, ...]]:
        window: list[ReplayRequest] = []
        begin_s = 0.0
        for request in self.requests():
            if window and (request.due_s >= begin_s + self._window_s or len(window) == MOST_REQUESTS):
                yield tuple(window)
                window = []
            begin_s = begin_s if window else request.due_s
            window.append(replace(request, due_s=request.due_s - begin_s))
        if window:
            yield tuple(window)

    # --- shared beginnings

    def _lead(self, request: TraceRequest) -> tuple[int, ...]:
        """The leading blocks that other requests have too. The last tokens of a prompt are its own."""
        most = max(0, (request.prompt_tokens or 0) - 1) // BLOCK_TOKENS
        count = 0
        for block in request.blocks[:most] if self._choice.text else ():
            if self._repeated[block % _TABLE] < 2:
                break
            count += 1
        return request.blocks[:count]

    def _block(self, block: int) -> str:
        """The text of a block: its id, so that no two are alike, and a piece of the prompt set."""
        text, size = self._choice.text, int(self._lead_tokens * self._choice.size)
        start = block * 2654435761 % max(1, len(text) - size)
        name = f"{block:x} "
        return name + text[start : start + max(0, size - len(name))]


class _Choice:
    """Prompts of the set by length and class."""

    def __init__(self, prompts: PromptSet, seed: int, count_tokens: CountTokens | None) -> None:
        shuffled = list(prompts.prompts)
        random.Random(f"{seed}:replay").shuffle(shuffled)
        self.estimated = count_tokens is None
        texts = {prompt.id: prompt.text() for prompt in shuffled}
        self.text = "\n".join(texts.values()) if all(texts.values()) else ""
        """All texts; empty where some prompt is token ids, in front of which no text can be put."""

        self.size = characters_a_token(self.text, count_tokens)
        count = count_tokens or (lambda text: -(-len(text) // CHARACTERS_A_TOKEN))
        self._tokens: dict[str, float] = {
            prompt.id: count(texts[prompt.id]) if texts[prompt.id] else len(prompt.content)
            for prompt in shuffled
        }
        self._lengths = sorted(set(self._tokens.values()))
        self._of_class: dict[str | None, list[str]] = {None: [prompt.id for prompt in shuffled]}
        for prompt in shuffled:
            self._of_class.setdefault(prompt.traffic_class, []).append(prompt.id)
        self._alike: dict[float, list[str]] = {}

    @property
    def longest(self) -> float:
        """Tokens of the longest prompt."""
        return self._lengths[-1]

    @property
    def classes(self) -> set[str | None]:
        return {*self._of_class}

    def prompt(self, number: int, tokens: int | None, traffic_class: str | None) -> str:
        """The id of a prompt for the request of this number: of the nearest length, or of its class where no
        length is known. Those that fit are taken in turn, in random order."""
        if tokens is None:
            fitting = self._of_class.get(traffic_class, self._of_class[None])
        else:
            fitting = self._nearest(tokens)
        return fitting[number % len(fitting)]

    def _nearest(self, tokens: int) -> list[str]:
        place = bisect.bisect(self._lengths, tokens)
        nearest = min(self._lengths[max(0, place - 1) : place + 1], key=lambda length: abs(length - tokens))
        if nearest not in self._alike:
            self._alike[nearest] = [
                prompt
                for prompt, length in self._tokens.items()
                if nearest / _ALIKE <= length <= nearest * _ALIKE
            ]
        return self._alike[nearest]


def _quantile(counts: Counter[int], share: float) -> int:
    """The least value that so large a share of what was counted does not exceed; 0 of nothing."""
    left = share * counts.total()
    for value in sorted(counts):
        left -= counts[value]
        if left <= 0:
            return value
    return 0

"""The load programme: phases of load, the requests of each, and which server is sent them next. Pure.

A segment is one phase on one server, in one pass. The servers take turns by segment, in random order, and get
the same requests. So each of them is sent the whole programme, phase after phase, while the others rest in
between. A prompt has another variant in each segment of a server, so that no cache has it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from specops.config import LoadPhase, Referee, Rollout
from specops.errors import ConfigError
from specops.hints import in_rollout
from specops.load.answer import token_counter
from specops.load.arrivals import Level, Ramp, parse_arrivals
from specops.load.settings import BaselineSettings
from specops.load.workload import Prompt, PromptSet

CHARACTERS_A_TOKEN = 4
"""Where there is no tokenizer."""

STREAM_REQUESTS = 2
"""Least number of requests for each stream: a later one begins beside requests in all states."""

FILLERS = 3
"""Requests for each stream that keep all streams busy at both ends of a phase, in turn."""


@dataclass(frozen=True)
class SegmentLoad:
    level: Level
    prompts: tuple[Prompt, ...]
    fillers: tuple[Prompt, ...] = ()


@dataclass(frozen=True)
class Programme:
    phases: tuple[LoadPhase, ...]
    passes: int
    requests: int
    prompts: PromptSet
    settings: BaselineSettings

    def segments(self, arms: Sequence[str]) -> Iterator[tuple[int, int, str]]:
        """Yield pass, place of the phase, and arm, in the order of execution."""
        for pass_number in range(self.passes):
            for phase in range(len(self.phases)):
                order = list(arms)
                random.Random(f"{self.settings.seed}:{pass_number}:{phase}").shuffle(order)
                for arm in order:
                    yield pass_number, phase, arm

    def count(self, phase: LoadPhase) -> int:
        """Requests of a phase in a pass; of a ramp the expected number."""
        if phase.ramp is not None:
            return round(_ramp(phase.ramp).expected)
        return max(phase.requests or self.requests, STREAM_REQUESTS * (phase.streams or 0))

    def fillers(self, phase: LoadPhase) -> int:
        """Requests at most that keep all streams busy at both ends, unless one answer takes far longer."""
        return FILLERS * (phase.streams or 0)

    def duration_s(self, phase: LoadPhase) -> float:
        """Seconds of a phase whose arrivals do not depend on the server, in a pass."""
        return (
            _ramp(phase.ramp).duration_s if phase.ramp is not None else self.count(phase) / (phase.rate or 1)
        )

    def load(self, pass_number: int, number: int, run: str) -> SegmentLoad:
        """The requests of a segment: for each arm the same. `run` names this run in the nonces."""
        phase, name = self.phases[number], f"referee.{pass_number}.{number}"
        if phase.ramp is not None:
            ramp = _ramp(phase.ramp)
            instants = list(ramp.instants(self.settings.seed + pass_number))
            drawn = self._drawn(phase, f"{name}.counted", len(instants), run)
            due = [replace(prompt, due_s=due_s) for prompt, due_s in zip(drawn, instants, strict=True)]
            mean = float(f"{ramp.expected / ramp.duration_s:.4g}")
            return SegmentLoad(Level(rate=mean, replay=str(ramp)), tuple(due))
        counted = self._drawn(phase, f"{name}.counted", self.count(phase), run)
        if phase.rate is not None:
            return SegmentLoad(Level(rate=phase.rate), counted)
        streams = phase.streams or 1
        fillers = self._drawn(phase, f"{name}.fill", FILLERS * streams, run)
        return SegmentLoad(Level(concurrency=streams), counted, fillers)

    def _drawn(self, phase: LoadPhase, name: str, size: int, run: str) -> tuple[Prompt, ...]:
        """Prompts in random order; all of a class once before any comes again."""
        chance = random.Random(f"{self.settings.seed}:{name}")
        by_class: dict[str, list[Prompt]] = {}
        for prompt in self.prompts.prompts:
            by_class.setdefault(prompt.traffic_class if phase.mix else "", []).append(prompt)
        weights = phase.mix or {"": 1.0}
        classes = chance.choices(list(weights), list(weights.values()), k=size)
        decks = {traffic_class: _dealt(by_class[traffic_class], chance) for traffic_class in weights}
        return tuple(
            self._prepared(next(decks[traffic_class]), phase, f"{name}.{number}", run)
            for number, traffic_class in enumerate(classes)
        )

    def _prepared(self, prompt: Prompt, phase: LoadPhase, variant: str, run: str) -> Prompt:
        if phase.context is not None:
            prompt = prompt.behind(self._context(phase.context, variant))
        fresh = replace(prompt, variant=variant) if self.settings.same_prompts else prompt.fresh(run, variant)
        # A sampled answer to the same prompt with the same seed would not be another sample.
        return replace(fresh, seed=random.Random(f"{self.settings.seed}:{variant}").getrandbits(31))

    def _context(self, tokens: int, variant: str) -> str:
        """Text of about so many tokens: prompts of the set, in random order."""
        texts = [prompt.content for prompt in self.prompts.prompts if isinstance(prompt.content, str)]
        if not any(texts):
            raise ConfigError(
                "a context needs a prompt set with texts: it has messages or token ids alone",
                hint=in_rollout("context", "remove it, or name another prompt set"),
            )
        random.Random(variant).shuffle(texts)
        whole = "\n".join(texts)
        counter = token_counter(self.settings.tokenizer) if self.settings.tokenizer else None
        size = len(whole) / max(1, counter(whole)) if counter else CHARACTERS_A_TOKEN
        characters = round(tokens * size)
        whole += "\n"
        return (whole * (characters // len(whole) + 1))[:characters] + "\n\n"


def programme_of(rollout: Rollout, settings: BaselineSettings) -> Programme:
    """The programme of the rollout file. Raises ConfigError for a class that the prompt set does not have, or
    a ramp without requests, and PromptsError for prompts that cannot be sent."""
    section = rollout.referee or Referee()
    prompts = settings.prompt_set().with_separate_turns()
    phases = section.phases or [LoadPhase(streams=streams) for streams in rollout.measure.concurrency]
    for phase in phases:
        unknown = sorted({*(phase.mix or {})} - {*prompts.classes})
        if unknown:
            raise ConfigError(
                f"a phase of the referee has requests of class {unknown[0]}, and {prompts.path} has "
                f"{', '.join(prompts.classes)}",
                hint=in_rollout("mix", "name classes of the prompt set"),
            )
        if phase.ramp is not None:
            _ramp(phase.ramp)
    return Programme(tuple(phases), section.passes, section.requests, prompts, settings)


def _ramp(text: str) -> Ramp:
    try:
        process = parse_arrivals(f"ramp:{text}")
    except ValueError as error:
        raise ConfigError(
            f"invalid ramp of the referee: {error}", hint=in_rollout("ramp", "change it")
        ) from None
    assert isinstance(process, Ramp)
    return process


def _dealt(prompts: Sequence[Prompt], chance: random.Random) -> Iterator[Prompt]:
    while True:
        yield from chance.sample(list(prompts), len(prompts))

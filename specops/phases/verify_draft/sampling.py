"""What `--measure` measures: what the target writes after a sample of the prompts, and costs over them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from specops.engine.along import trace
from specops.engine.costs import ROOM, Probes, Readings, sheet_of
from specops.engine.pair import Pair
from specops.engine.request import Sampling
from specops.errors import PromptsError, UsageError
from specops.load.client import DEFAULT_MAX_TOKENS
from specops.load.workload import Prompt, load_prompts
from specops.phases.verify_draft.over_http import Overhead, overhead
from specops.phases.verify_draft.predicting import Machine, Text
from specops.progress import Progress

DEPTH, RANKS = 8, 8
"""Of the trees that are looked at."""

MOST_PROMPTS, FEWEST_PROMPTS = 36, 8
LONGEST = 256
"""Tokens written of an answer; a longer one goes on as it began."""

WRITING_S = 20.0
"""After so long no further prompt is taken, where there are `FEWEST_PROMPTS`."""

MOST_CONTEXT = 2048
"""Tokens at which costs are measured; they go on rising as they did up to there."""

GOLDEN = (5**0.5 - 1) / 2

ROUNDS = 5
COSTS_S = 20.0
FEWEST_ROUNDS = 3
"""The same of the rounds in which costs are measured."""


@dataclass(frozen=True)
class Sample:
    texts: tuple[Text, ...]
    prompts: int
    """In the set."""

    too_long: int
    """Of those looked at, that leave the pair no room for an answer."""

    shortened: int
    """Answers of which only the first `LONGEST` tokens were written."""

    temperature: float
    threads: int

    @property
    def classes(self) -> list[str]:
        return sorted({text.traffic_class for text in self.texts})

    def of(self, traffic_class: str) -> list[Text]:
        return [text for text in self.texts if text.traffic_class == traffic_class]


def write_sample(pair: Pair, prompts: Path, temperature: float, progress: Progress) -> Sample:
    """PromptsError and UsageError for prompts that the target cannot be asked."""
    everything = load_prompts(prompts).prompts
    chosen = _spread(everything, MOST_PROMPTS)
    encoded = [_encoded(pair, prompt) for prompt in chosen]
    engine = pair.engine("none", min(pair.positions, max(map(len, encoded)) + LONGEST))
    texts: list[Text] = []
    too_long = shortened = 0
    progress.start("answers", len(chosen))
    began = monotonic()
    for number, (prompt, ids) in enumerate(zip(chosen, encoded, strict=True)):
        if monotonic() - began > WRITING_S and len(texts) >= FEWEST_PROMPTS:
            break
        asked = min(prompt.max_tokens or DEFAULT_MAX_TOKENS, pair.positions - len(ids))
        if asked < 1:
            too_long += 1
            continue
        sampling = Sampling(temperature=temperature, seed=number, max_tokens=min(asked, LONGEST))
        answer = engine.generate(ids, sampling)
        cut = answer.finish_reason == "length" and asked > LONGEST
        shortened += cut
        along = trace(pair, ids, answer.tokens, temperature, depth=DEPTH, ranks=RANKS, seed=number)
        texts.append(Text(prompt.traffic_class, along, asked if cut else len(answer.tokens)))
        progress.advance()
    if not texts:
        raise UsageError(
            f"none of the prompts in {prompts} leaves room for an answer: the pair holds {pair.positions} "
            "tokens",
            hint="give shorter prompts",
        )
    return Sample(tuple(texts), len(everything), too_long, shortened, temperature, pair.threads)


def measure_machine(pair: Pair, sample: Sample, progress: Progress) -> tuple[Machine, list[Machine]]:
    """By all rounds together, and by each."""
    shorts, longs = _ends(pair, sample.texts)
    probes = Probes(pair, sample.temperature, max(map(len, longs)))
    readings: list[tuple[Readings, Readings]] = []
    progress.start("costs", ROUNDS)
    began = monotonic()
    for number in range(ROUNDS):
        if monotonic() - began > COSTS_S and len(readings) >= FEWEST_ROUNDS:
            break
        short, long = (ends[number % len(ends)] for ends in (shorts, longs))
        readings.append((probes.read(short, number), probes.read(long, number)))
        progress.advance()
    asked = [shorts[number % len(shorts)] for number in range(ROUNDS)]
    api = overhead(pair, asked, sample.temperature, progress)
    contexts = (round(statistics.fmean(map(len, shorts))), round(statistics.fmean(map(len, longs))))
    bare = pair.reads_features
    request = statistics.median(found.request for found in api)
    chunk = statistics.median(found.chunk for found in api)
    whole = sheet_of(contexts, readings, opens_bare=bare)
    each = [
        replace(sheet_of(contexts, [reading], opens_bare=bare), copied=whole.copied) for reading in readings
    ]
    alone = [Machine(sheet, found) for sheet, found in zip(each, api, strict=False)]
    return Machine(whole, Overhead(request, chunk)), alone


def _ends(pair: Pair, texts: Sequence[Text]) -> tuple[list[list[int]], list[list[int]]]:
    """Some short prompts of the sample, and some long ones with their answers, cut to the probes' room.

    Each probe has a cache of its own, so that the room has a bound.
    """
    room = min(max(pair.positions - ROOM, pair.positions // 2), MOST_CONTEXT)
    ordered = sorted(texts, key=lambda text: len(text.trace.prompt))
    some = max(1, len(texts) // 4)
    shorts = [list(text.trace.prompt)[:room] for text in ordered[:some]]
    ordered.sort(key=lambda text: len(text.trace.prompt) + len(text.trace.written))
    longs = [[*text.trace.prompt, *text.trace.written][:room] for text in ordered[-some:]]
    return shorts, longs


def _spread(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    """`count` of them, every class in proportion; in an order of which any beginning is spread as well."""
    ordered = sorted(prompts, key=lambda prompt: prompt.traffic_class)  # stable
    count = min(count, len(ordered))
    chosen = [ordered[(2 * index + 1) * len(ordered) // (2 * count)] for index in range(count)]
    # Multiples of the golden ratio: wherever the order is cut off, what was visited lies evenly.
    visited = sorted(range(count), key=lambda index: index * GOLDEN % 1)
    return [chosen[index] for index in visited]


def _encoded(pair: Pair, prompt: Prompt) -> list[int]:
    """As `specops serve` reads it: a lone text as it is, a conversation in the model's own template."""
    match prompt.content:
        case ({"role": _}, *_) if pair.tokenizer.chat_template:
            text = pair.tokenizer.apply_chat_template(
                prompt.messages(), tokenize=False, add_generation_prompt=True
            )
            ids = pair.tokenizer.encode(text, add_special_tokens=False)  # the template has written them
        case _:
            content = prompt.completion_prompt()
            ids = pair.tokenizer.encode(content) if isinstance(content, str) else content
    if not ids or min(ids) < 0 or max(ids) >= pair.target.shape.vocab:
        raise PromptsError(
            f"prompt {prompt.id} cannot be asked: it has no tokens, or ids that the target does not know",
            hint="take it out of the prompt set",
        )
    return list(ids)

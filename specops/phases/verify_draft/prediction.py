"""The prediction of requests with a tree: a sample of answers, measured costs of steps and of the API, the
prediction."""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

from specops import stats
from specops.engine.load import Pair
from specops.engine.planner.offline_acceptance import Trace, copied, trace
from specops.engine.planner.step_costs import ROOM, Costs, CostsByContext, Probes, Readings, sheet_of
from specops.engine.planner.tree_choice import Rates, TreeOption, levels, ranked
from specops.engine.request import Sampling
from specops.errors import EnvironmentFailure, PromptsError, UsageError
from specops.hints import beginning, with_options
from specops.launch.servers import LoggedAddress, running
from specops.load.client import DEFAULT_MAX_TOKENS, Client
from specops.load.settings import Decoding, Endpoint
from specops.load.workload import Prompt, load_prompts
from specops.progress import Progress, SilentProgress
from specops.serving import OWN, Startable, pool_of
from specops.stats import Interval, Starts
from specops.trees import TreeSpec, parse_tree

if TYPE_CHECKING:  # the client's process imports this module, and needs no torch
    from specops.engine import Engine
    from specops.engine.load import Pair


NO_DRAFT = "none"


@dataclass(frozen=True)
class WrittenText:
    """The target's output after one prompt of the sample."""

    traffic_class: str
    trace: Trace
    length: int
    """Tokens of the whole answer; more than were written where writing was cut short."""

    @property
    def context(self) -> float:
        """Tokens before a step, in the mean over the answer."""
        return len(self.trace.prompt) + self.length / 2


@dataclass(frozen=True)
class Steps:
    """The number of steps that a tree takes for a text, the one that reads the prompt included."""

    count: float
    """Expected."""

    drafted: tuple[int, ...] = ()
    """Number of tokens that n-grams drafted, step by step."""


@dataclass(frozen=True)
class HttpSteps:
    """A step as a client sees it."""

    costs: Costs
    chunk: float

    def step(self, levels: Sequence[int], batch: int = 1) -> float:
        return self.costs.step(levels, batch) + self.chunk


@dataclass(frozen=True)
class Machine:
    sheet: CostsByContext
    overhead: Overhead

    def steps_at(self, context: float) -> HttpSteps:
        return HttpSteps(self.sheet.at_context(context), self.overhead.chunk)

    def seconds(self, text: WrittenText, spec: TreeSpec, steps: Steps) -> float:
        """Return the seconds of one request, alone, from its being sent to its last token."""
        prompt, during = self.sheet.at_context(len(text.trace.prompt)), self.steps_at(text.context)
        goes_on = text.length / len(text.trace.written)
        if spec.kind == "none":
            return self.overhead.request + prompt.prompt + text.length * during.step(())
        if spec.kind == "ngram":
            if self.sheet.copied is None:
                raise ValueError("no costs of copied drafts were measured")
            steps_s = sum(self.sheet.copied.seconds(count) + self.overhead.chunk for count in steps.drafted)
            return self.overhead.request + prompt.prompt + goes_on * steps_s
        count, first = goes_on * steps.count, prompt.prompt_drafted
        if text.trace.opens_bare:  # all of the first step is in what reading the prompt takes
            count, first = count - 1, first + self.overhead.chunk
        return self.overhead.request + first + count * during.step(levels(spec.widths))


class Predictor:
    def __init__(self, texts: Sequence[WrittenText], machine: Machine, rounds: Sequence[Machine]) -> None:
        """`machine`: by all rounds of measuring together; `rounds`: by each, which shows how sure that is."""
        self.texts = tuple(texts)
        self.machine = machine
        self._rounds = tuple(rounds)
        self._replayed: dict[str, list[Steps]] = {}

    @property
    def copies(self) -> bool:
        """Return whether n-gram drafts can be predicted."""
        return self.machine.sheet.copied is not None

    def speedup(self, tree: str, traffic_class: str | None = None) -> tuple[float, Interval | None]:
        """End to end, over autoregressive decoding, of one class or of all texts.

        The interval takes the texts for a sample of their traffic and the rounds for one of the machine's
        moments; None with too few texts for one.
        """
        before, after = self._seconds_of_texts(self.machine, tree, traffic_class)
        logs = []
        for machine in self._rounds:
            standard, drafted = self._seconds_of_texts(machine, tree, traffic_class)
            logs.append(math.log(sum(standard) / sum(drafted)))
        moments = None
        if len(logs) > 1:
            moments = Starts(statistics.variance(logs) / len(logs), len(logs) - 1)
        return sum(before) / sum(after), stats.paired_ratio(before, after, starts=moments)

    def tokens_per_step(self, tree: str) -> float:
        steps = sum(replayed.count for replayed in self._replay(tree))
        return sum(len(text.trace.written) for text in self.texts) / steps

    def step_seconds(self, tree: str) -> float:
        """Return the seconds of a step in the engine, at the sample's mean context."""
        spec = parse_tree(tree)
        copied = self.machine.sheet.copied
        if spec.kind == "ngram" and copied is not None:
            drafted = [count for steps in self._replay(tree) for count in steps.drafted]
            return statistics.fmean(copied.seconds(count) for count in drafted)
        costs = self.machine.sheet.at_context(self._context)
        return costs.step(levels(spec.widths) if spec.needs_draft else ())

    def ranked(self, rates: Rates, most_nodes: int) -> list[TreeOption]:
        """The planner's options over HTTP, at the sample's mean context."""
        return ranked(rates, self.machine.steps_at(self._context), most_nodes=most_nodes)

    @property
    def _context(self) -> float:
        return statistics.fmean(text.context for text in self.texts)

    def _seconds_of_texts(
        self, machine: Machine, tree: str, traffic_class: str | None
    ) -> tuple[list[float], list[float]]:
        """Seconds of each text, without a draft and with the tree."""
        before, after = (
            [
                machine.seconds(text, parse_tree(arm), steps)
                for text, steps in zip(self.texts, self._replay(arm), strict=True)
                if traffic_class in (None, text.traffic_class)
            ]
            for arm in (NO_DRAFT, tree)
        )
        return before, after

    def _replay(self, tree: str) -> list[Steps]:
        if tree not in self._replayed:
            self._replayed[tree] = [_steps(text.trace, parse_tree(tree)) for text in self.texts]
        return self._replayed[tree]


def _steps(trace: Trace, spec: TreeSpec) -> Steps:
    if spec.kind == "none":
        return Steps(len(trace.written))
    if spec.kind == "ngram":
        drafted = tuple(copied(trace, spec.nodes))
        return Steps(len(drafted), drafted)
    if spec.kind in ("adaptive", "dynamic", "merged"):
        raise ValueError(f"how a {spec.kind} tree fares does not follow from acceptance by rank")
    return Steps(trace.steps(spec.widths))


DEPTH, RANKS = 8, 8
"""Depth and ranks of the trees that are looked at."""

MOST_PROMPTS, FEWEST_PROMPTS = 36, 8
LONGEST = 256
"""Tokens written of an answer; a longer one goes on as it began."""

WRITING_S = 20.0
"""Seconds after which no further prompt is taken, where there are `FEWEST_PROMPTS`."""

MOST_CONTEXT = 2048
"""Tokens at which costs are measured; they go on rising as they did up to there."""

GOLDEN = (5**0.5 - 1) / 2

ROUNDS = 5
COSTS_S = 20.0
FEWEST_ROUNDS = 3
"""Number of rounds after which no further round of measuring costs begins once `COSTS_S` seconds passed."""


@dataclass(frozen=True)
class WrittenSample:
    texts: tuple[WrittenText, ...]
    prompts: int
    """Number of prompts in the set."""

    too_long: int
    """Number of those looked at that leave the pair no room for an answer."""

    shortened: int
    """Answers of which only the first `LONGEST` tokens were written."""

    temperature: float
    threads: int

    @property
    def classes(self) -> list[str]:
        return sorted({text.traffic_class for text in self.texts})

    def of_class(self, traffic_class: str) -> list[WrittenText]:
        return [text for text in self.texts if text.traffic_class == traffic_class]


def write_sample(pair: Pair, prompts: Path, temperature: float, progress: Progress) -> WrittenSample:
    """Let the target write a sample. Raises PromptsError and UsageError for prompts that the target cannot
    answer."""
    read = load_prompts(prompts)
    if not pair.tokenizer.chat_template:
        read = read.as_text(progress.note)
    everything = read.prompts
    chosen = _spread(everything, MOST_PROMPTS)
    encoded = [_encoded(pair, prompt) for prompt in chosen]
    engine = pair.engine("none", min(pair.positions, max(map(len, encoded)) + LONGEST))
    texts: list[WrittenText] = []
    too_long = shortened = 0
    progress.start("answers", len(chosen))
    began = monotonic()
    for number, (prompt, ids) in enumerate(zip(chosen, encoded, strict=True)):
        if monotonic() - began > WRITING_S and len(texts) >= FEWEST_PROMPTS:
            break
        requested = min(prompt.max_tokens or DEFAULT_MAX_TOKENS, pair.positions - len(ids))
        if requested < 1:
            too_long += 1
            continue
        sampling = Sampling(temperature=temperature, seed=number, max_tokens=min(requested, LONGEST))
        answer = engine.generate(ids, sampling)
        cut = answer.finish_reason == "length" and requested > LONGEST
        shortened += cut
        along = trace(pair, ids, answer.tokens, temperature, depth=DEPTH, ranks=RANKS, seed=number)
        texts.append(WrittenText(prompt.traffic_class, along, requested if cut else len(answer.tokens)))
        progress.advance()
    if not texts:
        raise UsageError(
            f"none of the prompts in {prompts} leaves room for an answer: the pair holds {pair.positions} "
            "tokens; give shorter prompts",
            hint=beginning(prompts),
        )
    return WrittenSample(tuple(texts), len(everything), too_long, shortened, temperature, pair.threads)


def measure_machine(pair: Pair, sample: WrittenSample, progress: Progress) -> tuple[Machine, list[Machine]]:
    """Return the machine's times by all rounds together, and by each."""
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
    requested = [shorts[number % len(shorts)] for number in range(ROUNDS)]
    api = overhead(pair, requested, sample.temperature, progress)
    contexts = (round(statistics.fmean(map(len, shorts))), round(statistics.fmean(map(len, longs))))
    bare = pair.draft.reads_features
    request = statistics.median(measured.request for measured in api)
    chunk = statistics.median(measured.chunk for measured in api)
    whole = sheet_of(contexts, readings, opens_bare=bare)
    sheets = [
        replace(sheet_of(contexts, [reading], opens_bare=bare), copied=whole.copied) for reading in readings
    ]
    alone = [Machine(sheet, measured) for sheet, measured in zip(sheets, api, strict=False)]
    return Machine(whole, Overhead(request, chunk)), alone


def _ends(pair: Pair, texts: Sequence[WrittenText]) -> tuple[list[list[int]], list[list[int]]]:
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
    """Return `count` of them, every class in proportion; in an order of which any beginning is spread as
    well."""
    ordered = sorted(prompts, key=lambda prompt: prompt.traffic_class)  # stable
    count = min(count, len(ordered))
    chosen = [ordered[(2 * index + 1) * len(ordered) // (2 * count)] for index in range(count)]
    # Multiples of the golden ratio: wherever the order is cut off, what was visited lies evenly.
    visited = sorted(range(count), key=lambda index: index * GOLDEN % 1)
    return [chosen[index] for index in visited]


def _encoded(pair: Pair, prompt: Prompt) -> list[int]:
    """Return the prompt's tokens as `specops serve` reads it: a lone text as it is, a conversation in the
    model's own template."""
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
            f"prompt {prompt.id} cannot be sent: it has no tokens, or ids that the target does not know; "
            "take "
            "it out of the prompt set",
            hint=f"{with_options({})}  # with other prompts",
        )
    return list(ids)


MODEL = "target"
TOKENS = 48


@dataclass(frozen=True)
class Overhead:
    """Seconds."""

    request: float
    chunk: float


def overhead(
    pair: Pair, prompts: Sequence[list[int]], temperature: float, progress: Progress
) -> list[Overhead]:
    """Measure a request for each prompt, autoregressive, at one stream. Raises EnvironmentFailure where
    one fails."""
    alone = pair.engine("none", max(map(len, prompts)) + TOKENS)
    overheads = []
    with (
        _serving(pair) as base_url,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as client,
    ):
        progress.start("API", len(prompts) + 1)
        for prompt in [prompts[0], *prompts]:  # the first one warms up
            try:
                requested = client.submit(_ask, base_url, tuple(prompt), temperature).result()
            except BrokenExecutor as error:
                raise EnvironmentFailure(
                    "could not measure what the API costs: the process of its client ended",
                    hint="free -h  # it needs memory for another process",
                ) from error
            decoded = _decode(alone, prompt, temperature)
            progress.advance()
            # A negative value is a moment in which the machine was busier without the server.
            overheads.append(Overhead(*(max(0.0, a - b) for a, b in zip(requested, decoded, strict=True))))
    return overheads[1:]


def _decode(engine: Engine, prompt: list[int], temperature: float) -> tuple[float, float]:
    """Seconds to the first token, and of a further one."""
    from specops.engine import Sampling

    sampling = Sampling(temperature=temperature, seed=0, max_tokens=TOKENS, ignore_eos=True)
    started = perf_counter()
    instants = [perf_counter() for _ in engine.stream(prompt, sampling)]
    return _pace(started, instants[0], instants[-1])


def _ask(base_url: str, prompt: tuple[int, ...], temperature: float) -> tuple[float, float]:
    """Return the seconds to the first token, and of a further one, over HTTP."""

    async def ask() -> tuple[float, float]:
        endpoint = Endpoint(base_url, MODEL, "completions")
        decoding = Decoding(temperature, seed=0, ignore_eos=True, max_tokens=TOKENS)
        async with Client(endpoint, decoding) as client:
            await client.probe(Prompt("probe", "", prompt[:1]))
            exchange = await client.send(Prompt("requested", "", prompt))
        observation = exchange.observe(None)
        if observation.answer.failure is not None:
            raise EnvironmentFailure(
                f"could not measure what the API costs: {observation.answer.failure.detail}",
                hint=f"{with_options({})}  # tries again; report it as a bug if it fails again",
            )
        answer = observation.answer
        return _pace(observation.sent, answer.chunks[0].time_s, answer.finished or observation.ended)

    return asyncio.run(ask())


def _pace(started: float, first: float, last: float) -> tuple[float, float]:
    """Return the seconds of a token, not by the chunks: a token within a character has none."""
    return first - started, (last - first) / (TOKENS - 1)


@contextmanager
def _serving(pair: Pair) -> Iterator[str]:
    """The base URL of a server over the target alone, which loads it once more."""
    settings = {"engine": OWN.name, "target": pair.folder, "threads": pair.threads, "max_batch": 1}
    pool = pool_of(settings)
    assert isinstance(pool, Startable)
    start = pool.start(0, MODEL)
    with (
        TemporaryDirectory() as folder,
        running(
            MODEL,
            start.words,
            address=LoggedAddress(start.announced or ""),
            log=Path(folder) / "server.log",
            progress=SilentProgress(),
        ) as server,
    ):
        yield server.base_url

"""The specification of a sweep: the settings, loads and prompts of a rollout, checked before anything runs;
and the forecast.

A pool and a number of tokens K make a setting. Each engine says what K means to it, and which takes trees in
its place (specops/serving). Endpoints that run already are given by K. Prompts fall into classes of length,
in tokens as nearly as they can be known before a server runs. The forecast says what a sweep would do, and
how long it would take by what was measured before; it runs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from specops import results
from specops.config import Ab, Pool, Rollout, Sweep
from specops.defaults import CONFIDENCE
from specops.errors import ConfigError, FileError, UsageError
from specops.experiment.claims import ONE_SIDED
from specops.hints import ROLLOUT, in_rollout
from specops.load.answer import token_counter
from specops.load.settings import BaselineSettings
from specops.load.workload import Prompt, PromptSet
from specops.phases import measurement
from specops.phases.inputs import inputs_of_settings, settings_of
from specops.phases.sweep import plan
from specops.phases.sweep.plan import (
    ANY_LENGTH,
    STANDARD,
    Finalists,
    Load,
    Rung,
    Sample,
    StagePrompts,
    Timing,
    measurements_of,
    samples_of_baseline,
    samples_of_cells,
)
from specops.phases.sweep.stages import Halving, confirming
from specops.serving import Grid, Setting, pool_of
from specops.stats import shares


def swept_settings(rollout: Rollout, folder: Path) -> list[Setting]:
    """The standard, and every setting that is tried beside it. Raises ConfigError for a pool that has no K.

    Folders of drafts are relative to `folder`, the rollout file's.
    """
    pool, section = rollout.pools.speculative, rollout.sweep
    if pool.endpoint is not None:
        raise ConfigError(
            "the speculative pool is an endpoint that runs already, and its K is not specops's to set",
            hint=f"specops sweep {ROLLOUT} --attach 0=http://HOST:8000/v1 --attach 3=http://HOST:8001/v1",
        )
    standard = Setting(STANDARD, rollout.pools.standard, k=0)
    return [standard, *_drafting(pool, section, folder)]


def attached(endpoints: Mapping[int, Pool]) -> list[Setting]:
    """Endpoints that run already, by their K. Raises UsageError where one of K = 0, or any other, is
    missing."""
    if 0 not in endpoints or len(endpoints) < 2:
        raise UsageError(
            "a sweep compares endpoints that speculate with one that does not: expected --attach of both",
            hint=f"specops sweep {ROLLOUT} --attach 0=http://HOST:8000/v1 --attach 3=http://HOST:8001/v1",
        )
    standard = Setting(STANDARD, endpoints[0], k=0)
    return [standard, *(Setting(f"k={k}", pool, k) for k, pool in sorted(endpoints.items()) if k)]


def endpoints_in(swept: Mapping[str, Any]) -> dict[int, Pool]:
    """Endpoints by their K, from the settings of a sweep's result. Raises ValueError where it had others."""
    endpoints = {
        0 if name == STANDARD else int(name.removeprefix("k=")): pool_of(pool) for name, pool in swept.items()
    }
    if any(pool.endpoint is None for pool in endpoints.values()):
        raise ValueError("specops started the servers of this sweep")
    return endpoints


def loads_of(rollout: Rollout, lengths: Iterable[str]) -> list[Load]:
    """Concurrency, ascending, within temperature, within class of prompt length."""
    section, measure = rollout.sweep, rollout.measure
    concurrency = sorted(set(section.concurrency or measure.concurrency))
    temperatures = sorted(set(section.temperature or [measure.temperature]))
    return [
        Load(streams, temperature, length)
        for length, temperature, streams in product(lengths, temperatures, concurrency)
    ]


def _drafting(pool: Pool, section: Sweep, folder: Path) -> list[Setting]:
    ks = sorted(k for k in set(section.k) if k)
    if section.trees is None and not ks:
        raise ConfigError(
            "the sweep tries nothing but K = 0", hint=in_rollout("k", "write other numbers: [3, 4, 5]")
        )
    settings = pool.variants(Grid(ks, section.trees, section.drafts, folder))
    return [
        replace(setting, name=f"{setting.draft} {setting.name}" if setting.draft else setting.name)
        for setting in settings
    ]


@dataclass(frozen=True)
class SweepSpec:
    """The settings, loads and limits of a sweep; the first of `settings` is the standard."""

    settings: Sequence[Setting]
    loads: Sequence[Load]
    lengths: Lengths
    prompts: PromptSet
    requests: BaselineSettings
    """How requests are sent; `repeats` counts where there is no budget."""

    budget_min: float | None = None
    confidence: float = CONFIDENCE
    margins: Ab = field(default_factory=Ab)
    """The margins of `ab`: of failures, answers, lengths and TTFT."""

    def decks(self, only: Collection[str] = ()) -> StagePrompts:
        """The prompts of each stage. With `only`, the confirmation has only prompts of these traffic
        classes."""
        dealt = {
            name: plan.deal(prompts, self.requests.seed) for name, prompts in self.lengths.classes.items()
        }
        stages = plan.divided(dealt, len(self.settings) - 1)
        if not only:
            return stages
        class_ids = {prompt.id for prompt in self.prompts.prompts if prompt.traffic_class in only}
        chosen = {
            name: tuple(p for p in deck if p in class_ids) for name, deck in stages.confirmation.items()
        }
        return replace(stages, confirmation={name: deck for name, deck in chosen.items() if deck})

    @property
    def requests_needed(self) -> int:
        """Requests to a setting of which none is an event that bound rare events within the margins; at most
        as many as the rollout file allows a comparison."""
        least = min(self.margins.failure_margin, self.margins.answer_margin)
        return min(shares.requests_to_bound(least, ONE_SIDED), self.margins.requests)

    def inputs(self) -> dict[str, str]:
        """Hashes of all that decides a cell. The budget's minutes do not: more of them resume a sweep."""
        pools = {setting.name: setting.pool for setting in self.settings}
        grid = {
            "loads": [asdict(load) for load in self.loads],
            "classes": {
                name: [prompt.id for prompt in prompts] for name, prompts in self.lengths.classes.items()
            },
            "budget": self.budget_min is not None,
            "confidence": self.confidence,
            "requests": self.requests_needed,
        }
        return inputs_of_settings(pools, self.requests, grid, self.prompts)


def spec_of(rollout: Rollout, folder: Path, endpoints: Mapping[int, Pool] | None = None) -> SweepSpec:
    """Return what the rollout file in `folder` sweeps. `endpoints`, by their K, take the place of its pools.

    Raises ConfigError for pools that cannot be swept, UsageError for endpoints or a tokenizer that cannot,
    and PromptsError for prompts that cannot be sent.
    """
    settings = attached(endpoints) if endpoints else swept_settings(rollout, folder)
    requests = settings_of(rollout, rollout.pools.standard)
    streams = rollout.sweep.concurrency or rollout.measure.concurrency
    requests = requests.model_copy(update={"concurrency": tuple(sorted(set(streams)))})
    prompts = requests.prompt_set().with_separate_turns()  # a sweep deals out prompts one by one
    bounds = rollout.sweep.prompt_tokens
    lengths = lengths_of(prompts.prompts, bounds, requests.tokenizer, settings[0].pool)
    return SweepSpec(
        settings=settings,
        loads=loads_of(rollout, lengths.classes),
        lengths=lengths,
        prompts=prompts,
        requests=requests,
        budget_min=rollout.sweep.budget_min,
        confidence=rollout.ab.confidence,
        margins=rollout.ab,
    )


CHARACTERS_A_TOKEN = 4
"""Where there is no tokenizer: usual of English, too many of most other scripts and of code."""


@dataclass(frozen=True)
class Lengths:
    classes: dict[str, tuple[Prompt, ...]]
    """Classes of length from the shortest; a class without prompts is left out."""

    counted_by: str
    """How they were counted, in words."""


def lengths_of(
    prompts: Sequence[Prompt], bounds: Sequence[int], tokenizer: Path | None, pool: Pool
) -> Lengths:
    """The prompts by the class that they fall into: a class begins at each bound. Tokens of a chat template
    are not counted.

    They are counted by `tokenizer`, else by that of the model of `pool` where it is a folder here, else
    guessed from the characters. Raises UsageError for a tokenizer that cannot be read.
    """
    if not bounds:
        return Lengths({ANY_LENGTH: tuple(prompts)}, "not counted")
    path = tokenizer or _tokenizer_of(pool)
    count = token_counter(path) if path else _guess
    counted_by = f"the tokenizer {path}" if path else f"guessed: {CHARACTERS_A_TOKEN} characters a token"
    edges = sorted(set(bounds))
    classes: dict[str, list[Prompt]] = {name: [] for name in _names(edges)}
    names = list(classes)
    for prompt in prompts:
        tokens = len(prompt.content) if _is_ids(prompt) else count(_text(prompt))
        classes[names[sum(edge <= tokens for edge in edges)]].append(prompt)
    return Lengths({name: tuple(members) for name, members in classes.items() if members}, counted_by)


def _names(edges: Sequence[int]) -> list[str]:
    between = [f"{low} to {high - 1} tokens" for low, high in pairwise(edges)]
    return [f"under {edges[0]} tokens", *between, f"{edges[-1]} tokens and more"]


def _tokenizer_of(pool: Pool) -> Path | None:
    folder = pool.target_folder
    return folder if folder is not None and (folder / "tokenizer.json").is_file() else None


def _is_ids(prompt: Prompt) -> bool:
    return isinstance(prompt.content, tuple) and isinstance(prompt.content[0], int)


def _text(prompt: Prompt) -> str:
    """The text of a prompt that a model reads, without the chat template."""
    if isinstance(prompt.content, str):
        return prompt.content
    parts = [message.get("content") for message in prompt.messages()]
    return "\n".join(part if isinstance(part, str) else json.dumps(part) for part in parts if part)


def _guess(text: str) -> int:
    return -(-len(text) // CHARACTERS_A_TOKEN)


Source = Literal["sweep", "baseline"]


class PlannedRung(BaseModel):
    model_config = ConfigDict(frozen=True)

    rung: int
    starts: int
    """Starts of servers, the standard's two included."""

    cells: int
    requests: int
    """Number of requests without those of warm-ups."""

    seconds: float | None
    """Null while nothing is known."""


class Forecast(BaseModel):
    """The measurements left to do of a sweep that was begun. With a budget, later rungs depend on the
    first."""

    model_config = ConfigDict(frozen=True)

    settings: list[str]
    loads: list[str]
    prompts: dict[str, int]
    """Number of prompts, by class of length."""

    rungs: list[PlannedRung]
    seconds: float | None
    known_from: Source | None
    without_starts: bool
    """The seconds are of the requests alone: no server's start was timed yet."""

    budget_min: float | None


def forecast(spec: SweepSpec, path: Path) -> Forecast:
    """Return what is left to do, timed by an earlier sweep at `path` or a baseline.json beside it, whatever
    their inputs. Raises FileError where they are damaged."""
    samples, source = samples_of(path)
    timing = Timing(samples, spec.requests.warmup) if samples else None
    rungs = [_planned(rung, timing) for rung in _rungs(spec, timing)]
    timed = [rung.seconds for rung in rungs if rung.seconds is not None]
    return Forecast(
        settings=[setting.name for setting in spec.settings],
        loads=[str(load) for load in spec.loads],
        prompts={name: len(prompts) for name, prompts in spec.lengths.classes.items()},
        rungs=rungs,
        seconds=round(sum(timed), 3) if timing and len(timed) == len(rungs) else None,
        known_from=source,
        without_starts=timing is not None and not timing.knows_starts(),
        budget_min=spec.budget_min,
    )


def _rungs(spec: SweepSpec, timing: Timing | None) -> Sequence[Rung]:
    """The rungs that are known beforehand. Which settings a confirmation will have is not known: the first
    ones stand for them."""
    decks = spec.decks()
    several = len(spec.settings) > 2
    streams = sorted({load.concurrency for load in spec.loads})
    finalists = Finalists(
        settings=tuple(setting.name for setting in spec.settings[1:3]), streams=tuple(streams)
    )
    if spec.budget_min is None:
        repeats = spec.requests.repeats
        chosen = plan.whole(spec.settings, spec.loads, decks, repeats) if several else []
        last = confirming(
            finalists,
            spec.settings,
            spec.loads,
            decks,
            len(chosen),
            {},
            requests=spec.requests_needed,
        )
        return [*chosen, *last.rungs(last.even(repeats))]
    of_loads = {load: decks.choice[load.length] for load in spec.loads}
    halving = Halving(spec.settings, of_loads, confidence=spec.confidence)
    first = halving.opening(0)
    if first is None:
        last = confirming(finalists, spec.settings, spec.loads, decks, 0, {})
        return last.rungs([last.fewest()])
    left_s = 60 * spec.budget_min
    fits = first if timing is None else halving.fitting(first, timing, left_s - timing.job(first.standard))
    return [fits] if fits else []


def _planned(rung: Rung, timing: Timing | None) -> PlannedRung:
    jobs = (rung.standard, *rung.jobs, rung.standard)
    seconds = timing.rung(rung) if timing else None
    return PlannedRung(
        rung=rung.standard.rung,
        starts=len(jobs),
        cells=sum(len(job.cells) for job in jobs),
        requests=sum(len(cell.prompts) for job in jobs for cell in job.cells),
        seconds=None if seconds is None else round(seconds, 3),
    )


def samples_of(sweep: Path) -> tuple[list[Sample], Source | None]:
    """Return how long servers took, by the sweep at this path, else by the baseline.json beside it. A sweep
    that cannot be read, such as one of an earlier format, has no samples: they only make a forecast."""
    baseline = sweep.with_name("baseline.json")
    if sweep.exists():
        with suppress(FileError):
            samples = samples_of_cells(measurements_of(results.read(sweep), str(sweep)).cells)
            if samples:
                return samples, "sweep"
    if baseline.exists():
        return samples_of_baseline(
            measurement.cells_of(measurement.read(baseline), str(baseline))
        ), "baseline"
    return [], None

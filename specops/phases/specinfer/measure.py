"""What is measured for the tables: acceptance along what the target writes, and the engine's own steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel, ConfigDict, PositiveInt

from specops import results, stats
from specops.engine import Sampling
from specops.engine.load import Pair
from specops.engine.planner import acceptance_rates, offline_acceptance
from specops.engine.verifiers import make_verifier
from specops.load.workload import load_prompts
from specops.phases.specinfer.tables import (
    EVERYTHING,
    GREEDY,
    MSS,
    NAIVE,
    RULES,
    STOCHASTIC,
    WIDTHS,
    Figure,
    Rows,
    Rule,
    Tables,
)
from specops.progress import Progress

DEPTH = 8
BATCH = 8

Datasets = dict[str, list[list[int]]]
"""The prompts' tokens, by class."""


class SpecInferSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    target: Path
    draft: Path
    prompts: Path
    count: PositiveInt = 16  # prompts of each class, spread over it
    prompt_tokens: PositiveInt = 128  # the last ones of each prompt
    tokens: PositiveInt = 64  # of each continuation
    seed: int = 0


@dataclass(frozen=True)
class Counted:
    tokens: int = 0
    steps: int = 0

    def __add__(self, more: Counted) -> Counted:
        return Counted(self.tokens + more.tokens, self.steps + more.steps)


def measure(settings: SpecInferSettings, progress: Progress) -> results.Result:
    prompts = load_prompts(settings.prompts)
    pair = Pair(settings.target, settings.draft)
    datasets: Datasets = {}
    for name in prompts.classes:
        contents = [p.completion_prompt() for p in prompts.select([name]).spread(settings.count)]
        encoded = [pair.tokenizer.encode(one) if isinstance(one, str) else one for one in contents]
        datasets[name] = [ids[-settings.prompt_tokens :] for ids in encoded]
    everything = sum(map(len, datasets.values()))
    progress.start("SpecInfer's tables", everything * (2 * len(WIDTHS) + len(RULES)))
    tables = _tables(_Measuring(pair, datasets, settings, progress))
    of_all = tables.verifiers[EVERYTHING]
    ratio = of_all[MSS.name].value / of_all[NAIVE.name].value
    return results.Result(
        phase="specinfer",
        inputs={"prompts": prompts.sha256},
        settings=settings.model_dump(mode="json"),
        environment=results.environment() | {"torch": version("torch")},
        verdict="yes",
        reason=f"{everything} prompts of {len(datasets)} classes; at width 5 and T = 1, MSS yields "
        f"{ratio:.2f} times the tokens a step of naive sampling",
        summary={"mss_over_naive": round(ratio, 4)}
        | {rule: round(figure.value, 4) for rule, figure in of_all.items()},
        data=tables.model_dump(mode="json"),
    )


def _tables(measuring: _Measuring) -> Tables:
    success = measuring.success()  # first: it says where prompts and tokens do not fit
    tokens: dict[str, Rows] = {GREEDY: defaultdict(list), STOCHASTIC: defaultdict(list)}
    for width in WIDTHS:
        for decoding, temperature in ((GREEDY, 0.0), (STOCHASTIC, 1.0)):
            for name, figure in measuring.tokens_a_step(width, MSS, temperature).items():
                tokens[decoding][name].append(figure)
    verifiers: dict[str, dict[str, Figure]] = defaultdict(dict)
    for rule in RULES:
        counted = {name: row[-1] for name, row in tokens[STOCHASTIC].items()}
        if rule is not MSS:
            counted = measuring.tokens_a_step(WIDTHS[-1], rule, 1.0)
        for name, figure in counted.items():
            verifiers[name][rule.name] = figure
    return Tables(success=success, tokens=tokens, verifiers=verifiers)


@dataclass(frozen=True)
class _Measuring:
    pair: Pair
    datasets: Datasets
    settings: SpecInferSettings
    progress: Progress

    def success(self) -> dict[str, Rows]:
        """Of the children at the root: table 1."""
        rates: dict[str, list[offline_acceptance.Rates]] = {}
        for name, prompts in self.datasets.items():
            rates[name] = []
            for ids in prompts:
                found = offline_acceptance.rates(
                    self.pair, ids, self.settings.tokens, len(WIDTHS), self.settings.seed
                )
                rates[name].append(found)
                self.progress.advance()
        rates[EVERYTHING] = [rate for found in rates.values() for rate in found]
        rules = {GREEDY: acceptance_rates.GREEDY, STOCHASTIC: acceptance_rates.SAMPLED[0]}
        return {
            decoding: {
                name: [_mean(values) for values in zip(*(rate[rule] for rate in found), strict=True)]
                for name, found in rates.items()
            }
            for decoding, rule in rules.items()
        }

    def tokens_a_step(self, width: int, rule: Rule, temperature: float) -> dict[str, Figure]:
        """By dataset."""
        counted: dict[str, list[Counted]] = {}
        for name, prompts in self.datasets.items():
            counted[name] = self._count(prompts, width, rule, temperature)
            self.progress.advance(len(prompts))
        counted[EVERYTHING] = [one for found in counted.values() for one in found]
        return {name: _per_step(found) for name, found in counted.items()}

    def _count(
        self, prompts: Sequence[list[int]], width: int, rule: Rule, temperature: float
    ) -> list[Counted]:
        """Of each prompt: what steps with whole trees yielded."""
        settings = self.settings
        tree = f"expand:1,1,{width}" + ",1" * (DEPTH - 3)
        engine = self.pair.engine(
            tree,
            settings.prompt_tokens + settings.tokens,
            draw=rule.draw,
            verifier=make_verifier(rule.verifier),
            max_batch=BATCH,
        )
        for number, ids in enumerate(prompts):
            sampling = Sampling(
                max_tokens=settings.tokens,
                temperature=temperature,
                seed=settings.seed + number,
                ignore_eos=True,
            )
            engine.submit(ids, sampling)
        # What reads the target's features has none before the first step, which is then without a tree.
        whole = range(DEPTH + 1, settings.tokens + (0 if self.pair.draft.reads_features else 1))
        left: dict[int, int] = defaultdict(lambda: settings.tokens)
        counted: dict[int, Counted] = defaultdict(Counted)
        while not engine.idle:
            for emission in engine.step():
                if left[emission.sequence_id] in whole:
                    counted[emission.sequence_id] += Counted(len(emission.tokens), 1)
                left[emission.sequence_id] -= len(emission.tokens)
        return list(counted.values())


def _mean(values: Sequence[float]) -> Figure:
    found = stats.mean_interval(values)
    if found is None:
        return Figure(value=values[0])
    return Figure(value=found.estimate, low=found.low, high=found.high)


def _per_step(found: Sequence[Counted]) -> Figure:
    tokens, steps = [one.tokens for one in found], [one.steps for one in found]
    ratio = stats.paired_ratio(tokens, steps)
    if ratio is None:
        return Figure(value=sum(tokens) / sum(steps))
    return Figure(value=ratio.estimate, low=ratio.low, high=ratio.high)

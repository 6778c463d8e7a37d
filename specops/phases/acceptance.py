"""`bench acceptance`: how often one of k drafted children is accepted, for any pair on disk.

SpecInfer's success rates (arXiv 2305.09781, table 1) on the user's own prompts. The target writes a
continuation of each prompt, greedily and at T = 1; at every position of it the two models' distributions
give the rate for each rule and width, without sampling noise but for draws without replacement.
"""

from __future__ import annotations

import statistics
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel, PositiveInt

from specops import results
from specops.engine.load import Pair
from specops.engine.planner import offline_acceptance
from specops.engine.planner.offline_acceptance import GREEDY, RULES, Rates
from specops.load.workload import load_prompts
from specops.progress import Progress
from specops.section import Frozen


class AcceptanceSettings(Frozen):
    target: Path
    draft: Path
    prompts: Path
    count: PositiveInt = 32  # prompts, spread over the set
    prompt_tokens: PositiveInt = 128  # the last ones of each prompt
    tokens: PositiveInt = 64  # of each continuation
    widths: PositiveInt = 5
    seed: int = 0


class AcceptanceData(BaseModel):
    """`data` of the result. Rates are by rule, one for each width from 1."""

    rates: Rates
    by_class: dict[str, Rates]
    prompts: list[str]
    """Ids of the prompts."""


def measure(settings: AcceptanceSettings, progress: Progress) -> results.Result:
    """data.rates: {rule: [rate at width 1, 2, …]}; data.by_class the same for each traffic class."""
    prompts = load_prompts(settings.prompts)
    chosen = prompts.spread(settings.count)
    pair = Pair(settings.target, settings.draft)
    of_class: dict[str, list[Rates]] = {}
    progress.start("acceptance", len(chosen))
    for prompt in chosen:
        content = prompt.completion_prompt()
        ids = pair.tokenizer.encode(content) if isinstance(content, str) else content
        found = offline_acceptance.rates(
            pair, ids[-settings.prompt_tokens :], settings.tokens, settings.widths, settings.seed
        )
        of_class.setdefault(prompt.traffic_class, []).append(found)
        progress.advance()
    everything = [found for group in of_class.values() for found in group]
    rates = _mean(everything)
    greedy = [found[GREEDY][0] for found in everything]
    return results.Result(
        phase="acceptance",
        inputs={
            "prompts": prompts.sha256,
            **{f"{name}/{file.name}": results.sha256(file) for name, file in _model_files(settings)},
        },
        settings=settings.model_dump(mode="json"),
        environment=results.environment() | {"torch": version("torch")},
        verdict="yes",
        reason=f"{len(chosen)} prompts, {len(chosen) * settings.tokens} positions for each rule",
        summary={
            "greedy_acceptance": rates[GREEDY][0],
            "greedy_acceptance_by_prompt": {
                "min": round(min(greedy), 4),
                "median": round(statistics.median(greedy), 4),
                "max": round(max(greedy), 4),
            },
        },
        data=AcceptanceData(
            rates=rates,
            by_class={name: _mean(found) for name, found in sorted(of_class.items())},
            prompts=[prompt.id for prompt in chosen],
        ).model_dump(mode="json"),
    )


def _mean(found: list[Rates]) -> Rates:
    means = {}
    for rule in RULES:
        widths = zip(*(rates[rule] for rates in found), strict=True)
        means[rule] = [round(statistics.fmean(values), 4) for values in widths]
    return means


def _model_files(settings: AcceptanceSettings) -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    for name, folder in (("target", settings.target), ("draft", settings.draft)):
        found += [(name, file) for file in sorted(folder.glob("*.safetensors"))]
    return found


def table(result: results.Result) -> tuple[list[str], list[list[str]]]:
    """Columns and rows for people."""
    rates: Rates = result.data["rates"]
    width = len(next(iter(rates.values())))
    columns = ["acceptance at width", *(str(k) for k in range(1, width + 1))]
    rows = []
    for rule, values in rates.items():
        name = "greedy" if rule == GREEDY else f"T = 1, {rule}"
        rows.append([name, *(f"{value:.3f}" for value in values)])
    return columns, rows

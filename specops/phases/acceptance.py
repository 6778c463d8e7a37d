"""`bench acceptance`: how often one of k drafted children is accepted, for any pair on disk.

SpecInfer's success rates (arXiv 2305.09781, table 1) on the user's own prompts. The target writes a
continuation of each prompt, greedily and at T = 1; at every position of it the two models' distributions
give the rate for each rule and width, without sampling noise but for draws without replacement.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, PositiveInt
from torch import Tensor

from specops import results
from specops.engine import Engine, Sampling, acceptance, load_engine
from specops.engine.model import Model, load_model
from specops.load.workload import Prompt, load_prompts
from specops.progress import Progress

Rule = Callable[[Tensor, Tensor, int], Tensor]

GREEDY = "greedy"
SAMPLED = ("multi-step, i.i.d.", "multi-step, without replacement", "naive, draft's top k", "naive, i.i.d.")
RULES = (GREEDY, *SAMPLED)


class AcceptanceSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    target: Path
    draft: Path
    prompts: Path
    count: PositiveInt = 32  # prompts, spread over the set
    prompt_tokens: PositiveInt = 128  # the last ones of each prompt
    tokens: PositiveInt = 64  # of each continuation
    widths: PositiveInt = 5
    seed: int = 0


def measure(settings: AcceptanceSettings, progress: Progress) -> results.Result:
    """data.rates: {rule: [rate at width 1, 2, …]}; data.by_class the same for each traffic class."""
    prompts = load_prompts(settings.prompts)
    chosen = _spread(list(prompts.prompts), settings.count)
    target = load_engine(settings.target, speculate=False, max_batch=1)
    draft = load_model(settings.draft)
    generator = torch.Generator().manual_seed(settings.seed)
    sampled: dict[str, Rule] = {
        SAMPLED[0]: acceptance.multi_step_iid,
        SAMPLED[1]: lambda p, q, k: acceptance.multi_step_without_replacement(p, q, k, generator),
        SAMPLED[2]: acceptance.naive_top,
        SAMPLED[3]: acceptance.naive_iid,
    }
    rows: dict[str, dict[str, list[Tensor]]] = {}  # class -> rule -> [k] for each prompt
    progress.start("acceptance", len(chosen))
    for prompt in chosen:
        of_class = rows.setdefault(prompt.traffic_class, {rule: [] for rule in RULES})
        p, q = _along(target, draft, prompt, settings, temperature=0.0)
        of_class[GREEDY].append(acceptance.greedy(p, q, settings.widths).mean(0))
        p, q = _along(target, draft, prompt, settings, temperature=1.0)
        for rule, rate in sampled.items():
            of_class[rule].append(rate(p, q, settings.widths).mean(0))
        progress.advance()
    everything = {rule: [r for c in rows.values() for r in c[rule]] for rule in RULES}
    rates = _mean(everything)
    first = torch.stack(everything[GREEDY])[:, 0]
    return results.Result(
        phase="acceptance",
        inputs={
            "prompts": prompts.sha256,
            **{f"{name}/{file.name}": results.sha256(file) for name, file in _model_files(settings)},
        },
        settings=settings.model_dump(mode="json"),
        environment=results.environment() | {"torch": torch.__version__},
        verdict="yes",
        reason=f"{len(chosen)} prompts, {len(chosen) * settings.tokens} positions for each rule",
        summary={
            "greedy_acceptance": rates[GREEDY][0],
            "greedy_acceptance_by_prompt": {
                "min": round(float(first.min()), 4),
                "median": round(float(first.median()), 4),
                "max": round(float(first.max()), 4),
            },
        },
        data={
            "rates": rates,
            "by_class": {name: _mean(of_class) for name, of_class in sorted(rows.items())},
            "prompts": [prompt.id for prompt in chosen],
        },
    )


def _spread(prompts: list[Prompt], count: int) -> list[Prompt]:
    count = min(count, len(prompts))
    return [prompts[index * len(prompts) // count] for index in range(count)]


@torch.inference_mode()
def _along(
    target: Engine, draft: Model, prompt: Prompt, settings: AcceptanceSettings, temperature: float
) -> tuple[Tensor, Tensor]:
    """The target's and the draft's distributions at each position of the target's own continuation."""
    content = prompt.completion_prompt()
    ids = target.tokenizer.encode(content) if isinstance(content, str) else content
    ids = ids[-settings.prompt_tokens :]
    sampling = Sampling(
        temperature=temperature, seed=settings.seed, max_tokens=settings.tokens, ignore_eos=True
    )
    tokens = ids + target.generate(ids, sampling).tokens
    p, q = (acceptance.logits_of(m, tokens[:-1])[len(ids) - 1 :] for m in (target.target, draft))
    return p.softmax(-1), q.softmax(-1)


def _mean(of_rules: dict[str, list[Tensor]]) -> dict[str, list[float]]:
    return {
        rule: [round(value, 4) for value in torch.stack(values).mean(0).tolist()]
        for rule, values in of_rules.items()
    }


def _model_files(settings: AcceptanceSettings) -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    for name, folder in (("target", settings.target), ("draft", settings.draft)):
        found += [(name, file) for file in sorted(folder.glob("*.safetensors"))]
    return found


def table(result: results.Result) -> tuple[list[str], list[list[str]]]:
    """Columns and rows for people."""
    rates: dict[str, list[Any]] = result.data["rates"]
    width = len(next(iter(rates.values())))
    columns = ["acceptance at width", *(str(k) for k in range(1, width + 1))]
    rows = []
    for rule, values in rates.items():
        name = "greedy" if rule == GREEDY else f"T = 1, {rule}"
        rows.append([name, *(f"{value:.3f}" for value in values)])
    return columns, rows

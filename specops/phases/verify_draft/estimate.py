"""`verify-draft --measure`: the pair on the embedded engine, over the user's prompts.

The target answers a sample of the prompts. Its text says how each tree of the draft's would have fared
(engine/planner: offline_acceptance.py), a few trees' steps give the time of a step of any tree
(step_costs.py), and tree_choice.py says which trees are worth predicting, answer by answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from specops.engine.load import Pair
from specops.engine.planner import tree_choice
from specops.engine.planner.offline_acceptance import Trace, table
from specops.engine.planner.step_costs import MOST_NODES, Costs
from specops.phases.verify_draft.estimate_record import (
    ApiCosts,
    CostsAt,
    DepthAcceptance,
    Estimate,
    MeasuredAcceptance,
    PredictedSpeedup,
    Prediction,
)
from specops.phases.verify_draft.prediction import (
    DEPTH,
    LONGEST,
    NO_DRAFT,
    Predictor,
    WrittenSample,
    measure_machine,
    write_sample,
)
from specops.progress import Progress
from specops.results import milliseconds
from specops.trees import parse_tree

CHAINS = tuple(f"chain:{length}" for length in range(1, 9))
COPIES = ("ngram:4", "ngram:8")
AS_FAST = 0.99
"""Share of the best. A smaller difference is within the error of the measurement."""

LOOKED_AT = 6
"""The planner's best trees that are predicted answer by answer, beside all chains."""


def estimate(
    target: Path,
    draft: Path,
    prompts: Path,
    progress: Progress,
    *,
    threads: int | None,
    temperature: float,
) -> Estimate:
    """Estimate a pair's speed-up. `threads`: of torch; None leaves it the choice.

    Raises ModelError for a pair that cannot be loaded, PromptsError and UsageError for prompts that the
    target cannot answer, EnvironmentFailure where the API's own cost cannot be measured.
    """
    return predict(*measure(target, draft, prompts, progress, threads=threads, temperature=temperature))


def measure(
    target: Path,
    draft: Path,
    prompts: Path,
    progress: Progress,
    *,
    threads: int | None,
    temperature: float,
) -> tuple[WrittenSample, Predictor]:
    """All that is measured of the pair: predictions of any tree follow."""
    pair = Pair(target, draft, threads=threads)
    sample = write_sample(pair, prompts, temperature, progress)
    machine, rounds = measure_machine(pair, sample, progress)
    return sample, Predictor(sample.texts, machine, rounds)


def predict(sample: WrittenSample, predictor: Predictor) -> Estimate:
    traces = [text.trace for text in sample.texts]
    rates = table(traces, DEPTH).rates.tolist()
    likely = [option.tree for option in predictor.ranked(rates, MOST_NODES)[:LOOKED_AT]]
    trees = dict.fromkeys((*CHAINS, *(COPIES if predictor.copies else ()), *likely))
    trees.pop(NO_DRAFT, None)
    predictions = [_prediction(predictor, tree, sample.classes) for tree in trees]
    predictions.sort(key=lambda prediction: -prediction.overall.estimate)
    drafted = _smallest([prediction for prediction in predictions if parse_tree(prediction.tree).needs_draft])
    best, spec = _smallest(predictions), parse_tree(drafted.tree)
    overhead = predictor.machine.overhead
    return Estimate(
        chosen=best.tree if best.overall.estimate > 1 else NO_DRAFT,
        drafted=drafted,
        alternatives=tuple(predictions),
        any_shape=round(
            tree_choice.ceiling(rates, spec.nodes) / tree_choice.expected_tokens(rates, spec.widths), 3
        ),
        acceptance=_accepted(traces),
        by_class={name: _accepted([text.trace for text in sample.of_class(name)]) for name in sample.classes},
        costs=tuple(_costs(context, costs) for context, costs in predictor.machine.sheet.ends),
        api=ApiCosts(request=milliseconds(overhead.request), chunk=milliseconds(overhead.chunk)),
        temperature=sample.temperature,
        assumptions=tuple(_assumptions(sample)),
    )


def _smallest(predictions: Sequence[Prediction]) -> Prediction:
    """Return the smallest of the trees that are as fast as the first."""
    enough = AS_FAST * predictions[0].overall.estimate
    return min(
        (prediction for prediction in predictions if prediction.overall.estimate >= enough),
        key=lambda prediction: parse_tree(prediction.tree).nodes,
    )


def _prediction(predictor: Predictor, tree: str, classes: Sequence[str]) -> Prediction:
    def speedup(traffic_class: str | None) -> PredictedSpeedup:
        ratio, interval = predictor.speedup(tree, traffic_class)
        return PredictedSpeedup(estimate=round(ratio, 4), interval=interval)

    return Prediction(
        tree=tree,
        tokens_per_step=round(predictor.tokens_per_step(tree), 3),
        step_ms=milliseconds(predictor.step_seconds(tree)),
        overall=speedup(None),
        by_class={name: speedup(name) for name in classes},
    )


def _accepted(traces: Sequence[Trace]) -> MeasuredAcceptance:
    acceptance = table(traces, DEPTH)
    depths = (
        DepthAcceptance(parents=round(parents, 1), by_rank=tuple(round(rate, 4) for rate in rates))
        for parents, rates in zip(acceptance.parents.tolist(), acceptance.rates.tolist(), strict=True)
    )
    return MeasuredAcceptance(
        prompts=len(traces), tokens=sum(len(trace.written) for trace in traces), depths=tuple(depths)
    )


def _costs(context: int, costs: Costs) -> CostsAt:
    return CostsAt(
        context=context,
        plain_step=milliseconds(costs.plain),
        draft_first_pass=milliseconds(costs.first_pass),
        draft_level={nodes: milliseconds(seconds) for nodes, seconds in costs.level.points},
        target={tokens: milliseconds(seconds) for tokens, seconds in costs.target.points},
        crowding=milliseconds(costs.crowding),
        commit=milliseconds(costs.commit),
        gather=milliseconds(costs.gather),
        prompt=milliseconds(costs.prompt),
        prompt_drafted=milliseconds(costs.prompt_drafted),
    )


def _assumptions(sample: WrittenSample) -> Iterator[str]:
    threads = f"{sample.threads} thread" + ("s" if sample.threads > 1 else "")
    yield (
        f"the embedded engine on this machine, float32, {threads}, one request at a time; another engine, "
        "a GPU or a batch has other costs, which `specops sweep ROLLOUT` measures"
    )
    how = "greedy" if sample.temperature == 0 else f"temperature {sample.temperature:g}"
    yield (
        f"{len(sample.texts)} of {sample.prompts} prompts, every class in proportion, {how}; the draft does "
        "not change what the target answers"
    )
    if sample.shortened:
        yield (
            f"{sample.shortened} answers are longer than the {LONGEST} tokens that were written, and go on "
            "as they began"
        )
    if sample.too_long:
        yield f"{sample.too_long} prompts were left out: they leave no room for an answer"
    yield "the costs and the API's own time are those of the minute in which they were measured"
    yield "intervals are of the prompts as a sample and of the costs as repeated, not of other machines"
    yield "dynamic trees are not predicted: how they fare does not follow from acceptance by rank"

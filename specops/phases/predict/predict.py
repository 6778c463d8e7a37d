"""The prediction of a rollout's speculation from a log, as a result.

Verdict: yes where at least one setting was predicted; undecided where nothing could be. Whether it pays is no
part of the verdict: costs may be unknown, and then there is no speed-up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specops import results
from specops.config import Rollout
from specops.load.workload import PromptSet
from specops.phases.commands import Commands
from specops.phases.predict.acceptance import AnswerCounts, by_conversation, pooled, ratio_interval
from specops.phases.predict.batching import RequestWork, Server
from specops.phases.predict.costs import STANDARD, measured_costs
from specops.phases.predict.drafts import SettingCounts, draft_along
from specops.phases.predict.log import AnswerLog, read_log
from specops.phases.predict.records import (
    LogFacts,
    MeasuredCosts,
    NotPredicted,
    PredictedCapacity,
    PredictedSetting,
    PredictedSpeedup,
    StepCosts,
)
from specops.phases.predict.tokens import EncodedAnswer, encode, pool_tokenizer
from specops.progress import Progress
from specops.render.figures import count
from specops.section import Frozen

PHASE = "predict"

FAR = 2.0
"""Ratio between the log's mean context and that of the measured requests, beyond which costs do not hold."""


class PredictSettings(Frozen):
    log: Path
    prompts: Path | None = None
    """Prompts of answers that are logged without them; None: the rollout's."""

    temperature: float | None = None
    """Of entries without theirs; None: not known."""

    ks: tuple[int, ...]


def predict(
    rollout: Rollout,
    settings: PredictSettings,
    prompts: PromptSet | None,
    commands: Commands,
    costs_folder: Path,
    progress: Progress,
) -> results.Result:
    """Raises FileError and PromptsError for a log that cannot be read."""
    log = read_log(settings.log, prompts, settings.temperature)
    tokenizer = pool_tokenizer(rollout)
    if isinstance(tokenizer, str):
        change = "acceptance is of tokens: name the model's folder in the rollout file"
        return _undecided(settings, log, f"the pool's tokenizer is not known: {tokenizer}; {change}", {})
    answers, left_out = encode(log.answers, tokenizer)
    facts = _facts(log, answers, left_out)
    if not answers:
        return _undecided(
            settings, log, f"no answer could be used: {', '.join(facts.left_out)}", {"log": facts}
        )
    drafted = draft_along(answers, rollout.pools.speculative, settings.ks, commands, progress)
    if not drafted.settings:
        why = "; ".join(f"{left.setting}: {left.why}" for left in drafted.not_predicted)
        data = {"log": facts, "settings": [], "not_predicted": drafted.not_predicted}
        return _undecided(settings, log, f"nothing is predicted: {why}", data)
    exact = all(answer.verified and answer.greedy for answer in answers)
    predicted = [_setting(setting, exact=exact) for setting in drafted.settings]
    costs = _usable_costs(measured_costs(rollout, costs_folder), facts)
    speedups: list[PredictedSpeedup] = []
    capacity: list[PredictedCapacity] = []
    limits = rollout.slo.model_dump(exclude_none=True) if rollout.slo else {}
    if isinstance(costs, MeasuredCosts):
        progress.start("speed-ups", len(drafted.settings))
        speedups = [speedup for setting in drafted.settings for speedup in _speedups(setting, costs)]
        capacity = list(_capacity(drafted.settings, costs, limits)) if limits else []
    not_predicted = [*drafted.not_predicted, *_without_costs(drafted.settings, costs, speedups, commands)]
    data = {
        "log": facts,
        "settings": predicted,
        "not_predicted": not_predicted,
        "costs": costs if isinstance(costs, MeasuredCosts) else None,
        "costs_missing": costs if isinstance(costs, str) else None,
        "speedups": speedups,
        "capacity": capacity,
        "capacity_missing": _capacity_missing(costs, limits, capacity),
    }
    best, speedup = _best(predicted, speedups)
    return _result(settings, log, "yes", _reason(best, speedup, exact), data, best, speedup)


def _facts(log: AnswerLog, answers: Sequence[EncodedAnswer], left_out: Mapping[str, int]) -> LogFacts:
    prompt_tokens = sum(len(answer.prompt) for answer in answers)
    written = sum(len(answer.written) for answer in answers)
    return LogFacts(
        path=log.path,
        answers=len(answers),
        conversations=len({answer.conversation for answer in answers}),
        prompt_tokens=prompt_tokens,
        answer_tokens=written,
        greedy=sum(answer.greedy for answer in answers),
        sampled=sum(answer.temperature is not None and not answer.greedy for answer in answers),
        unknown_temperature=sum(answer.temperature is None for answer in answers),
        verified=sum(answer.verified for answer in answers),
        mean_context=round((prompt_tokens + written / 2) / len(answers), 1) if answers else 0.0,
        left_out=dict(Counter(log.left_out) + Counter(left_out)),
        classes=dict(sorted(Counter(answer.traffic_class for answer in answers).items())),
    )


def _setting(setting: SettingCounts, *, exact: bool) -> PredictedSetting:
    return PredictedSetting(
        setting=setting.setting,
        k=setting.k,
        how=setting.how,
        exact=exact and not setting.assumes,
        assumes=setting.assumes,
        overall=pooled(setting.counts),
        by_class={name: pooled(counts) for name, counts in _by_class(setting.counts).items()},
    )


def _by_class(counts: Sequence[AnswerCounts]) -> dict[str, list[AnswerCounts]]:
    names = sorted({answer.traffic_class for answer in counts})
    return {name: [answer for answer in counts if answer.traffic_class == name] for name in names}


def _usable_costs(costs: MeasuredCosts | str, facts: LogFacts) -> MeasuredCosts | str:
    """The costs, if the log's requests are like those that they were measured with."""
    if isinstance(costs, str):
        return costs
    if costs.context is None:
        return f"{costs.source} does not report prompt tokens, so the context of its costs is not known"
    ratio = facts.mean_context / costs.context
    if not 1 / FAR <= ratio <= FAR:
        return (
            f"{costs.source} measured steps at {costs.context:.0f} tokens of context, and the log has "
            f"{facts.mean_context:.0f}: measure with prompts like those of the log"
        )
    return costs


def _shared(setting: SettingCounts, costs: MeasuredCosts) -> list[tuple[StepCosts, StepCosts]]:
    """Costs of the standard and of the setting at each level at which both were measured, up to its K."""
    plain = {level.streams: level for level in costs.by_kind[STANDARD]}
    return [
        (plain[level.streams], level)
        for level in costs.by_kind.get(setting.kind, [])
        if level.streams in plain and setting.k <= level.largest_k
    ]


def _speedups(setting: SettingCounts, costs: MeasuredCosts) -> Iterator[PredictedSpeedup]:
    """End to end, all streams busy, at each measured level."""
    work = RequestWork.of_counts(setting.counts)
    conversations = [answer.conversation for answer in setting.counts]
    classes = np.array([answer.traffic_class for answer in setting.counts])
    for standard_costs, level in _shared(setting, costs):
        standard, drafted = work.without_drafts().times_ms(standard_costs), work.times_ms(level)
        times_ms = np.stack((standard[0] + standard[1], drafted[0] + drafted[1]), axis=1)
        sums = by_conversation(conversations, times_ms)
        totals = times_ms.sum(0)
        rates = level.streams * 1000 * len(times_ms) / totals
        yield PredictedSpeedup(
            setting=setting.setting,
            streams=level.streams,
            e2e=ratio_interval(sums[:, 0], sums[:, 1]),
            estimate=round(float(totals[0] / totals[1]), 4),
            by_class={
                str(name): round(float(np.divide(*times_ms[classes == name].sum(0))), 4)
                for name in np.unique(classes)
            },
            requests_per_s=round(float(rates[1]), 4),
            standard_requests_per_s=round(float(rates[0]), 4),
        )


def _capacity(
    settings: Sequence[SettingCounts], costs: MeasuredCosts, limits: Mapping[str, float]
) -> Iterator[PredictedCapacity]:
    """Of the standard, and of each setting over the levels that it shares with the standard. The arrivals are
    the same for both."""
    standards: dict[tuple[int, ...], float] = {}
    for setting in settings:
        shared = _shared(setting, costs)
        if not shared or setting.how != "copied":  # a forced draft has a part of the log
            continue
        levels = tuple(level.streams for level, _ in shared)
        work = RequestWork.of_counts(setting.counts)
        if levels not in standards:
            server = Server([level for level, _ in shared], work.without_drafts())
            standards[levels] = server.capacity(limits, seed=0)
            yield PredictedCapacity(
                setting=STANDARD,
                most_streams=max(levels),
                requests_per_s=round(standards[levels], 4),
                ratio=None,
            )
        rate = Server([level for _, level in shared], work).capacity(limits, seed=0)
        standard = standards[levels]
        ratio = round(rate / standard, 4) if standard else None
        yield PredictedCapacity(
            setting=setting.setting, most_streams=max(levels), requests_per_s=round(rate, 4), ratio=ratio
        )


def _capacity_missing(
    costs: MeasuredCosts | str, limits: Mapping[str, float], capacity: Sequence[PredictedCapacity]
) -> str | None:
    if capacity:
        return None
    if isinstance(costs, str):
        return "the costs of steps are not known"
    return (
        "no copied setting has costs"
        if limits
        else "the rollout file has no slo: capacity is at an objective"
    )


def _without_costs(
    settings: Sequence[SettingCounts],
    costs: MeasuredCosts | str,
    speedups: Sequence[PredictedSpeedup],
    commands: Commands,
) -> Iterator[NotPredicted]:
    """Settings whose acceptance is predicted, and their speed-up is not, where others' is."""
    if isinstance(costs, str):
        return
    sped_up = {speedup.setting for speedup in speedups}
    for setting in settings:
        if setting.setting not in sped_up:
            largest = max((level.largest_k for level in costs.by_kind.get(setting.kind, [])), default=0)
            why = (
                f"its speed-up: costs of {setting.kind} are measured up to {largest} drafted tokens"
                if largest
                else f"its speed-up: no costs of {setting.kind} were measured"
            )
            yield NotPredicted(setting=setting.setting, why=why, command=commands.sweep())


def _best(
    predicted: Sequence[PredictedSetting], speedups: Sequence[PredictedSpeedup]
) -> tuple[PredictedSetting, PredictedSpeedup | None]:
    """The fastest setting at the lightest level; without costs the one with the most tokens a step."""
    if not speedups:
        return max(predicted, key=lambda setting: setting.overall.tokens_per_step), None
    lightest = min(speedup.streams for speedup in speedups)
    fastest = max(
        (speedup for speedup in speedups if speedup.streams == lightest), key=lambda speedup: speedup.estimate
    )
    return next(setting for setting in predicted if setting.setting == fastest.setting), fastest


def _reason(best: PredictedSetting, speedup: PredictedSpeedup | None, exact: bool) -> str:
    overall = best.overall
    ends = f" [{overall.interval.low:.2f}, {overall.interval.high:.2f}]" if overall.interval else ""
    tokens = f"{overall.tokens_per_step:.2f}{ends} tokens a step on {count(overall.answers, 'logged answer')}"
    if speedup is None:
        return f"acceptance only, no speed-up: {best.setting} yields the most, {tokens}"
    at = f"{speedup.estimate:.2f}× end to end at {count(speedup.streams, 'stream')}"
    return f"predicted fastest: {best.setting}, {at}, with {tokens}"


def _undecided(
    settings: PredictSettings, log: AnswerLog, reason: str, data: dict[str, Any]
) -> results.Result:
    return _result(settings, log, "undecided", reason, data, None, None)


def _result(
    settings: PredictSettings,
    log: AnswerLog,
    verdict: results.Verdict,
    reason: str,
    data: Mapping[str, Any],
    best: PredictedSetting | None,
    speedup: PredictedSpeedup | None,
) -> results.Result:
    def plain(value: Any) -> Any:
        if isinstance(value, Frozen):
            return value.model_dump(mode="json")
        return [plain(item) for item in value] if isinstance(value, list) else value

    return results.Result(
        phase=PHASE,
        inputs={"log": log.sha256},
        settings=settings.model_dump(mode="json"),
        environment=results.environment(),
        verdict=verdict,
        reason=reason,
        summary={
            "answers": best.overall.answers if best else 0,
            "setting": best.setting if best else None,
            "tokens_per_step": best.overall.tokens_per_step if best else None,
            "speedup": speedup.estimate if speedup else None,
        },
        data={name: plain(value) for name, value in data.items()},
    )

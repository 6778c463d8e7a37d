"""A comparison: an experiment with the standard and its challengers, judged and stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from specops import results
from specops.config import Pool
from specops.experiment.arms import Arm
from specops.experiment.run import Experiment
from specops.load.client import only_model
from specops.load.settings import BaselineSettings
from specops.phases.ab.earlier import measurements_of
from specops.phases.ab.judging import judge
from specops.phases.ab.report import AbData, LookCounts
from specops.phases.ab.settings import AbSettings
from specops.phases.inputs import inputs_of_arms
from specops.phases.measurement import partial_results, resumable
from specops.progress import Progress
from specops.render.figures import count
from specops.results import Result, Verdict

PHASE = "ab"


def compare_into(
    out: Path,
    arms: Sequence[Arm],
    requests: BaselineSettings,
    settings: AbSettings,
    progress: Progress,
    *,
    fresh: bool = False,
) -> Result:
    """`compare`, stored in the file `out` while it is measured; an earlier result there is resumed, unless
    `fresh`. The logs of servers go to the folder `logs` beside it.

    Raises UsageError where `out` holds another comparison, and what `compare` raises.
    """
    arms = with_models(arms, requests)

    def inputs() -> dict[str, str]:
        return inputs_of_arms(arms, requests, settings, requests.prompt_set())

    previous = resumable(out, "comparison", inputs, measurements_of, fresh=fresh)
    logs = out.parent / "logs"
    with partial_results(out, progress, resumed=previous is not None) as keep:
        result = compare(arms, requests, settings, progress, logs=logs, previous=previous, on_partial=keep)
        keep(result)
    return result


def with_models(arms: Sequence[Arm], requests: BaselineSettings) -> list[Arm]:
    """The arms, each endpoint with the name of its model. Raises EndpointError for an endpoint that cannot be
    queried for it."""

    def named(arm: Arm) -> Pool:
        configured = arm.pool.endpoint
        if configured is None or configured.model:
            return arm.pool
        endpoint = requests.at(configured, arm.name)
        return arm.pool.model_copy(update={"model": only_model(endpoint.target(), endpoint.decoding())})

    return [Arm(arm.name, named(arm)) for arm in arms]


def compare(
    arms: Sequence[Arm],
    requests: BaselineSettings,
    settings: AbSettings,
    progress: Progress,
    *,
    logs: Path,
    previous: Result | None = None,
    on_partial: Callable[[Result], None] = lambda _: None,
) -> Result:
    """Compare every arm with the first, starting from what `previous` has of the same inputs.

    `requests` says what is sent to every arm; address and model are the arm's. The logs of servers that are
    started go to the folder `logs`. `on_partial` gets a valid result after every window.

    Raises UsageError for arms that are missing, that the design cannot compare, or that are one server (with
    `settings.same_server`: that are not). PromptsError is raised for prompts that cannot be sent;
    EndpointError or ServerError where the standard, or an arm that has never answered, does not answer.
    """
    prompts = requests.prompt_set()
    inputs = inputs_of_arms(arms, requests, settings, prompts)

    def result(
        experiment: Experiment, verdict: Verdict, reason: str, summary: dict[str, Any], judged: dict[str, Any]
    ) -> Result:
        stored = AbData(
            prompts=prompts.provenance(),
            failed=experiment.failed,
            looks=LookCounts(done=experiment.looks_done, planned=len(experiment.looks)),
            replay=experiment.plan.replay.facts if experiment.plan.replay else None,
            duration_s=round(experiment.duration_s, 3),
            **vars(experiment.measurements),
        )
        pools = {name: pool.model_dump(mode="json") for name, pool in experiment.pools.items()}
        return Result(
            phase=PHASE,
            inputs=inputs,
            settings=requests.plan() | settings.model_dump(mode="json") | {"arms": pools},
            environment=results.environment() | {"arms": experiment.facts},
            verdict=verdict,
            reason=reason,
            summary=summary,
            data=judged | stored.model_dump(mode="json", by_alias=True),
        )

    def store(experiment: Experiment) -> None:
        reason = f"stopped after {count(len(experiment.windows), 'window')}"
        on_partial(result(experiment, "partial", reason, {}, {}))

    experiment = Experiment(
        arms,
        requests,
        settings,
        prompts,
        progress,
        logs,
        mixed_temperature=settings.mixed_temperature,
        same_server=settings.same_server,
        store=store,
    )
    if previous is not None and previous.inputs == inputs:
        earlier = measurements_of(previous, "the earlier result")
        experiment.resume(earlier, previous.environment.get("arms", {}))
    experiment.measure()
    judged = judge(experiment)
    return result(experiment, judged.verdict, judged.reason, judged.summary, judged.data)

"""All questions, in the order in which one would ask them, and the result. Pure but for the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import get_args

from pydantic import BaseModel, ConfigDict

from specops import results
from specops.phases.diagnose.asking import (
    answers,
    bursts,
    draft,
    drifted,
    first_token,
    load,
    prompts,
    slower,
    speculating,
    vocabulary,
    watching,
)
from specops.phases.diagnose.finding import Finding, Severity, Symptom
from specops.phases.diagnose.observations import Observations
from specops.results import Result, Verdict

PHASE = "diagnose"
FILE = f"{PHASE}.json"
WRONG: tuple[Severity, ...] = ("symptom", "cause")
QUESTIONS: Sequence[Callable[[Observations], Finding]] = (
    slower.slower,
    speculating.off,
    speculating.stuck,
    slower.both,
    load.crossover,
    draft.quality,
    draft.cost,
    draft.length,
    load.gpu_memory,
    load.kv_cache,
    first_token.first_token,
    watching.settings,
    draft.fall_backs,
    prompts.classes,
    prompts.lengths,
    prompts.temperatures,
    drifted.drifted,
    drifted.decay,
    bursts.bursts,
    vocabulary.vocabulary,
    speculating.aborted,
    answers.conformance,
    answers.parity,
    watching.names,
)
"""Each has one answer, whatever was observed. The first cause is what to look at first: what stands before
speculation (is it on, is it alive, is it this pool alone), then the load, then the draft."""


class Diagnosis(BaseModel):
    """`data` of diagnose.json."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    findings: list[Finding]
    observations: Observations


def findings(seen: Observations, symptoms: Sequence[Symptom] = ()) -> list[Finding]:
    """Of these symptoms; of all where none is named."""
    answered = [ask(seen) for ask in QUESTIONS]
    return [one for one in answered if not symptoms or one.symptom in symptoms]


def diagnose(seen: Observations, symptoms: Sequence[Symptom] = ()) -> Result:
    """No where something is wrong; undecided where nothing could be looked at."""
    found = findings(seen, symptoms)
    verdict, reason = _verdict(found)
    return Result(
        phase=PHASE,
        settings={"rollout": seen.rollout, "symptoms": list(symptoms)},
        environment=results.environment(),
        verdict=verdict,
        reason=reason,
        summary={
            severity: count
            for severity in get_args(Severity)
            if (count := Counter(one.severity for one in found)[severity])
        },
        data=Diagnosis(findings=found, observations=seen).model_dump(mode="json"),
    )


def _verdict(found: Sequence[Finding]) -> tuple[Verdict, str]:
    wrong = [one for one in found if one.severity in WRONG]
    if wrong:
        causes = [f"{one.cause} ({one.id})" for one in wrong if one.cause]
        return "no", "; ".join(causes) or f"{wrong[0].id}: it is so, and no cause was found"
    unseen = sum(one.severity == "unknown" for one in found)
    if unseen == len(found):
        return "undecided", "nothing could be looked at"
    told = f"nothing wrong was found in {len(found) - unseen} of {len(found)} questions"
    return "yes", f"{told}; {unseen} could not be answered" if unseen else told

"""`diagnose`: finds why traffic is slow, or answers are odd. Observations are collected once; checks of them
are pure.

observations.py  what is observed; each missing part has a reason
collectors/      live.py (Prometheus, /metrics, GPU memory, a few streams), run_folder.py (results, logs, the
                 pool's command); `gather` runs them
finding.py       a finding: cause, contributing, ruled out or unknown, with evidence and a fix; and what
                 observations are compared with
checks/          one function a finding

`CHECKS` are all of them, in the order in which an operator would make them. `diagnose` makes the result, and
is pure but for the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import get_args

from specops import results
from specops.hints import ROLLOUT, named
from specops.phases.diagnose.checks import answers, draft, speculation, speed
from specops.phases.diagnose.finding import PRESENT_S, DiagnosisFinding, Severity, Symptom
from specops.phases.diagnose.observations import Observations
from specops.render.figures import age
from specops.results import Result, Verdict
from specops.section import Frozen

PHASE = "diagnose"
FILE = f"{PHASE}.json"
SWEEP = f"specops sweep {ROLLOUT}"
"""The sweep in the texts of checks."""
WRONG: tuple[Severity, ...] = ("symptom", "cause")
CHECKS: Sequence[Callable[[Observations], DiagnosisFinding]] = (
    speed.slower,
    speculation.off,
    speculation.stuck,
    speed.both_pools,
    speed.crossover,
    draft.quality,
    draft.cost,
    draft.length,
    speed.gpu_memory,
    speed.kv_cache,
    speed.first_token,
    speculation.settings,
    draft.fallbacks,
    draft.classes,
    draft.lengths,
    draft.temperatures,
    draft.streams,
    draft.drifted,
    draft.decay,
    answers.bursts,
    draft.vocabulary,
    speculation.aborted,
    speculation.routed,
    answers.conformance,
    answers.parity,
    speculation.names,
)
"""Each gives one finding, whatever was observed. The first cause is what to look at first: what comes before
speculation (is it on, is it alive, is it this pool alone), then the load, then the draft."""


class Diagnosis(Frozen):
    """`data` of diagnose.json."""

    findings: list[DiagnosisFinding]
    observations: Observations


def findings(observed: Observations, symptoms: Sequence[Symptom] = ()) -> list[DiagnosisFinding]:
    """The findings of these symptoms; all where none is named."""
    present = _present(observed)
    judged = [_dated(check(present), check(observed), observed) for check in CHECKS]
    return [finding for finding in judged if not symptoms or finding.symptom in symptoms]


def _present(observed: Observations) -> Observations:
    """The observations without pools' figures that are too old to be of now."""
    old = {
        part: figures
        for part, figures in (("live", observed.live), ("standard", observed.standard))
        if figures is not None and figures.age_s > PRESENT_S
    }
    why = {
        part: f"its newest figures are of {age(figures.age_s)} ago ({figures.source})"
        for part, figures in old.items()
    }
    return observed.model_copy(update=dict.fromkeys(old) | {"missing": observed.missing | why})


def _dated(finding: DiagnosisFinding, earlier: DiagnosisFinding, observed: Observations) -> DiagnosisFinding:
    """The finding with the age of its evidence. What old figures would have said is dated as of then; a cause
    that rests on an earlier measurement alone is dated as of that measurement."""
    evidence = tuple(
        item.model_copy(update={"age_s": observed.ages.get(item.source)}) for item in finding.evidence
    )
    message, cause = finding.message, finding.cause
    if finding.severity == "unknown" and earlier.severity in (*WRONG, "contributing"):
        message += f". As it was then: {earlier.message}"
    ages = [item.age_s for item in evidence if item.age_s is not None]
    if finding.severity in WRONG and ages and min(ages) > PRESENT_S:
        message = f"as measured {age(min(ages))} ago: {message}"
        cause = cause and f"as measured {age(min(ages))} ago: {cause}"
    return finding.model_copy(update={"evidence": evidence, "message": message, "cause": cause})


def diagnose(
    observed: Observations, symptoms: Sequence[Symptom] = (), place: str = ROLLOUT, sweep: str = SWEEP
) -> Result:
    """No where something is wrong; undecided where a check has no evidence, each of which names the command
    that would give it.

    `place` names the rollout file, and the run folder where it is another, in the commands of the result.
    `sweep` is the command that sweeps: of pools that run already it names what is compared.
    """
    judged = [_named(finding, place, sweep) for finding in findings(observed, symptoms)]
    verdict, reason = _verdict(judged)
    missing = {part: _filled(why, place, sweep) for part, why in observed.missing.items()}
    observations = observed.model_copy(update={"missing": missing})
    return Result(
        phase=PHASE,
        settings={"rollout": observed.rollout, "symptoms": list(symptoms)},
        environment=results.environment(),
        verdict=verdict,
        reason=reason,
        summary={
            severity: count
            for severity in get_args(Severity)
            if (count := Counter(finding.severity for finding in judged)[severity])
        },
        data=Diagnosis(findings=judged, observations=observations).model_dump(mode="json"),
    )


def _filled(text: str, place: str, sweep: str) -> str:
    return named(text.replace(SWEEP, sweep), place)


def _named(finding: DiagnosisFinding, place: str, sweep: str) -> DiagnosisFinding:
    texts = {name: getattr(finding, name) for name in ("message", "cause", "fix")}
    return finding.model_copy(
        update={name: _filled(text, place, sweep) for name, text in texts.items() if text is not None}
    )


def _verdict(findings: Sequence[DiagnosisFinding]) -> tuple[Verdict, str]:
    wrong = [finding for finding in findings if finding.severity in WRONG]
    if wrong:
        causes = [f"{finding.cause} ({finding.id})" for finding in wrong if finding.cause]
        return "no", "; ".join(causes) or f"{wrong[0].id}: confirmed, no cause found"
    unknown = [finding.id for finding in findings if finding.severity == "unknown"]
    if len(unknown) == len(findings):
        return "undecided", "nothing was observed"
    reason = f"nothing wrong was found in {len(findings) - len(unknown)} of {len(findings)} checks"
    if unknown:
        return "undecided", f"{reason}; {len(unknown)} unknown: {', '.join(unknown)}"
    return "yes", reason

"""From which value on there is an alert, and for how long: by the rollout file, else what was measured, else
the playbook, else a default of specops; each with where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from specops.config import Rollout
from specops.config.monitor import AlertName
from specops.phases.ab.settings import AbSettings
from specops.phases.monitor.before import Before
from specops.prometheus.series import POOLS, exposed
from specops.render.prometheus.alerts import Limit

PLAYBOOK, OURS, ITSELF = "the playbook", "a default of specops", "it is so, or it is not"
LOW, CRITICAL = 0.5, 0.3
"""Acceptance, by the playbook."""
DRIFT = 0.1
REGRESSION = 0.2
FAILING = 0.9
"""Of a pool's requests, that it does not answer: it is out of service."""
LATE_LOOKS = 5
"""Of the guard, in a row, that may be missing."""


def limits(rollout: Rollout, before: Before) -> dict[AlertName, Limit]:
    """Of every alert that there can be, in the order of the rendered file."""
    why_not = left_out(rollout, before)
    return {
        name: _overridden(rollout, name, limit)
        for name, limit in _defaults(rollout, before).items()
        if name not in why_not
    }


def left_out(rollout: Rollout, before: Before) -> dict[AlertName, str]:
    """Alerts that would have nothing to compare or to read, and why."""
    return dict(_left_out(rollout, before))


def _left_out(rollout: Rollout, before: Before) -> Iterator[tuple[AlertName, str]]:
    acceptance: tuple[AlertName, ...] = ("LowAcceptRatio", "CriticalAcceptRatio")
    for name in acceptance:
        set_ = rollout.monitor.alerts.get(name)
        if before.branches and before.break_even is None and (set_ is None or set_.threshold is None):
            why = "of a tree that branches most cannot be accepted, and no sweep measured its break-even"
            yield name, f"{why}: specops sweep ROLLOUT, or set monitor.alerts.{name}.threshold"
    if before.acceptance is None:
        yield "SpeculationAcceptanceDrift", "no ab.json or sweep.json has an acceptance: specops run ROLLOUT"
    if not before.loads:
        why = before.missing.get("baseline", "baseline.json has no level of concurrency")
        yield "SpeculationLatencyRegression", why
        yield "SpeculationBothPoolsSlow", why
        yield "SpeculationTtftVeto", why
    if not rollout.addresses.guard:
        guards: tuple[AlertName, ...] = (
            "SpecopsGuardDown", "SpecopsGuardFellBack", "SpecopsGuardActionUnconfirmed",
        )  # fmt: skip
        for name in guards:
            yield name, "the rollout file has no addresses.guard"
    if not rollout.addresses.routers:
        routers: tuple[AlertName, ...] = ("SpeculationFailovers", "SpecopsPartialSwitch")
        for name in routers:
            yield name, "the rollout file has no addresses.routers"
        if all(exposed(rollout, pool).http is None for pool in POOLS):
            why = "no router is scraped, and the engines do not count the requests that they refuse"
            yield "SpeculationPoolFailing", f"{why}: set addresses.routers"


def _overridden(rollout: Rollout, name: AlertName, limit: Limit) -> Limit:
    setting = rollout.monitor.alerts.get(name)
    if setting is not None and setting.threshold is not None:
        limit = replace(limit, value=setting.threshold, source=_in_file(f"monitor.alerts.{name}.threshold"))
    if setting is not None and setting.for_s is not None:
        limit = replace(limit, for_s=setting.for_s, for_source=_in_file(f"monitor.alerts.{name}.for_s"))
    return limit


def _in_file(key: str) -> str:
    return f"{key} of the rollout file"


def _defaults(rollout: Rollout, before: Before) -> Mapping[AlertName, Limit]:
    low, low_source, critical, critical_source = _acceptance(before)
    veto = AbSettings().ttft_veto_ratio
    regression, regression_source = _of_guard(rollout, "max_regression", f"{PLAYBOOK}'s guard: +20%")
    errors, errors_source = _of_guard(rollout, "max_error_share", OURS)
    over = f", over {before.baseline}" if before.baseline else ""
    seen = before.acceptance
    drift_source = f"{OURS}, below the {seen.value:.2f} of {seen.source}" if seen else OURS
    late = max(300.0, float(LATE_LOOKS * rollout.guard.interval_s))
    return {
        "LowAcceptRatio": Limit(low, low_source, 600, PLAYBOOK),
        "CriticalAcceptRatio": Limit(critical, critical_source, 300, PLAYBOOK),
        "SpeculationAcceptanceDrift": Limit(DRIFT, drift_source, 1800, OURS),
        "SpeculationLatencyRegression": Limit(
            1 + regression, f"{regression_source}{over}", 180, f"{PLAYBOOK}'s guard: 3 looks, 60 s apart"
        ),
        "SpeculationBothPoolsSlow": Limit(1 + regression, f"{regression_source}{over}", 180, OURS),
        "SpeculationTtftVeto": Limit(veto, f"the TTFT veto of the comparison{over}", 600, OURS),
        "SpeculationEmptyOutputs": Limit(
            1.5, f"{OURS}: an empty answer is one token, its end, and half of them are", 300, OURS
        ),
        "SpeculationErrors": Limit(errors, errors_source, 300, OURS),
        "SpeculationPoolFailing": Limit(FAILING, OURS, 60, OURS),
        "SpeculationFailovers": Limit(errors, errors_source, 300, OURS),
        "SpeculationReplicaStuck": Limit(None, ITSELF, 120, OURS),
        "SpeculationNotANumber": Limit(None, ITSELF, 300, OURS),
        "SpeculationTargetDown": Limit(None, ITSELF, 120, OURS),
        "SpeculationSeriesAbsent": Limit(None, ITSELF, 600, OURS),
        "SpeculationNoTraffic": Limit(None, ITSELF, 1800, OURS),
        "SpecopsGuardDown": Limit(
            late, f"{OURS}: {LATE_LOOKS} looks of the guard, at least 5 min", 120, OURS
        ),
        "SpecopsGuardFellBack": Limit(None, ITSELF, 0, OURS),
        "SpecopsGuardActionUnconfirmed": Limit(None, ITSELF, 120, OURS),
        "SpecopsPartialSwitch": Limit(None, ITSELF, 120, OURS),
    }


def _acceptance(before: Before) -> tuple[float, str, float, str]:
    """Break-even is what the playbook's 0.5 stands for. Critical keeps its distance: 0.3 / 0.5 of it."""
    measured = before.break_even
    if measured is None:
        return LOW, PLAYBOOK, CRITICAL, PLAYBOOK
    share = CRITICAL / LOW
    return (
        round(measured.value, 4),
        f"break-even by {measured.source}",
        round(measured.value * share, 4),
        f"{share:g} of break-even by {measured.source}, as in {PLAYBOOK}",
    )


def _of_guard(rollout: Rollout, key: str, default: str) -> tuple[float, str]:
    """The guard's own limit, so that nobody is told of one thing and switched by another."""
    value: float = getattr(rollout.guard, key)
    return value, _in_file(f"guard.{key}") if key in rollout.guard.model_fields_set else default

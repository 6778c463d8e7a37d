"""Measurements of earlier phases, and the thresholds of the alerts.

A threshold comes from the rollout file, else from a measurement, else from the alert's record. Each has its
source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from specops.config import Pool, Rollout
from specops.config.monitor import ALERTS, AlertName, AlertRecord, AlertSetting, alert_record
from specops.guard.signals.criteria import break_even
from specops.load.record import LevelFigures
from specops.phases.ab import report as ab_report
from specops.phases.ab.settings import AbSettings
from specops.phases.measurement import levels_of
from specops.phases.run_folder import Missing, RunFolder, Stored
from specops.phases.sweep import report as sweep_report
from specops.prometheus.promql import LATENCIES, Latency
from specops.prometheus.series import POOLS, exposed
from specops.render.prometheus.alerts import Limit
from specops.render.prometheus.rules import Load, Stat
from specops.trees import parse_tree

STATS: tuple[Stat, ...] = ("mean", "p50", "p95")


@dataclass(frozen=True)
class Figure:
    value: float
    source: str


@dataclass(frozen=True)
class Measurements:
    """The results of earlier phases in the run folder."""

    loads: tuple[Load, ...]
    """The baseline's levels, by concurrency."""

    baseline: str | None
    """The source of the loads."""

    break_even: Figure | None
    """Accepted over drafted tokens below which a token takes longer than without speculation."""

    acceptance: Figure | None
    """Accepted over drafted tokens, as measured before the pool went live."""

    branches: bool
    """Whether drafts are branching trees. Most of their tokens cannot be accepted, and they may pay well."""

    read: Mapping[str, str]
    """SHA-256 of each result that was read, by phase."""

    missing: Mapping[str, str]
    """The reason why a phase has no result that counts, and the command that makes one, by phase."""


def measurements(
    rollout: Rollout, folder: Path, unfit: Mapping[str, str] = MappingProxyType({})
) -> Measurements:
    """Read the run folder. `unfit`: by phase, why a result is not a reference. Such a result, or a damaged
    one, is in `missing`, so that the rest can be rendered without it."""
    run, pool = RunFolder(folder, unfit), rollout.pools.speculative
    baseline, comparison, sweep = (
        run.finished("baseline", levels_of),
        run.finished_comparison,
        run.finished_sweep,
    )
    paying = run.finished("sweep", lambda result, _: break_even(pool, result))
    stored: list[tuple[str, Stored[Any] | Missing]] = [
        ("baseline", baseline), ("ab", comparison), ("sweep", sweep), ("sweep", paying)
    ]  # fmt: skip
    return Measurements(
        loads=() if isinstance(baseline, Missing) else _loads(baseline.part),
        baseline=None if isinstance(baseline, Missing) else baseline.source,
        break_even=_figure(paying),
        acceptance=_acceptance(comparison, sweep),
        branches=branches(pool),
        read={phase: part.sha256 for phase, part in stored if isinstance(part, Stored)},
        missing={phase: str(part) for phase, part in stored if isinstance(part, Missing)},
    )


def _loads(levels: Sequence[LevelFigures]) -> tuple[Load, ...]:
    loads = [_load(level, level.concurrency) for level in levels if level.concurrency is not None]
    return tuple(sorted(loads, key=lambda load: load.concurrency))


def _load(level: LevelFigures, concurrency: int) -> Load:
    seconds: dict[tuple[Latency, Stat], float] = {}
    for latency in LATENCIES:
        for stat in STATS:
            ms = getattr(getattr(level, f"{latency}_ms"), stat)
            if ms:
                seconds[latency, stat] = ms / 1000
    return Load(concurrency, seconds, _token_s(level))


def _token_s(level: LevelFigures) -> float | None:
    """Mean time of a token after the first, so that TTFT + it × (tokens − 1) is the mean E2E."""
    answered = level.requests - level.failed
    if level.total_tokens is None or level.total_tokens <= answered:
        return None
    if level.e2e_ms.mean is None or level.ttft_ms.mean is None:
        return None
    later = level.total_tokens / answered - 1
    return max(0.0, level.e2e_ms.mean - level.ttft_ms.mean) / 1000 / later


def _acceptance(
    comparison: Stored[ab_report.Report] | Missing, sweep: Stored[sweep_report.Report] | Missing
) -> Figure | None:
    """Acceptance by the comparison; else of the setting that the sweep recommends, at the load that
    decided."""
    if isinstance(comparison, Stored):
        total = comparison.part.acceptance(comparison.part.main_challenger)
        if total is not None:
            return Figure(total.rate, comparison.source)
    if isinstance(sweep, Missing):
        return None
    report = sweep.part
    rates = [
        cell.accept_ratio
        for cell in report.cells
        if cell.setting == report.recommended
        and cell.concurrency == report.decided_at
        and cell.accept_ratio is not None
    ]
    return Figure(sum(rates) / len(rates), sweep.source) if rates else None


def _figure(stored: Stored[float | None] | Missing) -> Figure | None:
    if isinstance(stored, Missing) or stored.part is None:
        return None
    return Figure(stored.part, stored.source)


def branches(pool: Pool) -> bool:
    """Return whether the pool drafts a tree with branches."""
    return pool.own is not None and pool.own.tree is not None and parse_tree(pool.own.tree).branches


MISSED = 5
"""Evaluations of the guard in a row that may be missing."""


DEFAULT = "default"


def _default(name: AlertName) -> float:
    threshold = alert_record(name).threshold
    assert threshold is not None, f"{name} has no threshold"
    assert threshold.default is not None, f"the threshold of {name} has no default"
    return threshold.default


LOW, CRITICAL, DRIFT = map(_default, ("LowAcceptRatio", "CriticalAcceptRatio", "SpeculationAcceptanceDrift"))
"""Defaults of acceptance, and of its fall."""


def limits(rollout: Rollout, before: Measurements) -> dict[AlertName, Limit]:
    """The limit of each alert that is rendered, in the order of the rendered file."""
    why_not = left_out(rollout, before)
    return {name: _limit(rollout, before, name) for name in ALERTS if name not in why_not}


def left_out(rollout: Rollout, before: Measurements) -> dict[AlertName, str]:
    """Alerts that have nothing to read or to compare, and why."""
    return dict(_left_out(rollout, before))


def _left_out(rollout: Rollout, before: Measurements) -> Iterator[tuple[AlertName, str]]:
    for name in ALERTS:
        setting = rollout.monitor.alerts.get(name, AlertSetting())
        lacking = (_lacking(need, rollout, before, setting) for need in alert_record(name).needs)
        if why := next((reason for reason in lacking if reason), None):
            yield name, why.replace("NAME", name)


def _limit(rollout: Rollout, before: Measurements, name: AlertName) -> Limit:
    record, setting = alert_record(name), rollout.monitor.alerts.get(name, AlertSetting())
    value, source = _threshold(rollout, before, record)
    for_s, for_source = record.for_s, record.for_source
    if setting.threshold is not None:
        value, source = setting.threshold, _in_file(f"monitor.alerts.{name}.threshold")
    if setting.for_s is not None:
        for_s, for_source = setting.for_s, _in_file(f"monitor.alerts.{name}.for_s")
    return Limit(value, source, for_s, for_source)


def _threshold(rollout: Rollout, before: Measurements, record: AlertRecord) -> tuple[float | None, str]:
    threshold = record.threshold
    if threshold is None:
        return None, "no threshold: the condition is true or false"
    figure = BASES[threshold.basis](rollout, before) if threshold.basis else None
    value = figure.value if figure else threshold.default
    source = (figure.source if figure else "") or threshold.source
    if "baseline" in record.needs and before.baseline:
        source += f", over {before.baseline}"
    if "measured acceptance" in record.needs and before.acceptance:
        source += f", below the {before.acceptance.value:.2f} of {before.acceptance.source}"
    return value, source


def _break_even(rollout: Rollout, before: Measurements) -> Figure | None:
    measured = before.break_even
    return measured and Figure(round(measured.value, 4), f"break-even by {measured.source}")


def _share_of_break_even(rollout: Rollout, before: Measurements) -> Figure | None:
    """The default critical 0.3 is 0.6 of the default 0.5, which stands for break-even."""
    measured = before.break_even
    source = f"0.6 of break-even by {measured.source}, the ratio of both defaults" if measured else ""
    return measured and Figure(round(measured.value * 0.6, 4), source)


def _of_guard(rollout: Rollout, key: str, plus: float = 0.0) -> Figure:
    """The guard's own limit, so that the alert and the guard agree. Without a source unless the file sets
    it."""
    value: float = getattr(rollout.guard, key)
    return Figure(value + plus, _in_file(f"guard.{key}") if key in rollout.guard.model_fields_set else "")


def _in_file(key: str) -> str:
    return f"{key} of the rollout file"


BASES: Mapping[str, Callable[[Rollout, Measurements], Figure | None]] = {
    "break-even": _break_even,
    "0.6 of break-even": _share_of_break_even,
    "guard.max_regression": lambda rollout, before: _of_guard(rollout, "max_regression", plus=1.0),
    "guard.max_error_share": lambda rollout, before: _of_guard(rollout, "max_error_share"),
    "five evaluations": lambda rollout, before: Figure(max(300.0, MISSED * rollout.guard.interval_s), ""),
    "ab.first_token_ratio": lambda rollout, before: Figure(AbSettings().first_token_ratio, ""),
}
"""Where a record's threshold comes from, by `threshold.basis`. Without a source, the record's own is
given."""


def _lacking(need: str, rollout: Rollout, before: Measurements, setting: AlertSetting) -> str | None:
    """Return why an alert is left out that has this need in its record; None if the need is met."""
    addresses = rollout.addresses
    if need == "judgeable acceptance":
        why = "most drafts of a branching tree cannot be accepted, and no sweep measured its break-even"
        judged = not before.branches or before.break_even is not None or setting.threshold is not None
        return None if judged else f"{why}: specops sweep ROLLOUT, or set monitor.alerts.NAME.threshold"
    if need == "measured acceptance":
        return (
            None if before.acceptance else "no ab.json or sweep.json has an acceptance: specops run ROLLOUT"
        )
    if need == "baseline":
        why = before.missing.get("baseline", "baseline.json has no level of concurrency")
        return None if before.loads else why
    if need == "counted requests":
        counted = addresses.routers or any(exposed(rollout, pool).http is not None for pool in POOLS)
        why = "no router is scraped, and the engines do not count the requests that they refuse"
        return None if counted else f"{why}: set addresses.routers"
    return None if getattr(addresses, need) else f"the rollout file has no addresses.{need}"

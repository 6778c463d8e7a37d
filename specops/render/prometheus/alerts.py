"""alerts.yml and runbook.md, from the records of alerts/.

Texts of a record are Jinja templates with [[name]] and [% if name %]; {{ … }} is left to Prometheus. `_names`
lists the names. Nothing alerts on a quantile: an engine's buckets are too coarse.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from specops.assets import asset
from specops.config import Rollout
from specops.config.monitor import ALERTS, AlertName, AlertRecord, alert_record
from specops.errors import ConfigError
from specops.prometheus import series
from specops.prometheus.promql import LATENCIES, Latency, Signals, selector, stuck_window_s
from specops.prometheus.series import (
    GUARD_EFFECT,
    GUARD_STATE,
    GUARD_VERDICT,
    POOL,
    POOLS,
    ROLLOUT,
    PoolName,
    exposed,
)
from specops.render.prometheus.rules import Alert, Record, duration, identity, rule_file
from specops.render.prometheus.scrape import job_name, pool_targets
from specops.serving import Series

RUNBOOK = "runbook.md"
MIN_DRAFTED = 1000
"""Drafted tokens in the window, about ten answers, below which acceptance alerts nobody."""
MIN_REQUESTS = 20
"""Requests in the window below which a ratio of requests alerts nobody."""
MIN_TOKENS = 2000
"""Tokens in the window, about twenty answers, of which some are drafted wherever a server speculates."""
TEXTS: Mapping[str, Any] = {
    "min_drafted": MIN_DRAFTED,
    "min_requests": MIN_REQUESTS,
    "value": '{{ $value | printf "%.2f" }}',
    "share": "{{ $value | humanizePercentage }}",
    "where": "{{ $labels.specops_pool }} pool, model {{ $labels.model_name }}",
    "resolves": "It also resolves when traffic stops. Resolved does not mean recovered.",
}
"""Names that are the same for all rollouts."""


@dataclass(frozen=True)
class Limit:
    """The value at which an alert fires, and the seconds for which it must hold, each with its source."""

    value: float | None
    """None if the alert has no threshold."""

    source: str
    for_s: int
    for_source: str

    def __str__(self) -> str:
        same = self.source == self.for_source
        where = self.source if same else f"{self.source}; how long: {self.for_source}"
        return where if self.value is None else f"{self.value:g}: {where}"


Limits = Mapping[AlertName, Limit]
"""One entry for each alert that is rendered."""


def alerts(rollout: Rollout, limits: Limits) -> str:
    """The text of alerts.yml: one alert for each entry of `limits`."""
    written = [_alert(rollout, name, limit) for name, limit in limits.items()]
    return rule_file(rollout.rollout, f"specops-{rollout.rollout}-alerts", written)


def _alert(rollout: Rollout, name: AlertName, limit: Limit) -> Alert:
    record = alert_record(name)
    names = _names(rollout) | {"threshold": f"{limit.value:g}" if limit.value is not None else None}
    environment = _environment()
    expr, summary, description = (
        environment.from_string(text).render(names)
        for text in (record.expr, record.summary, record.description)
    )
    annotations = {
        "summary": summary,
        "description": description,
        "threshold_source": str(limit),
        "runbook_url": _runbook_url(rollout, name),
    }
    # What `absent` finds has no labels. Without the rollout's, its alert would belong to no rollout.
    labels = {"severity": record.severity} | identity(rollout)
    return Alert(name, expr, limit.for_s, labels, annotations)


def _runbook_url(rollout: Rollout, name: AlertName) -> str:
    return f"{rollout.monitor.runbook or RUNBOOK}#{name.lower()}"


def alert_info(rollout: Rollout, limits: Limits) -> list[Record]:
    """One constant series for each entry of `limits`: its title and its place in the runbook."""
    return [
        Record(
            series.ALERT_INFO,
            "vector(1)",
            {
                ROLLOUT: rollout.rollout,
                "alertname": name,
                "title": alert_record(name).title,
                "runbook_url": _runbook_url(rollout, name),
            },
        )
        for name in limits
    ]


def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(asset("alerts")),
        undefined=StrictUndefined,
        variable_start_string="[[",
        variable_end_string="]]",
        block_start_string="[%",
        block_end_string="%]",
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def _names(rollout: Rollout) -> dict[str, Any]:
    """Return what a record's texts may name. `speculative.acceptance` is the series series.ACCEPTANCE of that
    pool, `standard.acceptance` of the other; `both` does not select a pool."""
    labels = identity(rollout)
    names = {
        name.lower(): value
        for name, value in vars(series).items()
        if name.isupper() and isinstance(value, str)
    }
    names |= {f"{latency}_mean": name for latency, name in series.MEAN.items()}
    names |= {f"{latency}_expected": name for latency, name in series.EXPECTED.items()}
    names["up"] = "up"

    def selected(which: Mapping[str, str]) -> dict[str, str]:
        return {name: f"{value}{selector(which)}" for name, value in names.items()}

    return {
        **TEXTS,
        **{pool: selected(labels | {POOL: pool}) for pool in POOLS},
        "both": selected(labels),
        "routers": bool(rollout.addresses.routers),
        "guard": bool(rollout.addresses.guard),
        "guard_up": f"up{selector({'job': job_name(rollout, 'guard')} | labels)}",
        "guard_effect": lambda end: f"{GUARD_EFFECT}{selector(labels | {'end': end})}",
        "guard_state": lambda state: f"{GUARD_STATE}{selector(labels | {'state': state})}",
        "guard_verdict": lambda verdict: f"{GUARD_VERDICT}{selector(labels | {'verdict': verdict})}",
        "firing": lambda alert: f"ALERTS{selector(labels | {'alertname': alert})}",
        "halfway": lambda threshold: f"{1 + (float(threshold) - 1) / 2:g}",
        "not_drafting": _not_drafting(rollout, labels),
        "slower": partial(_times_as_long, labels),
        "both_slow": partial(_both_slow, rollout, labels),
        "stuck": " or ".join(_stuck(rollout, labels, pool) for pool in POOLS),
        "not_a_number": " or ".join(
            _not_a_number(rollout, labels, pool, latency) for pool in POOLS for latency in LATENCIES
        ),
        "absent": " or ".join(
            f'label_replace(absent({name}{selector(labels | {POOL: pool})}), "series", "{name}", "", "")'
            for pool in POOLS
            for name in _from_the_start(exposed(rollout, pool), pool)
        ),
    }


def _times_as_long(labels: Mapping[str, str], latency: Latency, pool: PoolName = "speculative") -> str:
    return f"1 / {series.SPEEDUP}{selector({**labels, POOL: pool, 'latency': latency})}"


def _both_slow(rollout: Rollout, labels: Mapping[str, str], threshold: str) -> str:
    """Latencies at which the standard pool is slow as well, and the speculative pool no slower than that.

    Two pools of one engine name a model alike. Of different engines the standard pool is one figure: an
    engine may have no label model_name.
    """
    alike = exposed(rollout, "standard") == exposed(rollout, "speculative")
    same = f"on ({ROLLOUT}, model_name, latency)" if alike else f"on ({ROLLOUT}, latency)"
    by_latency = []
    for latency in ("tpot", "e2e"):
        speculative = _times_as_long(labels, latency)
        standard = _times_as_long(labels, latency, "standard")
        if not alike:
            standard = f"min by ({ROLLOUT}, latency) ({standard})"
        slow = f"{speculative} > {threshold} and {same} {standard} > {threshold}"
        no_slower = f"({speculative}) / {same}{'' if alike else ' group_left ()'} ({standard}) <= {threshold}"
        by_latency.append(f"{slow} and {same} {no_slower}")
    return " or ".join(by_latency)


def _stuck(rollout: Rollout, labels: Mapping[str, str], pool: PoolName) -> str:
    exposes = exposed(rollout, pool)
    window = duration(stuck_window_s(exposes, rollout.monitor.window_s))
    # By tokens, not by requests that ended: those whose client gave up end as well.
    return f"({Signals(exposes, {**labels, POOL: pool}, window, (*labels, POOL)).stuck()})"


def _not_drafting(rollout: Rollout, labels: Mapping[str, str]) -> str:
    window = duration(rollout.monitor.window_s)
    pool = {**labels, POOL: "speculative"}
    signals = Signals(exposed(rollout, "speculative"), pool, window, (*labels, POOL))
    return signals.stopped_drafting(MIN_TOKENS)


def _not_a_number(rollout: Rollout, labels: Mapping[str, str], pool: PoolName, latency: Latency) -> str:
    exposes = exposed(rollout, pool)
    name = exposes.tpot_seconds if latency == "tpot" else f"{getattr(exposes, latency)}_sum"
    matchers = selector({**labels, POOL: pool})
    # NaN equals nothing, and the difference of two infinities is NaN.
    bad = f"count by ({', '.join((*labels, POOL))}) ({name}{matchers} - {name}{matchers} != 0)"
    return f'label_replace({bad}, "series", "{name}", "", "")'


def _from_the_start(exposes: Series, pool: PoolName) -> tuple[str, ...]:
    """Return what an engine exposes before its first request. SGLang then has no counters and no
    histograms."""
    counted = next((drafts for drafts in exposes.acceptance if drafts.counted), None)
    if counted is None:
        return (exposes.running,)
    if exposes.requests_by_router:
        always: tuple[str, ...] = (exposes.running, exposes.generated, exposes.tpot)
    else:
        always = (exposes.running, exposes.finished, f"{exposes.tpot}_count", f"{exposes.e2e}_count")
    # Where it shows its drafts in several ways, none of them has to be there.
    drafts = (counted.draft_tokens, counted.accepted_tokens) if len(exposes.acceptance) == 1 else ()
    return always + (tuple(filter(None, drafts)) if pool == "speculative" else ())


_COMMANDS = re.compile(r"^```sh\n.*?^```$|`[^`\n]*`|`specops [^`]*`", re.MULTILINE | re.DOTALL)


def runbook() -> str:
    """The runbook of all alerts; a word in capitals stands for a value of the rollout."""
    records: dict[str, AlertRecord] = {name: alert_record(name) for name in ALERTS}
    return _environment().get_template("runbook.md.j2").render(records=records).rstrip() + "\n"


def runbook_of(rollout: Rollout, place: str | None) -> str:
    """The runbook with the rollout's values in its commands; words without a known value stay.

    `place` is the rollout file, and its run folder where that is another, as a command is given them.
    """
    values = _words(rollout, place)
    if not values:
        return runbook()
    word = re.compile(rf"\b({'|'.join(values)})\b")
    return _COMMANDS.sub(lambda match: word.sub(lambda name: values[name[0]], match[0]), runbook())


def _words(rollout: Rollout, place: str | None) -> dict[str, str]:
    addresses = rollout.addresses
    try:
        server = pool_targets(rollout, "speculative").addresses[0]
    except ConfigError:
        server = None
    values = {
        "ROLLOUT": place,
        "PROMETHEUS": shlex.quote(str(addresses.prometheus).rstrip("/")) if addresses.prometheus else None,
        "ROUTER": next(iter(addresses.routers), None),
        "GUARD": addresses.guard,
        "SERVER": server,
    }
    return {word: value for word, value in values.items() if value}

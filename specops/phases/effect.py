"""The live effect of a rollout, from the routers' counters in Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from specops.config import Rollout
from specops.effect.counters import read_counters, read_left_out
from specops.effect.estimate import LATENCIES, ClassEffect, FigureEffect, Mode, effects
from specops.effect.watch import Standing, lookback_s, standing
from specops.errors import ConfigError
from specops.hints import in_rollout
from specops.prometheus.api import Api
from specops.render.figures import aligned
from specops.results import Verdict
from specops.section import Frozen

HOUR_S = 3600.0
MINUTE_BINS_S = 24 * HOUR_S
"""Up to this span the bins are minutes, as for the guard; beyond it, ten minutes, so that a week's answer of
Prometheus stays small."""


class LiveEffect(Frozen):
    """What speculation did to live traffic, by a randomised comparison."""

    since: float
    """Seconds since the epoch, like `until`."""

    until: float
    holdout: float
    """Share of the eligible requests, or of windows, that chance leaves standard, as the rollout file has it
    now."""

    mode: Mode = "requests"

    verdict: Verdict
    """yes: a latency is surely lower with speculation, over all traffic, and none is surely higher. no: one
    is surely higher, or more requests fail. undecided: else. By the intervals that hold at every moment."""

    reason: str
    classes: tuple[ClassEffect, ...]
    """Over all traffic, then by class."""

    now: tuple[Standing, ...]
    """What the guard reads: each latency over the last hours."""

    left_out: dict[str, int]
    """Requests in no mean, by the router's reason."""

    server_hours: dict[str, float]
    """By pool: servers in addresses of the rollout file, or its one endpoint, times hours."""


def has_effect(rollout: Rollout) -> bool:
    """Return whether routers hold requests out, and are scraped."""
    return bool(rollout.effect.holdout and rollout.addresses.routers)


def live_effect(rollout: Rollout, api: Api, span: tuple[float, float]) -> LiveEffect:
    """Return the effect within `span`, its ends in seconds since the epoch. Raises ConfigError without a
    holdout or routers, EndpointError where Prometheus does not answer."""
    if not rollout.effect.holdout:
        raise ConfigError(
            "effect.holdout is 0: without requests on the standard pool, nothing can be compared",
            hint=in_rollout("effect", "write holdout: 0.05"),
        )
    if not rollout.addresses.routers:
        raise ConfigError(
            "the live effect needs the routers' metrics, and the rollout file names no router: expected"
            " addresses.routers",
            hint=in_rollout("addresses", "add addresses.routers: [HOST:PORT]"),
        )
    name, labels = rollout.rollout, rollout.monitor.labels
    mode, recent_bin_s = rollout.effect.mode, 60.0
    bin_s = recent_bin_s if span[1] - span[0] <= MINUTE_BINS_S else 600.0
    if mode == "windows":
        bin_s = recent_bin_s = rollout.effect.block_s
    classes = effects(read_counters(api, name, labels, span, bin_s, mode=mode))
    watched = (span[1] - lookback_s(recent_bin_s), span[1])
    recent = read_counters(api, name, labels, watched, recent_bin_s, LATENCIES, mode)
    verdict, reason = conclude(classes[0])
    hours = (span[1] - span[0]) / HOUR_S
    pools = {"standard": rollout.addresses.standard, "speculative": rollout.addresses.speculative}
    return LiveEffect(
        since=span[0],
        until=span[1],
        holdout=rollout.effect.holdout,
        mode=mode,
        verdict=verdict,
        reason=reason,
        classes=classes,
        now=tuple(now for figure in LATENCIES if (now := standing(recent, figure)) is not None),
        left_out=read_left_out(api, name, labels, span, mode),
        server_hours={pool: max(len(servers), 1) * hours for pool, servers in pools.items()},
    )


def conclude(overall: ClassEffect) -> tuple[Verdict, str]:
    """The verdict over all traffic, and its reason."""
    latencies = [overall.figure_effect(figure) for figure in LATENCIES]
    failures = overall.figure_effect("failures")
    worse = [one_effect for one_effect in (*latencies, failures) if one_effect.low and one_effect.low > 1]
    better = [one_effect for one_effect in latencies if one_effect.high and one_effect.high < 1]
    if worse:
        return "no", f"worse with speculation: {'; '.join(map(sentence, worse))}"
    if better:
        return "yes", f"faster with speculation: {'; '.join(map(sentence, better))}"
    if latencies[1].ratio is None:
        n = latencies[1].holdout_requests
        return "undecided", f"too few requests to compare: {n} of the holdout, in minutes with both groups"
    return "undecided", f"no sure difference: {'; '.join(map(sentence, latencies))}"


NAMES = {
    "ttft": "time to first token",
    "e2e": "end-to-end time",
    "tpot": "time per output token",
    "tokens": "answer length",
    "failures": "failures",
}


def sentence(effect: FigureEffect) -> str:
    """A figure's ratio with its interval and the requests behind it."""
    if effect.ratio is None:
        return f"{NAMES[effect.figure]}: not known"
    ends = interval(effect.low, effect.high)
    return (
        f"{NAMES[effect.figure]} {effect.ratio:.3f}× ({ends}, n={effect.requests}+{effect.holdout_requests})"
    )


def interval(low: float | None, high: float | None) -> str:
    """`0.81 to 0.93`; an end that is not bounded is 0 or ∞."""
    return f"{low or 0:.3f} to {'∞' if high is None else f'{high:.3f}'}"


def lines(result: LiveEffect) -> Iterator[str]:
    """The page's lines."""
    span = f"{(result.until - result.since) / HOUR_S:.0f} hours"
    yield f"live effect · {span} · holdout {result.holdout:.0%} of {result.mode}"
    for part in result.classes:
        yield f"  {part.traffic_class or 'all classes'}: speculative over holdout"
        yield from aligned([["    ", *_row(effect)] for effect in part.figures if effect.requests])
    for now in result.now:
        hours = (result.until - now.since) / HOUR_S
        yield f"  now: {NAMES[now.figure]} {now.direction}, {now.ratio:.3f}× over {hours:.1f} hours"
    if result.left_out:
        counts = ", ".join(f"{reason} {count}" for reason, count in sorted(result.left_out.items()))
        yield f"  in no mean: {counts}"
    servers = ", ".join(f"{pool} {hours:.0f}" for pool, hours in result.server_hours.items())
    yield f"  server-hours: {servers}"
    yield f"{result.verdict}: {result.reason}"


def _row(effect: FigureEffect) -> list[str]:
    ratio = "–" if effect.ratio is None else f"{effect.ratio:.3f}×"
    once = interval(effect.once_low, effect.once_high)
    return [
        NAMES[effect.figure],
        ratio,
        f"95% {once}",
        f"at every moment {interval(effect.low, effect.high)}",
        f"n={effect.requests}+{effect.holdout_requests}",
        f"load {effect.load or 0:.1f} and {effect.holdout_load or 0:.1f}",
    ]

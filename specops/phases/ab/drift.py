"""Changes that speculation did not cause: during the run, between the arms, and since an earlier run. Pure.

During the run: a server that slows down, the order of the arms, a warm-up that was too short.

Latencies are compared with what is usual for their traffic class and level in their arm, in time since the
arm's period began: arms that take turns drift with the machine alike, and what is left is a server's own.
Each prompt counts once, with the mean over its visits, since those have the prompt in common.
"""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import fmean, median
from typing import Any, Literal

from specops import stats
from specops.errors import UsageError
from specops.hints import with_value
from specops.load.arrivals import Level
from specops.load.record import Row, positive
from specops.phases.ab.speedups import Pairs, StoredInterval, pair_up
from specops.phases.ab.visits import VisitRecord, measurements_of
from specops.results import Result
from specops.section import Frozen
from specops.serving import ENGINES
from specops.stats import Interval

NOTABLE = 1.05
"""A change by less than a twentieth is not flagged, however sure: nobody would act on it."""

Kind = Literal["slow-down", "speed-up", "step", "order", "warm-up", "visit", "idle"]
"""slow-down: an arm's latency at the end over that at the beginning.
speed-up: a challenger's speed-up at the end over that at the beginning, by its trend.
step: a challenger's speed-up after the visit at which it changed most, over that before.
order: a challenger's speed-up when it went first over that when it went second.
warm-up: an arm's latency in the first visit to each level of a period over that in the later ones.
visit: a challenger's speed-up in the first half of each visit over that in the second half. A server that was
idle while the others were measured may have to wake up; in production it would not be idle.
idle: a challenger's speed-up per output token in the visits over that in sustained requests, for servers that
wake up for longer than a visit takes."""


class Drift(Frozen):
    kind: Kind
    arm: str
    change: StoredInterval | None
    """A ratio; 1 means no change. None with too few samples."""

    flagged: bool
    message: str


@dataclass(frozen=True)
class _Sample:
    """The logarithm of one latency, or of one speed-up."""

    prompt: str
    usual: tuple[str, Level]
    """Its group, the class and level whose mean it is compared with."""

    at: float
    """Seconds since the period began."""

    value: float
    first: bool
    """For one arm: the sample is of its first visit to the level. For two: the challenger went first."""

    visit: float = 0.0
    """When the standard's visit began, which identifies it. Of a speed-up only."""

    early: bool = False
    """The request was in the first half of the visit."""


def found(visits: Sequence[VisitRecord], arms: Sequence[str], confidence: float) -> list[Drift]:
    """Every kind of drift, arm by arm; the intervals of one kind hold together with `confidence`."""
    of_arms = 1 - (1 - confidence) / len(arms)
    of_challengers = 1 - (1 - confidence) / max(1, len(arms) - 1)
    drifts = []
    for arm in arms:
        samples = _latencies(visits, arm)
        drifts.append(_drift("slow-down", arm, _trend(samples, of_arms)))
        drifts.append(_drift("warm-up", arm, _first_over_later(samples, of_arms)))
    for challenger in arms[1:]:
        samples = _speedups(visits, arms[0], challenger)
        drifts.append(_drift("speed-up", challenger, _trend(samples, of_challengers)))
        changed = _step(samples, of_challengers)
        drifts.append(_drift("step", challenger, changed.change if changed else None))
        drifts.append(_drift("order", challenger, _order(samples, of_challengers)))
        drifts.append(_drift("visit", challenger, _early_over_late(samples, of_challengers)))
    return drifts


def one_sided(drifts: Iterable[Drift], challenger: str) -> Drift | None:
    """Return what says that the challenger or the standard changed during the run and the other did not.

    Their ratio says so, prompt by prompt. That one arm's own trend is flagged and the other's is not does
    not: both were given the same prompts, and what those do to the two trends they do alike.
    """
    return flagged(drifts, "speed-up", challenger)


def flagged(drifts: Iterable[Drift], kind: Kind, challenger: str) -> Drift | None:
    """The drift of one kind in a challenger's speed-up; None where it is not flagged."""
    return next((d for d in drifts if d.flagged and (d.kind, d.arm) == (kind, challenger)), None)


def halves_of_visits(
    visits: Sequence[VisitRecord], standard: str, pairs: Pairs, challenger: str, confidence: float
) -> tuple[Interval | None, Interval | None]:
    """The end-to-end speed-up in the first and the second half of the visits, of the prompts of `pairs`,
    which are at one level."""
    at = {(pair.prompt, pair.level) for pair in pairs.all}
    samples = [s for s in _speedups(visits, standard, challenger) if (s.prompt, s.usual[1]) in at]
    early = _over_visits([sample for sample in samples if sample.early])
    late = _over_visits([sample for sample in samples if not sample.early])
    return _ratio_of_means(list(early.values()), confidence), _ratio_of_means(list(late.values()), confidence)


def slower_order(
    visits: Sequence[VisitRecord], standard: str, pairs: Pairs, challenger: str, confidence: float
) -> Interval | None:
    """The end-to-end speed-up in that order of the arms in which it was lower, of the prompts of `pairs`,
    which are at one level."""
    at = {(pair.prompt, pair.level) for pair in pairs.all}
    samples = [s for s in _speedups(visits, standard, challenger) if (s.prompt, s.usual[1]) in at]
    orders = [_over_visits([s for s in samples if s.first == first]) for first in (True, False)]
    found = [_ratio_of_means(list(order.values()), confidence) for order in orders]
    known = [one for one in found if one is not None]
    return min(known, key=lambda one: one.estimate) if len(known) == len(found) else None


def idle(
    visits: Sequence[VisitRecord],
    sustained: Sequence[VisitRecord],
    standard: str,
    challenger: str,
    confidence: float,
) -> Drift:
    """Return how the speed-up per output token in the visits differs from that of the sustained requests."""
    usual: dict[str, list[float]] = defaultdict(list)
    level = next(visit.cell.level for visit in sustained)
    for round_ in sorted({visit.round for visit in visits}):
        these = [visit for visit in visits if visit.round == round_ and visit.cell.level == level]
        for prompt, value in _per_token(these, standard, challenger).items():
            usual[prompt].append(value)
    found = _per_token(_second_halves(sustained), standard, challenger)
    # Not by prompt: a comparison that an early look ended has visited few of them.
    before = [math.exp(fmean(values)) for _, values in sorted(usual.items())]
    change = stats.two_groups(before, [math.exp(found[one]) for one in sorted(found)], level=confidence)
    return _drift("idle", challenger, change)


def without_pauses(
    sustained: Sequence[VisitRecord],
    standard: str,
    challenger: str,
    confidence: float,
    classes: Collection[str] | None = None,
) -> Interval | None:
    """The speed-up per output token in the second half of the sustained requests; of `classes` alone, where
    they are given."""
    found = _per_token(_second_halves(sustained, classes), standard, challenger)
    return _ratio_of_means(list(found.values()), confidence)


def _second_halves(
    visits: Iterable[VisitRecord], classes: Collection[str] | None = None
) -> Iterator[VisitRecord]:
    for visit in visits:
        early = _first_half(visit)
        rows = [
            row
            for row in visit.cell.rows
            if row.prompt not in early and (classes is None or row.traffic_class in classes)
        ]
        yield visit.model_copy(update={"cell": visit.cell.model_copy(update={"rows": rows})})


def _per_token(visits: Iterable[VisitRecord], standard: str, challenger: str) -> dict[str, float]:
    """The logarithm of the speed-up by prompt, per output token: repeats may have their first token from a
    prefix cache."""
    taken: dict[str, dict[str, float]] = {standard: {}, challenger: {}}
    for visit in visits:
        for row in visit.cell.rows if visit.arm in taken else ():
            value = positive(row.tpot_ms)
            if row.error is None and value is not None:
                taken[visit.arm][row.prompt] = math.log(value)
    ours, theirs = taken[standard], taken[challenger]
    return {prompt: ours[prompt] - theirs[prompt] for prompt in ours.keys() & theirs.keys()}


def slower_side(
    visits: Sequence[VisitRecord], standard: str, pairs: Pairs, challenger: str, confidence: float
) -> Interval | None:
    """The end-to-end speed-up on that side of the step on which it was lower, of pairs at one level."""
    changed = _step(_speedups(visits, standard, challenger), confidence)
    if changed is None:
        return None
    late = changed.change.estimate < 1
    at = {(pair.prompt, pair.level) for pair in pairs.all}
    samples = [s for s in _speedups(visits, standard, challenger) if (s.prompt, s.usual[1]) in at]
    ours = _over_visits([sample for sample in samples if (sample.visit >= changed.at) == late])
    mean = stats.mean_interval(list(ours.values()), confidence)  # an eighth of the visits may be few
    if mean is None:
        return None
    return Interval(math.exp(mean.estimate), math.exp(mean.low), math.exp(mean.high), mean.n, confidence)


def halves(pairs: Pairs, confidence: float) -> tuple[Interval | None, Interval | None]:
    """The end-to-end speed-up in the first and the last half of the run, of pairs at one level."""
    if not pairs.all:
        return None, None
    middle = median(pair.began for pair in pairs.all)
    early = replace(pairs, all=tuple(pair for pair in pairs.all if pair.began < middle))
    late = replace(pairs, all=tuple(pair for pair in pairs.all if pair.began >= middle))
    return early.ratio("e2e", confidence), late.ratio("e2e", confidence)


def lowest(pairs: Pairs, drift: Drift, confidence: float) -> Interval | None:
    """The end-to-end speed-up at the end of the run at which it was lowest, of pairs at one level.

    The whole run has the mean. Of a latency that grows evenly to R times, that is (1 + R) / 2 of what it was;
    R is the largest change in the interval of the drift.
    """
    whole, change = pairs.ratio("e2e", confidence), drift.change
    if whole is None or change is None:
        return None
    return whole.times(2 / (1 + max(change.high, 1 / change.low)))


def _drift(kind: Kind, arm: str, change: Interval | None) -> Drift:
    sure = change is not None and (change.low > 1 or change.high < 1)
    flagged = change is not None and sure and not 1 / NOTABLE < change.estimate < NOTABLE
    if change is None:
        return Drift(
            kind=kind,
            arm=arm,
            change=None,
            flagged=False,
            message=f"{_COMPARED[kind](arm)}: too few prompts to say",
        )
    span = f"[{_percent(change.low)}, {_percent(change.high)}]"
    message = f"{_COMPARED[kind](arm)}: {_percent(change.estimate)} {span}"
    return Drift(kind=kind, arm=arm, change=change, flagged=flagged, message=message)


_COMPARED: dict[Kind, Callable[[str], str]] = {
    "slow-down": lambda arm: f"latency of {arm} from the beginning to the end",
    "speed-up": lambda arm: f"speed-up of {arm} from the beginning to the end",
    "step": lambda arm: f"speed-up of {arm} after its largest change, compared with before",
    "order": lambda arm: f"speed-up of {arm} when it goes first, compared with when it goes second",
    "warm-up": lambda arm: f"latency of {arm} in its first visits, compared with its later ones",
    "visit": lambda arm: f"speed-up of {arm} in the first half of each visit, compared with the second half",
    "idle": lambda arm: f"speed-up of {arm} in visits between pauses, compared with requests without a pause",
}


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.0f}%"


def _latencies(visits: Iterable[VisitRecord], arm: str) -> list[_Sample]:
    """The TPOT of each request of an arm; its E2E where no answer has a TPOT."""
    ours = sorted((visit for visit in visits if visit.arm == arm), key=lambda visit: visit.began)
    rows = [(visit, row) for visit in ours for row in visit.cell.rows if row.error is None]
    name = "tpot_ms" if any(row.tpot_ms for _, row in rows) else "e2e_ms"
    periods = _periods(ours)
    first = {(visit.period, visit.cell.level): visit.began for visit in reversed(ours)}
    return [
        _Sample(
            row.prompt,
            (row.traffic_class, visit.cell.level),
            visit.began + row.sent_s - periods[visit.period],
            math.log(value),
            visit.began == first[visit.period, visit.cell.level],
        )
        for visit, row in rows
        if (value := positive(getattr(row, name))) is not None
    ]


def _speedups(visits: Iterable[VisitRecord], standard: str, challenger: str) -> list[_Sample]:
    """The speed-up of E2E, prompt by prompt and round by round."""
    taken = sorted((v for v in visits if v.arm in (standard, challenger)), key=lambda visit: visit.began)
    periods = _periods(taken)
    early = {visit.began: _first_half(visit) for visit in taken}
    answered: dict[tuple[Level, str, int], dict[str, tuple[VisitRecord, Row]]] = defaultdict(dict)
    for visit in taken:
        for row in visit.cell.rows:
            if row.error is None and positive(row.e2e_ms) is not None:
                answered[visit.cell.level, row.prompt, visit.round][visit.arm] = visit, row
    samples = []
    for (level, prompt, _), both in answered.items():
        if len(both) == 2:
            (ours, our_row), (theirs, their_row) = both[standard], both[challenger]
            samples.append(
                _Sample(
                    prompt,
                    (our_row.traffic_class, level),
                    theirs.began + their_row.sent_s - periods[theirs.period],
                    math.log(our_row.e2e_ms / their_row.e2e_ms),
                    theirs.order < ours.order,
                    ours.began,
                    prompt in early[ours.began],
                )
            )
    return samples


def _first_half(visit: VisitRecord) -> set[str]:
    """The prompts of the first half of a visit's requests, rounded up; requests that begin together belong to
    it together."""
    rows = sorted(visit.cell.rows, key=lambda row: row.sent_s)
    return {row.prompt for row in rows[: max((len(rows) + 1) // 2, visit.cell.level.concurrency or 1)]}


def _periods(visits: Sequence[VisitRecord]) -> dict[int, float]:
    """The instant at which each period began; `visits` in the order of time."""
    return {visit.period: visit.began for visit in reversed(visits)}


def _trend(samples: Sequence[_Sample], confidence: float) -> Interval | None:
    """The change from the first instant to the last. Instants and values are taken relative to their group's
    mean: a level that was visited late neither looks like drift nor hides it."""
    values = _unusual(samples, lambda sample: sample.value)
    instants = _unusual(samples, lambda sample: sample.at)
    by_prompt: dict[str, list[int]] = defaultdict(list)
    for index, sample in enumerate(samples):
        by_prompt[sample.prompt].append(index)
    points = [
        (fmean(instants[i] for i in indices), math.exp(fmean(values[i] for i in indices)))
        for _, indices in sorted(by_prompt.items())
    ]
    return stats.trend([at for at, _ in points], [value for _, value in points], level=confidence)


@dataclass(frozen=True)
class _Step:
    at: float
    """When the first of the standard's visits after it began."""

    change: Interval
    """The speed-up after it over that before."""


def _step(samples: Sequence[_Sample], confidence: float) -> _Step | None:
    """The one change of the visits' speed-ups that explains most, an eighth of them from either end or more.

    A trend does not show it: of a gain that ends late, most pairs of visits know nothing."""
    values = _unusual(samples, lambda sample: sample.value)
    by_visit = _over_visits(replace(one, value=value) for one, value in zip(samples, values, strict=True))
    instants = sorted(by_visit)
    ratios = [math.exp(by_visit[at]) for at in instants]
    each = 1 - (1 - confidence) / 2
    first, last = stats.changed_start(ratios, level=each), stats.changed_start(ratios[::-1], level=each)
    if first is None or last is None:
        return None
    start = _Step(instants[first[0]], first[1].inverse)
    end = _Step(instants[-last[0]], last[1])
    return max(start, end, key=lambda step: max(step.change.low, 1 / step.change.high))


def _first_over_later(samples: Sequence[_Sample], confidence: float) -> Interval | None:
    """The samples that came first over the others, whatever their prompts."""
    values = _unusual(samples, lambda sample: sample.value)
    groups: dict[bool, dict[str, list[float]]] = {True: defaultdict(list), False: defaultdict(list)}
    for sample, value in zip(samples, values, strict=True):
        groups[sample.first][sample.prompt].append(value)
    first, later = (
        [math.exp(fmean(values)) for _, values in sorted(groups[which].items())] for which in (True, False)
    )
    return stats.two_groups(first, later, level=confidence)


def _order(samples: Sequence[_Sample], confidence: float) -> Interval | None:
    """First over second, prompt by prompt where each was sent both ways round, which takes two rounds; else
    whatever the prompts."""
    ways: dict[str, dict[bool, list[float]]] = defaultdict(lambda: {True: [], False: []})
    for sample, value in zip(samples, _unusual(samples, lambda sample: sample.value), strict=True):
        ways[sample.prompt][sample.first].append(value)
    both = [way for _, way in sorted(ways.items()) if way[True] and way[False]]
    if len(both) < stats.MIN_PAIRS:
        return _first_over_later(samples, confidence)
    return _ratio_of_means([fmean(way[True]) - fmean(way[False]) for way in both], confidence)


def _early_over_late(samples: Sequence[_Sample], confidence: float) -> Interval | None:
    """The first half of each visit over the second: both share the visit's noise."""
    values = _unusual(samples, lambda sample: sample.value)
    found = [replace(sample, value=value) for sample, value in zip(samples, values, strict=True)]
    early = _over_visits([sample for sample in found if sample.early])
    late = _over_visits([sample for sample in found if not sample.early])
    return _ratio_of_means([early[at] - late[at] for at in sorted(early.keys() & late.keys())], confidence)


def _over_visits(samples: Iterable[_Sample]) -> dict[float, float]:
    """The mean of each visit."""
    by_visit: dict[float, list[float]] = defaultdict(list)
    for sample in samples:
        by_visit[sample.visit].append(sample.value)
    return {visit: fmean(values) for visit, values in by_visit.items()}


def _ratio_of_means(logarithms: Sequence[float], confidence: float) -> Interval | None:
    """The mean of logarithms as a ratio; None with too few for an interval."""
    if len(logarithms) < stats.MIN_PAIRS:
        return None
    mean = stats.mean_interval(logarithms, confidence)
    if mean is None:
        return None
    return Interval(math.exp(mean.estimate), math.exp(mean.low), math.exp(mean.high), mean.n, confidence)


def _unusual(samples: Sequence[_Sample], read: Callable[[_Sample], float]) -> list[float]:
    """Return how far each sample is from the mean of its group."""
    groups: dict[tuple[str, Level], list[float]] = defaultdict(list)
    for sample in samples:
        groups[sample.usual].append(read(sample))
    means = {usual: fmean(values) for usual, values in groups.items()}
    return [read(sample) - means[sample.usual] for sample in samples]


_SPECULATION = tuple(flag for engine in ENGINES.values() for flag in engine.speculation_flags)
_ADDRESS = ("--host", "--port", "--served-model-name")
_CONCLUDED = ("continuous_usage", "miscount")
"""What specops concludes from how a server counts tokens. The reason of a decision names a miscount."""

_NOT_SET = {label for engine in ENGINES.values() for label in engine.outcomes}

_OF_A_POOL = ("speculation", "base_url", "command", "start_timeout_s")
_SAMPLING = (
    "endpoint", "classes", "temperature", "top_p", "ignore_eos", "max_tokens", "arrivals", "rate",
    "burstiness",
)  # fmt: skip


class Difference(Frozen):
    """One difference: of an arm from the standard, or of one run from another."""

    of: str
    what: str
    one: str
    other: str


class Change(Frozen):
    """The change of one arm at one level since an earlier run: then over now, so above 1 it is faster now.

    Paired by prompt, but the two runs were not interleaved: whatever else changed is in it.
    """

    arm: str
    level: Level
    prompts: int
    e2e: StoredInterval | None
    tpot: StoredInterval | None


class BaselineDrift(Frozen):
    recorded: datetime
    changes: tuple[Change, ...]
    differences: tuple[Difference, ...]


def of_arms(facts: Mapping[str, Mapping[str, Any]]) -> list[Difference]:
    """Return the differences of each arm from the first, in all that is known of them but speculation and
    address.

    `facts`, by arm: its `pool`, and its server's description of itself.
    """
    standard, *others = facts
    ours = _known(facts[standard])
    return [
        Difference(of=arm, what=what, one=one, other=other)
        for arm in others
        for what, one, other in _unlike(ours, _known(facts[arm]))
    ]


def _settings_in(name: str) -> str:
    return f"grep -n -A 20 '\"settings\"' {shlex.quote(name)}"


def refuse_unlike(
    recorded: Result, name: str, prompts: str, plan: Mapping[str, Any], arms: Collection[str]
) -> None:
    """Raise UsageError where the earlier comparison, called `name`, had other requests, or none of these
    arms.

    `prompts` is the hash of the prompt set, `plan` what `BaselineSettings.plan` returns.
    """
    if "visits" not in recorded.data:
        raise UsageError(
            f"{name} is a result of {recorded.phase}, not of a comparison: expected an ab.json",
            hint=with_value(name, "runs/NAME/ab.json"),
        )
    if recorded.inputs.get("prompts") != prompts:
        raise UsageError(
            f"{name} was measured with different prompts: expected the same --prompts and --classes",
            hint=_settings_in(name),
        )
    keys = (*_SAMPLING, "seed") if plan.get("temperature") else _SAMPLING
    unlike = [key for key in keys if recorded.settings.get(key) != plan.get(key)]
    if unlike:
        changed = ", ".join(
            f"{key} ({recorded.settings.get(key)} then, {plan.get(key)} now)" for key in unlike
        )
        raise UsageError(
            f"{name} was measured with different settings: {changed}",
            hint=_settings_in(name),
        )
    known = recorded.settings.get("arms", {})
    if not set(arms) & set(known):
        raise UsageError(
            f"{name} has none of these arms: expected one called {' or '.join(known)}",
            hint=_settings_in(name),
        )


def against(recorded: Result, now: Result, name: str, confidence: float) -> BaselineDrift:
    """Return what changed since the comparison called `name`, arm by arm, and what in the environment may be
    why.

    Raises what `refuse_unlike` does, and FileError where the earlier result is damaged. Each interval has
    `confidence` by itself.
    """
    arms = now.settings.get("arms", {})
    refuse_unlike(recorded, name, now.inputs.get("prompts", ""), now.settings, arms)
    then, new = measurements_of(recorded, name).visits, measurements_of(now, "the result").visits
    arms = [arm for arm in arms if arm in recorded.settings["arms"]]
    environments = (_flat(result.environment | {"arms": {}}) for result in (recorded, now))
    settings = (_flat(result.settings | {"arms": {}}) for result in (recorded, now))
    differences = [("the environment", *unlike) for unlike in _unlike(*environments)]
    differences += [("the settings", *unlike) for unlike in _unlike(*settings)]
    for arm in arms:
        facts = (
            _known(result.environment.get("arms", {}).get(arm, {}), all_of_it=True)
            for result in (recorded, now)
        )
        differences += [(arm, *unlike) for unlike in _unlike(*facts)]
    return BaselineDrift(
        recorded=recorded.created,
        changes=tuple(change for arm in arms for change in _changes(then, new, arm, confidence)),
        differences=tuple(
            Difference(of=of, what=what, one=one, other=other) for of, what, one, other in differences
        ),
    )


def _changes(
    then: Iterable[VisitRecord], now: Iterable[VisitRecord], arm: str, confidence: float
) -> Iterator[Change]:
    visits = [
        visit.model_copy(update={"arm": when})
        for when, taken in (("then", then), ("now", now))
        for visit in taken
        if visit.arm == arm
    ]
    pairs = pair_up(visits, "then", "now", "interleaved")
    for level in pairs.levels:
        ours = pairs.at(level)
        e2e, tpot = ours.ratio("e2e", confidence), ours.ratio("tpot", confidence)
        yield Change(arm=arm, level=level, prompts=len(ours.all), e2e=e2e, tpot=tpot)


def _known(facts: Mapping[str, Any], *, all_of_it: bool = False) -> dict[str, str]:
    """Return what is known of an arm, flat; without its speculation and address unless `all_of_it`."""
    pool = dict(facts.get("pool", {}))
    flags = _flags(str(pool.get("command", "")))
    rest = {key: value for key, value in facts.items() if key != "pool" and key not in _CONCLUDED}
    if all_of_it:
        return _flat({key: value for key, value in pool.items() if key != "command"} | flags | rest)
    known = {key: value for key, value in pool.items() if key not in _OF_A_POOL}
    known |= {
        flag: value
        for flag, value in flags.items()
        if not flag.startswith(_SPECULATION) and flag not in _ADDRESS
    }
    cache = rest.get("cache_config") or {}
    rest["cache_config"] = {key: value for key, value in cache.items() if key not in _NOT_SET}
    return _flat(known | rest)


def _flags(command: str) -> dict[str, str]:
    """A command line's flags with their values; its other words are its `command`."""
    found: dict[str, str] = {}
    words = []
    flag = None
    for word in shlex.split(command):
        if word.startswith("-") and not _number(word):
            flag, separator, value = word.partition("=")
            found[flag] = value or "on"
            flag = None if separator else flag
        elif flag is not None:
            found[flag], flag = word, None
        else:
            words.append(word)
    return found | ({"command": " ".join(words)} if words else {})


def _number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, entry in value.items():
        if isinstance(entry, Mapping):
            found |= _flat(entry, f"{prefix}{key}.")
        elif entry is not None:
            found[f"{prefix}{key}"] = str(entry)
    return found


def _unlike(one: Mapping[str, str], other: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for what in sorted(one.keys() | other.keys()):
        if one.get(what) != other.get(what):
            yield what, one.get(what, "not set"), other.get(what, "not set")

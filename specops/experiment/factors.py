"""What divides the samples and should not matter: a list. Pure.

A factor splits the samples of a load into parts. If the speed-up surely and notably differs between them, the
whole is not a fair mean, and each part must hold by itself. That can only take a yes away: it costs power,
never safety. So each factor has a small share of the error (`CONFIDENCE`), chosen for power.

What divides the traffic itself, the turn of a conversation and the length of the prompt, is looked at within
each class: classes differ in both.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import fmean, median

from specops import stats
from specops.experiment.findings import Cause
from specops.experiment.samples import FIGURES, Sample
from specops.stats.steps import MIN_WINDOWS

NOTABLE = 1.1
"""A speed-up that differs by less between the parts is not worth a veto."""

CONFIDENCE = 0.998
"""Of one contrast. All factors at several loads and looks together take a true yes away in about 2% of
runs."""

FAR = 6
"""How many times the usual distance of a window from their median makes the beginning or the end of a run
another state: it is too short to be compared with the rest as a step."""

Split = Callable[[Sequence[Sample], str], "Parts | None"]


@dataclass(frozen=True)
class Parts:
    names: tuple[str, str]
    samples: tuple[list[Sample], list[Sample]]
    change: stats.Interval | None
    """Speed-up of the first part over that of the second; None with too few windows to say."""


@dataclass(frozen=True)
class Factor:
    name: Cause
    split: Split
    restrict: bool = False
    """Whether the second part alone is what production has: then the comparison goes on with it."""

    over_time: bool = False
    """Whether an even change of one server would look like these two parts."""


def log_ratios(samples: Sequence[Sample], figure: str) -> dict[object, float]:
    """The logarithm of the speed-up of each pair of windows, in order of time."""
    values: dict[object, list[tuple[float, float]]] = defaultdict(list)
    for sample in sorted(samples, key=lambda sample: sample.began):
        if (pair := FIGURES[figure](sample)) is not None:
            values[sample.window].append(pair)
    return {
        window: math.log(
            fmean(standard for standard, _ in pair) / fmean(challenger for _, challenger in pair)
        )
        for window, pair in values.items()
    }


def _by(name: str, names: tuple[str, str]) -> Split:
    """A split by a factor of the samples: those with 1 come first, then those with 0. Between, the arms of a
    pair differ in it."""

    def split(samples: Sequence[Sample], figure: str) -> Parts | None:
        first = [sample for sample in samples if sample.factors[name] == 1]
        second = [sample for sample in samples if sample.factors[name] == 0]
        return _parts(names, first, second, figure, CONFIDENCE)

    return split


def _from(name: str, names: Callable[[int], tuple[str, str]]) -> Split:
    """A split by a factor of the samples that is a number: at the value from which on the speed-up differs
    most surely from that below."""

    def split(samples: Sequence[Sample], figure: str) -> Parts | None:
        values = sorted({sample.factors[name] for sample in samples})[1:]
        if not values:
            return None
        confidence = 1 - (1 - CONFIDENCE) / len(values)
        splits = []
        for value in values:
            first = [sample for sample in samples if sample.factors[name] >= value]
            second = [sample for sample in samples if sample.factors[name] < value]
            splits.append(_parts(names(int(value)), first, second, figure, confidence))
        return max(splits, key=_sureness)

    return split


def _state(samples: Sequence[Sample], figure: str) -> Parts | None:
    """The split by the cache state of a request: the state that differs most surely from all others. None
    where the turn alone makes it, which is a factor itself."""
    states = sorted({int(sample.factors["cache"]) for sample in samples})
    of_turns = all(2 * (sample.factors["turn"] > 1) == sample.factors["cache"] for sample in samples)
    if len(states) < 2 or of_turns:
        return None
    divided = states if len(states) > 2 else states[1:]
    confidence = 1 - (1 - CONFIDENCE) / len(divided)
    splits = []
    for state in divided:
        first = [sample for sample in samples if sample.factors["cache"] == state]
        second = [sample for sample in samples if sample.factors["cache"] != state]
        rest = " or ".join(CACHE_WORDS[place] for place in states if place != state)
        splits.append(_parts((CACHE_WORDS[state], rest), first, second, figure, confidence))
    return max(splits, key=_sureness)


CACHE_WORDS = ("on cold prompts", "behind a shared prefix", "after earlier turns")
"""By the place in `plan.CACHE_STATES`."""


def _sureness(parts: Parts) -> float:
    """How far the whole interval of the change is from 1, as a logarithm; negative where it includes 1."""
    return max(math.log(parts.change.low), -math.log(parts.change.high)) if parts.change else -math.inf


def _parts(
    names: tuple[str, str], first: list[Sample], second: list[Sample], figure: str, confidence: float
) -> Parts:
    logs = [log_ratios(part, figure) for part in (first, second)]
    windows = logs[0].keys() & logs[1].keys()
    if windows:  # a factor within windows: its contrast is paired by window, which cancels their noise
        mean = stats.mean_interval([logs[0][window] - logs[1][window] for window in windows], confidence)
        change = _exp(mean) if len(windows) >= stats.MIN_PAIRS else None
    else:
        change = stats.two_groups(
            [math.exp(value) for value in logs[0].values()],
            [math.exp(value) for value in logs[1].values()],
            level=confidence,
        ) or _exp(_two_means([*logs[0].values()], [*logs[1].values()]))
    return Parts(names, (first, second), change)


def _two_means(first: Sequence[float], second: Sequence[float]) -> stats.Interval | None:
    """The difference of two means with Student's t interval, for groups too small for their ranks."""
    n = len(first) + len(second)
    if min(len(first), len(second)) < 2 or n < MIN_WINDOWS:
        return None
    means = fmean(first), fmean(second)
    squares = sum(
        (value - mean) ** 2 for group, mean in zip((first, second), means, strict=True) for value in group
    )
    error = math.sqrt(squares / (n - 2) * (1 / len(first) + 1 / len(second)))
    change, half = means[0] - means[1], stats.t_quantile(CONFIDENCE, n - 2) * error
    return stats.Interval(change, change - half, change + half, n, CONFIDENCE)


def _over_time(samples: Sequence[Sample], figure: str) -> Parts | None:
    logs = log_ratios(samples, figure)
    step = stats.largest_step(list(logs.values()), CONFIDENCE)
    if step is None:
        return None
    place, change = step
    early = set(list(logs)[:place])
    return Parts(
        ("at first", "later"),
        ([s for s in samples if s.window in early], [s for s in samples if s.window not in early]),
        change,
    )


def _at_an_end(samples: Sequence[Sample], figure: str) -> Parts | None:
    """The windows at the beginning or at the end of the run that are far from all others and hardly gain.

    A state of a few windows is no step that noise which lasts could surely not be, and an interval over all
    windows that is wide for it may still exclude 1.
    """
    logs = log_ratios(samples, figure)
    if len(logs) < MIN_WINDOWS:
        return None
    middle, least = _usual(logs.values())
    for windows, names in ((list(logs), ("at first", "later")), (list(logs)[::-1], ("at last", "earlier"))):
        far = list(takewhile(lambda window: abs(logs[window] - middle) > least, windows))
        if far and logs[far[0]] < math.log(NOTABLE):
            ends = [s for s in samples if s.window in far], [s for s in samples if s.window not in far]
            return Parts(names, ends, _far(logs[far[0]] - middle, least, len(logs)))
    return None


def _usual(logs: Collection[float]) -> tuple[float, float]:
    """The median of windows, and the distance from it from which on a window is in another state."""
    middle = median(logs)
    deviation = 1.4826 * median(abs(value - middle) for value in logs)  # of normal noise
    return middle, max(FAR * deviation, math.log(NOTABLE))


def _far(change: float, least: float, windows: int) -> stats.Interval:
    low, estimate, high = (math.exp(change + end) for end in (-least, 0.0, least))
    return stats.Interval(estimate, low, high, windows, CONFIDENCE)


def _of_new_prompts(samples: Sequence[Sample], figure: str) -> Parts | None:
    """The first requests for each prompt, where they hardly gain and all others do.

    A nonce in front makes a prompt new for a cache of beginnings, and not for one that goes by meaning. Of
    few prompts, all are known after one or two windows, which are too few to be a step in time.
    """
    logs = log_ratios(samples, figure)
    first = [sample for sample in samples if sample.factors["new prompt"]]
    ratios = [math.log(a / b) for a, b in filter(None, map(FIGURES[figure], first))]
    if len(logs) < MIN_WINDOWS or len(ratios) < 2:
        return None
    middle, least = _usual(logs.values())
    change = fmean(ratios) - middle
    if abs(change) <= least or fmean(ratios) >= math.log(NOTABLE):
        return None
    later = [sample for sample in samples if not sample.factors["new prompt"]]
    names = ("for prompts that are new", "for those that were sent before")
    return Parts(names, (first, later), _far(change, least, len(logs)))


def _exp(interval: stats.Interval | None) -> stats.Interval | None:
    if interval is None:
        return None
    estimate, low, high = (math.exp(value) for value in (interval.estimate, interval.low, interval.high))
    return stats.Interval(estimate, low, high, interval.n, interval.level)


FACTORS: tuple[Factor, ...] = (
    Factor("repeat", _by("repeat", ("repeats", "first requests")), restrict=True),
    Factor("place", _by("place", ("late in each window", "early in each window"))),
    Factor("order", _by("order", ("when it goes first", "when it goes second"))),
    Factor("connection", _by("connection", ("on new connections", "on connections that stay"))),
    Factor("pause", _by("pause", ("after a pause of both", "without one"))),
    Factor("pause", _by("long run", ("after several windows without a pause", "sooner"))),
    Factor("known prompt", _of_new_prompts),
    Factor("time", _over_time, over_time=True),
    Factor("time", _at_an_end),
)
"""In the order in which they are looked at. Prompt class and load are cells of their own; temperature and
batch mates are in mixed windows, arrivals in open ones, and pauses are between windows, whose first
requests are not compared."""


def _ordinal(number: int) -> str:
    ending = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


OF_TRAFFIC: tuple[Factor, ...] = (
    Factor("turn", _from("turn", lambda turn: (f"from the {_ordinal(turn)} turn on", "before"))),
    Factor("cache", _state),
    Factor(
        "context",
        _from("context", lambda tokens: (f"with prompts of {tokens} tokens or more", "with shorter ones")),
    ),
)
"""What requests of one class differ in. It is named where no gain is shown, too: it says where one is."""

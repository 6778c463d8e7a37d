"""What differs beside speculation: between the arms of a comparison, and between two comparisons. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from specops.errors import UsageError
from specops.load.arrivals import Level
from specops.phases.ab.records import VisitRecord, kept_of
from specops.phases.ab.speedups import Shown, pair_up
from specops.results import Result
from specops.serving import ENGINES

_SPECULATION = tuple(flag for engine in ENGINES.values() for flag in engine.speculation_flags)
_ADDRESS = ("--host", "--port", "--served-model-name")
_NOT_SET = {label for engine in ENGINES.values() for label in engine.outcomes}

_OF_A_POOL = ("speculation", "base_url", "command", "start_timeout_s")
_SAMPLING = (
    "endpoint", "classes", "temperature", "top_p", "ignore_eos", "max_tokens", "arrivals", "rate",
    "burstiness",
)  # fmt: skip


class Difference(BaseModel):
    """Of one arm from the standard, or of one run from another."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    of: str
    what: str
    one: str
    other: str


class Change(BaseModel):
    """Of one arm at one level since an earlier run: then over now, so above 1 it is faster now.

    Paired by prompt, but the two runs were not interleaved: whatever else changed is in it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    arm: str
    level: Level
    prompts: int
    e2e: Shown | None
    tpot: Shown | None


class Against(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    recorded: datetime
    changes: tuple[Change, ...]
    differences: tuple[Difference, ...]


def of_arms(facts: Mapping[str, Mapping[str, Any]]) -> list[Difference]:
    """Of each arm from the first, in all that is known of them but speculation and where they are.

    `facts`, by arm: its `pool`, and what its server said of itself.
    """
    standard, *others = facts
    ours = _known(facts[standard])
    return [
        Difference(of=arm, what=what, one=one, other=other)
        for arm in others
        for what, one, other in _unlike(ours, _known(facts[arm]))
    ]


def refuse_unlike(
    recorded: Result, name: str, prompts: str, asked: Mapping[str, Any], arms: Collection[str]
) -> None:
    """UsageError where the earlier comparison called `name` asked something else, or none of these arms.

    `prompts` is the hash of the prompt set, `asked` what `BaselineSettings.plan` gives.
    """
    if "visits" not in recorded.data:
        raise UsageError(
            f"{name} is a result of {recorded.phase}, not of a comparison",
            hint="give the ab.json of a comparison",
        )
    if recorded.inputs.get("prompts") != prompts:
        raise UsageError(
            f"{name} was measured with different prompts", hint="give the same --prompts and --classes"
        )
    keys = (*_SAMPLING, "seed") if asked.get("temperature") else _SAMPLING
    unlike = [key for key in keys if recorded.settings.get(key) != asked.get(key)]
    if unlike:
        told = ", ".join(f"{key} ({recorded.settings.get(key)} then, {asked.get(key)} now)" for key in unlike)
        raise UsageError(
            f"{name} was measured with different settings: {told}", hint="give the settings it was made with"
        )
    known = recorded.settings.get("arms", {})
    if not set(arms) & set(known):
        raise UsageError(
            f"{name} has none of these arms, but {', '.join(known)}",
            hint="call an arm as it was called there",
        )


def against(recorded: Result, now: Result, name: str, confidence: float) -> Against:
    """What changed since the comparison called `name`, arm by arm, and what in the environment may be why.

    Raises what `refuse_unlike` does, and FileError where the earlier result is damaged. Each interval has
    `confidence` by itself.
    """
    arms = now.settings.get("arms", {})
    refuse_unlike(recorded, name, now.inputs.get("prompts", ""), now.settings, arms)
    then, new = kept_of(recorded, name).visits, kept_of(now, "the result").visits
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
    return Against(
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
    """What is known of an arm, flat; without its speculation and address unless all of it is asked for."""
    pool = dict(facts.get("pool", {}))
    flags = _flags(str(pool.get("command", "")))
    rest = {key: value for key, value in facts.items() if key != "pool"}
    if all_of_it:
        return _flat({key: value for key, value in pool.items() if key != "command"} | flags | rest)
    kept = {key: value for key, value in pool.items() if key not in _OF_A_POOL}
    kept |= {
        flag: value
        for flag, value in flags.items()
        if not flag.startswith(_SPECULATION) and flag not in _ADDRESS
    }
    cache = rest.get("cache_config") or {}
    rest["cache_config"] = {key: value for key, value in cache.items() if key not in _NOT_SET}
    return _flat(kept | rest)


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

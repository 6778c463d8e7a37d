"""What differs between the arms, and what changed since an earlier comparison. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from specops.errors import UsageError
from specops.experiment.findings import StoredInterval
from specops.experiment.records import Measurements, WindowRecord, levels_of
from specops.experiment.samples import pair_up, ratio_of
from specops.hints import with_value
from specops.load.arrivals import Level
from specops.phases.measurement import checked
from specops.results import Result
from specops.section import Frozen
from specops.serving import ENGINES

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
    standard, *challengers = facts
    standard_facts = _flat_facts(facts[standard])
    return [
        Difference(of=arm, what=key, one=standard_value, other=value)
        for arm in challengers
        for key, standard_value, value in _unlike(standard_facts, _flat_facts(facts[arm]))
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
    if "windows" not in recorded.data:
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
    recorded_arms = recorded.settings.get("arms", {})
    if not set(arms) & set(recorded_arms):
        raise UsageError(
            f"{name} has none of these arms: expected one called {' or '.join(recorded_arms)}",
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
    then, new = measurements_of(recorded, name).windows, measurements_of(now, "the result").windows
    arms = [arm for arm in arms if arm in recorded.settings["arms"]]
    environments = (_flat(result.environment | {"arms": {}}) for result in (recorded, now))
    settings = (_flat(result.settings | {"arms": {}}) for result in (recorded, now))
    differences = [("the environment", *unlike) for unlike in _unlike(*environments)]
    differences += [("the settings", *unlike) for unlike in _unlike(*settings)]
    for arm in arms:
        facts = (
            _flat_facts(result.environment.get("arms", {}).get(arm, {}), all_of_it=True)
            for result in (recorded, now)
        )
        differences += [(arm, *unlike) for unlike in _unlike(*facts)]
    return BaselineDrift(
        recorded=recorded.created,
        changes=tuple(change for arm in arms for change in _changes(then, new, arm, confidence)),
        differences=tuple(
            Difference(of=subject, what=key, one=recorded_value, other=value)
            for subject, key, recorded_value, value in differences
        ),
    )


def _changes(
    then: Sequence[WindowRecord], now: Sequence[WindowRecord], arm: str, confidence: float
) -> Iterator[Change]:
    windows = [
        window.model_copy(update={"arm": when})
        for when, measured in (("then", then), ("now", now))
        for window in measured
        if window.arm == arm and window.kind == "measured"
    ]
    samples = pair_up(windows, "then", "now")
    for level in levels_of(windows):
        at_level = [sample for sample in samples if sample.level == level]
        e2e, tpot = (ratio_of(at_level, figure, confidence) for figure in ("e2e", "tpot"))
        yield Change(arm=arm, level=level, prompts=len(at_level), e2e=e2e, tpot=tpot)


def measurements_of(result: Result, name: str) -> Measurements:
    """The windows of a comparison; FileError, which calls it `name`, where they are damaged."""
    return checked(Measurements, result.data, f"{name} is damaged: data")


def _flat_facts(facts: Mapping[str, Any], *, all_of_it: bool = False) -> dict[str, str]:
    """Return what is known of an arm, flat; without its speculation and address unless `all_of_it`."""
    pool = dict(facts.get("pool", {}))
    flags = _flags(str(pool.get("command", "")))
    rest = {key: value for key, value in facts.items() if key != "pool" and key not in _CONCLUDED}
    if all_of_it:
        return _flat({key: value for key, value in pool.items() if key != "command"} | flags | rest)
    settings = {key: value for key, value in pool.items() if key not in _OF_A_POOL}
    settings |= {
        flag: value
        for flag, value in flags.items()
        if not flag.startswith(_SPECULATION) and flag not in _ADDRESS
    }
    cache = rest.get("cache_config") or {}
    rest["cache_config"] = {key: value for key, value in cache.items() if key not in _NOT_SET}
    return _flat(settings | rest)


def _flags(command: str) -> dict[str, str]:
    """A command line's flags with their values; its other words are its `command`."""
    flags: dict[str, str] = {}
    words = []
    flag = None
    for word in shlex.split(command):
        if word.startswith("-") and not _number(word):
            flag, separator, value = word.partition("=")
            flags[flag] = value or "on"
            flag = None if separator else flag
        elif flag is not None:
            flags[flag], flag = word, None
        else:
            words.append(word)
    return flags | ({"command": " ".join(words)} if words else {})


def _number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, entry in value.items():
        if isinstance(entry, Mapping):
            flat |= _flat(entry, f"{prefix}{key}.")
        elif entry is not None:
            flat[f"{prefix}{key}"] = str(entry)
    return flat


def _unlike(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            yield key, before.get(key, "not set"), after.get(key, "not set")

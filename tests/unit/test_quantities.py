"""Every number of a rollout file is of a kind: a share, a ratio, a time. One of another scale is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import jsonschema
import pytest
import yaml
from calling import specops
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field
from pydantic.fields import FieldInfo

from specops.assets import asset
from specops.config import Rollout, Section, load
from specops.config.keys import Key, keys
from specops.errors import ConfigError
from specops.quantities import (
    MILLISECONDS,
    MINUTES,
    PERCENTAGE,
    RATIO,
    SECONDS,
    SHARE,
    UNITS_S,
    Quantity,
    Share,
    TimeQuantity,
    days_and_hours,
    seconds_of,
)

EMBEDDED = {"standard": {"engine": "embedded"}, "speculative": {"engine": "embedded", "speculation": {}}}


def numbers(annotation: Any, inherited: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The metadata of each number in the type of a field, with that of the types around it."""
    metadata = list(inherited)
    for part in getattr(annotation, "__metadata__", ()):
        metadata += part.metadata if isinstance(part, FieldInfo) else [part]
    if annotation in (int, float):
        yield tuple(metadata)
    for part in get_args(annotation):
        if not isinstance(part, Quantity | FieldInfo):
            yield from numbers(part, tuple(metadata))


def fields_without_kind(section: type[Section]) -> list[str]:
    hints = get_type_hints(section, include_extras=True)
    return [
        f"{section.__name__}.{name}"
        for name in section.model_fields
        if any(not any(isinstance(one, Quantity) for one in each) for each in numbers(hints[name]))
    ]


def bounds(key: Key) -> Iterator[tuple[float | None, float | None]]:
    """The lower and the upper bound of each number of a field; None: it has none."""
    for metadata in numbers(key.annotation, tuple(key.field.metadata)):
        lows = [getattr(one, "ge", getattr(one, "gt", None)) for one in metadata]
        highs = [getattr(one, "le", getattr(one, "lt", None)) for one in metadata]
        yield (
            next((one for one in lows if one is not None), None),
            next((one for one in highs if one is not None), None),
        )


NUMBERS = [key for key in keys() if key.quantity is not None]
SECTIONS = {key.section for key in keys()}


def test_every_number_of_every_section_has_a_kind() -> None:
    assert [name for section in SECTIONS for name in fields_without_kind(section)] == []
    assert len(NUMBERS) > 100
    assert {section for section in Section.__subclasses__() if section.__module__ != __name__} <= {
        base for section in SECTIONS for base in section.__mro__
    }


def test_a_number_without_a_kind_is_found() -> None:
    class Plain(Section):
        share: Share = Field(default=0.5, gt=0, lt=1)
        alone: float = 1.0
        within: list[Annotated[int, Field(ge=1)]] | None = None
        words: dict[str, str] = {}  # noqa: RUF012  # as in the sections

    assert fields_without_kind(Plain) == ["Plain.alone", "Plain.within"]


def test_the_bounds_of_a_field_lie_in_the_range_of_its_kind() -> None:
    for key in NUMBERS:
        kind = key.quantity
        assert kind is not None
        for low, high in bounds(key):
            assert low is None or low >= kind.lowest, key.path
            assert high is None or high <= kind.highest, key.path
            if kind in (SHARE, RATIO, PERCENTAGE):
                assert None not in (low, high), f"{key.path} has no bound"


def rollout_file(folder: Path, section: str, keys_of: dict[str, Any]) -> Path:
    path = folder / "rollout.yaml"
    path.write_text(yaml.safe_dump({"rollout": "x", "pools": EMBEDDED, section: keys_of}))
    return path


@pytest.mark.parametrize(
    ("section", "key", "value", "says"),
    [
        ("guard", "max_regression", 20, "is a share: 20 means 2000%; write 0.2 for 20%"),
        ("guard", "max_regression", 1, "is a share: 1 means 100%; write 0.01 for 1%"),
        ("guard", "margin", 5, "is a share: 5 means 500%; write 0.05 for 5%"),
        ("guard", "backoff", 0.5, "is a ratio: 0.5 means 0.5 times as much; write 1.5 for 50% more"),
        ("ab", "confidence", 95, "is a confidence level: 95 means 9500%; write 0.95 for 95%"),
        ("ab", "confidence", 0.05, "0.05 means 5%; write 0.95 where 5% is the chance of an error"),
        ("ab", "confidence", 5, "is 5, and should be less than 0.999"),
        ("ab", "first_token_ratio", 0.2, "is a ratio: 0.2 means 0.2 times as much; write 1.2 for 20% more"),
        ("ab", "first_token_ratio", 20, "is a ratio: 20 means 20 times as much; write 1.2 for 20% more"),
        ("report", "min_speedup", 30, "is a ratio: 30 means 30 times as much; write 1.3 for 30% more"),
        ("route", "speculative_percent", 0.5, "is a percentage: 0.5 means 0.5%; write 50 for 50%"),
        ("route", "speculative_percent", 101, "is 101, and should be less than or equal to 100"),
        ("slo", "ttft_ms", 0.5, "is a time: 0.5 means 0.5 ms; write 500 for 0.5 s"),
        ("guard", "max_error_share", 2000, "is 2000, and should be less than 1"),
        ("guard", "max_error_share", -1, "is -1, and should be greater than 0"),
        ("guard", "max_regression", 10**30, "should be less than 1"),
        ("guard", "max_regression", float("nan"), "is nan, and should be "),
        ("guard", "interval_s", "0s", "is 0, and should be greater than or equal to 1"),
        ("guard", "interval_s", "0.5s", "is 0.5, and should be a whole number"),
        ("guard", "interval_s", "soon", ": 'soon' is not a time: expected seconds, or a text such as 30s"),
        ("sweep", "budget_min", "1h 30m", ": '1h 30m' is not a time: expected minutes, or a text such as"),
        ("report", "window", "90m", ": '90m' is not a time of whole hours"),
    ],
)
def test_a_number_of_another_scale_is_answered_with_the_right_one(
    tmp_path: Path, section: str, key: str, value: object, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(rollout_file(tmp_path, section, {key: value}))
    assert re.search(rf"column \d+: {section}\.{key}{'' if says[0] == ':' else ' '}", caught.value.message)
    assert says in caught.value.message


@pytest.mark.parametrize(
    ("alert", "value", "says"),
    [
        ("LowAcceptRatio", 40, "is a share, and is 40; 40 means 4000%; write 0.4 for 40%"),
        ("SpeculationBothPoolsSlow", 0.2, "is a ratio, and is 0.2; 0.2 means 0.2 times as much; write 1.2"),
    ],
)
def test_the_threshold_of_an_alert_is_of_the_kind_of_its_unit(
    tmp_path: Path, alert: str, value: float, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(rollout_file(tmp_path, "monitor", {"alerts": {alert: {"threshold": value}}}))
    assert f"the threshold of {alert} {says}" in caught.value.message


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30), ("5m", 300), ("7d", 604800), ("1h30m", 5400), ("500ms", 0.5), ("2w", 1209600),
        ("1.5h", 5400), ("1m500ms", 60.5), ("1d12h", 129600),
    ],
)  # fmt: skip
def test_a_time_in_text(text: str, seconds: float) -> None:
    assert seconds_of(text) == pytest.approx(seconds)
    assert SECONDS.number(text) == pytest.approx(seconds)
    assert MILLISECONDS.number(text) == pytest.approx(seconds * 1000)
    assert MINUTES.number(text) == pytest.approx(seconds / 60)
    assert SECONDS.option(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "30", "s", "-5m", "30m1h", "5 m", "5M", "1h1h", "9" * 400 + "s", "1041w", "1e3s", "५m", "30s\n"],
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="expected a time such as 30s"):
        seconds_of(text)


@given(st.dictionaries(st.sampled_from(list(UNITS_S)), st.integers(0, 300), min_size=1))  # below 20 years
def test_a_time_is_the_sum_of_its_parts(parts: dict[str, int]) -> None:
    text = "".join(f"{parts[unit]}{unit}" for unit in UNITS_S if unit in parts)
    assert seconds_of(text) == pytest.approx(sum(number * UNITS_S[unit] for unit, number in parts.items()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("24h", (0, 24)), ("7d", (7, 0)), ("2w", (14, 0)), ("1d12h", (1, 12)), ("60m", (0, 1))],
)
def test_days_of_a_period_stay_days(text: str, expected: tuple[int, int]) -> None:
    assert days_and_hours(text) == expected


@pytest.mark.parametrize("text", ["0h", "90m", "9999w", "7", "1.5d"])
def test_a_period_is_of_whole_hours_and_days(text: str) -> None:
    with pytest.raises(ValueError, match="expected a time"):
        days_and_hours(text)


def test_times_in_text_are_stored_as_numbers(tmp_path: Path) -> None:
    texts = {"interval_s": "1m", "cooldown_s": "1h30m", "max_wait_s": "1d"}
    written = load(rollout_file(tmp_path, "guard", texts))
    plain = load(rollout_file(tmp_path, "guard", {"interval_s": 60, "cooldown_s": 5400, "max_wait_s": 86400}))
    assert written == plain
    assert written.model_dump_json() == plain.model_dump_json()
    assert type(written.guard.interval_s) is int
    assert load(rollout_file(tmp_path, "report", {"window": 604800})).report.window == "168h"


TIMES = [key for key in NUMBERS if isinstance(key.quantity, TimeQuantity)]


def test_every_time_of_every_section_is_of_one_type_and_accepts_text() -> None:
    named = {key.path for key in keys() if re.search(r"(?<!_per)_(s|ms)$", key.name)}
    assert named | {"sweep.budget_min", "capacity.budget_min"} == {key.path for key in TIMES}
    for key in TIMES:
        assert isinstance(key.quantity, TimeQuantity)
        unit = {"s": "seconds", "ms": "milliseconds", "min": "minutes"}[key.name.rpartition("_")[2]]
        assert key.quantity.unit == unit, key.path
        schema = key.section.model_json_schema()["properties"][key.name]
        types = [schema, *schema.get("anyOf", [])]
        assert any("string" in one.get("type", []) for one in types), key.path


def test_the_schema_accepts_times_and_refuses_other_text() -> None:
    text = asset("playbooks", "rollout.schema.json").read_text()
    schema = json.loads(text)
    # pydantic writes the names of its own bounds where it cannot place them: no editor knows those.
    assert not re.search(r'"(ge|gt|le|lt)":', text)
    file = {"rollout": "x", "pools": EMBEDDED}
    for section in (
        {"guard": {"interval_s": "1m"}},
        {"slo": {"ttft_ms": "0.5s"}},
        {"sweep": {"budget_min": "1h"}},
    ):
        jsonschema.validate(file | section, schema)
        Rollout.model_validate(file | section)
    for section in (
        {"guard": {"interval_s": "soon"}},
        {"guard": {"interval_s": 0}},
        {"slo": {"ttft_ms": 0.5}},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(file | section, schema)


@pytest.mark.parametrize(
    "words", [("ab", "--timeout", "soon"), ("ab", "--min-duration", "5 m"), ("baseline", "--timeout", "1x")]
)
def test_an_option_takes_times_in_the_same_notation(words: tuple[str, ...]) -> None:
    at = ("--arm", "a=http://127.0.0.1:1/v1", "--arm", "b=http://127.0.0.1:2/v1")
    if words[0] == "baseline":
        at = ("--base-url", "http://127.0.0.1:1/v1")
    done = specops(*words, *at)
    assert done.returncode == 2
    assert "expected a time such as 30s, 5m, 7d or 1h30m" in done.stderr

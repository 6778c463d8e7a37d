"""The kinds of numbers in a rollout file. The type of a field names its kind: `timeout_s: Seconds`.

A kind has a unit and a range. The bounds of a field lie in the range of its kind, so that a number of another
scale is refused: 20, where 0.2 is meant. `correction` says what the number means and what to write.

Times are numbers in the unit of the key, or text such as 30s, 5m or 1h30m. Both are stored as the number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import (
    AfterValidator,
    BeforeValidator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


@dataclass(frozen=True)
class Quantity:
    """A kind of number."""

    name: str
    unit: str
    """The unit, or what 1 means, in words; "": the name says it."""

    lowest: float = -math.inf
    highest: float = math.inf
    """The range in which the bounds of every field of the kind lie."""

    scale: Callable[[float], str | None] = lambda value: None
    """Return what a number outside the bounds means and what to write; None: it is not of another scale."""

    scale_inside: bool = False
    """Whether a number of another scale is refused inside the bounds, too."""

    @property
    def text(self) -> str:
        return f"{self.name}, {self.unit}" if self.unit else self.name

    def correction(self, value: float) -> str | None:
        """Return what `value` means and what to write instead; None: it is not a number of another scale."""
        return self.scale(value) if abs(value) < 1e9 else None  # NaN and numbers beyond a float: no scale

    def option(self, text: str | float) -> float:
        """Return the value of an option of a command. Raises ValueError for text that is not such a
        number."""
        try:
            return float(text)
        except ValueError:
            raise ValueError(f"{text!r}, expected a valid number") from None

    def bounded(self, value: float, low: float, high: float) -> float:
        """Return `value`, an option's. Raises ValueError, which says what to write, for a value outside the
        bounds or of another scale."""
        inside = low <= value <= high
        correction = self.correction(value) if self.scale_inside or not inside else None
        if correction:
            raise ValueError(f"it is a {self.name}: {correction}")
        if math.isnan(value):
            raise ValueError(f"{value}, expected a valid number")
        if not inside:
            bounds = [f"at least {low:g}"] * (low > -math.inf) + [f"at most {high:g}"] * (high < math.inf)
            raise ValueError(f"{value:g}, expected {' and '.join(bounds)}")
        return value


UNITS_S = {"w": 604800.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
"""Seconds of a unit of time, the longest first, as they stand in a text."""

NOTATION = "^(?=[0-9])" + "".join(
    rf"(?:[0-9]+(?:\.[0-9]+)?{unit}{'(?!s)' if unit == 'm' else ''})?" for unit in UNITS_S
)
DURATION = rf"{NOTATION}$"
"""The pattern of a time in text: 90s, 5m, 1h30m. JSON schemas and Python read it alike."""


LONGEST_S = 20 * 52 * UNITS_S["w"]
"""The longest time in text: 20 years. Longer ones are typing errors, and no clock or calendar takes them."""


def seconds_of(text: str) -> float:
    """The seconds of a time such as 30s, 5m, 7d or 1h30m. Raises ValueError for another text."""
    if re.fullmatch(DURATION, text) is None:
        raise ValueError(f"expected a time such as 30s, 5m, 7d or 1h30m, not {text!r}")
    seconds = sum(number * UNITS_S[unit] for number, unit in _parts(text))
    if seconds > LONGEST_S:
        raise ValueError(f"expected a time such as 30s, 5m, 7d or 1h30m, at most 20 years, not {text!r}")
    return seconds


def _parts(text: str) -> list[tuple[float, str]]:
    return [(float(number), unit) for number, unit in re.findall(r"([0-9.]+)(ms|[a-z])", text)]


@dataclass(frozen=True)
class TimeQuantity(Quantity):
    """A time, which may be written as text. It is stored in the unit of the key."""

    unit_s: float = 1.0

    def number(self, value: object) -> object:
        """Return a time that is written as text as a number in the unit of the key; anything else as it is.
        A whole number is an int."""
        if not isinstance(value, str):
            return value
        try:
            number = round(seconds_of(value) / self.unit_s, 9)
        except ValueError:
            raise PydanticCustomError(
                "duration",
                "{text} is not a time: expected {unit}, or a text such as 30s, 5m, 7d or 1h30m",
                {"text": repr(value), "unit": self.unit, "advice": None},
            ) from None
        return int(number) if number.is_integer() else number

    def option(self, text: str | float) -> float:
        """The same for a time, which may be written as text."""
        try:
            return float(text)
        except ValueError:
            return round(seconds_of(str(text)) / self.unit_s, 9)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.number, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        number = handler(schema)
        return number | {"type": [number["type"], "string"], "pattern": DURATION}


def _of_a_share(value: float) -> str | None:
    if not 1 <= value < 100:
        return None
    return f"{value:g} means {value * 100:g}%; write {value / 100:g} for {value:g}%"


def _of_a_level(value: float) -> str | None:
    if 0 < value < 0.5:
        return f"{value:g} means {value:.0%}; write {1 - value:g} where {value:.0%} is the chance of an error"
    return _of_a_share(value) if value > 50 else None


def _of_a_percentage(value: float) -> str | None:
    percent = value * 100
    return f"{value:g} means {value:g}%; write {percent:g} for {percent:g}%" if 0 < value < 1 else None


def _of_a_ratio(value: float) -> str | None:
    if 0 < value < 1:
        return f"{value:g} means {value:g} times as much; write {1 + value:g} for {value * 100:g}% more"
    if 10 < value < 1000:
        return f"{value:g} means {value:g} times as much; write {1 + value / 100:g} for {value:g}% more"
    return None


def _of_milliseconds(value: float) -> str | None:
    return f"{value:g} means {value:g} ms; write {value * 1000:g} for {value:g} s" if 0 < value < 1 else None


OTHER_SCALE = "other_scale"
"""The type of the error of a number that is inside the bounds, and still of another scale."""


def _not_a_share(value: float) -> float:
    """Percentages between 0 and 1 are refused: they are shares by mistake."""
    if correction := _of_a_percentage(value):
        raise PydanticCustomError(OTHER_SCALE, "{correction}", {"correction": correction})
    return value


def days_and_hours(text: str) -> tuple[int, int]:
    """The days and the further hours of a time such as 24h, 7d, 2w or 1d12h. Days are those of a calendar,
    and not always 24 hours long. Raises ValueError for another text."""
    seconds_of(text)  # raises for what is no time
    days = hours = 0.0
    for number, unit in _parts(text):
        if unit in "wd":
            days += number * UNITS_S[unit] / UNITS_S["d"]
        else:
            hours += number * UNITS_S[unit] / UNITS_S["h"]
    if days + hours == 0 or not days.is_integer() or not hours.is_integer():
        raise ValueError(f"expected a time of whole hours, not {text!r}")
    return int(days), int(hours)


def _period(value: object) -> object:
    """A time of whole hours, as text: days stay as they are written."""
    text = f"{value}s" if isinstance(value, int | float) and not isinstance(value, bool) else value
    try:
        days_and_hours(str(text))
    except ValueError:
        raise PydanticCustomError(
            "duration",
            "{text} is not a time of whole hours: expected a text such as 24h, 7d or 2w",
            {"text": repr(value), "advice": None},
        ) from None
    return value if text is value else f"{seconds_of(str(text)) / UNITS_S['h']:.0f}h"


SHARE = Quantity("share", "part of 1: 0.2 is 20%", 0.0, 1.0, _of_a_share)
LEVEL = Quantity("confidence level", "part of 1: 0.95 is 95%", 0.5, 1.0, _of_a_level)
RATIO = Quantity("ratio", "times as much: 1.2 is 20% more", 1.0, 100.0, _of_a_ratio)
PERCENTAGE = Quantity("percentage", "percent: 20 is 20%", 0.0, 100.0, _of_a_percentage, scale_inside=True)
FACTOR = Quantity("factor", "times as much", 0.0)
SECONDS = TimeQuantity("time", "seconds", 0.0)
MILLISECONDS = TimeQuantity("time", "milliseconds", 0.0, scale=_of_milliseconds, unit_s=0.001)
MINUTES = TimeQuantity("time", "minutes", 0.0, unit_s=60.0)
HOURS = TimeQuantity("time", "hours", 0.0, unit_s=3600.0)
DAYS = TimeQuantity("time", "days", 0.0, unit_s=86400.0)
PERIOD = Quantity("time", "seconds, or a text of whole hours", 0.0)
COUNT = Quantity("number", "", 0.0)
TOKENS = Quantity("tokens", "", -1.0)
STREAMS = Quantity("concurrent requests", "", 0.0)
RATE = Quantity("rate", "per second", 0.0)
PRICE = Quantity("price", "money per hour", 0.0)
TEMPERATURE = Quantity("sampling temperature", "", 0.0)
SEED = Quantity("seed", "")
PORT_NUMBER = Quantity("port", "", 1.0, 65535.0)
CORES = Quantity("CPU cores", "", 0.0)
GIBIBYTES = Quantity("size", "GiB", 0.0)
MEGABYTES = Quantity("size", "MB", 0.0)
THRESHOLD = Quantity("threshold", "the unit of the alert in alerts/runbook.md", 0.0)

Share = Annotated[float, SHARE]
Level = Annotated[float, LEVEL]
Ratio = Annotated[float, RATIO]
Factor = Annotated[float, FACTOR]
Percentage = Annotated[float, AfterValidator(_not_a_share), PERCENTAGE]
WholePercentage = Annotated[int, PERCENTAGE]
Seconds = Annotated[float, SECONDS]
WholeSeconds = Annotated[int, SECONDS]
"""For what other programs read as whole seconds."""

Period = Annotated[
    str,
    BeforeValidator(_period),
    WithJsonSchema({"type": ["string", "number"], "pattern": DURATION}),
    PERIOD,
]
Milliseconds = Annotated[float, MILLISECONDS]
Count = Annotated[int, COUNT]
Tokens = Annotated[int, TOKENS]
MeanTokens = Annotated[float, TOKENS]
Streams = Annotated[int, STREAMS]
Rate = Annotated[float, RATE]
Price = Annotated[float, PRICE]
Temperature = Annotated[float, TEMPERATURE]
Seed = Annotated[int, SEED]
Port = Annotated[int, PORT_NUMBER]
Cores = Annotated[float, CORES]
Gibibytes = Annotated[int, GIBIBYTES]
Megabytes = Annotated[int, MEGABYTES]
Threshold = Annotated[float, THRESHOLD]


@cache
def field_types(model: type) -> dict[str, Any]:
    """The types of the fields of a model, each with its kind."""
    return get_type_hints(model, include_extras=True)


def kind_of_field(model: type, name: str) -> Quantity | None:
    """The kind of the number in a field of a model; None: it has no such field, or it is not a number."""
    return next(_kinds(field_types(model).get(name)), None)


def _kinds(annotation: Any) -> Iterator[Quantity]:
    for part in (*get_args(annotation), *getattr(annotation, "__metadata__", ())):
        if isinstance(part, Quantity):
            yield part
        else:
            yield from _kinds(part)

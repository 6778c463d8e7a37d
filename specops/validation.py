"""What is wrong with a value that a model refuses, in the words of all messages; not in pydantic's own."""

from __future__ import annotations

from pydantic_core import ErrorDetails

from specops.quantities import OTHER_SCALE, Quantity

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
    "too_short": "a list of at least {min_length}",
    "string_pattern_mismatch": "text that matches {pattern}",
}

_MATCHING = {r"^https?://": "a URL that begins with http:// or https://"}
"""The meaning of a pattern, for messages; others are shown as they are."""

_BEYOND = ("greater_than", "greater_than_equal", "less_than", "less_than_equal", OTHER_SCALE)
"""Types of the errors of a number that is outside its range."""

_LONGEST = 80
"""Characters of a value that is shown."""


def problem(detail: ErrorDetails, quantity: Quantity | None = None) -> str:
    """Return what follows the name of the value, such as `is 0, and should be greater than 1`.

    quantity: the kind of number that the value is; one of another scale is corrected.
    """
    value = detail["input"]
    if quantity is not None and detail["type"] in _BEYOND and isinstance(value, int | float):
        correction = quantity.correction(value)
        if correction:
            return f"is a {quantity.name}: {correction}"
    context = detail.get("ctx", {})
    if detail["type"] == "missing":
        return "is missing"
    if detail["type"] == "extra_forbidden":
        return "is not known here"
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    expected = _MATCHING.get(context.get("pattern", ""))
    if expected is None and detail["type"] in _EXPECTED:
        expected = _EXPECTED[detail["type"]].format_map(context)
    if expected is None:
        expected = message.removeprefix("Input should be ")
        if expected == message:  # specops's own words
            return message
    return f"is {_quoted(value)}, and should be {expected}"


def _quoted(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if value in (None, []):
        return "empty"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"

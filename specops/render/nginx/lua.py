"""Plain values as Lua source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYWORDS = (
    *("and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in"),
    *("local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while"),
)


def literal(value: object, indent: str = "") -> str:
    """`value` as a Lua expression: text, numbers, booleans, and lists and mappings by text of those. A member
    that is None is left out, as Lua has it. Text becomes its UTF-8 bytes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _quoted(value)
    deeper = indent + "  "
    if isinstance(value, Mapping):
        rows = [f"{_key(k)} = {literal(v, deeper)}" for k, v in value.items() if v is not None]
    elif isinstance(value, Sequence):
        rows = [literal(element, deeper) for element in value]
    else:
        raise TypeError(f"{type(value).__name__} has no form in Lua")
    flat = "{ " + ", ".join(rows) + " }"
    if not rows or (len(indent) + len(flat) < 90 and "\n" not in flat):
        return flat if rows else "{}"
    return "{\n" + "".join(f"{deeper}{row},\n" for row in rows) + indent + "}"


def _key(name: str) -> str:
    return name if _NAME.fullmatch(name) and name not in _KEYWORDS else f"[{_quoted(name)}]"


def _quoted(text: str) -> str:
    # Three digits always, so that a digit that follows is not taken in.
    shown = (
        chr(byte) if 0x20 <= byte < 0x7F and byte not in (0x22, 0x5C) else f"\\{byte:03}"
        for byte in text.encode()
    )
    return '"' + "".join(shown).replace("\\034", '\\"').replace("\\092", "\\\\") + '"'

r"""Regular expressions that mean the same to NGINX (PCRE) and to Python: no more than that is allowed.

Literals, `.`, classes in brackets, \d \w \s \b and their opposites, groups, alternatives, and repetitions of
single characters; a group may be optional, and no more, so that no text takes exponential time. Left out is
what one of the two does not have or reads otherwise: \Z, \v, \h, [[:alpha:]], {,n}, possessive repetitions,
inline flags, look-around, back references.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

_TOKEN = re.compile(
    r"""(?P<escape>\\(?:[dDwWsSnrtfbB]|x[0-9A-Fa-f]{2}|[^A-Za-z0-9\x00-\x20\x7f]))
    |(?P<set>\[\^?(?:\\(?:[dDwWsSnrtf]|x[0-9A-Fa-f]{2}|[^A-Za-z0-9\x00-\x20\x7f])|[^\\\]\[&~|\x00-\x1f\x7f])+\])
    |(?P<open>\((?:\?:|(?![?*])))
    |(?P<close>\)\??)
    |(?P<repeat>[*+?]|\{\d{1,3}(?:,\d{0,3})?\})
    |(?P<anchor>[\^$])
    |(?P<either>\|)
    |(?P<plain>[^\\\[\](){}*+?^$|\x00-\x1f\x7f])""",
    re.VERBOSE,
)
_REPEATABLE = ("escape", "set", "plain")


def fault(pattern: str) -> str | None:
    """Why `pattern` is not one that means the same to both; None where it is."""
    if not pattern:
        return "it is empty"
    if not pattern.isascii():
        return "it has characters beyond ASCII, whose bytes would be matched one by one"
    if problem := _unlike(pattern):
        return problem
    try:
        re.compile(pattern.encode(), re.IGNORECASE)
    except (re.error, OverflowError) as error:
        return str(error)
    return None


def _unlike(pattern: str) -> str | None:
    at, before, depth = 0, "", 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            return (
                f"'{pattern[at : at + 4]}' at character {at + 1} does not mean the same to NGINX and Python"
            )
        kind = str(token.lastgroup)
        text = token.group()
        if kind == "repeat":
            lazy = text == "?" and before == "repeat"
            if not lazy and before not in _REPEATABLE:
                return f"'{text}' at character {at + 1} repeats no single character"
            before = "lazy" if lazy else "repeat"
        else:
            # \b is a place, which nothing repeats.
            before = "anchor" if text in (r"\b", r"\B") else kind
        depth += (kind == "open") - (kind == "close")
        if kind == "set" and "--" in text:
            return f"'--' in {text} is not the same to NGINX and Python"
        at = token.end()
    return "its brackets do not match" if depth else None


def _checked(pattern: str) -> str:
    if problem := fault(pattern):
        hint = (
            r"use literals, ., [a-z], \d \w \s \b, (a|b), * + ? {2,5} behind single characters, or `contains`"
        )
        raise PydanticCustomError(
            "regex", "{pattern}: {problem}", {"pattern": pattern, "problem": problem, "hint": hint}
        )
    return pattern


Regex = Annotated[str, AfterValidator(_checked)]

"""Which requests NGINX sends to which pool, and how it does that.

A threshold that is left out is what sweep.json and ab.json say, else the playbook's.
"""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from specops.section import HostPort, Section

# Regular expressions that mean the same to NGINX (PCRE) and to Python: no more than that is allowed.
#
# Literals, `.`, classes in brackets, \d \w \s \b, their opposites, groups, alternatives, and repetitions of
# single characters; a group may be optional, and no more, so that no text takes exponential time. Left out is
# what one of the two does not have or reads otherwise: \Z, \v, \h, [[:alpha:]], {,n}, possessive repetitions,
# inline flags, look-around, back references.

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


def _network(value: str) -> str:
    try:
        return str(ip_network(value))
    except ValueError as error:
        raise PydanticCustomError(
            "network", "{why}", {"why": str(error), "hint": "such as 10.0.0.0/8, or one address"}
        ) from None


Network = Annotated[str, AfterValidator(_network)]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]*$"), BeforeValidator(str)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]
Line = Annotated[str, Field(pattern=r"^[\x20-\x7e]+$")]
Path = Annotated[str, Field(pattern=r"^/[A-Za-z0-9._~/-]*$")]
Parameter = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]

RESERVED = ("default", "other")
"""Classes of what none matches: of requests that generate, and of all else."""


class TrafficClass(Section):
    """Requests that meet all that is named here. The first class that does is a request's."""

    name: Name = Field(description="As in the prompt set, where it is measured by class.")
    content: Regex | None = Field(
        default=None,
        description="Regular expression that is found in the last message of the user, or the prompt;"
        " regardless of case.",
    )
    contains: list[Line] | None = Field(
        default=None, min_length=1, description="Texts of which one is found there; regardless of case."
    )
    headers: dict[HeaderName, Line] = Field(default={}, description="Headers with exactly these values.")
    path: Literal["/v1/chat/completions", "/v1/completions"] | None = None
    speculate: bool | None = Field(
        default=None, description="false keeps it off speculation; left out: what was measured says."
    )

    @model_validator(mode="after")
    def _matches_something(self) -> TrafficClass:
        if self.name in RESERVED:
            raise PydanticCustomError(
                "class_name",
                "the class name '{name}' is taken: it is of what no class matches",
                {"name": self.name, "hint": "give it another name"},
            )
        if not (self.content or self.contains or self.headers or self.path):
            raise PydanticCustomError(
                "no_matcher",
                "the class '{name}' says of no request that it is one of its",
                {"name": self.name, "hint": "add content, contains, headers or path"},
            )
        return self


class Limits(Section):
    """Of one client, by its address. What is over them is answered 429."""

    requests_per_s: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    burst: int = Field(default=20, ge=0, description="Requests over the rate that are let through.")
    connections: int | None = Field(default=None, ge=1, description="Requests at a time.")


class Route(Section):
    listen: HostPort = Field(default="127.0.0.1:8080", description="Where users' requests come in.")
    admin: HostPort = Field(
        default="127.0.0.1:8081",
        description="Metrics, and the switch. Beyond loopback, setting it takes SPECOPS_ROUTER_TOKEN.",
    )
    speculative_percent: float = Field(
        default=100.0, ge=0.0, le=100.0, description="Where the switch stands until it is set."
    )
    speculate: bool | None = Field(
        default=None, description="Whether anything is; left out: what was measured says."
    )
    min_tokens: int | None = Field(
        default=None, ge=0, description="Requests with a smaller max_tokens are standard."
    )
    min_tokens_unstreamed: int | None = Field(
        default=None, ge=0, description="Unstreamed requests with a smaller max_tokens are standard."
    )
    long_tokens: int | None = Field(
        default=None, ge=0, description="So many are speculative; so is temperature 0, and what is streamed."
    )
    otherwise: Literal["speculative", "standard"] | None = Field(
        default=None, description="What is none of these."
    )
    max_temperature: float | None = Field(
        default=None, ge=0.0, allow_inf_nan=False, description="Above it is standard."
    )
    max_in_flight: int | None = Field(
        default=None,
        ge=0,
        description="Requests of the speculative pool at a time, each counted n times; more are standard.",
    )
    classes: list[TrafficClass] = Field(default=[], description="The first that matches is the request's.")
    unsupported: list[Parameter] | None = Field(
        default=None,
        description="Parameters that the speculative pool refuses; left out: what is known of its engine."
        " What `canary` found comes on top.",
    )
    canary_key: HeaderName | None = Field(
        default=None,
        description="Header by whose value callers are split; left out, or not there: Authorization, else"
        " the client's address.",
    )
    trusted: list[Network] = Field(
        default=[], description="Callers that may choose the pool with the header X-Specops-Pool."
    )
    proxies: list[Network] = Field(
        default=[], description="Load balancers whose X-Forwarded-For is believed."
    )
    paths: list[Path] = Field(
        default=["/v1/", "/health", "/ping", "/version", "/tokenize", "/detokenize"],
        description="What is served beside the two that generate, by the standard pool; with / at the end:"
        " and all below. The rest is answered 404.",
    )
    limits: Limits = Limits()
    max_body_mb: int = Field(default=32, ge=1)
    connect_timeout_s: int = Field(default=2, ge=1, description="After which a server counts as unreachable.")
    read_timeout_s: int = Field(default=600, ge=1, description="Longest silence of a server.")
    workers: int | None = Field(default=None, ge=1, description="Left out: one for each core.")
    user: Name | None = Field(
        default=None, description="That workers run as, where NGINX is started by root; left out: nobody."
    )
    modules: str | None = Field(
        default="/usr/lib/nginx/modules",
        pattern=r"^/[^\s;{}'\"\\]*$",
        description="Folder with NGINX's Lua module, Debian's by default; null: built in, as in OpenResty.",
    )

    @model_validator(mode="after")
    def _each_class_once(self) -> Route:
        names = [one.name for one in self.classes]
        for name in names:
            if names.count(name) > 1:
                raise PydanticCustomError(
                    "class_twice",
                    "the class '{name}' is given twice",
                    {"name": name, "hint": "put its matchers together, or give each a name"},
                )
        return self

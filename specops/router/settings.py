"""General settings of a router, the keys of `route:` that every router follows: which requests go to which
pool, and how. What only one router has is in its package.

A threshold that is left out is what sweep.json and ab.json say, else a default.
"""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from specops.quantities import Count, Megabytes, Percentage, Rate, Streams, Temperature, Tokens, WholeSeconds
from specops.section import HostPort, Section

# Regular expressions that mean the same to every router (PCRE, RE2) and to Python: no more is allowed.
#
# Literals, `.`, classes in brackets, \d \w \s \b, their opposites, groups, alternatives, and repetitions of
# single characters; a group may be optional, and no more, so that no text takes exponential time. Left out is
# what one of them does not have or reads otherwise: \Z, \v, \h, [[:alpha:]], {,n}, possessive repetitions,
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
    """Return why `pattern` is not one that means the same to both; None where it is."""
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
    position, before, depth = 0, "", 0
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None:
            text = pattern[position : position + 4]
            return f"'{text}' at character {position + 1} differs between router and Python"
        kind = str(token.lastgroup)
        text = token.group()
        if kind == "repeat":
            lazy = text == "?" and before == "repeat"
            if not lazy and before not in _REPEATABLE:
                return f"'{text}' at character {position + 1} repeats no single character"
            before = "lazy" if lazy else "repeat"
        else:
            # \b matches a position, so it cannot be repeated.
            before = "anchor" if text in (r"\b", r"\B") else kind
        depth += (kind == "open") - (kind == "close")
        if kind == "set" and "--" in text:
            return f"'--' in {text} differs between router and Python"
        position = token.end()
    return "its brackets do not match" if depth else None


def _checked(pattern: str) -> str:
    if problem := fault(pattern):
        advice = (
            r"use literals, ., [a-z], \d \w \s \b, (a|b), * + ? {2,5} behind single characters, or `contains`"
        )
        raise PydanticCustomError(
            "regex", "{pattern}: {problem}", {"pattern": pattern, "problem": problem, "advice": advice}
        )
    return pattern


Regex = Annotated[str, AfterValidator(_checked)]


def _network(value: str) -> str:
    try:
        return str(ip_network(value))
    except ValueError as error:
        raise PydanticCustomError(
            "network", "{why}", {"why": str(error), "advice": "such as 10.0.0.0/8, or one address"}
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
    """Requests that meet all matchers given here. The first matching class applies."""

    name: Name = Field(description="Name of the class, as in the prompt set where classes are measured.")
    content: Regex | None = Field(
        default=None,
        description="Regular expression that occurs in the last user "
        "message or the prompt, in any case; default: any text.",
    )
    contains: list[Line] | None = Field(
        default=None,
        min_length=1,
        description="Texts of which one occurs in the last user message "
        "or the prompt, in any case; default: any text.",
    )
    headers: dict[HeaderName, Line] = Field(default={}, description="Headers that have exactly these values.")
    path: Literal["/v1/chat/completions", "/v1/completions"] | None = Field(
        default=None, description="API path of the requests; default: both paths."
    )
    speculate: bool | None = Field(
        default=None, description="Allow speculation for the class; default: as measured."
    )

    @model_validator(mode="after")
    def _matches_something(self) -> TrafficClass:
        if self.name in RESERVED:
            raise PydanticCustomError(
                "class_name",
                "the class name '{name}' is reserved for requests that no class matches",
                {"name": self.name, "advice": "give it another name"},
            )
        if not (self.content or self.contains or self.headers or self.path):
            raise PydanticCustomError(
                "no_matcher",
                "the class '{name}' has no matcher",
                {"name": self.name, "advice": "add content, contains, headers or path"},
            )
        return self


class Limits(Section):
    """Limits for one client address; requests above them get status 429."""

    requests_per_s: Rate | None = Field(
        default=None,
        gt=0.0,
        allow_inf_nan=False,
        description="Limit on requests per second; default: no limit.",
    )
    burst: Count = Field(default=20, ge=0, description="Number of requests above the rate that are admitted.")
    connections: Streams | None = Field(
        default=None, ge=1, description="Limit on concurrent requests; default: no limit."
    )


class RouteSettings(Section):
    """The general settings."""

    listen: HostPort = Field(
        default="127.0.0.1:8080", description="HOST:PORT on which users' requests arrive."
    )
    admin: HostPort = Field(
        default="127.0.0.1:8081",
        description="HOST:PORT of metrics and the switch; beyond loopback, "
        "setting the switch requires SPECOPS_ROUTER_TOKEN.",
    )
    speculative_percent: Percentage = Field(
        default=100.0,
        ge=0.0,
        le=100.0,
        description="Initial position of the switch: percentage of "
        "the eligible requests that are speculative.",
    )
    speculate: bool | None = Field(
        default=None, description="Allow speculation at all; default: as measured, else true."
    )
    min_tokens: Tokens | None = Field(
        default=None, ge=0, description="Lowest max_tokens of speculative requests, in tokens; default: 32."
    )
    min_tokens_unstreamed: Tokens | None = Field(
        default=None,
        ge=0,
        description="Lowest max_tokens of speculative requests that "
        "are not streamed, in tokens; default: 64.",
    )
    long_tokens: Tokens | None = Field(
        default=None,
        ge=0,
        description="Value of max_tokens, in tokens, from which a request is speculative; default: 256.",
    )
    otherwise: Literal["speculative", "standard"] | None = Field(
        default=None, description="Pool of the requests that no other rule decides; default: speculative."
    )
    max_temperature: Temperature | None = Field(
        default=None,
        ge=0.0,
        allow_inf_nan=False,
        description="Highest temperature of speculative requests; default: 1.0.",
    )
    max_in_flight: Streams | None = Field(
        default=None,
        ge=0,
        description="Limit on concurrent requests of the speculative pool, "
        "each counted n times; default: as measured, else 8.",
    )
    classes: list[TrafficClass] = Field(default=[], description="Traffic classes, in order of precedence.")
    unsupported: list[Parameter] | None = Field(
        default=None,
        description="Parameters that the speculative pool refuses, besides those "
        "that `canary` found; default: those known of its engine.",
    )
    canary_key: HeaderName | None = Field(
        default=None,
        description="Header whose value assigns a caller to a side of the "
        "switch; default: Authorization, else the client's address.",
    )
    trusted: list[Network] = Field(
        default=[], description="Networks of callers that may choose the pool with the header X-Specops-Pool."
    )
    proxies: list[Network] = Field(
        default=[], description="Networks of load balancers whose X-Forwarded-For is trusted."
    )
    paths: list[Path] = Field(
        default=["/v1/", "/health", "/ping", "/version", "/tokenize", "/detokenize"],
        description="Other paths that the standard pool serves, with / "
        "at the end for all below; the rest get status 404.",
    )
    limits: Limits = Limits()
    max_body_mb: Megabytes = Field(
        default=32, ge=1, description="Limit on the size of a request body, in MB."
    )
    connect_timeout_s: WholeSeconds = Field(
        default=2, ge=1, description="Timeout of a connection to a server, in seconds."
    )
    read_timeout_s: WholeSeconds = Field(
        default=600, ge=1, description="Longest pause in a server's answer, in seconds."
    )

    @model_validator(mode="after")
    def _each_class_once(self) -> RouteSettings:
        names = [traffic_class.name for traffic_class in self.classes]
        for name in names:
            if names.count(name) > 1:
                raise PydanticCustomError(
                    "class_twice",
                    "the class '{name}' is given twice",
                    {"name": name, "advice": "put its matchers together, or give each a name"},
                )
        return self

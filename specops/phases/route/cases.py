"""Requests whose pool is known beforehand: on each side of every threshold, what is no request at all, and a
user's own from a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specops.errors import FileError, UsageError
from specops.phases.route.explain import CHAT, COMPLETIONS, Request, request_of

SAYS = {"messages": [{"role": "user", "content": "say it"}]}


@dataclass(frozen=True)
class Case:
    name: str
    request: Request
    pool: str
    traffic_class: str | None = None
    """None: whatever it is."""


def shipped(rules: Mapping[str, Any], *, trusted: bool) -> list[Case]:
    """For these rules, the switch at 100%, nothing in flight; whether the caller may choose the pool."""
    return [*_sizes(rules), *_refused(), *_other(rules), *_chosen(rules, trusted)]


def _body(**fields: object) -> bytes:
    return json.dumps(SAYS | fields).encode()


def _sizes(rules: Mapping[str, Any]) -> Iterator[Case]:
    def limit(name: str) -> Any:
        return rules[name]["value"]

    refused = {one["name"] for one in rules["unsupported"]}

    def case(name: str, allowed: bool, **fields: Any) -> Case:
        on = allowed and limit("speculate") and rules["default"]["speculate"]["value"]
        on = on and not any(fields.get(one) for one in refused)
        on = on and (fields.get("n") or 1) <= limit("max_in_flight")
        pool = "speculative" if on else "standard"
        request = Request(_body(**fields), path=CHAT)
        return Case(name, request, pool, None if rules["classes"] else "default")

    least, least_whole = limit("min_tokens"), limit("min_tokens_unstreamed")
    long = max(limit("long_tokens"), least, least_whole)
    short = max(least, 1)
    if least > 1:
        yield case("just too short", False, max_tokens=least - 1, stream=True)
        yield case("too short by the newer name", False, max_tokens=9999, max_completion_tokens=least - 1)
    yield case("just long enough, streamed", True, max_tokens=short, stream=True)
    if least_whole > 1:
        yield case("just too short, not streamed", False, max_tokens=least_whole - 1, temperature=0)
    yield case("long", True, max_tokens=long)
    yield case("long, with nulls", True, max_tokens=long, temperature=None, stream=None, n=None)
    yield case("greedy", True, max_tokens=max(short, least_whole), temperature=0)
    yield case("no size given, streamed", True, stream=True)
    yield case("just warm enough", True, max_tokens=long, temperature=limit("max_temperature"))
    yield case("too warm", False, max_tokens=long, temperature=limit("max_temperature") + 0.01)
    most = int(limit("max_in_flight"))
    if most >= 1:
        yield case("as many at a time as there may be", True, max_tokens=long, n=most)
    yield case("one more at a time", False, max_tokens=long, n=most + 1)
    for one in sorted(refused):
        yield case(f"with {one}", False, **{"max_tokens": long, one: {"1": 1}})
        if one != "max_tokens":
            yield case(f"with {one}: null", True, **{"max_tokens": long, one: None})


def _refused() -> Iterator[Case]:
    bodies = {
        "empty": b"",
        "no JSON": b'{"max_tokens": 300',
        "a list": b"[]",
        "a number": b"3",
        "behind a NUL": b'{"max_tokens": 300}\0',
        "nested too deep": b'{"messages": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        "text where a number belongs": _body(max_tokens="300", stream=True),
        "a number where a boolean belongs": _body(max_tokens=300, stream=1),
    }
    for name, body in bodies.items():
        yield Case(f"body: {name}", Request(body), "standard")
    gzipped = Request(b"\x1f\x8b\x08\x00", headers={"content-encoding": "gzip"})
    yield Case("body: compressed", gzipped, "standard")


def _other(rules: Mapping[str, Any]) -> Iterator[Case]:
    long, nobody = _body(max_tokens=100000), "/nobody/serves/this"
    yield Case("GET", Request(b"", method="GET"), "standard", "other")
    yield Case("a path beside the two", Request(long, path=f"{CHAT}X"), _elsewhere(rules, f"{CHAT}X"))
    yield Case(
        "a path that nobody serves", Request(b"", method="GET", path=nobody), _elsewhere(rules, nobody)
    )
    yield Case("up and out", Request(b"", method="GET", path="/v1/../metrics"), "none")
    yield Case("a large body", Request(_body(max_tokens="") + b" " * (2 << 20)), "standard")


def _chosen(rules: Mapping[str, Any], trusted: bool) -> Iterator[Case]:
    who = "a caller that may choose" if trusted else "a caller that may not choose"
    warm = json.dumps({"prompt": "x", "temperature": rules["max_temperature"]["value"] + 1}).encode()
    request = Request(warm, path=COMPLETIONS, headers={"x-specops-pool": "speculative"})
    yield Case(who, request, "speculative" if trusted else "standard")


def _elsewhere(rules: Mapping[str, Any], path: str) -> str:
    known = any(path == one or (one.endswith("/") and path.startswith(one)) for one in rules["paths"])
    return "standard" if known else "none"


def read(path: Path) -> list[Case]:
    """A user's file: a list of {"name", "pool", "class", "request": {"method", "path", "headers", "body"}}.
    Only pool and request must be there. Raises FileError, UsageError."""
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise FileError(f"could not read {path}: {error.strerror}", hint="give a JSON file") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no JSON: {error}", hint=_HINT) from None
    if not isinstance(found, list):
        raise UsageError(f"{path} holds no list of cases", hint=_HINT)
    return [_case(one, f"{path}, case {number}") for number, one in enumerate(found, start=1)]


_HINT = (
    '[{"name": "a summary", "pool": "standard", "request": {"body": {"messages": [], "max_tokens": 20}}}, …]'
)


def _case(one: object, where: str) -> Case:
    if not isinstance(one, dict) or not isinstance(one.get("request"), dict):
        raise UsageError(f"{where} has no request", hint=_HINT)
    if unknown := one.keys() - {"name", "pool", "class", "request"}:
        raise UsageError(f"{where}: unknown key '{min(unknown)}'", hint=_HINT)
    if one.get("pool") not in ("speculative", "standard", "none"):
        raise UsageError(f"{where}: pool is speculative, standard or none", hint=_HINT)
    request = request_of(one["request"], where)
    return Case(str(one.get("name", where)), request, one["pool"], one.get("class"))

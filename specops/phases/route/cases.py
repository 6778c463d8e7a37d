"""Requests for `route check`: those whose pool is known (both sides of each threshold, damaged bodies, a
user's own file), and seeded fuzz, which the router and `route explain` must read alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from specops.errors import FileError, UsageError
from specops.hints import beginning, json_check, listing
from specops.phases.route.explain import request_of
from specops.router import CHAT, COMPLETIONS, Request

SAYS = {"messages": [{"role": "user", "content": "say it"}]}


@dataclass(frozen=True)
class Case:
    name: str
    request: Request
    pool: str
    traffic_class: str | None = None
    """None: any class is right."""


def shipped(rules: Mapping[str, Any], *, trusted: bool) -> list[Case]:
    """Cases for these rules, with the switch at 100% and nothing in flight. `trusted`: the caller may
    choose the pool."""
    return [*_sizes(rules), *_refused(), *_other_paths(rules), *_chosen(rules, trusted)]


def _body(**fields: object) -> bytes:
    return json.dumps(SAYS | fields).encode()


def _sizes(rules: Mapping[str, Any]) -> Iterator[Case]:
    def limit(name: str) -> Any:
        return rules[name]["value"]

    refused = {parameter_rule["name"] for parameter_rule in rules["unsupported"]}

    def case(name: str, allowed: bool, **fields: Any) -> Case:
        on = allowed and limit("speculate") and rules["default"]["speculate"]["value"]
        on = on and not any(fields.get(parameter) for parameter in refused)
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
    for parameter in sorted(refused):
        yield case(f"with {parameter}", False, **{"max_tokens": long, parameter: {"1": 1}})
        if parameter != "max_tokens":
            yield case(f"with {parameter}: null", True, **{"max_tokens": long, parameter: None})


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


def _other_paths(rules: Mapping[str, Any]) -> Iterator[Case]:
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
    listed = any(
        path == route_path or (route_path.endswith("/") and path.startswith(route_path))
        for route_path in rules["paths"]
    )
    return "standard" if listed else "none"


def read(path: Path) -> list[Case]:
    """The cases of a user's file: a list of {"name", "pool", "class", "request": {"method", "path",
    "headers", "body"}}. Only `pool` and `request` are required. Raises FileError, UsageError."""
    try:
        entries = json.loads(path.read_bytes())
    except OSError as error:
        raise FileError(f"could not read {path}: {error.strerror}", hint=listing(path)) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}", hint=json_check(path)) from None
    if not isinstance(entries, list):
        raise UsageError(f"{path} does not hold a list of cases, such as {_EXAMPLE}", hint=beginning(path))
    return [_case(entry, f"{path}, case {number}") for number, entry in enumerate(entries, start=1)]


_EXAMPLE = (
    '[{"name": "a summary", "pool": "standard", "request": {"body": {"messages": [], "max_tokens": 20}}}]'
)


def _case(entry: object, where: str) -> Case:
    if not isinstance(entry, dict) or not isinstance(entry.get("request"), dict):
        raise UsageError(f"{where} has no request, as in {_EXAMPLE}")
    if unknown := entry.keys() - {"name", "pool", "class", "request"}:
        raise UsageError(f"{where}: unknown key '{min(unknown)}': expected name, pool, class and request")
    if entry.get("pool") not in ("speculative", "standard", "none"):
        raise UsageError(f"{where}: invalid pool: expected speculative, standard or none")
    request = request_of(entry["request"], where)
    return Case(str(entry.get("name", where)), request, entry["pool"], entry.get("class"))


_NAMES = (
    *("max_tokens", "max_completion_tokens", "temperature", "stream", "n", "best_of", "min_p", "logit_bias"),
    *("messages", "prompt", "model", "tools", "max_tokens ", "Temperature", ""),
)
_NUMBERS = (
    0,
    1,
    31,
    32,
    63,
    64,
    255,
    256,
    4096,
    -1,
    0.0,
    1.0,
    1.0000001,
    0.5,
    3e2,
    1e308,
    10**400,
    2**53 + 1,
)
_TEXTS = ("", "def f(x):", "say it", "ünïcode 🙂", "\0\x1f\x7f", "```", "a" * 3000, 'quote " and \\ \n')
_RAW = (
    *(b"NaN", b"-Infinity", b"1.", b".5", b"-", b"01", b"-0", b"1e999", b"-1e-999", b"0x10", b"1E+2", b"+1"),
    *(
        b'"\\ud83d\\ude00"',
        b'"\\ud800"',
        b'"\\u12"',
        b'"\\x41"',
        b'"\xff\xfe"',
        b'"\xc3"',
        b'"a\tb"',
        b'"\0"',
    ),
    *(b"tru", b"nul", b"True", b"'a'", b"[1,]", b'{"a":1,}', b"[" * 70 + b"]" * 70, b"{" * 5, b"/**/1"),
)
_INSERTED = (b",", b'"', b"\\", b"\0", b"{", b"]", b"\xff", b"\xef\xbb\xbf", b" ", b"\r\n", b"null", b"1e5")


def fuzz(seed: int) -> Iterator[Request]:
    """Endless random requests; the same for the same seed."""
    random = Random(seed)
    while True:
        body = _random_body(random)
        if random.random() < 0.4:
            body = _damaged(random, body)
        path = COMPLETIONS if random.random() < 0.3 else CHAT
        yield Request(body, path=path)


def _random_body(random: Random) -> bytes:
    members = []
    for _ in range(random.randrange(8)):
        name = json.dumps(random.choice(_NAMES)).encode()
        if random.random() < 0.1:  # the same name by other letters
            name = b'"' + b"".join(b"\\u%04x" % code for code in name[1:-1]) + b'"'
        raw = random.choice(_RAW) if random.random() < 0.1 else _dumped(random, _value(random, 0))
        members.append(name + random.choice((b":", b": ", b"\n:\t")) + raw)
    random.shuffle(members)
    return (
        random.choice((b"", b" ", b"\r\n")) + b"{" + b",".join(members) + b"}" + random.choice((b"", b"\n"))
    )


def _dumped(random: Random, value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=random.random() < 0.5).encode(errors="surrogatepass")


def _value(random: Random, depth: int) -> Any:
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: random.choice(_NUMBERS),
        lambda: random.randrange(600),
        lambda: random.choice(_TEXTS),
        lambda: random.choice((True, False, None)),
        lambda: [_value(random, depth + 1) for _ in range(random.randrange(4))],
        lambda: {random.choice(_NAMES): _value(random, depth + 1) for _ in range(random.randrange(3))},
        lambda: [_message(random, depth + 1) for _ in range(random.randrange(4))],
    )
    return random.choice(kinds if depth < 3 else kinds[:4])()


def _message(random: Random, depth: int) -> Any:
    role = random.choice(("user", "user", "assistant", "system", None, 3))
    parts = [
        {"type": random.choice(("text", "image_url", 1)), "text": random.choice(_TEXTS)}
        for _ in range(random.randrange(3))
    ]
    return {
        "role": role,
        "content": random.choice((random.choice(_TEXTS), parts, None, _value(random, depth))),
    }


def _damaged(random: Random, body: bytes) -> bytes:
    position = random.randrange(len(body) + 1)
    match random.randrange(4):
        case 0:
            return body[:position]
        case 1:
            return body[:position] + random.choice(_INSERTED) + body[position:]
        case 2:
            return body[:position] + bytes([random.randrange(256)]) + body[position + 1 :]
        case _:
            return body[:position] + body[position + random.randrange(1, 9) :]

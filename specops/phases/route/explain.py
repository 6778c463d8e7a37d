"""`specops route explain`: the pool of a request, and why, as the router would decide."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from specops.config import Rollout
from specops.errors import FileError, UsageError
from specops.hints import listing, with_options
from specops.phases.route.thresholds import rules
from specops.router import CHAT, COMPLETIONS, LOOPBACK, Decision, Request, StoredRules
from specops.section import Frozen


class Explanation(Frozen):
    pool: str
    """speculative, standard, or none: the router answers 404 itself."""

    traffic_class: str
    reason: str
    """The reason as in the header X-Specops-Reason, the log and the metrics."""

    about: str | None
    """The parameter that decided, if one did."""

    observed: float | None
    weight: float
    """The number of sequences that the request asks for."""

    threshold: Any
    source: str | None
    """The threshold's source; None if no rule of the rollout decided."""

    message: str


def explain(
    rollout: Rollout, folder: Path, request: Request, *, in_flight: float = 0, percent: float | None = None
) -> Explanation:
    """Explain by the rules that `route render` would write now. `percent` is the switch, by default the
    rollout file's."""
    routing_rules = rules(rollout, folder)
    stands = rollout.route.speculative_percent if percent is None else percent
    judge = rollout.route.router.judge(StoredRules(routing_rules.table, rollout.route.trusted))
    decision = judge.decide(request, in_flight=in_flight, percent=stands)
    threshold, source = _rule(routing_rules.table, decision, stands)
    return Explanation(
        pool=decision["pool"],
        traffic_class=decision["class"],
        reason=decision["reason"],
        about=decision.get("about"),
        observed=decision.get("observed"),
        weight=decision["weight"],
        threshold=threshold,
        source=source,
        message=_MESSAGES[decision["reason"]].format(
            **{"about": None, "observed": 0.0} | decision, threshold=threshold, method=request.method,
            path=request.path, name=decision["class"],
        ),
    )  # fmt: skip


_MESSAGES = {
    "path": "{path} generates no text",
    "method": "{method} is not POST",
    "encoded": "its body is compressed, and the router does not read it",
    "unreadable": "its body could not be read",
    "not-json": "its body is not JSON",
    "not-an-object": "its body is not a JSON object",
    "too-complex": "its body nests too deep, or holds too many values, to be read",
    "type": "{about} has a type or value that the engine refuses",
    "not-deployed": "nothing goes to the speculative pool",
    "class": "requests of the class {name} stay off speculation",
    "parameter": "the speculative pool does not support {about}",
    "temperature": "its temperature of {observed:g} is above {threshold:g}",
    "short": "it asks for {observed:g} tokens, fewer than {threshold:g}",
    "short-unstreamed": "it asks for {observed:g} tokens and is not streamed, fewer than {threshold:g}",
    "long": "it asks for {observed:g} tokens, at least {threshold:g}",
    "greedy": "its temperature is 0",
    "streaming": "it is streamed",
    "otherwise": "it is neither short nor long, greedy nor streamed",
    "override": "a trusted caller chose the pool",
    "switch": "the switch is at 0%: all requests go to the standard pool",
    "canary": "its caller is in bucket {observed:g} of 10,000, and {threshold:g}% are speculative",
    "holdout": "chance keeps {threshold:.0%} of the eligible requests (or of windows) standard, to compare",
    "in-flight": "it asks for {weight:g} sequences beside {observed:g} in flight, and {threshold:g} may be",
}
_THRESHOLDS = {
    "not-deployed": "speculate",
    "temperature": "max_temperature",
    "short": "min_tokens",
    "short-unstreamed": "min_tokens_unstreamed",
    "long": "long_tokens",
    "otherwise": "otherwise",
    "holdout": "holdout",
}


def _rule(table: Mapping[str, Any], decision: Decision, percent: float) -> tuple[Any, str | None]:
    """The threshold that decided, and its source."""
    reason = decision["reason"]
    if reason == "in-flight":
        of_class: Mapping[str, Any] = next(
            (row for row in table["classes"] if row["name"] == decision["class"]), {}
        )
        rule = of_class.get("max_in_flight") or table["max_in_flight"]
        return rule["value"], rule["source"]
    if reason in _THRESHOLDS:
        rule = table[_THRESHOLDS[reason]]
        return rule["value"], rule["source"]
    if reason == "class":
        of_all = {row["name"]: row["speculate"] for row in table["classes"]}
        rule = of_all.get(decision["class"], table["default"]["speculate"])
        return rule["value"], rule["source"]
    if reason == "parameter":
        return None, next(row["source"] for row in table["unsupported"] if row["name"] == decision["about"])
    if reason in ("switch", "canary"):
        return percent, "switch"
    return None, None


_WRAPPED = {"method", "path", "headers", "body"}


def read_request(path: Path, address: str = LOOPBACK) -> Request:
    """A file that holds a body as it is, or {"method", "path", "headers", "body"} around it. A body given as
    text is taken byte for byte. Raises FileError, UsageError."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise FileError(
            f"could not read {path}: {error.strerror}: expected a request's JSON body", hint=listing(path)
        ) from error
    try:
        ip_address(address)
    except ValueError as error:
        raise UsageError(f"{error}", hint=with_options({"--remote-addr": "10.0.0.7"})) from None
    try:
        parsed = json.loads(raw)
    except (ValueError, RecursionError):
        return Request(raw, address=address)
    if not isinstance(parsed, dict):
        return Request(raw, address=address)
    if parsed.keys() <= _WRAPPED and parsed.keys() & {"body", "path"}:
        return request_of(parsed, str(path), address)
    return Request(raw, path=_path_of(parsed), address=address)


def request_of(wrapped: Mapping[str, Any], where: str, address: str = LOOPBACK) -> Request:
    """Return the request. Raises UsageError for an invalid request; the message names `where` it stands."""
    body, headers = wrapped.get("body"), wrapped.get("headers", {})
    method = wrapped.get("method", "POST" if body is not None else "GET")
    path = wrapped.get("path", _path_of(body))
    if not (_is(_METHOD, method) and _is(_PATH, path)):
        raise UsageError(
            f"{where}: invalid method or path: expected a method in capitals, and a path of ASCII that "
            "begins with "
            f"/ and has no blanks, as in {_EXAMPLE}",
        )
    if not isinstance(headers, dict) or not all(
        _is(_NAME, name) and _is(_VALUE, value) for name, value in headers.items()
    ):
        raise UsageError(f"{where}: invalid headers: expected names and texts, as in {_EXAMPLE}")
    text = "" if body is None else body if isinstance(body, str) else json.dumps(body)
    by_name = {name.lower(): value for name, value in headers.items()}
    return Request(text.encode(errors="surrogatepass"), method, path, by_name, address)


_METHOD, _PATH = r"[A-Z]+", r"/[\x21-\x7e]*"
_NAME, _VALUE = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", r"[\t\x20-\x7e]*"


def _is(pattern: str, value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


_EXAMPLE = '{"path": "/v1/completions", "headers": {"X-Task": "code"}, "body": {"prompt": "def"}}'


def _path_of(body: object) -> str:
    return COMPLETIONS if isinstance(body, dict) and "prompt" in body and "messages" not in body else CHAT

"""What `route explain` and `route check` are given to read: a request in a file, the rules of a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_rules import NO_FOLDER, ab_result, judge, kept, pays_up_to, rollout

from specops.errors import UsageError
from specops.phases.route.cases import read
from specops.phases.route.check import whole
from specops.phases.route.explain import explain, read_request
from specops.router import CHAT, COMPLETIONS, Request
from specops.router.nginx import LuaJudge


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "request.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "path", "pool", "reason"),
    [
        ('{"messages": [], "max_tokens": 300}', CHAT, "speculative", "long"),
        ('{"prompt": "x"}', COMPLETIONS, "standard", "short"),
        ('{"path": "/v1/completions", "body": {"max_tokens": 300}}', COMPLETIONS, "speculative", "long"),
        ('{"path": "/v1/completions", "body": "{\\"prompt\\": "}', COMPLETIONS, "standard", "not-json"),
        ('{"path": "/metrics"}', "/metrics", "none", "path"),
        ("[]", CHAT, "standard", "not-an-object"),
        ("no JSON", CHAT, "standard", "not-json"),
        (b"\xff\xfe", CHAT, "standard", "not-json"),
        ("", CHAT, "standard", "not-json"),
    ],
)  # fmt: skip
def test_a_file_is_a_body_or_a_request(
    text: str | bytes, path: str, pool: str, reason: str, tmp_path: Path
) -> None:
    request = read_request(written(tmp_path, text))
    assert request.path == path
    found = explain(rollout(), NO_FOLDER, request)
    assert (found.pool, found.reason) == (pool, reason)


WRONG: list[dict[str, Any]] = [
    {"method": "PO ST"},
    {"method": ""},
    {"method": 3},
    {"path": "v1"},
    {"path": "/a b"},
    {"path": "/\ud800"},
    {"path": "/x\r\nX-Other: y"},
    {"headers": ["X-A"]},
    {"headers": {"X-A": 3}},
    {"headers": {"X-A": "\ud800"}},
    {"headers": {"X-A": "a\nb"}},
    {"headers": {"X A": "a"}},
    {"headers": {"": "a"}},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_what_nobody_can_send_is_wrong_usage(wrong: dict[str, Any], tmp_path: Path) -> None:
    request = {"body": {"prompt": "x"}} | wrong
    with pytest.raises(UsageError):
        read_request(written(tmp_path, json.dumps(request)))
    with pytest.raises(UsageError, match="case 1"):
        read(written(tmp_path, json.dumps([{"pool": "standard", "request": request}])))


@pytest.mark.parametrize(
    ("rules_lua", "said"),
    [
        ("", "returns no table of names"),
        ("return 3", "returns no table of names"),
        ("return {}", "has no classes"),
        ("return { classes = {} }", "has no default"),
        ("not Lua", "expected"),
        ('error("boom")', "boom"),
    ],
)
def test_rules_that_are_none_are_said_to_be_damaged(rules_lua: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        whole(LuaJudge(rules_lua).table)
    assert "\n" not in caught.value.message
    assert whole(judge().table)["min_tokens"]["value"] == 32


def test_the_limit_that_is_explained_is_that_of_the_class(tmp_path: Path) -> None:
    speed = {"edit": 2.0, "long": 2.0, "short": 2.0}
    kept(
        tmp_path,
        "ab",
        ab_result(speed.__getitem__, streams=(1, 8), heavy=pays_up_to(edit=1, long=8, short=8)),
    )
    classes = [{"name": name, "contains": [name]} for name in speed]
    settings = rollout(route={"classes": classes})
    for name, limit, pool in (("long", 8, "speculative"), ("edit", 1, "standard")):
        body = {"messages": [{"role": "user", "content": name}], "max_tokens": 300}
        found = explain(settings, tmp_path, Request(json.dumps(body).encode(), path=CHAT), in_flight=1)
        assert (found.traffic_class, found.pool) == (name, pool)
        if pool == "standard":
            assert (found.reason, found.threshold) == ("in-flight", limit)
            assert str(found.source).startswith("ab.json")

"""The section `route`: what it refuses, and which regular expressions NGINX and Python read the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from made_rules import ENDPOINT

from specops.config import load
from specops.errors import ConfigError
from specops.router.settings import fault


@pytest.mark.parametrize(
    ("route", "said"),
    [
        ({"max_inflight": 3}, "unknown key 'route.max_inflight'"),
        ({"workers": 4}, "unknown key 'route.workers'; write it as route.nginx.workers"),
        ({"modules": None}, "unknown key 'route.modules'; write it as route.nginx.modules"),
        ({"nginx": {"worker": 4}}, "unknown key 'route.nginx.worker'"),
        ({"classes": [{"name": "a"}]}, "has no matcher"),
        ({"classes": [{"name": "default", "contains": ["x"]}]}, "the class name 'default' is reserved"),
        ({"classes": [{"name": "a", "contains": ["x"]}] * 2}, "the class 'a' is given twice"),
        ({"classes": [{"name": 'a"b', "contains": ["x"]}]}, "should be text that matches"),
        ({"classes": [{"name": "a", "content": "(a+)+"}]}, "repeats no single character"),
        ({"classes": [{"name": "a", "headers": {"X Y": "1"}}]}, "should be text that matches"),
        ({"classes": [{"name": "a", "headers": {"X-Y": "1\n}"}}]}, "should be text that matches"),
        ({"trusted": ["10.0.0.1/8"]}, "has host bits set"),
        ({"trusted": ["everyone"]}, "does not appear to be an IPv4 or IPv6 network"),
        ({"listen": "127.0.0.1:80; evil"}, "should be text that matches"),
        ({"nginx": {"modules": "/a; b"}}, "should be text that matches"),
        ({"paths": ["/v1/ {"]}, "should be text that matches"),
        ({"speculative_percent": 101.0}, "should be less than or equal to 100"),
        ({"nginx": {"user": "root; x"}}, "should be text that matches"),
        ({"max_temperature": float("inf")}, "should be a finite number"),  # Lua has no such literal
        ({"limits": {"requests_per_s": float("inf")}}, "should be a finite number"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, route: dict[str, object], said: str) -> None:
    path = tmp_path / "rollout.yaml"
    pools = {"standard": ENDPOINT, "speculative": ENDPOINT}
    path.write_text(yaml.safe_dump({"rollout": "r", "pools": pools, "route": route}))
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert said in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    "pattern",
    [
        r"\b(def|class) \w+",
        "```",
        r"a{2,3}b",
        "a+?b",
        "(?:ab|c)?d",
        r"[a-z\d_-]+",
        r"\.py$",
        r"^\s*#",
        r"\x41",
    ],
)
def test_what_both_read_alike_is_taken(pattern: str) -> None:
    assert fault(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    [
        *("(a+)+", "(?i)a", "a++", "[[:alpha:]]", r"\Z", r"\A", "x(?=y)", "(?<!x)y", "(?P<n>a)", r"(a)\1"),
        *("a{,3}", "é", "", "(a", "a)", r"[a-\d]", "(a){2}", "^*", "[]a]", "a{3}{2}", r"\v", r"\h", r"\K"),
        *("[a--b]", "[a&&b]", "a\nb", r"\Q.\E", "*a", "{2}", r"\b+", "(?#x)"),
    ],
)
def test_what_they_might_read_otherwise_is_not(pattern: str) -> None:
    assert fault(pattern)


pieces = st.sampled_from(
    [
        "a",
        "B",
        ".",
        r"\d",
        r"\w+",
        r"\s*",
        "[a-c]",
        "[^x]?",
        "(a|b)",
        "(?:c)?",
        "a{1,2}",
        "^",
        "$",
        r"\b",
        "|",
        "-",
    ]
)


@given(st.lists(pieces, min_size=1, max_size=6).map("".join), st.binary(max_size=20))
@settings(max_examples=200, deadline=None)
def test_what_is_taken_can_be_matched(pattern: str, text: bytes) -> None:
    """In NGINX it is proved by tests/real; here, that nothing that is taken is an error or a warning."""
    if fault(pattern) is None:
        re.search(pattern.encode(), text, re.IGNORECASE)

"""What is rendered for NGINX, and the command that explains it; a real NGINX is asked in tests/real."""

from __future__ import annotations

import importlib.util
import json
import re
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from made_rules import ENDPOINT, NO_FOLDER, rollout
from typer.testing import CliRunner

from specops.assets import asset
from specops.cli.app import app
from specops.errors import UsageError
from specops.phases.route import render
from specops.phases.route.cases import fuzz
from specops.phases.route.explain import explain
from specops.phases.route.thresholds import rules
from specops.prometheus import series
from specops.router.nginx import SWITCH, LuaJudge, listener, literal
from specops.router.nginx.configuration import LUA, NATIVE_LIMITS, native_allowed, native_switch

ROOT = Path(__file__).parents[2]
NGINX = "rendered/nginx"
WITHOUT_LUA = {"nginx": {"lua": False}}

values = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.dictionaries(st.text(min_size=1, max_size=5), inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(min_size=1, max_size=5), values, max_size=4))
@settings(max_examples=150, deadline=None)
def test_lua_reads_back_what_is_written(value: dict[str, Any]) -> None:
    assert LuaJudge(f"return {literal(value)}").table == value


def test_the_examples_are_what_would_be_rendered() -> None:
    tool = ROOT / "tools" / "router_examples.py"
    spec = importlib.util.spec_from_file_location("router_examples", tool)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, text in module.files().items():
        assert (module.EXAMPLES / name).read_text() == text, f"{name} is old: make generate"


def test_every_module_that_ships_is_rendered() -> None:
    assert {path.stem for path in asset("nginx", "lua", "specops").glob("*.lua")} == set(LUA)


def test_the_metrics_have_the_names_that_others_read() -> None:
    text = asset("nginx", "lua", "specops", "metrics.lua").read_text()
    names = {value for name, value in vars(series).items() if name.startswith("ROUTE_")}
    exposed = set(re.findall(r'"(specops_route_\w+)"', text))
    assert names <= exposed
    assert (listener.DECISIONS, listener.REQUESTS) == (series.ROUTE_DECISIONS, series.ROUTE_REQUESTS)
    assert listener.INFO in exposed


def test_whatever_is_decided_can_be_told() -> None:
    settings = rollout(route={"trusted": ["127.0.0.1"]})
    for request in islice(fuzz(5), 200):
        found = explain(settings, NO_FOLDER, request)
        assert found.message
        assert "None" not in found.message


def test_render_leaves_what_nginx_keeps(tmp_path: Path) -> None:
    prefix = tmp_path / NGINX
    result = render(rollout(), tmp_path)
    assert result.verdict == "yes"
    (prefix / "switch.json").write_text('{"speculative_percent": 5}')
    (prefix / "lua" / "specops" / "old.lua").write_text("")
    render(rollout(), tmp_path)
    assert json.loads((prefix / "switch.json").read_text()) == {"speculative_percent": 5}
    assert not (prefix / "lua" / "specops" / "old.lua").exists()
    assert all((tmp_path / name).is_file() for name in result.data["files"])


def test_without_lua_the_switch_is_kept_and_the_limits_are_told(tmp_path: Path) -> None:
    result = render(rollout(route={"speculative_percent": 25.0, **WITHOUT_LUA}), tmp_path)
    switch = tmp_path / NGINX / SWITCH
    assert "25.00% speculative;" in switch.read_text()
    assert result.data["limits"] == list(NATIVE_LIMITS)
    switch.write_text("# mine\n")
    render(rollout(route=WITHOUT_LUA), tmp_path)
    assert switch.read_text() == "# mine\n"


def test_without_lua_route_check_says_why_it_cannot_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pools = {"standard": ENDPOINT, "speculative": ENDPOINT}
    Path("rollout.yaml").write_text(yaml.safe_dump({"rollout": "r", "pools": pools, "route": WITHOUT_LUA}))
    done = CliRunner().invoke(app, ["route", "render", "rollout.yaml"])
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1] == "next: nginx -p runs/r/rendered/nginx -c nginx.conf"
    assert f"limit: {NATIVE_LIMITS[0]}" in done.output
    error = CliRunner().invoke(app, ["route", "check", "rollout.yaml"]).exception
    assert isinstance(error, UsageError)
    assert "NGINX without Lua does not decide by what is in a request's body" in error.message
    error = CliRunner().invoke(app, ["route", "check", "--config", "other.conf"]).exception
    assert isinstance(error, UsageError)
    assert "expected a file called nginx.conf" in error.message


@pytest.mark.parametrize(("percent", "sides"), [(0, 1), (100, 1), (0.5, 2), (99.99, 2)])
def test_the_native_switch(percent: float, sides: int) -> None:
    assert native_switch(percent).count(";\n") == sides


def test_without_lua_nothing_goes_where_nothing_should() -> None:
    assert native_allowed(rules(rollout(route={"speculate": False}), NO_FOLDER).table) == []
    assert native_allowed(rules(rollout(route={"max_in_flight": 0}), NO_FOLDER).table) == []


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pools = {"standard": ENDPOINT, "speculative": ENDPOINT}
    classes = [{"name": "code", "contains": ["def "], "speculate": False}]
    route = {"classes": classes, "trusted": ["10.0.0.0/8"]}
    Path("rollout.yaml").write_text(yaml.safe_dump({"rollout": "r", "pools": pools, "route": route}))
    return tmp_path


def explained(request: object, *options: str) -> dict[str, Any]:
    raw = request if isinstance(request, str) else json.dumps(request)
    Path("request.json").write_text(raw)
    done = CliRunner().invoke(app, ["route", "explain", "request.json", "--json", *options])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.output)
    return found


def test_explain(here: Path) -> None:
    found = explained({"messages": [], "max_tokens": 20})
    assert (found["pool"], found["reason"], found["threshold"]) == ("standard", "short", 32)
    assert found["source"] == "default"
    assert found["message"] == "it asks for 20 tokens, fewer than 32"
    found = explained({"prompt": "def f", "max_tokens": 300})
    assert (found["traffic_class"], found["reason"], found["source"]) == ("code", "class", "rollout file")
    assert explained("no JSON")["reason"] == "not-json"
    assert explained({"max_tokens": 300}, "--in-flight", "8")["reason"] == "in-flight"
    assert explained({"max_tokens": 300}, "--percent", "0")["reason"] == "switch"
    wrapped = {"path": "/v1/completions", "headers": {"X-Specops-Pool": "speculative"}, "body": {}}
    assert explained(wrapped)["reason"] == "short"
    assert explained(wrapped, "--remote-addr", "10.9.9.9")["pool"] == "speculative"
    assert explained({"path": "/metrics"})["pool"] == "none"
    assert explained({"body": "\u0000{"})["reason"] == "not-json"


@pytest.mark.parametrize(
    ("request_", "options", "code"),
    [
        ({"path": "x", "body": {}}, [], 2),
        ({"headers": {"a": 1}, "body": {}}, [], 2),
        ({}, ["--remote-addr", "nowhere"], 2),
        ({}, ["--rollout", "missing.yaml"], 3),
    ],
)
def test_what_cannot_be_explained_is_said(
    here: Path, request_: object, options: list[str], code: int
) -> None:
    Path("request.json").write_text(json.dumps(request_))
    done = CliRunner().invoke(app, ["route", "explain", "request.json", *options])
    error = done.exception
    assert error is not None
    assert getattr(error, "exit_code", None) == code

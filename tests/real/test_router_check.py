"""`route check` with a real NGINX; and the variant without Lua."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
import yaml
from daemons import nginx, program, wait_until
from routers import LONG, NGINX, POOL, Answer, ask, pool, rollout
from typer.testing import CliRunner

from specops.cli.app import app
from specops.phases.route import files_of, render
from specops.phases.route.check import ask as ask_trial
from specops.phases.route.check import check_rollout, trial
from specops.progress import SilentProgress
from specops.router import Request
from specops.router.nginx import CONF, SWITCH
from specops.router.nginx.program import explained
from specops.router.settings import fault

NO_FOLDER = Path("no", "such", "run")


@pytest.fixture(autouse=True)
def _there_is_nginx() -> None:
    program("nginx")


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"admin": "0.0.0.0:1", "listen": "[::1]:1", "limits": {"requests_per_s": 0.5, "connections": 1}},
        {"speculate": False},
        {"min_tokens": 0, "min_tokens_unstreamed": 0, "max_in_flight": 0, "otherwise": "standard"},
        {"trusted": ["127.0.0.1", "2001:db8::/32"], "proxies": ["10.0.0.1"], "unsupported": ["tools"]},
        {"paths": []},
        {"paths": ["/"], "unsupported": ["n", "max_tokens", "stream"]},
        {
            "classes": [
                {"name": "default-like", "headers": {"X-Odd": 'a "quoted" $value;{}\'\\'}},
                {"name": "code", "content": r"```|[{};$\"']\x41", "speculate": False},
            ]
        },
    ],
)
def test_what_is_rendered_is_taken_and_does_as_it_says(changes: dict[str, object]) -> None:
    settings = rollout(standard=["127.0.0.1:1"], speculative=["[::1]:2"], **changes)
    result = check_rollout(settings, NO_FOLDER, [], None, SilentProgress())
    assert result.verdict == "yes", [one for one in result.data["tried"] if one["wrong"]]
    assert result.summary["requests"] > 20


def test_a_wrong_rule_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rendered folder in which someone changed what decides; and a case that expects something else."""
    monkeypatch.chdir(tmp_path)
    Path("rollout.yaml").write_text(
        yaml.safe_dump({"rollout": "tiny", "pools": {"standard": POOL, "speculative": POOL}})
    )
    run = CliRunner()
    assert run.invoke(app, ["route", "render", "rollout.yaml"]).exit_code == 0
    conf = Path("runs", "tiny", NGINX, CONF)
    assert run.invoke(app, ["route", "check", "--config", str(conf), "-q"]).exit_code == 0
    decide = conf.parent / "lua" / "specops" / "decide.lua"
    decide.write_text(decide.read_text().replace("temperature > rules", "temperature >= rules"))
    done = run.invoke(app, ["route", "check", "--config", str(conf), "-q"])
    assert done.exit_code == 1
    assert re.search(r"just warm enough +wrong +standard .*it went to standard", done.output)
    cases = [{"name": "mine", "pool": "speculative", "request": {"body": {"max_tokens": 1}}}]
    Path("cases.json").write_text(json.dumps(cases))
    done = run.invoke(app, ["route", "check", "rollout.yaml", "--cases", "cases.json", "-q"])
    assert done.exit_code == 1
    assert re.search(r"mine +wrong +standard .*it went to standard", done.output)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nginx": {"modules": "/nowhere"}}, "NGINX's Lua module is not at /nowhere"),
        ({"nginx": {"modules": None}}, "this NGINX has no Lua module"),
        ({"nginx": {"user": "nobody-of-this-name"}}, "there is no user nobody-of-this-name here"),
    ],
)
def test_what_nginx_refuses_is_said_in_a_sentence(changes: dict[str, object], said: str) -> None:
    if "user" in str(changes) and os.geteuid() != 0:
        pytest.skip("only root's NGINX looks at the user")
    settings = rollout(standard=["127.0.0.1:1"], speculative=["127.0.0.1:2"], **changes)
    result = check_rollout(settings, NO_FOLDER, [], None, SilentProgress())
    assert result.verdict == "no"
    assert said in result.reason
    assert result.data["hint"]


def test_a_name_that_does_not_resolve() -> None:
    settings = rollout(standard=["no-such-host.invalid:1"], speculative=["127.0.0.1:2"])
    result = check_rollout(settings, NO_FOLDER, [], None, SilentProgress())
    assert result.verdict == "no"
    assert "the name no-such-host.invalid:1 does not resolve here" in result.reason


def test_nginxs_words_that_are_not_known_are_left() -> None:
    refusal = explained('unknown directive "frobnicate" in nginx.conf:3')
    assert "frobnicate" in refusal.sentence
    assert refusal.hint


def test_regular_expressions_find_the_same_in_nginx_and_in_python() -> None:
    random = Random(0)
    pieces = [*("a", "Z", ".", r"\d", r"\w+", r"\s*", "[a-c]", "[^x]?", "(a|bc)", "(?:c)?", "a{1,2}", r"\b"),
              *("^", "$", r"\.", r"\x41", "-", "ab*?", r"[\d_]", r"\B", r"\W")]  # fmt: skip
    patterns: list[str] = []
    while len(patterns) < 30:
        made = "".join(random.choices(pieces, k=random.randrange(2, 6)))
        if fault(made) is None and re.search(made, "") is None:
            patterns.append(made)
    classes = [{"name": f"p{number}", "content": made} for number, made in enumerate(patterns)]
    settings = rollout(standard=["127.0.0.1:1"], speculative=["127.0.0.1:2"], classes=classes)
    files, router = files_of(settings, NO_FOLDER), settings.route.router
    seen = set()
    with trial(router, router.find_program(None), files, SilentProgress()) as connection:
        judge = router.judge(router.stored_rules(files))
        for _ in range(40):
            said = "".join(random.choices("aAbBcZzx1_-. \n\té\0", k=random.randrange(12)))
            for _ in range(8):
                said = said[1:] + random.choice("aAbcZ1_. \n\x85ß")
                body = json.dumps({"prompt": said}, ensure_ascii=False).encode()
                request = Request(body, path="/v1/completions")
                told = judge.decide(request)["class"]
                assert ask_trial(connection, request).traffic_class == told, (said, told)
                seen.add(told)
    assert len(seen) > 5


@pytest.fixture
def native(tmp_path: Path) -> Iterator[tuple[str, str, Path, int]]:
    """The variant without Lua, running: its address, the admin's, its folder, its process."""
    with pool(tmp_path, "standard") as standard, pool(tmp_path, "speculative") as speculative:
        settings = rollout(
            standard=[standard.address],
            speculative=[speculative.address],
            classes=[
                {"name": "off", "headers": {"X-Task": 'a "b" $c'}, "speculate": False},
                {"name": "on", "headers": {"X-Task": "on"}, "path": "/v1/completions"},
                {"name": "unseen", "content": "code"},
            ],
            trusted=["127.0.0.1"],
            nginx={"lua": False},
        )
        render(settings, tmp_path)
        prefix = tmp_path / NGINX
        url = f"http://{settings.route.listen}"
        with nginx(prefix / CONF, prefix, url=url, ready="/nowhere") as daemon:
            yield url, f"http://{settings.route.admin}", prefix, daemon.process.pid


def test_without_lua_it_routes_by_headers_and_paths(native: tuple[str, str, Path, int]) -> None:
    url, admin, _, _ = native

    def of(path: str = "/v1/chat/completions", body: object = LONG, **headers: str) -> tuple[str, str, str]:
        answer = ask(f"{url}{path}", body, **headers)
        return *answer.route, answer.headers["x-specops-class"]

    assert of() == ("speculative", "allowed", "default")
    assert of(x_task='a "b" $c') == ("standard", "class", "off")
    assert of("/v1/completions", x_task="on") == ("speculative", "allowed", "on")
    assert of(x_task="on") == ("speculative", "allowed", "default")
    assert of(x_specops_pool="standard") == ("standard", "override", "default")
    assert of("/v1/models", body=None) == ("standard", "class", "other")
    assert ask(f"{url}/metrics").status == 404
    assert b"Active connections" in ask(f"{admin}/nginx_status").body


def test_without_lua_it_fails_over_and_spills(native: tuple[str, str, Path, int]) -> None:
    url, _, _, _ = native
    refused = ask(f"{url}/v1/chat/completions", {**LONG, "script": {"speculative": {"status": 503}}})
    assert (refused.status, refused.json["pool"]) == (200, "standard")

    def slow(_: int) -> Answer:
        body = {**LONG, "script": {"speculative": {"wait_s": 1.0}}}
        return ask(f"{url}/v1/chat/completions", body)

    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(slow, range(20)))
    assert Counter(one.json["pool"] for one in answers) == {"speculative": 8, "standard": 12}


def test_without_lua_the_switch_is_a_file_and_a_reload(native: tuple[str, str, Path, int]) -> None:
    url, _, prefix, pid = native
    switch = prefix / SWITCH
    switch.write_text(switch.read_text().replace("* speculative;", "* standard;"))
    os.kill(pid, signal.SIGHUP)

    def route() -> tuple[str, str]:
        return ask(f"{url}/v1/chat/completions", LONG).route

    wait_until(lambda: route() == ("standard", "switch"), "the switch to be taken")

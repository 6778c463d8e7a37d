"""What the guard switches: real NGINX, a feature flag, files, commands and a server that is started anew."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from daemons import answers, free_port, wait_until
from guarded import stub_pool
from routers import DIRECT, router

from specops.actions import counted_routers, targets
from specops.actions.command import Command, CommandAction, Commands
from specops.actions.flag_file import FlagFile
from specops.actions.http import Http, HttpAction
from specops.actions.restart import Restart, RestartAction
from specops.config import Guard
from specops.errors import ConfigError, EnvironmentFailure
from specops.guard import switch as module
from specops.guard.switch import Switch
from specops.router.nginx.listener import NginxListener

SERVER = Path(__file__).parent / "restartable.py"


class Flag:
    """A feature flag service: GET and POST of a JSON object; it can refuse, and forget."""

    def __init__(self) -> None:
        self.value: dict[str, Any] = {"speculative_decoding_enabled": True, "owner": "ops"}
        self.posts: list[Any] = []
        self.refuse = 0
        self.forgets = False


@contextmanager
def flag_service() -> Iterator[tuple[str, Flag]]:
    flag = Flag()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, flag.value)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            flag.posts.append(body)
            if flag.refuse:
                flag.refuse -= 1
                self._answer(503, {"error": "later"})
                return
            if not flag.forgets:
                flag.value |= body
            self._answer(200, {})

        def _answer(self, status: int, value: object) -> None:
            text = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None: ...

    service = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=service.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{service.server_port}/api/v1/flags", flag
    finally:
        service.shutdown()
        service.server_close()
        thread.join()


def address(url: str) -> str:
    return url.removeprefix("http://")


def test_a_router_is_switched_under_load_and_traffic_is_seen_to_move(tmp_path) -> None:
    with (
        stub_pool() as standard,
        stub_pool() as speculative,
        router(tmp_path, standard=[standard], speculative=[speculative]) as up,
    ):
        stop, asked = threading.Event(), []

        def ask() -> None:
            body = json.dumps({"prompt": "x", "max_tokens": 64, "stream": True}).encode()
            while not stop.is_set():
                with DIRECT.open(f"{up.url}/v1/completions", body, timeout=5) as answer:
                    asked.append(answer.headers["X-Specops-Route"])

        switch = Switch([NginxListener(address(up.admin))], [NginxListener(address(up.admin))])
        thread = threading.Thread(target=ask)
        thread.start()
        try:
            wait_until(lambda: asked, "traffic")
            done = switch.to(0)
        finally:
            stop.set()
            thread.join()
        assert (done.outcome, done.targets[0].before, done.targets[0].after) == ("done", 100, 0)
        assert done.traffic is not None
        assert "on standard" in done.traffic
        assert "speculative" not in done.traffic
        assert set(asked) == {"speculative", "standard"}
        again = switch.to(0)
        assert again.targets[0].tries == 0, "it had it already"
        assert switch.to(25).outcome == "done"
        assert up.percent() == 25


def test_of_several_routers_the_one_that_is_down_is_named_and_the_others_are_switched(tmp_path) -> None:
    with router(tmp_path, standard=["127.0.0.1:1"], speculative=["127.0.0.1:1"]) as up:
        gone = f"127.0.0.1:{free_port()}"
        done = Switch([NginxListener(gone), NginxListener(address(up.admin))]).to(0)
        assert up.percent() == 0
    assert done.outcome == "failed"
    assert [target.error is None for target in done.targets] == [False, True]
    assert done.targets[0].name == f"router {gone}"
    assert "nothing listens there" in (done.targets[0].error or "")
    assert done.targets[0].tries == 3


def test_the_playbooks_flag_is_read_set_and_read_again() -> None:
    with flag_service() as (url, flag):
        switch = Switch([Http(HttpAction(kind="http", url=url))])
        assert switch.to(0).outcome == "done"
        assert flag.posts == [{"speculative_decoding_enabled": False}]
        assert flag.value["speculative_decoding_enabled"] is False
        switch.to(0)
        assert len(flag.posts) == 1, "it is not set twice"


def test_a_flag_that_refuses_once_is_tried_again_and_one_that_forgets_is_no_success(monkeypatch) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.0)
    with flag_service() as (url, flag):
        flag.refuse = 1
        done = Switch([Http(HttpAction(kind="http", url=url))]).to(0)
        assert (done.outcome, done.targets[0].tries) == ("done", 2)
        flag.forgets = True
        done = Switch([Http(HttpAction(kind="http", url=url))]).to(100)
        assert done.outcome == "failed"
        assert "it has 0%" in (done.targets[0].error or "")


def test_a_percentage_deep_in_a_body_and_elsewhere_in_the_answer() -> None:
    with flag_service() as (url, flag):
        flag.value = {"flags": {"spec": {"rollout": 100}}}
        action = HttpAction(
            kind="http",
            url=url,
            body={"flags": {"spec": {"rollout": "{percent}"}}},
            read_at="flags.spec.rollout",
        )
        assert Switch([Http(action)]).to(25).outcome == "done"
        assert flag.posts == [{"flags": {"spec": {"rollout": 25}}}]


def test_a_flag_file_is_what_a_router_follows(tmp_path) -> None:
    with router(tmp_path, standard=["127.0.0.1:1"], speculative=["127.0.0.1:1"]) as up:
        switch = Switch([FlagFile(str(up.prefix / "switch.json"))], [NginxListener(address(up.admin))])
        assert switch.to(0).outcome == "done"
        wait_until(lambda: up.percent() == 0, "the router to read its flag")


@pytest.mark.parametrize(
    "text", ["", "[]", '{"speculative_percent": "all"}', '{"speculative_percent": true}']
)
def test_a_flag_file_with_something_else_in_it_is_told(tmp_path, text) -> None:
    (tmp_path / "flag").write_text(text)
    (reading,) = Switch([FlagFile(str(tmp_path / "flag"))]).read()
    assert reading.percent is None
    assert 'expected JSON such as {"speculative_percent": 100}' in (reading.error or "")


def command(folder: Path, *, fails: bool = False) -> CommandAction:
    state = folder / "state"
    write = f"open({str(state)!r}, 'w').write(sys.argv[1])" if not fails else "sys.exit('it is locked')"
    return CommandAction(
        kind="command",
        set=[sys.executable, "-c", f"import sys; {write}", "{enabled}"],
        read=[
            sys.executable,
            "-c",
            f"import os; p={str(state)!r}; print(open(p).read() if os.path.exists(p) else 'on')",
        ],
    )


def test_a_command_of_ones_own(tmp_path) -> None:
    switch = Switch([Command(command(tmp_path), Commands(tmp_path))])
    assert switch.read()[0].percent == 100
    assert switch.to(0).outcome == "done"
    assert (tmp_path / "state").read_text() == "false"


def test_a_command_that_fails_is_told_with_its_last_words(tmp_path) -> None:
    done = Switch([Command(command(tmp_path, fails=True), Commands(tmp_path))]).to(0)
    assert done.outcome == "failed"
    assert "exit code 1: it is locked" in (done.targets[0].error or "")


def test_a_command_that_is_not_there_or_not_done_is_told(tmp_path) -> None:
    absent = CommandAction(kind="command", set=["{percent}"], read=["/nowhere/at-all"])
    (reading,) = Switch([Command(absent, Commands(tmp_path))]).read()
    assert "No such file" in (reading.error or "") or "exit code 127" in (reading.error or "")
    slow = CommandAction(kind="command", set=["{percent}"], read=["sleep", "60"], timeout_s=0.2)
    (reading,) = Switch([Command(slow, Commands(tmp_path))]).read()
    assert "timed out after 0.2 s and was ended" in (reading.error or "")


def test_a_command_that_cannot_be_run_is_said(tmp_path) -> None:
    (tmp_path / "file").touch()
    for folder, word, said in ((tmp_path / "file", "true", "exists"), (tmp_path, "tr\0ue", "null byte")):
        with pytest.raises(EnvironmentFailure, match=f"could not run .*{said}"):
            Commands(folder).run([word], 5.0)


def test_a_single_server_is_drained_and_started_anew_without_speculation(tmp_path) -> None:
    port, said = free_port(), tmp_path / "said"

    def words(what: str) -> list[str]:
        return [sys.executable, str(SERVER), str(tmp_path), str(port), what]

    action = RestartAction(
        kind="restart",
        drain=words("drain"),
        stop=words("stop"),
        start_standard=words("start-standard"),
        start_speculative=words("start-speculative"),
        admit=words("admit"),
        health=f"http://127.0.0.1:{port}/health",
        metrics=f"http://127.0.0.1:{port}/metrics",
        timeout_s=30.0,
    )
    commands = Commands(tmp_path / "guard")
    commands.run(words("start-speculative"), 30.0)
    try:
        switch = Switch([Restart(action, commands)])
        wait_until(lambda: answers(action.health), "the server to be up")
        assert switch.to(100).targets[0].tries == 0
        assert switch.to(0).outcome == "done"
        assert said.read_text().split()[-4:] == ["drain", "stop", "start-standard", "admit"]
        assert switch.read()[0].percent == 0
        switch.to(0, again=True)
        assert said.read_text().split()[-2:] == ["admit", "admit"], "it may not have been admitted"
        assert switch.to(100).outcome == "done"
    finally:
        commands.run(words("stop"), 30.0)


def test_without_actions_it_is_the_routers_and_nothing_at_all_is_refused() -> None:
    routers = [NginxListener(address) for address in ("10.0.0.1:8081", "10.0.0.2:8081")]
    names = ["router 10.0.0.1:8081", "router 10.0.0.2:8081"]
    restart = {"kind": "restart", "stop": ["a"], "start_standard": ["b"], "start_speculative": ["c"]}
    restart |= {"health": "http://127.0.0.1:1/health", "read": ["d"]}
    for sections, switched, counted in (
        ([], names, routers),
        ([{"kind": "notify"}], names, routers),
        ([restart], ["server http://127.0.0.1:1/health"], []),  # to a router it stays the same pool
        ([restart, {"kind": "router"}], ["server http://127.0.0.1:1/health", *names], routers),
    ):
        actions = Guard.model_validate({"actions": sections}).actions
        assert [target.name for target in targets(actions, routers, Path())] == switched
        assert counted_routers(actions, routers) == counted
    with pytest.raises(ConfigError, match="nothing to switch"):
        targets([], [], Path())

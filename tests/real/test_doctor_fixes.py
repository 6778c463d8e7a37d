"""Each fix of `doctor` as a user takes it: read from what is printed, pasted, and the finding is gone.

Where a finding needs the address of a second server or a key, the word in capitals is filled in, and nothing
else is changed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import daemons
import pytest
import yaml
from calling import specops
from daemons import answers, free_port, wait_until

from specops.launch.servers import Server

ROOT = Path(__file__).parents[2]
UP_S = 90.0
SLOW = pytest.mark.slow


@dataclass(frozen=True)
class Printed:
    """A finding on doctor's page."""

    found: str
    into: str | None
    """The file of the text to paste."""

    text: str
    command: str | None


def findings(page: str) -> dict[str, Printed]:
    """What is not ok, by name."""
    page, counts = re.split(r"^(?=\d+ checks: )", page, flags=re.MULTILINE)
    starts = list(re.finditer(r"^(ok|warn|fail|unknown) +(\S+(?: \S+)*)  +(.*)$", page, re.MULTILINE))
    ends = [found.start() for found in starts[1:]] + [len(page)]
    found: dict[str, Printed] = {}
    for start, end in zip(starts, ends, strict=True):
        if start[1] == "ok":
            continue
        head, _, rest = page[start.end() : end].partition("fix: ")
        assert head.strip() == "", head
        found[start[2]] = _printed(start[3], rest)
    assert sum(map(int, re.findall(r"(\d+) (?:warn|fail|unknown)", counts))) == len(found), counts
    return found


def _printed(what: str, fix: str) -> Printed:
    pasted = re.match(r"paste this into (.*?)(, then run the command below it)?\n", fix)
    if pasted is None:
        return Printed(what, None, "", fix.strip() or None)
    text = fix[pasted.end() :]
    command = None
    if pasted[2]:
        text, _, command = text.rstrip().rpartition("\n")
    return Printed(what, pasted[1], text, command)


@dataclass
class Desk:
    """A shell in one folder, whose exports last, and the rollout file that is edited."""

    folder: Path
    path: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()

    def doctor(self) -> dict[str, Printed]:
        words = (str(self.path),) if self.path else self.arguments
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            return findings(specops("doctor", *words).stdout)

    def follow(self, fix: Printed, **filled: str) -> None:
        if fix.into is not None:
            assert fix.into == f"{self.path}, in place of the sections of the same names"
            assert self.path is not None
            text = filling(fix.text, filled)
            sections = yaml.safe_load(self.path.read_text()) | yaml.safe_load(text)
            self.path.write_text(yaml.safe_dump(sections, sort_keys=False))
        if fix.command is not None:
            self.run(filling(fix.command, filled))

    def run(self, command: str) -> None:
        """In a shell; what it exports is kept."""
        kept = self.folder / "environment"
        done = subprocess.run(
            ["bash", "-c", f"{command}\nstatus=$?; env -0 > {shlex.quote(str(kept))}; exit $status"],
            cwd=self.folder,
            env=self.shell(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        lines = [line.partition("=") for line in kept.read_text().split("\0") if line]
        self.environment = {name: value for name, _, value in lines if os.environ.get(name) != value}

    @contextmanager
    def serving(self, command: str, until: Callable[[], object]) -> Iterator[None]:
        """A command that runs until it is stopped."""
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=self.folder,
                env=self.shell(),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            wait_until(lambda: until() or process.poll(), command, UP_S)
            assert process.poll() is None, (self.folder / "log").read_text()
            yield
        finally:
            daemons.stop(process)

    def shell(self) -> dict[str, str]:
        program = self.folder / "bin" / "specops"
        if not program.exists():
            program.parent.mkdir(exist_ok=True)
            program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m specops "$@"\n')
            program.chmod(0o755)
        path = f"{program.parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
        return os.environ | {"PATH": path, "PYTHONPATH": ":".join(sys.path)} | self.environment


def filling(text: str, filled: Mapping[str, str]) -> str:
    for word, value in filled.items():
        assert word in text, f"{word} is not in: {text}"
        text = text.replace(word, value)
    assert not re.search(r"\b(YOUR_[A-Z_]+|HOST|PORT)\b", text.partition("  #")[0]), text
    return text


def fixed(desk: Desk, name: str, **filled: str) -> Printed:
    """The finding, which was there and is gone once its fix was followed."""
    before = desk.doctor()
    assert name in before, sorted(before)
    desk.follow(before[name], **filled)
    after = desk.doctor()
    assert name not in after, after[name]
    return before[name]


class Gate:
    """What stands before a server: it may want a key, limit requests, show a page, or have a wrong clock."""

    def __init__(self, base_url: str) -> None:
        self.root = base_url.removesuffix("/v1")
        self.key: str | None = None
        self.page_at: str | None = None
        self.every_s = 0.0
        self.ahead_s: Callable[[], float] = lambda: 0.0
        self.metrics: Callable[[str], str] = lambda text: text
        self.posts = 0
        self._last: float | None = None
        """When it refused last; it refuses the first request, and those that come too soon after it."""

    def refusal(self, path: str, authorization: str | None) -> tuple[int, bytes] | None:
        if self.key is not None and authorization != f"Bearer {self.key}":
            return 401, b"{}"
        if self.page_at is not None and path.startswith(self.page_at):
            return 200, b"<!doctype html><title>Welcome</title>"
        if self.every_s and path == "/v1/models":
            now = time.monotonic()
            if self._last is None or now - self._last < self.every_s:
                self._last = now
                return 429, b"{}"
        return None

    def forwarded(self, method: str, path: str, body: bytes | None, kind: str) -> tuple[int, bytes]:
        request = urllib.request.Request(self.root + path, body, method=method)
        self.posts += method == "POST"
        if body:
            request.add_header("Content-Type", kind)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=30) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()
        return 200, self.metrics(text.decode()).encode() if path == "/metrics" else text


@contextmanager
def gate(base_url: str) -> Iterator[tuple[Gate, str]]:
    """One that is passed to reach the server at `base_url`, and its own base URL."""
    before = Gate(base_url)

    class Handler(BaseHTTPRequestHandler):
        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string(time.time() + before.ahead_s())

        def do_GET(self) -> None:
            self.answer(None)

        def do_POST(self) -> None:
            self.answer(self.rfile.read(int(self.headers["Content-Length"])))

        def answer(self, body: bytes | None) -> None:
            refused = before.refusal(self.path, self.headers["Authorization"])
            status, text = refused or before.forwarded(
                self.command, self.path, body, self.headers["Content-Type"] or ""
            )
            self.send_response(status)
            if status == 429:
                self.send_header("Retry-After", "1")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield before, f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


def endpoint(base_url: str, model: str = "tiny") -> dict[str, str]:
    return {"engine": "endpoint", "base_url": base_url, "model": model}


def pools(standard: str, speculative: str) -> dict[str, Any]:
    return {"standard": endpoint(standard), "speculative": endpoint(speculative)}


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPECOPS_API_KEY", "OPENAI_API_KEY", "SPECOPS_PROMETHEUS_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_the_same_server_twice_gets_the_address_of_another(
    desk: Desk, written, standard: Server, server: Server
) -> None:
    desk.path = written(pools=pools(standard.base_url, standard.base_url))
    host, port = server.base_url.removeprefix("http://").removesuffix("/v1").split(":")
    fixed(desk, "pools", HOST=host, PORT=port)


def test_swapped_pools_are_swapped_back(desk: Desk, written, standard: Server, server: Server) -> None:
    wrong = pools(server.base_url, standard.base_url)
    addresses = {"standard": ["127.0.0.1:1"], "speculative": ["127.0.0.1:2"]}
    desk.path = written(pools=wrong, addresses=addresses, monitor={"names": {"standard": "vllm-0.10"}})
    found = desk.doctor()["standard speculates"]
    assert "look swapped" in found.found
    desk.follow(found)
    after = desk.doctor().get("standard speculates")
    # On a busy machine a server without drafts sends several tokens in one chunk.
    assert after is None or "it may speculate" in after.found
    now = yaml.safe_load(desk.path.read_text())
    assert now["addresses"] == {"standard": ["127.0.0.1:2"], "speculative": ["127.0.0.1:1"]}
    assert now["monitor"] == {"names": {"speculative": "vllm-0.10"}}


def test_a_model_that_is_not_served_is_replaced_by_one_that_is(
    desk: Desk, written, standard: Server, server: Server
) -> None:
    wrong = pools(standard.base_url, server.base_url)
    wrong["standard"]["model"] = "large"
    desk.path = written(pools=wrong)
    fixed(desk, "standard endpoint")


@SLOW
def test_too_few_prompts_are_repeated(desk: Desk, written) -> None:
    desk.path = written()
    fixed(desk, "prompts")
    assert yaml.safe_load(desk.path.read_text())["measure"]["endpoint"] == "completions", "it is kept"


@SLOW
def test_samples_are_replaced_by_prompts_of_your_own(desk: Desk, written) -> None:
    desk.path = written()
    samples = ROOT / "playbooks" / "embedded" / "prompts.json"
    shutil.copy(samples, desk.folder / "prompts.json")
    own = [{"id": str(n), "class": "chat", "text": f"hello {n}", "max_tokens": 4} for n in range(40)]
    (desk.folder / "own.json").write_text(json.dumps(own))
    sections = yaml.safe_load(desk.path.read_text())
    sections["measure"]["repeats"] = 4
    desk.path.write_text(yaml.safe_dump(sections))
    fixed(desk, "prompts", **{"YOUR_FILE.json": "own.json"})


def test_a_key_that_is_wanted_is_exported(desk: Desk, written, standard: Server, server: Server) -> None:
    with gate(standard.base_url) as (before, url):
        before.key = "secret"
        desk.path = written(pools=pools(url, server.base_url))
        fixed(desk, "standard endpoint", YOUR_KEY="secret")


@SLOW
def test_a_limit_of_requests_goes_into_the_file_and_is_respected(
    desk: Desk, written, standard: Server, server: Server
) -> None:
    with gate(standard.base_url) as (before, url):
        before.every_s = 0.9
        desk.path = written(pools=pools(url, server.base_url))
        before_it = desk.doctor()["standard endpoint"]
        assert "answered 429" in before_it.found
        desk.follow(before_it)
        before._last = None
        assert "standard endpoint" not in desk.doctor()
        assert yaml.safe_load(desk.path.read_text())["measure"]["max_rps"] == 1


@SLOW
def test_without_a_file_a_limit_is_waited_for(desk: Desk, standard: Server) -> None:
    with gate(standard.base_url) as (before, url):
        before.every_s = 0.9
        desk.arguments = ("--base-url", url)
        fix = desk.doctor()["endpoint"].command
        assert fix == f"sleep 1 && specops doctor --base-url {url}"
        desk.run(f"{fix} || test $? -eq 1")  # another check of this machine may fail
        before._last = 0.0
        assert "endpoint" not in desk.doctor()


@SLOW
def test_a_page_in_place_of_an_api_is_corrected_to_its_path(
    desk: Desk, written, standard: Server, server: Server
) -> None:
    with gate(standard.base_url) as (before, url):
        before.page_at = "/models"
        desk.path = written(pools=pools(url.removesuffix("/v1"), server.base_url))
        found = fixed(desk, "standard endpoint")
        assert "answered with a page" in found.found
        alone = Desk(desk.folder, arguments=("--base-url", url.removesuffix("/v1")))
        assert alone.doctor()["endpoint"].command == f"specops doctor --base-url {url}"


@SLOW
def test_a_page_at_the_right_path_gets_another_address(
    desk: Desk, written, standard: Server, server: Server
) -> None:
    with gate(standard.base_url) as (before, url):
        before.page_at = "/v1"
        desk.path = written(pools=pools(url, server.base_url))
        host, port = standard.base_url.removeprefix("http://").removesuffix("/v1").split(":")
        fixed(desk, "standard endpoint", HOST=host, PORT=port)


@SLOW
def test_a_clock_is_set_by_the_command(desk: Desk, written, standard: Server, server: Server) -> None:
    """`timedatectl` is a stand-in: it sets the clock of the server, which no test may do to a machine."""
    desk.shell()
    set_at = desk.folder / "set"
    clock = desk.folder / "bin" / "timedatectl"
    clock.write_text(f'#!/bin/sh\n[ "$*" = "set-ntp true" ] && touch {shlex.quote(str(set_at))}\n')
    clock.chmod(0o755)
    with gate(standard.base_url) as (before, url):
        before.ahead_s = lambda: 0.0 if set_at.exists() else 90.0
        desk.path = written(pools=pools(url, server.base_url))
        fixed(desk, "standard clock")


@SLOW
def test_a_server_in_both_pools_of_the_router_is_given_to_one(
    desk: Desk, written, standard: Server, server: Server
) -> None:
    both = standard.base_url.removeprefix("http://").removesuffix("/v1")
    desk.path = written(addresses={"standard": [both], "speculative": [both]})
    fixed(desk, "pool addresses")


def of_an_older_release(text: str) -> str:
    names = {"request_time_per_output_token_seconds": "time_per_output_token_seconds"}
    names |= {"kv_cache_usage_perc": "gpu_cache_usage_perc"}
    for new, old in names.items():
        text = text.replace(f"vllm:{new}", f"vllm:{old}")
    return text


@SLOW
def test_names_of_another_engine_are_given_to_monitoring(
    desk: Desk, written, standard: Server, server: Server
) -> None:
    with gate(standard.base_url) as (before, url):
        before.metrics = of_an_older_release
        desk.path = written(pools=pools(url, server.base_url))
        fixed(desk, "standard metric names")
        assert yaml.safe_load(desk.path.read_text())["monitor"]["names"] == {"standard": "vllm-0.10"}


@SLOW
def test_without_a_file_names_of_another_engine_go_into_a_new_one(
    desk: Desk, standard: Server, server: Server
) -> None:
    with gate(server.base_url) as (before, url):
        before.metrics = of_an_older_release
        desk.arguments = ("--base-url", url)
        host, port = standard.base_url.removeprefix("http://").removesuffix("/v1").split(":")
        found = desk.doctor()["metric names"]
        assert found.command is not None
        command = filling(found.command, {"HOST": host, "PORT": port})
        desk.run(command.replace("  #", " || test $? -eq 1  #"))  # another check of this machine may fail
        desk.path = desk.folder / "mine" / "rollout.yaml"
        assert yaml.safe_load(desk.path.read_text())["monitor"]["names"] == {"speculative": "vllm-0.10"}
        assert "speculative metric names" not in desk.doctor()


@SLOW
def test_without_a_file_names_that_something_cuts_are_read_of_the_server_itself(
    desk: Desk, server: Server
) -> None:
    with gate(server.base_url) as (before, url):
        before.metrics = lambda text: re.sub(r"^(vllm:\w+)_total", r"\1", text, flags=re.MULTILINE)
        desk.arguments = ("--base-url", url)
        command = desk.doctor()["metric names"].command
        assert command is not None
        host, port = server.base_url.removeprefix("http://").removesuffix("/v1").split(":")
        words = shlex.split(filling(command, {"HOST": host, "PORT": port}), comments=True)
        desk.arguments = tuple(words[2:])
        assert "metric names" not in desk.doctor()


@SLOW
def test_names_that_come_with_the_first_request_come_with_it(desk: Desk, server: Server) -> None:
    with gate(server.base_url) as (before, url):
        late = re.compile(r"^vllm:request_success_total.*\n", re.MULTILINE)
        before.metrics = lambda text: text if before.posts else late.sub("", text)
        desk.arguments = ("--base-url", url)
        fixed(desk, "metric names")


@SLOW
def test_a_server_that_does_not_run_is_started(desk: Desk, written, standard: Server) -> None:
    port = free_port()
    desk.path = written(pools=pools(standard.base_url, f"http://127.0.0.1:{port}/v1"))
    command = desk.doctor()["speculative endpoint"].command
    assert command is not None
    assert command.startswith(f"YOUR_START_COMMAND  # on 127.0.0.1, port {port}, with speculation")
    start = f"specops serve --port {port} --served-model-name tiny --tree chain:3"
    with desk.serving(start, lambda: answers(f"http://127.0.0.1:{port}/health")):
        found = desk.doctor()
        assert "speculative endpoint" not in found
        assert "speculative metrics" not in found


def complete(base_url: str) -> None:
    body = json.dumps({"model": "tiny", "prompt": "hello", "max_tokens": 16}).encode()
    request = urllib.request.Request(f"{base_url}/completions", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=60).close()


@SLOW
@pytest.mark.parametrize(
    ("speculates", "pool", "finding"),
    [(True, "standard", "standard speculates"), (False, "speculative", "speculative metrics")],
)
def test_a_server_that_wrongly_speculates_or_does_not_is_restarted(
    desk: Desk, written, standard: Server, server: Server, speculates: bool, pool: str, finding: str
) -> None:
    port = free_port()
    other = {True: server.base_url, False: standard.base_url}[speculates]
    urls = {"standard": other, "speculative": other} | {pool: f"http://127.0.0.1:{port}/v1"}
    desk.path = written(pools=pools(**urls))
    start = f"specops serve --port {port} --served-model-name tiny"
    modes = {True: "--tree chain:3", False: "--no-speculation"}
    up = lambda: answers(f"http://127.0.0.1:{port}/health")  # noqa: E731
    with desk.serving(f"{start} {modes[speculates]}", up):
        assert speculates or "whether it speculates" in desk.doctor()[finding].found, "before any traffic"
        complete(f"http://127.0.0.1:{port}/v1")
        command = desk.doctor()[finding].command
    assert command is not None
    assert command.startswith("YOUR_START_COMMAND"), "on the user's own port nothing of ours is proposed"
    with desk.serving(f"{start} {modes[not speculates]}", up):
        assert finding not in desk.doctor()


@SLOW
def test_a_prometheus_that_is_down_is_started_and_has_the_pools(
    desk: Desk, written, standard: Server, server: Server
) -> None:
    daemons.program("prometheus")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    desk.path = written(addresses={"prometheus": url}, monitor={"scrape_interval_s": 1, "window_s": 10})
    command = desk.doctor()["prometheus server"].command
    assert command is not None
    with desk.serving(command, lambda: daemons._ready(f"{url}/-/ready")):
        assert "prometheus server" not in desk.doctor()
        _all_have_data(desk, standard, server)


@SLOW
def test_a_prometheus_without_the_pools_gets_them(
    desk: Desk, written, standard: Server, server: Server
) -> None:
    config = desk.folder / "prometheus.yml"
    config.write_text("scrape_configs: []\n")
    with daemons.prometheus(config, desk.folder) as up:
        desk.path = written(
            addresses={"prometheus": up.url}, monitor={"scrape_interval_s": 1, "window_s": 10}
        )
        fix = desk.doctor()["prometheus names"]
        assert fix.into == "its prometheus.yml, as further entries of these lists"
        loaded = yaml.safe_load(config.read_text())
        for name, entries in yaml.safe_load(fix.text).items():
            loaded[name] = [*loaded.get(name, []), *entries]
        loaded["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config.write_text(yaml.safe_dump(loaded))
        assert fix.command is not None
        desk.run(fix.command)
        _all_have_data(desk, standard, server)


@SLOW
def test_a_prometheus_without_targets_gets_the_endpoint(desk: Desk, server: Server) -> None:
    config = desk.folder / "prometheus.yml"
    config.write_text("scrape_configs: []\n")
    with daemons.prometheus(config, desk.folder) as up:
        desk.arguments = ("--base-url", server.base_url, "--prometheus", up.url)
        fix = desk.doctor()["prometheus server"]
        assert fix.into == "its prometheus.yml, as further entries of these lists"
        config.write_text(f"global: {{scrape_interval: 1s}}\n{fix.text}")
        assert fix.command is not None
        desk.run(fix.command)
        wait_until(lambda: "prometheus server" not in desk.doctor(), "Prometheus to scrape the server", UP_S)


def _all_have_data(desk: Desk, standard: Server, server: Server) -> None:
    """Under traffic, as in service."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    body = json.dumps({"model": "tiny", "prompt": "the server", "max_tokens": 16}).encode()

    def no_finding() -> bool:
        for one in (standard, server):
            request = urllib.request.Request(f"{one.base_url}/completions", body)
            request.add_header("Content-Type", "application/json")
            opener.open(request, timeout=30).close()
        return "prometheus names" not in desk.doctor()

    wait_until(no_finding, "Prometheus to have every name", UP_S)


@SLOW
def test_a_prometheus_that_wants_a_token_gets_it(desk: Desk, written) -> None:
    config = desk.folder / "prometheus.yml"
    config.write_text("scrape_configs: []\n")
    with daemons.prometheus(config, desk.folder) as up, gate(up.url) as (before, url):
        before.key = "secret"
        desk.path = written(addresses={"prometheus": url.removesuffix("/v1")})
        fixed(desk, "prometheus server", YOUR_TOKEN="secret")


@SLOW
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_router_that_does_not_run_is_rendered_and_started(desk: Desk, written, elsewhere: bool) -> None:
    daemons.program("nginx")
    admin = f"127.0.0.1:{free_port()}"
    desk.path = written(
        addresses={"routers": [f"127.0.0.1:{free_port()}" if elsewhere else admin]},
        route={"listen": f"127.0.0.1:{free_port()}", "admin": admin},
    )
    fix = desk.doctor()["router"]
    assert (fix.into is not None) == elsewhere
    desk.follow(Printed(fix.found, fix.into, fix.text, None))
    assert fix.command is not None
    started = f"{fix.command} -g 'daemon off;'"  # so that the test can stop it
    with desk.serving(started, lambda: answers(f"http://{admin}/specops/switch")):
        assert "router" not in desk.doctor()


@SLOW
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_guard_that_does_not_run_is_started(desk: Desk, written, elsewhere: bool) -> None:
    config = desk.folder / "prometheus.yml"
    config.write_text("scrape_configs: []\n")
    where = f"127.0.0.1:{free_port()}"
    guard = {"actions": [{"kind": "flag_file", "path": str(desk.folder / "percent")}], "listen": where}
    named = f"127.0.0.1:{free_port()}" if elsewhere else where
    with daemons.prometheus(config, desk.folder) as up:
        desk.path = written(addresses={"prometheus": up.url, "guard": named}, guard=guard)
        fix = desk.doctor()["guard"]
        assert (fix.into is not None) == elsewhere
        desk.follow(Printed(fix.found, fix.into, fix.text, None))
        assert fix.command is not None
        with desk.serving(fix.command, lambda: answers(f"http://{where}/health")):
            assert "guard" not in desk.doctor()


@SLOW
def test_a_program_beside_the_interpreter_is_put_on_the_path(desk: Desk, written, monkeypatch) -> None:
    name = Path(sys.executable).name
    desk.path = written(
        pools={
            name: {"engine": "command", "command": f"{program} -m http.server --bind 127.0.0.1 {{port}}"}
            for name, program in (("standard", "pytest"), ("speculative", "pytest"))
        }
    )
    assert (Path(sys.executable).parent / "pytest").exists(), name
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    fixed(desk, "program")


@SLOW
def test_a_shell_on_one_core_may_use_all(desk: Desk) -> None:
    if (os.cpu_count() or 1) == 1:
        pytest.skip("this machine has one core")
    page = _isolated(desk, "taskset -c 0 bash", "specops doctor")
    fix = findings(page)["cores"].command
    assert fix is not None
    page = _isolated(desk, "taskset -c 0 bash", f"{{ {fix}\n}} >&2; specops doctor")
    assert "cores" not in findings(page)


@SLOW
def test_a_loopback_interface_that_is_down_is_set_up(desk: Desk) -> None:
    inside = "unshare --user --map-root-user --net bash"
    _needs_namespaces(inside, "ip")
    if "port" not in findings(_isolated(desk, inside, "specops doctor")):
        pytest.skip("a server may listen on 127.0.0.1 here although the interface is down")
    fix = findings(_isolated(desk, inside, "specops doctor"))["port"].command
    page = _isolated(desk, inside, f"{{ {fix}\n}} >&2; specops doctor")
    assert "port" not in findings(page)


@SLOW
def test_a_full_disk_leads_to_another_one(desk: Desk) -> None:
    inside = "unshare --user --map-root-user --mount bash"
    _needs_namespaces(inside, "mount")
    small, home = desk.folder / "small", desk.folder / "home"
    small.mkdir()
    home.mkdir()
    desk.environment["HOME"] = str(home)
    mount = f"mount -t tmpfs -o size=8M none {small} && cd {small} && mkdir mine && cd mine"
    fix = findings(_isolated(desk, inside, f"{mount} && specops doctor"))["disk"].command
    assert fix is not None
    page = _isolated(desk, inside, f"{mount} && {fix} && specops doctor")
    assert "disk" not in findings(page)


@SLOW
def test_a_missing_model_of_the_shipped_pair_comes_back(desk: Desk) -> None:
    clone = desk.folder / "checkout"
    cloned = subprocess.run(["git", "clone", "-q", "--shared", ROOT, clone], check=False)
    if cloned.returncode:
        pytest.skip("this is no checkout")
    (clone / "playbooks" / "embedded" / "draft" / "model.safetensors").unlink()
    desk.environment["PYTHONPATH"] = f"{clone}:{clone / 'kernels'}"
    fix = findings(_isolated(desk, "bash", "specops doctor"))["shipped pair"].command
    page = _isolated(desk, "bash", f"{{ {fix}\n}} >&2; specops doctor")
    assert "shipped pair" not in findings(page)


def _isolated(desk: Desk, shell: str, commands: str) -> str:
    """The page of the last command, in a shell that is started so."""
    done = subprocess.run(
        [*shlex.split(shell), "-c", commands],
        cwd=desk.folder,
        env=desk.shell(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "specops" in done.stdout, done.stderr
    return done.stdout


def _needs_namespaces(inside: str, program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    if subprocess.run([*shlex.split(inside), "-c", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make namespaces")

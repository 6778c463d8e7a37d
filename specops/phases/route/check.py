"""`specops route check`: NGINX loads the rendered files, and sends each request to the right pool.

The router under test runs on free ports of loopback, from a folder of its own. Its pools are two servers that
answer every request with the pool's name.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from pwd import getpwuid
from typing import Any

from pydantic import BaseModel

from specops import results
from specops.config import Rollout
from specops.errors import EnvironmentFailure, FileError, ServerError, UsageError, reason_of
from specops.hints import ROLLOUT, in_rollout
from specops.launch.servers import FixedAddress, Server, free_port, running
from specops.phases.route import CONF, of, text, write
from specops.phases.route.cases import Case, fuzz, shipped
from specops.phases.route.explain import LOOPBACK, Judge, Request, damaged, may_choose
from specops.phases.route.thresholds import PLAYBOOK, rules
from specops.progress import Progress
from specops.render.nginx import LUA
from specops.results import Result
from specops.section import Frozen

NGINX_IN = ("/usr/sbin", "/usr/local/sbin", "/usr/local/openresty/nginx/sbin")
START_S = 30.0


@dataclass(frozen=True)
class RouterAnswer:
    status: int
    pool: str
    """The pool that answered; `none` if the router itself did."""

    traffic_class: str
    reason: str


def nginx(named: str | None) -> str:
    """The path of NGINX. Raises EnvironmentFailure if it is not installed."""
    places = os.pathsep.join((os.environ.get("PATH", ""), *NGINX_IN))
    found = shutil.which(named or "nginx", path=places)
    if found is None:
        raise EnvironmentFailure(
            f"could not find {named or 'nginx'}: expected it on PATH, or --nginx PATH",
            hint="apt-get install nginx libnginx-mod-http-lua  # on Debian",
        )
    return found


def refusal(program: str, files: Mapping[str, str]) -> str | None:
    """The first error of `nginx -t` on these files, unchanged; None if NGINX loads them."""
    with _folder() as prefix:
        write(prefix, dict(files))
        words = [program, "-t", "-q", "-p", str(prefix), "-c", CONF, "-e", "stderr"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=START_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EnvironmentFailure(f"could not run {program}: {reason_of(error)}") from error
    if done.returncode == 0:
        return None
    said = [line for line in done.stderr.splitlines() if "[emerg]" in line] or done.stderr.splitlines()
    message = said[0] if said else f"exit code {done.returncode}"
    return re.sub(r"^.*?\[emerg\] \d+#\d+: ", "", message).replace(f"{prefix}/", "")


@contextmanager
def trial(program: str, files: Mapping[str, str], progress: Progress) -> Iterator[http.client.HTTPConnection]:
    """A connection to a router with these files, its switch at 100%. Raises ServerError if it does not
    start."""
    with ExitStack() as stack:
        prefix = stack.enter_context(_folder())
        pools = {name: stack.enter_context(_pool_server(name)) for name in ("standard", "speculative")}
        port, admin = free_port(), free_port()
        write(prefix, {**files, CONF: _moved(files[CONF], (port, admin), pools)})
        (prefix / "switch.json").write_text('{"speculative_percent": 100}\n')
        stack.enter_context(started(program, prefix, admin, log=prefix / "nginx.log", progress=progress))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_S)
        stack.callback(connection.close)
        yield connection


@contextmanager
def started(program: str, prefix: Path, port: int, *, log: Path, progress: Progress) -> Iterator[Server]:
    """NGINX in the folder `prefix`. It must answer /health and /v1/models on this port of loopback."""
    command = [program, "-p", str(prefix), "-c", CONF, "-e", "stderr", "-g", "daemon off;"]
    with running(
        "router", command, address=FixedAddress.on(port), log=log, progress=progress, start_timeout_s=START_S
    ) as server:
        yield server


def ask(connection: http.client.HTTPConnection, request: Request) -> RouterAnswer:
    """Send `request`. The answer names the pool whose server answered. Raises ServerError if the router does
    not answer."""
    try:
        connection.request(request.method, request.path, body=request.body, headers=dict(request.headers))
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise ServerError(
            f"the router did not answer {request.method} {request.path}: {reason_of(error)}"
        ) from error
    try:
        pool = str(json.loads(body)["pool"])
    except (ValueError, KeyError, TypeError):
        pool = "none"
    return RouterAnswer(
        answer.status,
        pool,
        answer.headers.get("X-Specops-Class", ""),
        answer.headers.get("X-Specops-Reason", ""),
    )


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="specops-router-") as folder:
        yield Path(folder)


_MOVES = (
    (r"(?m)^( *listen )\S+;", 2),
    (r"(?s)(upstream specops_speculative \{.*?)\n( *server [^\n]+\n)+", 1),
    (r"(?s)(upstream specops_standard \{.*?)\n( *server [^\n]+\n)+", 1),
)


_UP = """        location = /v1/models {
            return 200 '{"data": [{"id": "router"}]}';
        }
"""
"""Path on the admin listener that `running` asks for at the start, whatever paths the router serves."""


def _moved(text: str, listeners: tuple[int, int], pools: Mapping[str, int]) -> str:
    """The configuration with the test's ports (users', admin) and servers in place of its own."""
    ports = iter(listeners)
    found = re.findall(_MOVES[0][0], text)
    if len(found) != 2 or any(len(re.findall(pattern, text)) != count for pattern, count in _MOVES):
        raise UsageError(
            "this is not a configuration that specops rendered: expected the rollout file, or the "
            "nginx.conf in "
            "the folder rendered/nginx",
            hint=f"specops route render {ROLLOUT}",
        )
    text = re.sub(_MOVES[0][0], lambda listen: f"{listen[1]}127.0.0.1:{next(ports)};", text)
    for pattern, pool in ((_MOVES[1][0], "speculative"), (_MOVES[2][0], "standard")):
        server = f"\n        server 127.0.0.1:{pools[pool]};\n"
        text = re.sub(pattern, lambda upstream, server=server: upstream[1] + server, text)  # type: ignore[misc]
    text = re.sub(r"(?m)^( *limit_(req|conn) .*|user .*)$", "", text)
    text = re.sub(r"(?m)^ *location = /health \{", lambda health: _UP + health[0], text, count=1)
    # Workers run as this user: the folder belongs to nobody else.
    user = f"user {getpwuid(os.geteuid()).pw_name};\n" if os.geteuid() == 0 else ""
    return user + re.sub(r"(?m)^worker_processes .*$", "worker_processes 1;", text)


def trusted_networks(text: str) -> list[str]:
    """The networks whose callers may choose the pool, read from a configuration."""
    found = re.search(r"geo \$specops_trusted \{(.*?)\}", text, re.DOTALL)
    return re.findall(r"(\S+) 1;", found[1]) if found else []


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Ignore errors: the router closes connections when it ends."""


@contextmanager
def _pool_server(pool: str) -> Iterator[int]:
    """The port of a server that answers every request with the name of its pool."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = json.dumps({"pool": pool}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = do_PATCH = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with _Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


RULES = "lua/specops/rules.lua"
FUZZED, SEED = 300, 0
"""The number and the seed of random bodies that NGINX and `explain` must read alike, since their LuaJIT
may differ."""


class CaseOutcome(Frozen):
    """A case and its outcome."""

    name: str
    expected: str
    pool: str
    """The pool that the real router chose."""

    traffic_class: str
    reason: str
    wrong: str | None
    """Why the outcome is wrong; None if it is right."""


class RouteCheckData(BaseModel):
    """`data` of the result."""

    tried: list[CaseOutcome]
    fuzzed: int | None = None
    """Random bodies that the router and `route explain` read; null if NGINX refused its files."""

    refused: str | None = None
    """NGINX's error, if it refused its files."""

    hint: str | None = None


def check_rollout(
    rollout: Rollout, folder: Path, cases: Sequence[Case], named: str | None, progress: Progress
) -> Result:
    """Check what `route render` would write now, with the results in `folder`."""
    return check(text(of(rollout, rules(rollout, folder))), cases, named, progress)


def check_config(path: Path, cases: Sequence[Case], named: str | None, progress: Progress) -> Result:
    """Check the files in the folder of `path`, unchanged."""
    names = [CONF, RULES, *(f"lua/specops/{name}.lua" for name in LUA)]
    try:
        files = {name: (path.parent / name).read_text(encoding="utf-8") for name in names if name != CONF}
        files[CONF] = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(
            f"could not read the router's configuration in {path.parent}: {reason_of(error)}; --native is of "
            "another kind",
            hint=f"specops route render {ROLLOUT}",
        ) from error
    return check(files, cases, named, progress)


def check(files: Mapping[str, str], cases: Sequence[Case], named: str | None, progress: Progress) -> Result:
    """Run `nginx -t` on `files`, then send requests to them on loopback. EnvironmentFailure without an
    NGINX that starts."""
    program = nginx(named)
    inputs = {"files": results.sha256(dict(files))}
    refused = refusal(program, files)
    if refused is not None:
        said, hint = explained(refused)
        return _result(inputs, "no", said, RouteCheckData(tried=[], refused=refused, hint=hint))
    networks = trusted_networks(files[CONF])
    judge = Judge(files[RULES], networks)
    every = [*shipped(whole(judge.table), trusted=may_choose(LOOPBACK, networks)), *cases]
    tried = []
    with trial(program, files, progress) as connection:
        progress.start("sending requests to the router", total=len(every) + FUZZED)
        for case in every:
            tried.append(_try(connection, judge, case))
            progress.advance()
        for request in islice(fuzz(SEED), FUZZED):
            if why := disagreement(request, ask(connection, request), judge):
                name = f"fuzz: {request.body[:200]!r}"
                tried.append(
                    CaseOutcome(name=name, expected="", pool="", traffic_class="", reason="", wrong=why)
                )
            progress.advance()
    wrong = [one for one in tried if one.wrong]
    found = RouteCheckData(tried=tried, fuzzed=FUZZED)
    if wrong:
        return _result(inputs, "no", f"{len(wrong)} of {len(tried)} requests went wrong", found)
    reason = (
        f"all {len(tried)} requests reached the expected pool; {FUZZED} random bodies matched `route explain`"
    )
    return _result(inputs, "yes", reason, found)


_RULES = {"speculate", *PLAYBOOK, "classes", "default", "unsupported", "wanted", "unsized", "paths"}


def whole(table: object) -> Mapping[str, Any]:
    """The table that rules.lua returned. Raises UsageError if it is not what `route render` writes."""
    if not isinstance(table, Mapping):
        raise damaged("it returns no table of names")
    if lacking := _RULES - table.keys():
        raise damaged(f"it has no {min(lacking)}")
    return table


def _try(connection: http.client.HTTPConnection, judge: Judge, case: Case) -> CaseOutcome:
    got = ask(connection, case.request)
    return CaseOutcome(
        name=case.name,
        expected=case.pool,
        pool=got.pool,
        traffic_class=got.traffic_class,
        reason=got.reason,
        wrong=_wrong(case, got, judge),
    )


def _wrong(case: Case, got: RouterAnswer, judge: Judge) -> str | None:
    if got.pool != case.pool:
        return f"it went to {got.pool}, and not to {case.pool}"
    if case.traffic_class is not None and got.traffic_class != case.traffic_class:
        return f"its class was {got.traffic_class}, and not {case.traffic_class}"
    return disagreement(case.request, got, judge)


def disagreement(request: Request, got: RouterAnswer, judge: Judge) -> str | None:
    """Return how the router and `route explain` differ; None if they agree."""
    if got.status >= 500:
        return f"it was answered {got.status}"
    said = judge.decide(request)
    if (said["pool"], said["reason"]) != (got.pool, got.reason):
        return f"`route explain` says {said['pool']}, {said['reason']}; the router {got.pool}, {got.reason}"
    return None


_SAID = (
    (
        r'host not found in (?:upstream )?"([^"]+)"',
        "the name {0} does not resolve here, and NGINX looks names up only when it starts",
        "getent hosts {0}  # give addresses, or names that resolve where NGINX runs",
    ),
    (
        r'dlopen\(\) "([^"]+)" failed',
        "NGINX's Lua module is not at {0}",
        "apt-get install libnginx-mod-http-lua  # on Debian; else set route.modules, or render with --native",
    ),
    (
        r'unknown directive "(lua_\w+|\w+_by_lua\w*)"',
        "this NGINX has no Lua module",
        "find / -name ngx_http_lua_module.so  # set route.modules to its folder, or render with --native",
    ),
    (
        r"bind\(\) to (\S+) failed \(13",
        "this user may not listen on {0}",
        "id -u  # only root may: set route.user and start NGINX as root, or listen on a port above 1023",
    ),
    (
        r'getpwnam\("([^"]+)"\) failed',
        "there is no user {0} here",
        "cut -d: -f1 /etc/passwd  # set route.user to one of these",
    ),
)


def explained(message: str) -> tuple[str, str]:
    """NGINX's error as a sentence, and a hint."""
    for pattern, said, hint in _SAID:
        if found := re.search(pattern, message):
            return f"NGINX refuses the configuration: {said.format(*found.groups())}", hint.format(
                *found.groups()
            )
    return f"NGINX refuses the configuration: {message}", in_rollout("route", "correct this section")


def _result(inputs: dict[str, str], verdict: results.Verdict, reason: str, found: RouteCheckData) -> Result:
    return Result(
        phase="route-check",
        inputs=inputs,
        environment=results.environment(),
        verdict=verdict,
        reason=reason,
        summary={
            "requests": len(found.tried),
            "wrong": sum(one.wrong is not None for one in found.tried),
        },
        data=found.model_dump(mode="json"),
    )

"""A router on trial: what was rendered in a folder of its own, on free ports of loopback, before servers that
only say which pool they are."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from pwd import getpwuid

from specops.errors import EnvironmentFailure, ServerError, UsageError
from specops.launch.process import Known, Server, free_port, running
from specops.phases.route.explain import Request
from specops.phases.route.render import CONF, write
from specops.progress import Progress

NGINX_IN = ("/usr/sbin", "/usr/local/sbin", "/usr/local/openresty/nginx/sbin")
START_S = 30.0


@dataclass(frozen=True)
class Answer:
    status: int
    pool: str
    """That answered; none: the router itself did."""

    traffic_class: str
    reason: str


def nginx(named: str | None) -> str:
    """Where NGINX is; EnvironmentFailure where it is not."""
    places = os.pathsep.join((os.environ.get("PATH", ""), *NGINX_IN))
    found = shutil.which(named or "nginx", path=places)
    if found is None:
        raise EnvironmentFailure(
            f"could not find {named or 'nginx'}",
            hint="on Debian: apt-get install nginx libnginx-mod-http-lua; or name it with --nginx PATH",
        )
    return found


def refusal(program: str, files: Mapping[str, str]) -> str | None:
    """What `nginx -t` says against these files as they are; None: it loads them."""
    with _folder() as prefix:
        write(prefix, dict(files))
        words = [program, "-t", "-q", "-p", str(prefix), "-c", CONF, "-e", "stderr"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=START_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EnvironmentFailure(f"could not run {program}: {error}") from error
    if done.returncode == 0:
        return None
    said = [line for line in done.stderr.splitlines() if "[emerg]" in line] or done.stderr.splitlines()
    message = said[0] if said else f"exit code {done.returncode}"
    return re.sub(r"^.*?\[emerg\] \d+#\d+: ", "", message).replace(f"{prefix}/", "")


@contextmanager
def trial(program: str, files: Mapping[str, str], progress: Progress) -> Iterator[http.client.HTTPConnection]:
    """A connection to a router made of `files`, its switch at 100%. ServerError where it does not start."""
    with ExitStack() as stack:
        prefix = stack.enter_context(_folder())
        pools = {name: stack.enter_context(_saying(name)) for name in ("standard", "speculative")}
        port, admin = free_port(), free_port()
        write(prefix, {**files, CONF: _moved(files[CONF], (port, admin), pools)})
        (prefix / "switch.json").write_text('{"speculative_percent": 100}\n')
        stack.enter_context(started(program, prefix, admin, log=prefix / "nginx.log", progress=progress))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_S)
        stack.callback(connection.close)
        yield connection


@contextmanager
def started(program: str, prefix: Path, port: int, *, log: Path, progress: Progress) -> Iterator[Server]:
    """NGINX from the folder `prefix`, which answers /health and /v1/models at `port` of loopback."""
    command = [program, "-p", str(prefix), "-c", CONF, "-e", "stderr", "-g", "daemon off;"]
    with running(
        "router", command, address=Known.on(port), log=log, progress=progress, start_timeout_s=START_S
    ) as server:
        yield server


def ask(connection: http.client.HTTPConnection, request: Request) -> Answer:
    """The pool is that of the server that answered. ServerError where the router does not answer."""
    try:
        connection.request(request.method, request.path, body=request.body, headers=dict(request.headers))
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise ServerError(f"the router did not answer {request.method} {request.path}: {error}") from error
    try:
        pool = str(json.loads(body)["pool"])
    except (ValueError, KeyError, TypeError):
        pool = "none"
    return Answer(
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
"""On the admin listener: what `running` asks for at the start, whatever paths the router serves."""


def _moved(text: str, listeners: tuple[int, int], pools: Mapping[str, int]) -> str:
    """The configuration with listeners (users', admin's) and servers of the trial's in place of its own."""
    ports = iter(listeners)
    found = re.findall(_MOVES[0][0], text)
    if len(found) != 2 or any(len(re.findall(pattern, text)) != count for pattern, count in _MOVES):
        raise UsageError(
            "this is not a configuration that `specops route render ROLLOUT` wrote",
            hint="give the rollout file, or the nginx.conf in the folder rendered/nginx",
        )
    text = re.sub(_MOVES[0][0], lambda listen: f"{listen[1]}127.0.0.1:{next(ports)};", text)
    for pattern, pool in ((_MOVES[1][0], "speculative"), (_MOVES[2][0], "standard")):
        server = f"\n        server 127.0.0.1:{pools[pool]};\n"
        text = re.sub(pattern, lambda upstream, server=server: upstream[1] + server, text)  # type: ignore[misc]
    text = re.sub(r"(?m)^( *limit_(req|conn) .*|user .*)$", "", text)
    text = re.sub(r"(?m)^ *location = /health \{", lambda health: _UP + health[0], text, count=1)
    # Workers as whoever is here: the folder is nobody else's.
    user = f"user {getpwuid(os.geteuid()).pw_name};\n" if os.geteuid() == 0 else ""
    return user + re.sub(r"(?m)^worker_processes .*$", "worker_processes 1;", text)


def trusted(text: str) -> list[str]:
    """The networks whose callers may choose the pool, by a configuration."""
    found = re.search(r"geo \$specops_trusted \{(.*?)\}", text, re.DOTALL)
    return re.findall(r"(\S+) 1;", found[1]) if found else []


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """The router that closes a connection at its end is none."""


@contextmanager
def _saying(pool: str) -> Iterator[int]:
    """A server that answers everything with its pool; its port."""

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

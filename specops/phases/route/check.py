"""`specops route check`: the router loads the rendered files, and sends each request to the right pool.

The router under test runs on free ports of loopback, from a folder of its own. Its pools are two servers that
answer every request with the pool's name.
"""

from __future__ import annotations

import http.client
import json
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from specops import results
from specops.config import Rollout
from specops.errors import ServerError, UsageError, reason_of
from specops.hints import ROLLOUT, in_rollout, with_value
from specops.launch.servers import FixedAddress, Server, free_port, running
from specops.phases.route import files_of, write
from specops.phases.route.cases import Case, fuzz, shipped
from specops.phases.route.thresholds import DEFAULTS
from specops.progress import Progress
from specops.results import Result
from specops.router import (
    CLASS_HEADER,
    LOOPBACK,
    REASON_HEADER,
    REQUEST_ID,
    ROUTERS,
    Judge,
    Refusal,
    Request,
    Router,
    may_choose,
)
from specops.section import Frozen

START_S = 30.0


@dataclass(frozen=True)
class RouterAnswer:
    status: int
    pool: str
    """The pool that answered; `none` if the router itself did."""

    traffic_class: str
    reason: str


@contextmanager
def trial(
    router: Router, program: str, files: Mapping[str, str], progress: Progress
) -> Iterator[http.client.HTTPConnection]:
    """A connection to a router with these files, its switch at 100%. Raises ServerError if it does not
    start."""
    with ExitStack() as stack:
        folder = stack.enter_context(_folder())
        pools = {name: stack.enter_context(_pool_server(name)) for name in ("standard", "speculative")}
        port, admin = free_port(), free_port()
        write(router, folder, router.moved(files, port, admin, pools))
        stack.enter_context(
            started(router, program, folder, admin, log=folder / "router.log", progress=progress)
        )
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_S)
        stack.callback(connection.close)
        yield connection


@contextmanager
def started(
    router: Router, program: str, folder: Path, port: int, *, log: Path, progress: Progress
) -> Iterator[Server]:
    """The router in `folder`. It must answer /health and /v1/models on this port of loopback."""
    with running(
        "router",
        router.start(program, folder),
        address=FixedAddress.on(port),
        log=log,
        progress=progress,
        start_timeout_s=START_S,
    ) as server:
        yield server


def refusal(router: Router, program: str, files: Mapping[str, str]) -> Refusal | None:
    """Return why the router does not load these files; None: it does."""
    with _folder() as folder:
        write(router, folder, files)
        return router.refusal(program, folder)


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
        answer.headers.get(CLASS_HEADER, ""),
        answer.headers.get(REASON_HEADER, ""),
    )


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="specops-router-") as folder:
        yield Path(folder)


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


FUZZED, SEED = 300, 0
"""The number and the seed of random bodies that the router and `explain` must read alike, since what reads
them may differ."""


IDS = 20
"""Ids that are tried for a case: at most a tenth of them is held out."""


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
    """Random bodies that the router and `route explain` read; null if the router refused its files."""

    refused: str | None = None
    """The router's own error, if it refused its files."""

    hint: str | None = None


def check_rollout(
    rollout: Rollout, folder: Path, cases: Sequence[Case], program: str | None, progress: Progress
) -> Result:
    """Check what `route render` would write now, with the results in `folder`."""
    router = rollout.route.router
    if (why := router.untestable) is not None:
        raise UsageError(
            f"route check cannot test this router: {why}", hint=in_rollout(router.name, "change this section")
        )
    return check(router, files_of(rollout, folder), cases, program, progress)


def check_config(path: Path, cases: Sequence[Case], program: str | None, progress: Progress) -> Result:
    """Check the files in the folder of `path`, unchanged. Which router they are for, its name says."""
    router = next((router() for router in ROUTERS.values() if router.main == path.name), None)
    if router is None:
        names = [router.main for router in ROUTERS.values()]
        raise UsageError(
            f"{path} is the configuration of no router: expected a file called {' or '.join(names)}",
            hint=with_value(path, path.with_name(names[0])),
        )
    return check(router, router.read_files(path), cases, program, progress)


def check(
    router: Router,
    files: Mapping[str, str],
    cases: Sequence[Case],
    program: str | None,
    progress: Progress,
) -> Result:
    """Let the router load `files`, then send requests to it on loopback. Raises EnvironmentFailure without a
    program that starts."""
    program = router.find_program(program)
    inputs = {"files": results.sha256(dict(files))}
    refused = refusal(router, program, files)
    if refused is not None:
        data = RouteCheckData(tried=[], refused=refused.text, hint=refused.hint)
        return _result(inputs, "no", refused.sentence, data)
    stored = router.stored_rules(files)
    judge = router.judge(replace(stored, table={**stored.table, "windows": None}))  # as in the trial
    trusted = may_choose(LOOPBACK, stored.trusted)
    every = [*shipped(whole(stored.table), trusted=trusted), *cases]
    tried = []
    with trial(router, program, files, progress) as connection:
        progress.start("sending requests to the router", total=len(every) + FUZZED)
        for case in every:
            tried.append(_try(connection, judge, _eligible(judge, case)))
            progress.advance()
        for number, fuzzed in enumerate(islice(fuzz(SEED), FUZZED)):
            request = _with_id(fuzzed, number)
            if why := disagreement(request, ask(connection, request), judge):
                name = f"fuzz: {request.body[:200]!r}"
                tried.append(
                    CaseOutcome(name=name, expected="", pool="", traffic_class="", reason="", wrong=why)
                )
            progress.advance()
    wrong = [outcome for outcome in tried if outcome.wrong]
    data = RouteCheckData(tried=tried, fuzzed=FUZZED)
    if wrong:
        return _result(inputs, "no", f"{len(wrong)} of {len(tried)} requests went wrong", data)
    reason = (
        f"all {len(tried)} requests reached the expected pool; {FUZZED} random bodies matched `route explain`"
    )
    return _result(inputs, "yes", reason, data)


def _with_id(request: Request, number: int) -> Request:
    """The request with an id, by which the router and `explain` draw the same holdout."""
    return replace(request, headers={REQUEST_ID: f"check-{number}", **request.headers})


def _eligible(judge: Judge, case: Case) -> Case:
    """The case with an id that chance does not hold out, where it has none of its own."""
    identified = [replace(case, request=_with_id(case.request, number)) for number in range(IDS)]
    drawn = (one_case for one_case in identified if judge.decide(one_case.request)["reason"] != "holdout")
    return next(drawn, case)


_RULES = {
    "speculate",
    *DEFAULTS,
    "classes",
    "default",
    "unsupported",
    "wanted",
    "unsized",
    "paths",
    "holdout",
}


def whole(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The table of stored rules. Raises UsageError if it is not what `route render` writes."""
    if lacking := _RULES - table.keys():
        raise UsageError(
            f"the router's rules are damaged: the table has no {min(lacking)}",
            hint=f"specops route render {ROLLOUT}",
        )
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
    decision = judge.decide(request)
    if (decision["pool"], decision["reason"]) != (got.pool, got.reason):
        explained = f"{decision['pool']}, {decision['reason']}"
        return f"`route explain` says {explained}; the router {got.pool}, {got.reason}"
    return None


def _result(inputs: dict[str, str], verdict: results.Verdict, reason: str, data: RouteCheckData) -> Result:
    return Result(
        phase="route-check",
        inputs=inputs,
        environment=results.environment(),
        verdict=verdict,
        reason=reason,
        summary={
            "requests": len(data.tried),
            "wrong": sum(outcome.wrong is not None for outcome in data.tried),
        },
        data=data.model_dump(mode="json"),
    )

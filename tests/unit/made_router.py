"""A made-up router, registered as a package of its own would be; run as a script, it is walked.

    python made_router.py walk ROLLOUT        what render, check, explain, the guard, doctor and the scrape
                                              configuration make of it, as JSON
    python made_router.py serve FOLDER        the router itself

It shares nothing with NGINX but decide.lua: its files, its switch and its counters have other forms.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from specops.actions.http_client import ask, ask_json
from specops.router import ROUTERS, Deployment, Judge, Listener, Refusal, Request, Router, StoredRules
from specops.router.nginx import LuaJudge, literal
from specops.router.protocol import Pools, RouterCounters
from specops.serving import Survey

CONF = "relay.json"


class RelayListener(Listener):
    def __init__(self, address: str) -> None:
        self.address = address
        self.name = f"relay {address}"

    def read(self) -> int:
        return int(ask("read it", "GET", f"http://{self.address}/share", timeout_s=5.0))

    def set(self, percent: int) -> None:
        ask("set it", "POST", f"http://{self.address}/share", body=percent, timeout_s=5.0)

    def counters(self) -> RouterCounters:
        counts = ask_json("count", "GET", f"http://{self.address}/stats", timeout_s=5.0)
        return RouterCounters(counts["rollout"], counts["decided"], counts["ended"])


class Relay(Router):
    """Settings of Relay."""

    name: ClassVar[str] = "relay"
    title: ClassVar[str] = "Relay"
    main: ClassVar[str] = CONF
    metrics_path: ClassVar[str] = "/stats"
    backlog: int = Field(default=8, description="Number of connections that wait.")

    @property
    def limits(self) -> Sequence[str]:
        return ("one server a pool",)

    def render(self, deployment: Deployment) -> dict[str, str]:
        conf = {
            "rollout": deployment.rollout,
            "backlog": self.backlog,
            "listen": deployment.route.listen,
            "admin": deployment.route.admin,
            "speculative": deployment.speculative[0],
            "standard": deployment.standard[0],
            "percent": deployment.route.speculative_percent,
            "trusted": deployment.route.trusted,
            "rules": deployment.rules,
        }
        return {CONF: json.dumps(conf)}

    def start_command(self, folder: Path) -> str:
        return f"python {Path(__file__).name} serve {folder}"

    def start(self, program: str, folder: Path) -> list[str]:
        return [program, __file__, "serve", str(folder)]

    def survey(self) -> Survey:
        return Survey("ok", f"relay 1.0 ({sys.executable})", "")

    def find_program(self, program: str | None) -> str:
        return program or sys.executable

    def refusal(self, program: str, folder: Path) -> Refusal | None:
        backlog = json.loads((folder / CONF).read_text())["backlog"]
        return None if backlog > 0 else Refusal("E17", "Relay refuses the backlog 0", "specops explain")

    def read_files(self, main: Path) -> dict[str, str]:
        return {CONF: main.read_text()}

    def moved(self, files: Mapping[str, str], listen: int, admin: int, pools: Pools) -> dict[str, str]:
        places = {"listen": listen, "admin": admin, **pools}
        moved = {name: f"127.0.0.1:{port}" for name, port in places.items()}
        return {CONF: json.dumps(json.loads(files[CONF]) | moved | {"percent": 100})}

    def stored_rules(self, files: Mapping[str, str]) -> StoredRules:
        conf = json.loads(files[CONF])
        return StoredRules(conf["rules"], conf["trusted"])

    def judge(self, rules: StoredRules) -> Judge:
        return LuaJudge(f"return {literal(rules.table)}", rules.trusted)

    def listener(self, address: str) -> Listener:
        return RelayListener(address)


ROUTERS[Relay.name] = Relay
"""The line of the registry. The sections of the rollout file are made from it at their first import."""


def serve(folder: Path) -> None:
    conf = json.loads((folder / CONF).read_text())
    judge, lock = Relay().judge(Relay().stored_rules({CONF: json.dumps(conf)})), threading.Lock()
    decided: Counter[str] = Counter()
    ended: Counter[str] = Counter()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def answer(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))

        def log_message(self, *_: object) -> None:
            pass

    class Public(Handler):
        def do_GET(self) -> None:
            body = self.body()
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(body, self.command, self.path, headers, self.client_address[0])
            with lock:
                decision = judge.decide(request, percent=conf["percent"])
                decided[decision["pool"]] += 1
            why = {"X_Specops_Class": decision["class"], "X_Specops_Reason": decision["reason"]}
            if decision["pool"] == "none":
                self.answer(404, b"{}", **why)
                return
            pool = http.client.HTTPConnection(conf[decision["pool"]], timeout=10)
            pool.request(self.command, self.path, body)
            answer = pool.getresponse()
            ended["well"] += 1
            self.answer(answer.status, answer.read(), **why)
            pool.close()

        do_POST = do_GET

    class Admin(Handler):
        def do_GET(self) -> None:
            stats = {"rollout": conf["rollout"], "decided": decided, "ended": ended}
            texts = {"/share": str(conf["percent"]), "/stats": json.dumps(stats)}
            self.answer(200, texts.get(self.path, '{"data": [{"id": "relay"}]}').encode())

        def do_POST(self) -> None:
            conf["percent"] = int(self.body())
            self.answer(200, b"")

    host, port = conf["admin"].split(":")
    threading.Thread(target=ThreadingHTTPServer((host, int(port)), Admin).serve_forever, daemon=True).start()
    host, port = conf["listen"].split(":")
    ThreadingHTTPServer((host, int(port)), Public).serve_forever()


def walk(path: Path) -> dict[str, Any]:
    from specops.config import load
    from specops.errors import ConfigError
    from specops.launch.servers import free_port
    from specops.phases.doctor.programs import router as examined
    from specops.phases.guard import switch_of
    from specops.phases.route import files_of, folder_of, render
    from specops.phases.route.check import ask, check_config, check_rollout, started
    from specops.phases.route.explain import explain
    from specops.progress import SilentProgress
    from specops.render.prometheus.scrape import prometheus_config

    rollout, folder, silent = load(path), path.parent / "run", SilentProgress()
    router = rollout.route.router
    rendered = folder / folder_of(router) / CONF
    results: dict[str, Any] = {"routed": render(rollout, folder).data, "rendered": rendered.is_file()}
    results["checked"] = check_rollout(rollout, folder, [], None, silent).reason
    results["from_files"] = check_config(rendered, [], None, silent).verdict
    refused = rollout.model_copy(
        update={"route": rollout.route.model_copy(update={"relay": Relay(backlog=0)})}
    )
    results["refused"] = check_rollout(refused, folder, [], None, silent).reason
    long = Request(json.dumps({"messages": [], "max_tokens": 300}).encode())
    results["explained"] = explain(rollout, folder, long).reason
    results["doctor"] = examined(router).found
    results["scraped"] = prometheus_config(rollout)
    listen, admin = free_port(), rollout.route.admin
    port = int(admin.rpartition(":")[2])
    with pool() as served:
        pools = {"standard": served, "speculative": served}
        rendered.write_text(router.moved(files_of(rollout, folder), listen, port, pools)[CONF])
        log = folder / "relay.log"
        with started(router, sys.executable, rendered.parent, port, log=log, progress=silent):
            connection = http.client.HTTPConnection("127.0.0.1", listen)
            switch = switch_of(rollout, folder)
            results["before"] = [switch.read()[0].percent, ask(connection, long).reason]
            results["switched"] = switch.to(0).outcome
            results["after"] = [switch.read()[0].percent, ask(connection, long).reason]
            results["counted"] = dict(router.listener(admin).counters().decided)
    path.write_text(path.read_text() + "  nginx: {}\n")
    try:
        load(path)
    except ConfigError as error:
        results["two"] = error.message
    return results


def pool() -> Any:
    from specops.phases.route.check import _pool_server

    return _pool_server("both")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(Path(sys.argv[2]))
    else:
        print(json.dumps(walk(Path(sys.argv[2]))))

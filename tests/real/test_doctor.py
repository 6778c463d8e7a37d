"""`doctor` on endpoints that answer in different ways, each a line with its fix."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import daemons
import pytest

from specops.errors import UsageError
from specops.phases.doctor import examine, programs, result
from specops.phases.doctor.machine import Check
from specops.phases.monitor.check import of_server
from specops.router.nginx import Nginx, program
from specops.serving import USUAL

Answer = tuple[int, str]
MODELS = (200, json.dumps({"data": [{"id": "mine"}]}))
METRICS = (*USUAL.draft_names, USUAL.generated)
EXPOSITION = "".join(f"# TYPE {name} counter\n{name} 0\n" for name in METRICS)


@contextmanager
def endpoint(
    answers: dict[str, Answer], key: str | None = None, clock: Callable[[], float] = time.time
) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string(clock())

        def do_GET(self) -> None:
            status, body = answers.get(self.path, (404, "{}"))
            if key and self.path.startswith("/v1") and self.headers["Authorization"] != f"Bearer {key}":
                status, body = 401, "{}"
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


def checks(base_url: str) -> dict[str, Check]:
    return {check.name: check for check in examine(base_url)}


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECOPS_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def test_a_good_endpoint_names_its_models() -> None:
    with endpoint({"/v1/models": MODELS, "/metrics": (200, EXPOSITION)}) as url:
        found = checks(url)
    assert (found["endpoint"].status, found["metrics"].status) == ("ok", "ok")
    assert "mine" in found["endpoint"].found


def test_a_key_is_asked_for_and_taken_from_the_environment(monkeypatch) -> None:
    with endpoint({"/v1/models": MODELS, "/metrics": (200, EXPOSITION)}, key="secret") as url:
        refused = checks(url)["endpoint"]
        monkeypatch.setenv("SPECOPS_API_KEY", "secret")
        accepted = checks(url)["endpoint"]
    assert refused.status == "fail"
    assert "401" in refused.found
    assert "SPECOPS_API_KEY" in str(refused.fix)
    assert accepted.status == "ok"
    assert "secret" not in accepted.model_dump_json()


@pytest.mark.parametrize(
    "answer", [(200, "<html>"), (200, "[]"), (200, "{}"), (200, '{"data": [3]}'), (500, "{}"), (404, "{}")]
)
def test_an_endpoint_that_lists_no_models_fails(answer) -> None:
    with endpoint({"/v1/models": answer}) as url:
        found = checks(url)
    assert found["endpoint"].status == "fail"
    assert found["endpoint"].fix
    assert "metrics" not in found


@pytest.mark.parametrize(
    ("answer", "says", "fix"),
    [
        (
            (200, "\n<!doctype html><title>Log in</title>"),
            "answered with a page",
            "specops doctor --base-url http://HOST:PORT/v1",
        ),
        ((429, "{}"), "answered 429", "sleep 2 && specops doctor --base-url http://"),
        ((403, "{}"), "answered 403", "export SPECOPS_API_KEY="),
    ],
)
def test_what_stands_in_the_way_of_an_api_has_its_own_fix(answer: Answer, says: str, fix: str) -> None:
    with endpoint({"/v1/models": answer}) as url:
        found = checks(url)["endpoint"]
    assert found.status == "fail"
    assert says in found.found
    assert fix in str(found.fix)


def test_the_root_of_a_server_is_corrected_to_its_api() -> None:
    with endpoint({"/models": (200, "<html>")}) as url:
        root = url.removesuffix("/v1")
        assert checks(root)["endpoint"].fix == f"specops doctor --base-url {url}"


@pytest.mark.parametrize(("ahead_s", "says"), [(0, None), (90, "ahead of"), (-3600, "behind")])
def test_clocks_that_differ_are_found(ahead_s: int, says: str | None) -> None:
    at = time.time() + ahead_s
    with endpoint({"/v1/models": MODELS, "/metrics": (200, EXPOSITION)}, clock=lambda: at) as url:
        found = checks(url).get("clock")
    assert (found and found.status) == (says and "warn")
    if found is not None and says is not None:
        assert says in found.found


@pytest.mark.parametrize(
    ("metrics", "status", "says"),
    [
        ((404, ""), "warn", "answered 404"),
        ((200, EXPOSITION.replace(METRICS[0], "other")), "unknown", f"without {METRICS[0]}"),
        ((200, "up 1\n"), "unknown", "of an engine"),
    ],
)
def test_missing_metrics_are_no_ok(metrics, status, says) -> None:
    with endpoint({"/v1/models": MODELS, "/metrics": metrics}) as url:
        found = checks(url)["metrics"]
    assert found.status == status
    assert says in found.found


@pytest.mark.parametrize(
    "url", ["http://me:secret@127.0.0.1:1/v1", "http://127.0.0.1:1/v1?key=secret", "ftp://x", "nonsense"]
)
def test_an_address_that_holds_secrets_or_is_none_is_refused_unprinted(url) -> None:
    with pytest.raises(UsageError, match="could not use --base-url") as caught:
        examine(url)
    assert "secret" not in caught.value.message
    assert caught.value.hint


NAMES = [need.name for need in of_server(USUAL, "speculative", ())[0]]
OLD = {
    "vllm:kv_cache_usage_perc": "vllm:gpu_cache_usage_perc",
    "vllm:request_time_per_output_token_seconds_count": "vllm:time_per_output_token_seconds_count",
}
CUT = {name: name.removesuffix("_total") for name in NAMES}


@pytest.mark.parametrize(
    ("names", "says", "fix"),
    [
        (OLD, "is vllm:gpu_cache_usage_perc", "specops init mine --base-url http://HOST:PORT/v1"),
        (CUT, "takes _total off", "specops doctor --base-url http://HOST:PORT/v1"),
    ],
    ids=["of another engine", "cut by a proxy"],
)
def test_metrics_under_other_names_have_a_command_without_a_rollout_file(
    names: dict[str, str], says: str, fix: str
) -> None:
    exposition = "".join(f"{names.get(name, name)} 0\n" for name in NAMES)
    with endpoint({"/v1/models": MODELS, "/metrics": (200, exposition)}) as url:
        found = checks(url)
    assert says in found["metric names"].found
    assert str(found["metric names"].fix).startswith(fix)
    commands = [str(one.fix).partition("  #")[0] for one in found.values()]
    assert not any("ROLLOUT" in command for command in commands)


def test_a_proxy_is_not_asked_for_this_machine(monkeypatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with endpoint({"/v1/models": MODELS, "/metrics": (200, EXPOSITION)}) as url:
        found = checks(url)
    assert (found["endpoint"].status, found["metrics"].status) == ("ok", "ok")


@pytest.mark.parametrize(("status", "verdict"), [("ok", "yes"), ("warn", "yes"), ("fail", "no")])
def test_only_a_failure_is_a_no(status, verdict) -> None:
    assert result([Check(name="x", status=status, found="")]).verdict == verdict


def test_a_gpu_query_that_fails_is_said_so(tmp_path: Path, monkeypatch) -> None:
    def with_nvidia_smi(script: str) -> Check:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        return next(check for check in examine() if check.name == "gpu")

    assert with_nvidia_smi("exit 9").status == "warn"
    assert with_nvidia_smi("echo 'NVIDIA H200, 580.1, 143771 MiB'").found.startswith("NVIDIA H200")


def test_a_full_disk_is_a_failure(monkeypatch) -> None:
    def disk(free: float) -> Callable[[Path], object]:
        return lambda _: type("Usage", (), {"free": free})()

    for free, status in ((5e9, "ok"), (5e8, "warn"), (1e7, "fail")):
        monkeypatch.setattr("specops.phases.doctor.machine.shutil.disk_usage", disk(free))
        assert next(check for check in examine() if check.name == "disk").status == status


@pytest.mark.parametrize(
    ("modules", "says"),
    [((), "without its Lua module"), (("ngx_http_lua_module.so",), "with its Lua module in")],
)
def test_nginx_is_looked_at_for_its_lua_module(tmp_path: Path, monkeypatch, modules, says) -> None:
    (tmp_path / "nginx").write_text("#!/bin/sh\necho 'nginx version: nginx/1.22.1' >&2\n")
    (tmp_path / "nginx").chmod(0o755)
    for module in modules:
        (tmp_path / module).touch()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(program, "LUA_MODULES", (str(tmp_path),))
    found = programs.router(Nginx())
    assert found.found.startswith("1.22.1 (")
    assert says in found.found
    assert found.status == ("ok" if modules else "warn")


def test_a_prometheus_is_asked_what_it_scrapes_and_which_of_our_names_it_has(tmp_path: Path) -> None:
    config = tmp_path / "prometheus.yml"
    config.write_text("scrape_configs: []\n")
    with daemons.prometheus(config, tmp_path) as up:
        found = {check.name: check for check in examine(prometheus=up.url)}
    assert (found["prometheus server"].status, found["prometheus names"].status) == ("warn", "warn")
    assert "scrapes 0 targets" in found["prometheus server"].found
    assert found["prometheus server"].fix == f"curl -X POST {up.url}/-/reload  # or send it SIGHUP"
    assert found["prometheus server"].paste is not None
    assert "- HOST:PORT" in found["prometheus server"].paste.text
    assert found["prometheus names"].found.startswith("0 of ")
    assert "specops monitor check" in str(found["prometheus names"].fix)
    gone = next(check for check in examine(prometheus=up.url) if check.name == "prometheus server")
    assert gone.status == "fail"
    assert gone.fix

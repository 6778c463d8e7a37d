"""What watches, routes and schedules: NGINX with its Lua module, Prometheus, Alertmanager, cron or systemd; a
Prometheus that runs."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from specops.config import Rollout
from specops.errors import SpecopsError
from specops.phases.doctor.endpoint import clock
from specops.phases.doctor.machine import ANSWER_S, Check
from specops.phases.monitor.check import GOOD, Found, check
from specops.progress import Silent
from specops.prometheus.api import Api
from specops.results import Result

LUA_MODULES = ("/usr/lib/nginx/modules", "/usr/lib64/nginx/modules", "/usr/local/lib/nginx/modules")
LUA_MODULE = "ngx_http_lua_module.so"
_SEARCHED = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where Debian puts NGINX, and where a user's PATH does not lead."""


def nginx() -> Check:
    program = _found("nginx")
    if program is None:
        return Check(
            name="nginx",
            status="ok",
            found="not here; the machine that routes needs it",
            fix="apt-get install nginx libnginx-mod-http-lua",
        )
    built = _says(program, "-V")
    number = re.search(r"nginx/([\d.]+)", built)
    found = f"{number[1] if number else 'of an unknown version'} ({program})"
    if "lua" in built or "openresty" in built:
        return Check(name="nginx", status="ok", found=f"{found}, with Lua built in")
    folder = next((one for one in LUA_MODULES if (Path(one) / LUA_MODULE).exists()), None)
    if folder:
        return Check(name="nginx", status="ok", found=f"{found}, with its Lua module in {folder}")
    return Check(
        name="nginx",
        status="warn",
        found=f"{found}, without its Lua module",
        fix="apt-get install libnginx-mod-http-lua, or render the router with --native",
    )


def prometheus() -> Check:
    return _program("prometheus", None, "the machine that watches needs it")


def alertmanager() -> Check:
    return _program("prometheus-alertmanager", "alertmanager", "alerts reach nobody without one")


def scheduler() -> Check:
    """What would make the weekly report."""
    systemd = Path("/run/systemd/system").is_dir()
    cron = _found("cron") or _found("crond")
    if systemd or cron:
        found = " and ".join([*(["systemd"] if systemd else []), *([f"cron ({cron})"] if cron else [])])
        return Check(name="scheduler", status="ok", found=found)
    return Check(
        name="scheduler",
        status="ok",
        found="neither cron nor systemd here; the machine that makes the weekly report needs one",
        fix="apt-get install cron",
    )


def prometheus_at(url: str, rollout: Rollout | None = None) -> Iterator[Check]:
    """One that runs: whether it answers, with the token or headers of the environment, and has the names that
    are read of it."""
    api: Api | None = None
    try:
        api = Api(url, timeout_s=ANSWER_S)
        api.ready()
        watched = api.instant("count(up) or vector(0)")
        yield _watching(url, int(watched[0].value))
        yield from clock(url, api.instant("vector(time())")[0].value)
        yield _named(check(rollout, api, Silent()), rollout)
    except SpecopsError as error:
        fix = error.hint or "give its root, such as http://HOST:9090"
        yield Check(name="prometheus server", status="fail", found=error.message, fix=fix)
    finally:
        if api is not None:
            api.close()


def _named(found: Result, rollout: Rollout | None) -> Check:
    """Which of our names have data."""
    names = [Found.model_validate(each) for each in found.data["names"]]
    there = sum(each.status == "there" for each in names)
    waiting = sum(each.status == "no traffic" for each in names)
    lacking = [each for each in names if each.status not in GOOD]
    message = f"{there} of {len(names)} names have data"
    message += f", {waiting} wait for traffic" if waiting else ""
    message += f"; {found.reason}" if lacking else ""
    which = "ROLLOUT" if rollout else "--prometheus URL"
    return Check(
        name="prometheus names",
        status="warn" if lacking else "ok",
        found=message,
        fix=f"{lacking[0].fix or 'see each'}; specops monitor check {which}" if lacking else None,
    )


def _watching(url: str, targets: int) -> Check:
    return Check(
        name="prometheus server",
        status="ok" if targets else "warn",
        found=f"{url} answers, and scrapes {targets} target{'' if targets == 1 else 's'}",
        fix="give it the scrape configuration of `specops monitor render ROLLOUT`",
    )


def _program(package: str, elsewhere: str | None, use: str) -> Check:
    """Debian calls it as its package; `elsewhere` is what others call it."""
    program = _found(package) or (_found(elsewhere) if elsewhere else None)
    if program is None:
        fix = f"apt-get install {package}"
        return Check(name=package, status="ok", found=f"not here; {use}", fix=fix)
    number = re.search(r"version ([\d.]+)", _says(program, "--version"))
    found = f"{number[1] if number else 'of an unknown version'} ({program})"
    return Check(name=package, status="ok", found=found)


def _found(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=_SEARCHED)


def _says(program: str, option: str) -> str:
    """On either stream; nothing where it does not run."""
    try:
        done = subprocess.run([program, option], capture_output=True, text=True, timeout=ANSWER_S)
    except (subprocess.SubprocessError, OSError):
        return ""
    return done.stdout + done.stderr

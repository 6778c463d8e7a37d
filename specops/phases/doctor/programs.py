"""Checks of programs that watch, route and schedule: the router, Prometheus, Alertmanager,
cron or systemd; and of a Prometheus that runs."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from specops.config import Rollout
from specops.errors import ConfigError, SpecopsError
from specops.net import is_loopback
from specops.phases.doctor.endpoint import Fix, clock
from specops.phases.doctor.fixes import ELSEWHERE
from specops.phases.doctor.machine import ANSWER_S, Check, FileText
from specops.phases.monitor.check import GOOD, NameState, check
from specops.phases.monitor.render import FOLDER
from specops.progress import SilentProgress
from specops.prometheus.api import HINT_ACCESS, TOKEN, Api, is_up
from specops.prometheus.exposition import metrics_url
from specops.render.figures import count
from specops.render.prometheus.scrape import RULE_FILES, prometheus_config
from specops.render.server import to_yaml
from specops.results import Result
from specops.router import Router

_SEARCHED = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where Debian puts daemons, and where a user's PATH does not lead."""


def router(router: Router) -> Check:
    """Return what the router needs on the machine on which it is to run."""
    observed = router.survey()
    if observed.status == "missing":
        state = f"{observed.description}; needed on the router machine"
        return Check(name=router.name, status="ok", found=state, fix=observed.fix)
    return Check(
        name=router.name, status=observed.status, found=observed.description, fix=observed.fix or None
    )


def prometheus() -> Check:
    return _program("prometheus", None, "needed on the monitoring machine")


def alertmanager() -> Check:
    return _program("prometheus-alertmanager", "alertmanager", "without it, nobody receives alerts")


def scheduler() -> Check:
    """Return what would make the weekly report."""
    systemd = Path("/run/systemd/system").is_dir()
    cron = _find_program("cron") or _find_program("crond")
    if systemd or cron:
        names = " and ".join([*(["systemd"] if systemd else []), *([f"cron ({cron})"] if cron else [])])
        return Check(name="scheduler", status="ok", found=names)
    return Check(
        name="scheduler",
        status="ok",
        found="neither cron nor systemd is installed; one is needed on the machine of the weekly report",
        fix="apt-get install cron",
    )


@dataclass(frozen=True)
class ScrapedRollout:
    """The rollout whose names a Prometheus is to have."""

    rollout: Rollout
    folder: Path
    """The run folder."""

    @property
    def rendered(self) -> Path:
        return self.folder / FOLDER

    def entries(self) -> FileText | None:
        """Return what makes a Prometheus scrape and record the rollout; None where a pool has no known
        address."""
        try:
            config = prometheus_config(self.rollout)
        except ConfigError:
            return None
        jobs = yaml.safe_load(config)["scrape_configs"]
        rules = [str((self.rendered / name).resolve()) for name in RULE_FILES]
        text = to_yaml({"rule_files": rules, "scrape_configs": jobs})
        return FileText(into=INTO_PROMETHEUS, text=text)


def prometheus_at(
    url: str, watched: ScrapedRollout | None = None, base_url: str | None = None
) -> Iterator[Check]:
    """One that runs: whether it answers, with the token or headers of the environment, and has the names that
    are read of it. `base_url`: an endpoint that it should scrape."""
    rollout = watched.rollout if watched else None
    api: Api | None = None
    try:
        api = Api(url, timeout_s=ANSWER_S)
        api.ready()
        targets = int(api.instant("count(up) or vector(0)")[0].value)
        message = f"{url} answers, and scrapes {count(targets, 'target')}"
        if not targets and watched is None:
            yield Check(name="prometheus server", status="warn", found=message, **_scraping(url, base_url))
        else:
            yield Check(name="prometheus server", status="ok", found=message)
        yield from clock(url, api.instant("vector(time())")[0].value)
        yield _named(check(rollout, api, SilentProgress()), url, watched)
    except SpecopsError as error:
        fixes = {is_up(url): _answering(url, watched), HINT_ACCESS: f"export {TOKEN}=YOUR_TOKEN"}
        look = f"curl -i {shlex.quote(url)}/api/v1/status/buildinfo  # is it a Prometheus?"
        yield Check(
            name="prometheus server",
            status="fail",
            found=error.message,
            fix=fixes.get(error.hint or "", look),
        )
    finally:
        if api is not None:
            api.close()


def _scraping(url: str, base_url: str | None) -> Fix:
    """Return what makes a Prometheus without targets scrape an endpoint, with no rollout file."""
    metrics = urlsplit(metrics_url(base_url or ELSEWHERE))
    job = {
        "job_name": "specops",
        "scheme": metrics.scheme,
        "metrics_path": metrics.path,
        "static_configs": [{"targets": [metrics.netloc]}],
    }
    return {
        "paste": FileText(into=INTO_PROMETHEUS, text=to_yaml({"scrape_configs": [job]})),
        "fix": f"curl -X POST {shlex.quote(url)}/-/reload  # or send it SIGHUP",
    }


INTO_PROMETHEUS = "its prometheus.yml, as further entries of these lists"


def _answering(url: str, watched: ScrapedRollout | None) -> str:
    """A command that starts a Prometheus at `url`."""
    address = urlsplit(url)
    where = "" if is_loopback(url) else f"  # on {address.hostname}"
    if watched is None:
        return f"prometheus --config.file=YOUR_PROMETHEUS.yml --web.listen-address={address.netloc}{where}"
    config = shlex.quote(str(watched.rendered / "prometheus.yml"))
    data = shlex.quote(str(watched.folder / "prometheus"))
    return (
        f"specops monitor render ROLLOUT && prometheus --config.file={config} --storage.tsdb.path={data}"
        f" --web.listen-address={address.netloc} --web.enable-lifecycle{where}"
    )


def _named(result: Result, url: str, watched: ScrapedRollout | None) -> Check:
    """Return which of our names have data."""
    names = [NameState.model_validate(row) for row in result.data["names"]]
    present = sum(state.status == "there" for state in names)
    waiting = sum(state.status == "no traffic" for state in names)
    lacking = [state for state in names if state.status not in GOOD]
    message = f"{present} of {len(names)} names have data"
    message += f", {waiting} wait for traffic" if waiting else ""
    if result.verdict == "undecided":
        again = f"specops monitor check --prometheus {shlex.quote(url)}  # after a few requests"
        return Check(
            name="prometheus names", status="unknown", found=f"{message}; {result.reason}", fix=again
        )
    if not lacking:
        return Check(name="prometheus names", status="ok", found=message)
    message += f"; {result.reason}" + (f": {lacking[0].fix}" if lacking[0].fix else "")
    if watched is None:
        fix = f"specops monitor check --prometheus {shlex.quote(url)}"
        return Check(name="prometheus names", status="warn", found=message, fix=fix)
    reload = f"specops monitor render ROLLOUT && curl -X POST {shlex.quote(url)}/-/reload"
    return Check(
        name="prometheus names",
        status="warn",
        found=message,
        fix=f"{reload}  # or send it SIGHUP; then: specops monitor check ROLLOUT",
        paste=watched.entries(),
    )


def _program(package: str, elsewhere: str | None, use: str) -> Check:
    """Debian calls it as its package; `elsewhere` is what others call it."""
    program = _find_program(package) or (_find_program(elsewhere) if elsewhere else None)
    if program is None:
        fix = f"apt-get install {package}"
        return Check(name=package, status="ok", found=f"not installed; {use}", fix=fix)
    number = re.search(r"version ([\d.]+)", _says(program, "--version"))
    description = f"{number[1] if number else 'of an unknown version'} ({program})"
    return Check(name=package, status="ok", found=description)


def _find_program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=_SEARCHED)


def _says(program: str, option: str) -> str:
    """Return what a program prints on either stream; nothing where it does not run."""
    try:
        done = subprocess.run([program, option], capture_output=True, text=True, timeout=ANSWER_S)
    except (subprocess.SubprocessError, OSError):
        return ""
    return done.stdout + done.stderr

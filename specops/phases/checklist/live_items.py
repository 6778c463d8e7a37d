"""Items of what runs: the router, Prometheus, the guard; and whether the pools answer as they should."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from specops.guard.journal import FILE as JOURNAL
from specops.guard.switch import decided
from specops.phases.capacity import AGAIN
from specops.phases.capacity import capacity as gate
from specops.phases.checklist.evidence import Decided, Evidence, Look, Open
from specops.phases.guard import GUARD, standing
from specops.phases.measurement import checked
from specops.phases.monitor.check import check
from specops.phases.monitor.render import Rendered
from specops.phases.route.render import CONF, NGINX, Routed
from specops.phases.route.thresholds import rules
from specops.progress import Silent
from specops.prometheus import exposition

ROUTER_INFO = "specops_route_info"
"""A router's own: the versions of NGINX and specops, and the rollout, are its labels."""
LATE_LOOKS = 5
"""Of the guard, in a row, that may be missing: as the alert SpecopsGuardDown has it."""


def fallback_tested(look: Look) -> Decided:
    """By a drill on the live set-up. `run` rehearses pools that it starts itself on a stage of its own, which
    shows that the parts fit and nothing of what will serve."""
    rehearsed = look.result("guard-drill")
    if "stage" in rehearsed.result.settings:
        raise Open(f"not on the live set-up: {rehearsed.result.reason}", rehearsed.evidence)
    parts = {
        "guard": look.rollout.guard.model_dump(mode="json"),
        "addresses": look.rollout.addresses.model_dump(mode="json"),
    }
    found = look.set_up("guard-drill", parts, reads=())
    if found.result.verdict == "undecided":
        raise Open(found.result.reason, found.evidence)
    return Decided(found.result.verdict == "yes", found.result.reason, (found.evidence,))


def routing(look: Look) -> Decided:
    """Rendered from the rollout file and the results as they are now; and the routers answer."""
    parts = {
        "route": look.rollout.route.model_dump(mode="json"),
        "addresses": look.rollout.addresses.model_dump(mode="json"),
    }
    found = look.set_up("route", parts, reads=("sweep", "ab", "canary"))
    routed = checked(Routed, found.result.data, "route.json is damaged: data")
    if routed.rules != rules(look.rollout, look.folder).table:
        raise Open("route.json has other rules than the results now make", found.evidence)
    _refuse_missing_files(look, routed.files, found.evidence)
    routers = look.rollout.addresses.routers
    if not routers:
        prefix = look.folder / NGINX
        raise Open(
            f"{found.result.reason}; addresses.routers names no router to probe",
            found.evidence,
            change=f"start the router: nginx -p {prefix} -c {CONF}; add its HOST:PORT to addresses.routers in"
            f" {look.path}",
            decide=look.commands.of("route render {rollout}"),
        )
    counts = decided(routers)
    for router in routers:
        runs = _runs(router)
        if runs != look.rollout.rollout:
            raise Open(f"router {router} runs {runs or 'no rollout of specops'}", found.evidence)
    message = (
        f"{len(routers)} router{'s' if len(routers) > 1 else ''} answered: {_requests(counts)} decided so far"
    )
    return Decided(True, message, (found.evidence, look.probed(", ".join(routers), message)))


def _runs(router: str) -> str | None:
    """The rollout that a router was rendered for, by its own word."""
    scraped = exposition.scrape(f"http://{router}")
    return next((dict(labels).get("rollout") for name, labels in scraped if name == ROUTER_INFO), None)


def _requests(counts: dict[str, float]) -> str:
    return ", ".join(f"{count:.0f} {pool}" for pool, count in sorted(counts.items())) or "nothing"


def monitoring(look: Look) -> Decided:
    """Rendered, and a Prometheus has every name that rules and panels need."""
    parts = {
        "addresses": look.rollout.addresses.model_dump(mode="json"),
        "monitor": look.rollout.monitor.model_dump(mode="json"),
    }
    found = look.set_up("monitor", parts, reads=("baseline", "ab", "sweep"))
    rendered = checked(Rendered, found.result.data, "monitor.json is damaged: data")
    _refuse_missing_files(look, rendered.files, found.evidence)
    if look.api is None:
        raise Open(
            f"{found.result.reason}; whether a Prometheus has loaded them is unknown: there"
            " is no addresses.prometheus",
            found.evidence,
            change=f"let a Prometheus load {look.folder}/rendered, and name its root, such as"
            f" http://HOST:9090, as addresses.prometheus in {look.path}",
        )
    live = check(look.rollout, look.api, Silent())
    evidence = (found.evidence, look.probed(look.api.url, live.reason))
    command = look.commands.of("monitor check {file}")
    return Decided(live.verdict == "yes", live.reason, evidence, decide=command)


def _refuse_missing_files(look: Look, files: list[str], evidence: Evidence) -> None:
    gone = next((name for name in files if not (look.folder / name).is_file()), None)
    if gone is not None:
        raise Open(f"{gone} was rendered, and is not there any more", evidence)


def capacity(look: Look) -> Decided:
    found = gate(look.rollout, look.folder)
    evidence: tuple[Evidence, ...] = ()
    if found.measured is not None:
        phase = Path(found.measured.source).stem
        evidence = (look.result(phase).evidence.model_copy(update={"figure": found.reason}),)
    if found.verdict == "undecided":
        raise Open(found.reason, *evidence, change=_change(found.hint))
    return Decided(found.verdict == "yes", found.reason, evidence, change=_change(found.hint))


def _change(hint: str | None) -> str | None:
    """None where the hint is to measure, which the item's command does."""
    return None if hint == AGAIN else hint


def canary(look: Look) -> Decided:
    found = look.canary()
    if found.result.verdict == "undecided":
        raise Open(found.result.reason, found.evidence)
    return Decided(found.result.verdict == "yes", found.result.reason, (found.evidence,))


def guard_running(look: Look) -> Decided:
    """A guard of this run folder runs, looks in time, and has data."""
    journal = look.folder / GUARD / JOURNAL
    now = standing(look.folder)
    if now.running is None:
        raise Open("no guard of this run folder runs on this machine", *_journal(look, now.decided_at))
    observed = now.evaluation
    if observed is None:
        raise Open(f"the guard runs (pid {now.running}), and has evaluated nothing yet")
    age = look.now.timestamp() - observed.ts
    late = max(300.0, float(LATE_LOOKS * look.rollout.guard.interval_s))
    verdict = observed.verdict.replace("_", " ")
    message = f"pid {now.running}, {verdict} {max(age, 0.0):.0f} s ago: {observed.reason}"
    evidence = (
        (look.file(journal, datetime.fromtimestamp(observed.ts, UTC), message),) if journal.exists() else ()
    )
    if age > late:
        return Decided(False, f"the guard's last look was {age:.0f} s ago (pid {now.running})", evidence)
    if observed.verdict in ("no_data", "unknown"):
        return Decided(False, f"the guard runs and has no data: {observed.reason}", evidence)
    if now.unconfirmed:
        return Decided(False, f"the guard's decision is not in effect: {now.unconfirmed}", evidence)
    return Decided(True, message, evidence)


def _journal(look: Look, decided_at: float | None) -> tuple[Evidence, ...]:
    journal = look.folder / GUARD / JOURNAL
    if decided_at is None or not journal.exists():
        return ()
    return (look.file(journal, datetime.fromtimestamp(decided_at, UTC), "its last line"),)

"""The items: those decided by what was measured, or read from the models' files; and those of what runs: the
router, Prometheus, the guard, and whether the pools answer as they should.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from specops import results
from specops.checkpoints.source import find
from specops.config import Rollout
from specops.defaults import ACCEPTANCE_GATE, MEMORY_FULL, SPEEDUP_GATE
from specops.errors import FileError
from specops.experiment.findings import Decision
from specops.guard.journal import FILE as JOURNAL
from specops.guard.switch import decided
from specops.phases.ab import report as ab_report
from specops.phases.ab.report import CHALLENGER, Challenger, DeployTarget
from specops.phases.capacity.gate import AGAIN, Rate
from specops.phases.capacity.gate import capacity as gate
from specops.phases.checklist.evidence import (
    CheckInput,
    Evidence,
    Gate,
    ItemDecision,
    OpenItem,
    RefusedFile,
    ResultEvidence,
)
from specops.phases.guard import GUARD, standing
from specops.phases.inputs import identity
from specops.phases.measurement import checked
from specops.phases.monitor.check import check
from specops.phases.monitor.render import MonitorData
from specops.phases.monitor.thresholds import measurements
from specops.phases.route import UNMATCHED_NOTE, RouteData, folder_of, unmatched_sentence
from specops.phases.route.thresholds import named_by_header, rules
from specops.phases.sweep import report as sweep_report
from specops.phases.sweep.report import Cell
from specops.phases.verify_draft.pair import ModelFiles, settings_for
from specops.progress import SilentProgress
from specops.prometheus.promql import Signals, selector
from specops.prometheus.series import GPU_MEMORY, POOL, ROLLOUT, exposed
from specops.render.figures import times

ENOUGH_DRAFTED = 1000
"""Tokens drafted within a day, below which live traffic says little about acceptance."""
LATE_LOOKS = 5
"""Number of looks of the guard, in a row, that may be missing: as the alert SpecopsGuardDown has it."""
REPORTS = "reports"
REPORT_AGE = timedelta(days=8)
"""Longest age of a weekly report: the next is due after seven days."""


def baseline(look: CheckInput) -> ItemDecision:
    measured = look.measured("baseline")
    return ItemDecision(measured.result.verdict == "yes", measured.result.reason, (measured.evidence,))


def draft_compatible(look: CheckInput) -> ItemDecision:
    pair = settings_for(look.rollout.pools.speculative)
    if pair is None:
        engine = look.rollout.pools.speculative.engine
        raise OpenItem(
            f"the draft was not checked: the rollout file has no model folders of a pool of engine {engine}",
            change="compare its two models (`specops verify-draft TARGET DRAFT`), then attest it",
            decide=look.attest("draft-compatible"),
        )
    drafts = look.result("drafts")
    _refuse_another(look, drafts, "target", pair.target)
    _refuse_another(look, drafts, "draft", pair.draft)
    if drafts.result.verdict == "undecided":
        raise OpenItem(drafts.result.reason, drafts.evidence)
    return ItemDecision(drafts.result.verdict == "yes", drafts.result.reason, (drafts.evidence,))


def _refuse_another(look: CheckInput, drafts: ResultEvidence, role: str, name: str) -> None:
    """Raise OpenItem where the result is of another model than `name`: of a folder by its files, else by its
    name. A relative folder is relative to the rollout file."""
    was = str(drafts.result.settings.get(role))
    folder = look.path.parent / name
    sha256 = drafts.result.inputs.get(role)
    if folder.is_dir() and sha256 is not None:
        if ModelFiles(find(str(folder))).sha256() != sha256:
            raise OpenItem(
                f"drafts.json is of other files: {was} was compared, {name} is the {role}", drafts.evidence
            )
    elif was != name:
        raise OpenItem(f"drafts.json is of another {role}: {was}, not {name}", drafts.evidence)


def k_swept(look: CheckInput) -> ItemDecision:
    """Decide whether the best K was looked for, and is deployed or cannot be distinguished from what is."""
    sweep = look.sweep()
    report = sweep_report.read(sweep.result, sweep.path.name)
    advice = sweep_report.recommendation(sweep.result, sweep.path.name)
    if sweep.result.verdict == "undecided":
        raise OpenItem(sweep.result.reason, sweep.evidence)
    if sweep.result.verdict == "no" or advice.setting is None:
        return ItemDecision(
            False,
            sweep.result.reason,
            (sweep.evidence,),
            change=f"set route.speculate: false in {look.path}, which keeps every request standard",
            decide=look.command("route"),
        )
    setting = deployed(look)
    if setting is None or not any(cell.setting == setting for cell in report.cells):
        raise OpenItem("the sweep did not measure the speculative pool as it is deployed", sweep.evidence)
    if setting == advice.setting:
        return ItemDecision(True, f"{setting} is the best that was swept, and is deployed", (sweep.evidence,))
    rival = next((runner_up for runner_up in report.runners_up if runner_up.setting == setting), None)
    if rival is not None and not rival.differs:
        message = (
            f"{setting} is deployed, and is within the noise of {advice.setting}, the best that was swept"
        )
        return ItemDecision(True, message, (sweep.evidence,))
    return ItemDecision(
        False,
        f"{setting} is deployed, and {advice.setting} is better",
        (sweep.evidence,),
        change=f"deploy {advice.setting}: pools.speculative in {look.path}",
    )


def deployed(look: CheckInput) -> str | None:
    """The setting of the sweep that is the speculative pool as the rollout file has it; None where it was not
    swept. The sweep's inputs are those of `look.sweep_spec`, so its settings are too."""
    pool_identity = identity(look.rollout.pools.speculative)
    return next(
        (setting.name for setting in look.sweep_spec().settings if identity(setting.pool) == pool_identity),
        None,
    )


def acceptance(look: CheckInput) -> ItemDecision:
    """Decide by the acceptance of the last day's traffic where there was enough, else of the comparison's
    prompts."""
    measured = measurements(look.rollout, look.folder)
    if measured.break_even is not None:
        look.sweep()  # what it says is of this rollout
        threshold, source = measured.break_even.value, f"break-even by {measured.break_even.source}"
    elif measured.branches:
        raise OpenItem(
            "the speculative pool drafts a tree with branches, and no sweep measured its break-even: the "
            "default threshold does not apply to such a tree",
            decide=look.command("sweep"),
        )
    else:
        threshold, source = ACCEPTANCE_GATE, "default"
    live = _live_acceptance(look)
    if live is not None:
        rate, evidence = live
        scope, note = "in the last day's traffic", ""
    else:
        rate, evidence = _compared_acceptance(look)
        scope, note = "for the compared prompts", f"; no live figure: {_no_traffic(look)}"
    message = f"acceptance {rate:.2f} {scope} (threshold: above {threshold:.2f}, {source}){note}"
    gate = Gate(measured=f"{rate:.2f}", threshold=f"above {threshold:.2f}, {source}")
    return ItemDecision(rate > threshold, message, (evidence,), gate=gate)


def _live_acceptance(look: CheckInput) -> tuple[float, Evidence] | None:
    if look.api is None:
        return None
    rollout = look.rollout
    labels = {ROLLOUT: rollout.rollout, POOL: CHALLENGER} | rollout.monitor.labels
    signals = Signals(exposed(rollout, "speculative"), labels, "1d")
    drafted, rate = look.api.instant(signals.drafted()), look.api.instant(signals.acceptance())
    if not drafted or not rate or drafted[0].value < ENOUGH_DRAFTED:
        return None
    figure = f"{rate[0].value:.4f} of {drafted[0].value:.0f} drafted within a day"
    return rate[0].value, look.probed(look.api.url, figure)


def _no_traffic(look: CheckInput) -> str:
    return (
        "addresses.prometheus is not set"
        if look.api is None
        else "too few drafted tokens in the last 24 h to decide"
    )


def _compared_acceptance(look: CheckInput) -> tuple[float, Evidence]:
    comparison = look.measured("ab")
    report = ab_report.read(comparison.result, comparison.path.name)
    total = report.acceptance(CHALLENGER)
    if total is None:
        missing = [figures.acceptance_missing for figures in report.arms.get(CHALLENGER, [])]
        raise OpenItem(
            f"ab.json has no acceptance: {next(filter(None, missing), 'nothing was drafted')}",
            comparison.evidence,
        )
    figure = f"{total.rate:.4f} of {total.draft_tokens:.0f} drafted"
    return total.rate, comparison.evidence.model_copy(update={"figure": figure})


def speedup(look: CheckInput) -> ItemDecision:
    """Judge the lowest speed-up of the classes and levels that the comparison deploys. The lower end of its
    interval has to reach the gate: an estimate above it is as often below as not."""
    comparison = look.measured("ab")
    challenger = ab_report.read(comparison.result, comparison.path.name).challengers.get(CHALLENGER)
    if challenger is None:
        raise OpenItem(f"{comparison.path.name} compares no arm called {CHALLENGER}", comparison.evidence)
    if not challenger.deploy:
        if challenger.decision.verdict == "no":
            return ItemDecision(False, challenger.decision.reason, (comparison.evidence,))
        raise OpenItem(challenger.decision.reason, comparison.evidence, change=_more(look))
    used = _used(challenger, look.rollout)
    if not used:
        limit = look.rollout.route.max_in_flight
        raise OpenItem(
            f"no level up to {limit} streams (route.max_in_flight) was measured",
            comparison.evidence,
            change=f"add such a level to measure.concurrency in {look.path}",
        )
    target, decision = min(used, key=lambda pair: pair[1].speedup.low if pair[1].speedup else 0.0)
    interval = decision.speedup
    if interval is None:
        raise OpenItem(f"no interval for {target.traffic_class} at {target.level}", comparison.evidence)
    basis = {"e2e": "end to end", "tpot": "per output token", "per_character": "per character"}[
        decision.basis
    ]
    least = f", the weakest of {len(used)} classes and loads to deploy" if len(used) > 1 else ""
    place = f"{target.traffic_class} at {target.level}{least}"
    figure = f"{interval.estimate:.2f}× [{interval.low:.2f}, {interval.high:.2f}] {basis} for {place}"
    evidence = comparison.evidence.model_copy(update={"figure": figure})
    threshold = f"threshold {SPEEDUP_GATE:g}× (default)"
    gate = Gate(measured=times(interval), threshold=f"all of the interval above {SPEEDUP_GATE:g}×")
    if interval.low > SPEEDUP_GATE:
        return ItemDecision(True, f"{figure} (threshold {SPEEDUP_GATE:g}×, default)", (evidence,), gate=gate)
    if interval.high <= SPEEDUP_GATE:
        lower = f"send this traffic to the standard pool: route.classes or route.max_in_flight in {look.path}"
        return ItemDecision(
            False, f"{figure}: not above the {threshold}", (evidence,), change=lower, gate=gate
        )
    raise OpenItem(
        f"{figure}: it may be only {interval.low:.2f}×, and must surely be above the {threshold}",
        evidence,
        change=_more(look),
        gate=gate,
    )


def _more(look: CheckInput) -> str:
    return f"add prompts, or repeats (measure.repeats), in {look.path}"


def _used(challenger: Challenger, rollout: Rollout) -> list[tuple[DeployTarget, Decision]]:
    """Return what deploys, with the decision on it, up to the load that route.max_in_flight lets through."""
    limit = rollout.route.max_in_flight
    return [
        (target, level.decision)
        for target in challenger.deploy
        for level in challenger.classes[target.traffic_class].levels
        if level.level == target.level
        and (limit is None or target.level.concurrency is None or target.level.concurrency <= limit)
    ]


GIB = 2**30
MEMINFO = Path("/proc/meminfo")


def gpu_memory(look: CheckInput) -> ItemDecision:
    """Decide by the sweep's cells of the pool as it is deployed, and by Prometheus. Raises OpenItem where
    nothing shows whether the KV cache is large enough."""
    evidence: list[Evidence] = []
    parts: list[str] = []
    live = _live_share(look)
    if live is not None:
        share, where = live
        evidence.append(where)
        parts.append(f"GPU memory {share:.0%} at its most within a day")
        passed = share < MEMORY_FULL
    else:
        sweep = look.sweep()
        share, part, where = _swept(look, sweep)
        passed = share < MEMORY_FULL
        evidence.append(where)
        parts.append(part)
    gate = Gate(measured=f"{share:.0%}", threshold=f"below {MEMORY_FULL:.0%}")
    pressed = _memory_pressure(look)
    if pressed is None:
        why = "addresses.prometheus is not set" if look.api is None else "Prometheus has no series of it"
        parts.append(f"whether the KV cache is large enough is unknown: {why}")
        if passed:
            change = f"add addresses.prometheus to {look.path}, or look at the server's log, then attest it"
            decide = look.attest("gpu-memory")
            raise OpenItem("; ".join(parts), *evidence, change=change, decide=decide, gate=gate)
    else:
        enough, part, where = pressed
        evidence.append(where)
        parts.append(part)
        passed = passed and enough
    change = f"draft fewer tokens (K = 3), or serve with a shorter max_model_len: {look.path}"
    return ItemDecision(
        passed, "; ".join(parts), tuple(evidence), change=None if passed else change, gate=gate
    )


def _live_share(look: CheckInput) -> tuple[float, Evidence] | None:
    if look.api is None or not look.rollout.addresses.gpus:
        return None
    requested = f"max(max_over_time({GPU_MEMORY}{selector({ROLLOUT: look.rollout.rollout})}[1d]))"
    samples = look.api.instant(requested)
    if not samples:
        return None
    return samples[0].value, look.probed(look.api.url, f"{GPU_MEMORY} {samples[0].value:.3f}")


def _swept(look: CheckInput, sweep: ResultEvidence) -> tuple[float, str, Evidence]:
    """The largest share of memory in the sweep, in words, and where it is from."""
    name = deployed(look)
    report = sweep_report.read(sweep.result, sweep.path.name)
    cells = [cell for cell in report.cells if cell.setting == name]
    if not cells:
        raise OpenItem("the sweep did not measure the speculative pool as it is deployed", sweep.evidence)
    shares = [cell.gpu_memory_share for cell in cells if cell.gpu_memory_share is not None]
    if shares:
        message = f"GPU memory {max(shares):.0%} at its most in the sweep"
        return max(shares), message, sweep.evidence.model_copy(update={"figure": message})
    if look.rollout.pools.speculative.own is None:
        raise OpenItem(
            "the sweep could not read GPU memory: nvidia-ml-py is not installed, or the server runs on"
            " another machine",
            sweep.evidence,
            change="pip install nvidia-ml-py on the machine that serves",
            decide=look.command("sweep", fresh=True),
        )
    return _of_host(cells, sweep)


def _of_host(cells: list[Cell], sweep: ResultEvidence) -> tuple[float, str, Evidence]:
    """The embedded engine serves from a CPU: it has the host's memory, and no GPU's."""
    resident = [cell.resident_gb for cell in cells if cell.resident_gb is not None]
    total = _host_gib()
    environment = results.environment()
    same = all(sweep.result.environment.get(name) == environment[name] for name in ("processor", "cores"))
    if not resident or total is None or not same:
        raise OpenItem(
            "the pool runs on a CPU, and its share of the memory is not known on this machine", sweep.evidence
        )
    share = max(resident) / total
    took = f"{max(resident):.2f} of the host's {total:.1f} GiB ({share:.0%})"
    message = f"no GPU is used; it took {took} in the sweep"
    return share, message, sweep.evidence.model_copy(update={"figure": message})


def _host_gib() -> float | None:
    try:
        for line in MEMINFO.read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024 / GIB
    except (OSError, ValueError, IndexError):
        pass
    return None


def _memory_pressure(look: CheckInput) -> tuple[bool, str, Evidence] | None:
    """The KV cache and preemptions within a day; None without Prometheus, or where it has no series of one
    that the engine exposes."""
    if look.api is None:
        return None
    labels = {ROLLOUT: look.rollout.rollout, POOL: CHALLENGER} | look.rollout.monitor.labels
    series = exposed(look.rollout, "speculative")
    if series.kv_usage is None:
        return None
    usage = look.api.instant(f"max(max_over_time({series.kv_usage}{selector(labels)}[1d]))")
    if not usage:
        return None
    share = usage[0].value
    message = f"KV cache {share:.0%} at its most"
    if series.preemptions is None:
        return share < MEMORY_FULL, f"{message} within a day", look.probed(look.api.url, message)
    preempted = look.api.instant(f"sum(increase({series.preemptions}{selector(labels)}[1d]))")
    if not preempted:
        return None
    count = preempted[0].value
    message = f"{message}, {count:.0f} preemptions within a day"
    return share < MEMORY_FULL and count < 0.5, message, look.probed(look.api.url, message)


def fallback_tested(look: CheckInput) -> ItemDecision:
    """Decide by a drill on the live set-up. `run` rehearses pools that it starts itself on a stage of its
    own, which shows that the parts fit and nothing of what will serve."""
    switched = look.rollout.addresses.routers or any(action.switches for action in look.rollout.guard.actions)
    if not switched and not (look.folder / "guard-drill.json").exists():
        raise OpenItem(
            "the rollout file names nothing that a guard can switch",
            change=f"add addresses.routers, their admin listeners, or guard.actions to {look.path}",
        )
    rehearsed = look.result("guard-drill")
    if "stage" in rehearsed.result.settings:
        raise OpenItem(f"no drill of the live deployment yet; {rehearsed.result.reason}", rehearsed.evidence)
    parts = {
        "guard": look.rollout.guard.model_dump(mode="json"),
        "addresses": look.rollout.addresses.model_dump(mode="json"),
    }
    drill = look.set_up("guard-drill", parts, reads=())
    if drill.result.verdict == "undecided":
        raise OpenItem(drill.result.reason, drill.evidence)
    return ItemDecision(drill.result.verdict == "yes", drill.result.reason, (drill.evidence,))


def routing(look: CheckInput) -> ItemDecision:
    """Rendered from the rollout file and the results as they are now; and the routers answer."""
    parts = {
        "route": look.rollout.route.model_dump(mode="json"),
        "addresses": look.rollout.addresses.model_dump(mode="json"),
    }
    stored = look.set_up("route", parts, reads=("sweep", "ab", "canary"))
    routed = checked(RouteData, stored.result.data, "route.json is damaged: data")
    if routed.rules != rules(look.rollout, look.folder).table:
        raise OpenItem("route.json is stale: the results now give other rules", stored.evidence)
    _refuse_missing_files(look, routed.files, stored.evidence)
    if routed.unmatched:
        missing = "; ".join(json.dumps(named_by_header(name)) for name in routed.unmatched)
        raise OpenItem(
            unmatched_sentence(routed.unmatched),
            stored.evidence,
            change=f"add to route.classes in {look.path}: {missing} ({UNMATCHED_NOTE})",
            decide=look.commands.of("route render {rollout}"),
        )
    router = look.rollout.route.router
    routers = [router.listener(address) for address in look.rollout.addresses.routers]
    if not routers:
        start = router.start_command(look.folder / folder_of(router))
        raise OpenItem(
            f"{stored.result.reason}; addresses.routers names no router to probe",
            stored.evidence,
            change=f"start the router: {start}; add its HOST:PORT to addresses.routers in {look.path}",
            decide=look.commands.of("route render {rollout}"),
        )
    counts = decided(routers)
    for listener in routers:
        runs = listener.counters().rollout
        if runs != look.rollout.rollout:
            runs = runs or "no rollout of specops"
            raise OpenItem(
                f"{listener.name} runs {runs}, not {look.rollout.rollout}",
                stored.evidence,
            )
    message = (
        f"{len(routers)} router{'s' if len(routers) > 1 else ''} answered: {_requests(counts)} decided so far"
    )
    addresses = ", ".join(look.rollout.addresses.routers)
    return ItemDecision(True, message, (stored.evidence, look.probed(addresses, message)))


def _requests(counts: dict[str, float]) -> str:
    return ", ".join(f"{count:.0f} {pool}" for pool, count in sorted(counts.items())) or "nothing"


def monitoring(look: CheckInput) -> ItemDecision:
    """Rendered, and a Prometheus has every name that rules and panels need."""
    parts = {
        "addresses": look.rollout.addresses.model_dump(mode="json"),
        "monitor": look.rollout.monitor.model_dump(mode="json"),
    }
    stored = look.set_up("monitor", parts, reads=("baseline", "ab", "sweep"))
    rendered = checked(MonitorData, stored.result.data, "monitor.json is damaged: data")
    _refuse_missing_files(look, rendered.files, stored.evidence)
    if look.api is None:
        raise OpenItem(
            f"{stored.result.reason}; whether a Prometheus has loaded them is unknown: there"
            " is no addresses.prometheus",
            stored.evidence,
            change=f"let a Prometheus load {look.folder}/rendered, and name its root, such as"
            f" http://HOST:9090, as addresses.prometheus in {look.path}",
        )
    live = check(look.rollout, look.api, SilentProgress())
    evidence = (stored.evidence, look.probed(look.api.url, live.reason))
    command = look.commands.of("monitor check {file}")
    return ItemDecision(live.verdict == "yes", live.reason, evidence, decide=command)


def weekly_report(look: CheckInput) -> ItemDecision:
    """Decide by the last report, which is younger than 8 days where a schedule works, whatever makes it.
    Raises RefusedFile for one that is damaged, was changed, or is dated in the future."""
    make = look.commands.of("report {rollout}")
    reports: list[ResultEvidence] = []
    for path in sorted((look.folder / REPORTS).glob("*.json")):
        try:
            result = look.read(path)
        except FileError as error:
            raise RefusedFile(error.message, change=f"remove {path}", decide=make) from error
        if result.phase == "report":
            evidence = look.file(path, result.created, result.reason)
            look.refuse_future(evidence, make)
            reports.append(ResultEvidence(result, path, evidence))
    last = max(reports, key=lambda report: report.result.created, default=None)
    if last is None:
        raise OpenItem(f"no report is in {REPORTS}/")
    age = look.now - last.result.created
    if age > REPORT_AGE:
        raise OpenItem(
            f"the last report, {last.evidence.source}, is {age.days} days old (at most {REPORT_AGE.days})",
            last.evidence,
        )
    if last.result.verdict != "yes":
        why = f"the last report, {last.evidence.source}, is {last.result.verdict}: {last.result.reason}"
        raise OpenItem(why, last.evidence, decide=make)
    return ItemDecision(True, f"the last report is {last.evidence.source}", (last.evidence,))


def _refuse_missing_files(look: CheckInput, files: list[str], evidence: Evidence) -> None:
    gone = next((name for name in files if not (look.folder / name).is_file()), None)
    if gone is not None:
        raise OpenItem(f"{gone} is missing: it was rendered, and removed later", evidence)


def capacity(look: CheckInput) -> ItemDecision:
    decision = gate(look.rollout, look.folder)
    evidence: tuple[Evidence, ...] = ()
    if decision.measured is not None:
        phase = Path(decision.measured.source).stem
        evidence = (look.result(phase).evidence.model_copy(update={"figure": decision.reason}),)
    load_gate = Gate(
        measured="; ".join(f"{_range(demand.offered)} {demand.unit}" for demand in decision.demands),
        threshold="; ".join(f"at least {demand.peak:g} {demand.unit}" for demand in decision.demands),
    )
    gate_shown = load_gate if decision.demands else None
    if decision.verdict == "undecided":
        raise OpenItem(decision.reason, *evidence, change=_change(decision.change), gate=gate_shown)
    return ItemDecision(
        decision.verdict == "yes", decision.reason, evidence, change=_change(decision.change), gate=gate_shown
    )


def _range(rate: Rate) -> str:
    if rate.low is None or rate.high is None:
        return f"{rate.estimate:.1f}"
    return f"{rate.low:.1f} to {rate.high:.1f}"


def _change(hint: str | None) -> str | None:
    """Return what to change; None where the hint is to measure, which the item's command does."""
    return None if hint == AGAIN else hint


def canary(look: CheckInput) -> ItemDecision:
    measured = look.measured("canary")
    if measured.result.verdict == "undecided":
        raise OpenItem(measured.result.reason, measured.evidence)
    return ItemDecision(measured.result.verdict == "yes", measured.result.reason, (measured.evidence,))


def guard_running(look: CheckInput) -> ItemDecision:
    """A guard of this run folder runs, looks in time, and has data."""
    journal = look.folder / GUARD / JOURNAL
    now = standing(look.folder)
    if now.running is None:
        change = None
        if look.rollout.addresses.prometheus is None:
            change = f"add addresses.prometheus, such as http://127.0.0.1:9090, to {look.path}"
        raise OpenItem(
            "no guard of this run folder runs on this machine",
            *_journal(look, now.decided_at),
            change=change,
        )
    observed = now.evaluation
    if observed is None:
        raise OpenItem(f"the guard runs (pid {now.running}), and has evaluated nothing yet")
    age = look.now.timestamp() - observed.ts
    late = max(300.0, float(LATE_LOOKS * look.rollout.guard.interval_s))
    verdict = observed.verdict.replace("_", " ")
    message = f"pid {now.running}, {verdict} {max(age, 0.0):.0f} s ago: {observed.reason}"
    evidence = (
        (look.file(journal, datetime.fromtimestamp(observed.ts, UTC), message),) if journal.exists() else ()
    )
    if age > late:
        return ItemDecision(
            False, f"the guard's last evaluation was {age:.0f} s ago (pid {now.running})", evidence
        )
    if observed.verdict in ("no_data", "unknown"):
        return ItemDecision(False, f"the guard runs and has no data: {observed.reason}", evidence)
    if now.unconfirmed:
        return ItemDecision(False, f"the guard's decision is not in effect: {now.unconfirmed}", evidence)
    return ItemDecision(True, message, evidence)


def _journal(look: CheckInput, decided_at: float | None) -> tuple[Evidence, ...]:
    journal = look.folder / GUARD / JOURNAL
    if decided_at is None or not journal.exists():
        return ()
    return (look.file(journal, datetime.fromtimestamp(decided_at, UTC), "its last line"),)

"""Does the pool speculate at all, and does it work? The switch, servers without a draft, stuck servers."""

from __future__ import annotations

from specops.phases.diagnose.finding import (
    ENOUGH_ANSWERS,
    FAILING,
    NEEDS_PROMETHEUS,
    DiagnosisCheck,
    DiagnosisFinding,
    Evidence,
)
from specops.phases.diagnose.observations import Observations

OFF = DiagnosisCheck("speculation-off", "slower")
STUCK = DiagnosisCheck("server-stuck", "slower")
ABORTED = DiagnosisCheck("requests-aborted", "answers")
ROUTED = DiagnosisCheck("routers-answer-errors", "answers")


def off(observed: Observations) -> DiagnosisFinding:
    """Judge by the routers' switch, and by servers that make tokens and draft none, whether speculation is
    off."""
    live, switched = observed.live, observed.routed_share
    message, evidence = [], []
    if switched is not None:
        message.append(f"the routers have {switched.percent:g}% of the speculative traffic on")
        evidence.append(
            Evidence(what="speculative share, percent", value=switched.percent, source=switched.source)
        )
        if switched.percent == 0:
            return OFF.cause(
                message[0],
                *evidence,
                cause="speculation is switched off: all traffic goes to the standard pool",
                fix="specops guard status ROLLOUT",
            )
    if live is not None and live.not_drafting:
        servers = ", ".join(live.not_drafting)
        evidence.append(Evidence(what="servers that draft nothing", value=servers, source=live.source))
        gate = observed.deployed.ends_speculation if observed.deployed else None
        if gate is not None:
            return OFF.cause(
                f"{servers}: makes tokens and drafted none within {live.over}",
                *evidence,
                cause=f"{gate} ends speculation for good once acceptance is below it; only its log says so",
                fix="restart these servers, and remove the gate: the guard falls back and returns by itself",
            )
        return OFF.cause(
            f"{servers}: makes tokens and drafted none within {live.over}",
            *evidence,
            cause="servers of the speculative pool do not speculate: they were started without a draft, or"
            " switched it off by themselves",
            fix="specops launch render ROLLOUT  # compare its command with the server's",
        )
    if switched is not None and switched.percent < 100:
        return OFF.contributing(
            message[0],
            *evidence,
            cause="a part of the traffic is held on the standard pool: a canary step, or a person",
            fix="specops guard status ROLLOUT",
        )
    if live is None or not (live.drafted or (live.answers or 0) >= ENOUGH_ANSWERS):
        if switched is not None:
            return OFF.ruled_out(message[0], *evidence)
        why = observed.why_not("live") if live is None else f"almost no traffic within {live.over}"
        return OFF.unknown(f"whether it speculates is not known: {why}", show=NEEDS_PROMETHEUS)
    message.append(f"every server with traffic drafted tokens within {live.over}")
    return OFF.ruled_out("; ".join(message), *evidence)


def stuck(observed: Observations) -> DiagnosisFinding:
    live = observed.live
    if live is None:
        why = f"whether a server is stuck is not known: {observed.why_not('live')}"
        return STUCK.unknown(why, show=NEEDS_PROMETHEUS)
    if not live.stuck:
        return STUCK.ruled_out(f"no server had requests running without making a token ({live.source})")
    servers = ", ".join(live.stuck)
    return STUCK.cause(
        f"{servers}: requests were running all the time, and not one token was made",
        Evidence(what="stuck servers", value=servers, source=live.source),
        cause="a server hangs, and so do the requests that are sent to it",
        fix="take it out of the pool, keep its log, and restart it",
    )


def aborted(observed: Observations) -> DiagnosisFinding:
    """Judge the requests that the engine of the speculative pool aborted, against the standard pool's."""
    live = observed.live
    if live is None or live.aborted is None or (live.answers or 0) < ENOUGH_ANSWERS:
        why = observed.why_not("live") if live is None else f"too few requests ended within {live.over}"
        return ABORTED.unknown(f"whether requests fail is not known: {why}", show=NEEDS_PROMETHEUS)
    evidence = [
        Evidence(
            what="aborted or failed, of requests that ended",
            value=round(live.aborted, 4),
            source=live.source,
            threshold=FAILING,
            threshold_source="a default of specops",
        )
    ]
    message = f"{live.aborted:.1%} of the requests that ended were aborted or failed"
    standard_share = observed.standard.aborted if observed.standard else None
    if standard_share is not None and observed.standard is not None:
        message += f"; {standard_share:.1%} on the standard pool"
        evidence.append(
            Evidence(
                what="the same, standard pool",
                value=round(standard_share, 4),
                source=observed.standard.source,
            )
        )
    if live.aborted <= FAILING:
        return ABORTED.ruled_out(message, *evidence)
    if standard_share is not None and live.aborted - standard_share <= FAILING:
        cause = "both pools abort requests: clients that leave, or a model that fails without speculation too"
        return ABORTED.contributing(message, *evidence, cause=cause, fix="specops canary ROLLOUT")
    cause = "the speculative pool fails requests, or its clients give up waiting"
    return ABORTED.cause(message, *evidence, cause=cause, fix="specops canary ROLLOUT")


def routed(observed: Observations) -> DiagnosisFinding:
    """Judge what the routers answered to requests for the speculative pool, against the standard pool's."""
    errors = observed.routed_errors
    if errors is None:
        why = observed.why_not("routed_errors")
        return ROUTED.unknown(f"what the routers answered is not known: {why}", show=NEEDS_PROMETHEUS)
    shares = (("answered 5xx", errors.failed), ("answered by the standard pool in its place", errors.saved))
    evidence = [
        Evidence(
            what=f"{label}, of requests to the speculative pool",
            value=round(share, 4),
            source=errors.source,
            threshold=FAILING,
            threshold_source="a default of specops",
        )
        for label, share in shares
    ]
    message = "; ".join(f"{share:.1%} {label}" for label, share in shares)
    message = f"of {errors.requests:.0f} requests to the speculative pool within {errors.over}, {message}"
    standard = errors.standard_failed
    if standard is not None:
        message += f"; the standard pool: {standard:.1%} 5xx"
        evidence.append(
            Evidence(what="the same, standard pool", value=round(standard, 4), source=errors.source)
        )
    if errors.failed <= FAILING and errors.saved <= FAILING:
        return ROUTED.ruled_out(message, *evidence)
    look = "specops canary ROLLOUT  # and the servers' logs at the times in the router's access log"
    if errors.failed > FAILING and standard is not None and errors.failed - standard <= FAILING:
        cause = "both pools answer 5xx: what they share fails, not speculation"
        return ROUTED.cause(message, *evidence, cause=cause, fix=look)
    cause = "servers of the speculative pool answer 5xx, cannot be reached, or die before they answer"
    return ROUTED.cause(message, *evidence, cause=cause, fix=look)


SETTINGS = DiagnosisCheck("settings-without-effect", "slower")
NAMES = DiagnosisCheck("series-missing", "watching")


def settings(observed: Observations) -> DiagnosisFinding:
    """Judge the settings by the lint of the command that starts the pool, for the version that it is for."""
    lint = observed.lint
    if lint is None:
        why = observed.why_not("lint")
        return SETTINGS.unknown(
            f"the pool's command is not known: {why}",
            show="specops launch lint --help  # with the command that starts the pool",
        )
    bad = [finding for finding in lint.findings if finding.level != "note"]
    evidence = tuple(
        Evidence(what=f"{finding.level}: {finding.flag}", value=finding.why, source=lint.source)
        for finding in bad
    )
    if not bad:
        return SETTINGS.ruled_out(f"the lint finds nothing in the pool's command ({lint.source})")
    message = f"{', '.join(finding.flag for finding in bad)}: {bad[0].why}"
    changes = "; ".join(f"{finding.flag} -> {finding.replacement}" for finding in bad if finding.replacement)
    fix = changes or "specops launch lint shows the command as it should be"
    cause = "this version of the engine refuses or ignores a setting"
    if any(finding.level == "error" for finding in bad):
        return SETTINGS.cause(message, *evidence, cause=cause, fix=fix)
    return SETTINGS.contributing(message, *evidence, cause="a setting may have no effect", fix=fix)


def names(observed: Observations) -> DiagnosisFinding:
    check = observed.names
    if check is None:
        why = observed.why_not("names")
        return NAMES.unknown(
            f"the series in Prometheus are not known: {why}", show="specops monitor check ROLLOUT"
        )
    if not check.lacking:
        return NAMES.ruled_out(
            f"all {check.requested} names that rules and panels need exist ({check.source})"
        )
    return NAMES.cause(
        f"{len(check.lacking)} of {check.requested} names are missing: {check.lacking[0]}",
        *(Evidence(what="a series", value=name, source=check.source) for name in check.lacking),
        cause="panels and alerts have no data: a series was renamed by a release, or is not scraped",
        fix=check.fixes[0]
        if check.fixes
        else "specops monitor render ROLLOUT  # then load the files into Prometheus",
    )

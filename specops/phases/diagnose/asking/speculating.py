"""Does the pool speculate at all, and does it work? The switch, servers without a draft, stuck servers."""

from __future__ import annotations

from specops.phases.diagnose.asking.thresholds import ENOUGH_ANSWERS, FAILING, NEEDS_PROMETHEUS
from specops.phases.diagnose.finding import Asks, Evidence, Finding
from specops.phases.diagnose.observations import Observations

OFF = Asks("speculation-off", "slower")
STUCK = Asks("server-stuck", "slower")
ABORTED = Asks("requests-aborted", "answers")


def off(seen: Observations) -> Finding:
    """By the routers' switch, and by servers that make tokens and draft none."""
    live, switched = seen.live, seen.switched
    told, evidence = [], []
    if switched is not None:
        told.append(f"the routers have {switched.percent:g}% of the speculative traffic on")
        evidence.append(
            Evidence(what="speculative share, percent", value=switched.percent, source=switched.source)
        )
        if switched.percent == 0:
            return OFF.cause(
                told[0],
                *evidence,
                cause="speculation is switched off: all traffic goes to the standard pool",
                fix="specops guard status ROLLOUT",
            )
    if live is not None and live.not_drafting:
        servers = ", ".join(live.not_drafting)
        evidence.append(Evidence(what="servers that draft nothing", value=servers, source=live.source))
        return OFF.cause(
            f"{servers}: makes tokens and drafted none within {live.over}",
            *evidence,
            cause="servers of the speculative pool do not speculate: they were started without a draft, or"
            " switched it off by themselves",
            fix="specops launch render ROLLOUT: compare its command with the server's",
        )
    if switched is not None and switched.percent < 100:
        return OFF.contributing(
            told[0],
            *evidence,
            cause="a part of the traffic is held on the standard pool: a canary step, or a person",
            fix="specops guard status ROLLOUT",
        )
    if live is None or not (live.drafted or (live.answers or 0) >= ENOUGH_ANSWERS):
        if switched is not None:
            return OFF.ruled_out(told[0], *evidence)
        why = seen.why_not("live") if live is None else f"almost no traffic within {live.over}"
        return OFF.unknown(f"whether it speculates is not known: {why}", show=NEEDS_PROMETHEUS)
    told.append(f"every server with traffic drafted tokens within {live.over}")
    return OFF.ruled_out("; ".join(told), *evidence)


def stuck(seen: Observations) -> Finding:
    live = seen.live
    if live is None:
        why = f"whether a server is stuck is not known: {seen.why_not('live')}"
        return STUCK.unknown(why, show=NEEDS_PROMETHEUS)
    if not live.stuck:
        return STUCK.ruled_out(f"no server had requests running without making a token ({live.source})")
    servers = ", ".join(live.stuck)
    return STUCK.cause(
        f"{servers}: requests were running all the time, and not one token was made",
        Evidence(what="stuck servers", value=servers, source=live.source),
        cause="a server hangs, and so do the requests that are sent to it",
        fix="take it out of the pool, keep its log, and start it anew",
    )


def aborted(seen: Observations) -> Finding:
    """By the engine, of the speculative pool; held against the standard pool's."""
    live = seen.live
    if live is None or live.aborted is None or (live.answers or 0) < ENOUGH_ANSWERS:
        why = seen.why_not("live") if live is None else f"too few requests ended within {live.over}"
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
    told = f"{live.aborted:.1%} of the requests that ended were aborted or failed"
    theirs = seen.standard.aborted if seen.standard else None
    if theirs is not None and seen.standard is not None:
        told += f"; {theirs:.1%} on the standard pool"
        evidence.append(
            Evidence(what="the same, standard pool", value=round(theirs, 4), source=seen.standard.source)
        )
    if live.aborted <= FAILING:
        return ABORTED.ruled_out(told, *evidence)
    if theirs is not None and live.aborted - theirs <= FAILING:
        cause = "both pools abort requests: clients that leave, or a model that fails without speculation too"
        return ABORTED.contributing(told, *evidence, cause=cause, fix="specops canary ROLLOUT")
    cause = "the speculative pool fails requests, or its clients give up waiting"
    return ABORTED.cause(told, *evidence, cause=cause, fix="specops canary ROLLOUT")

"""Checks of the draft: how well it guesses, what it costs, and how far ahead it guesses."""

from __future__ import annotations

import math
from collections.abc import Mapping

from specops import economics
from specops.config.monitor import OURS
from specops.economics import StepCost
from specops.phases.diagnose.checks.speed import slower
from specops.phases.diagnose.finding import (
    DRAFT_SHARE,
    ENOUGH_DRAFTED,
    NEEDS_PROMETHEUS,
    WEEKLY_FALLBACKS,
    DiagnosisCheck,
    DiagnosisFinding,
    Evidence,
    acceptance,
    pays_from,
    why_not,
)
from specops.phases.diagnose.observations import Live, Observations
from specops.phases.monitor.thresholds import CRITICAL, DEFAULT, DRIFT, LOW
from specops.phases.route.thresholds import classes_block, named_by_header
from specops.serving import published

QUALITY = DiagnosisCheck("draft-quality", "slower")
COST = DiagnosisCheck("draft-cost", "slower")
LENGTH = DiagnosisCheck("draft-length", "slower")
FALLBACKS = DiagnosisCheck("fallbacks", "slower")
OTHER_DRAFT = "choose another draft: specops verify-draft TARGET --guide"
ANOTHER = (
    f"specops guard override ROLLOUT standard --why acceptance  # turns speculation off; or {OTHER_DRAFT}"
)

ALL_THE_SAME = "but the pool is not slower"


BROKEN_SHARE = 0.5
"""Share of the published gain in tokens a step: less than this is a fault rather than harder traffic."""


def quality(observed: Observations) -> DiagnosisFinding:
    """Judge acceptance by the break-even, and by acceptance lengths that are published for this target,
    method and K."""
    return _beside_published(_by_break_even(observed), observed)


def _beside_published(finding: DiagnosisFinding, observed: Observations) -> DiagnosisFinding:
    """Return `finding` with the published acceptance length as evidence. Far below that, a part is broken."""
    rate, deployed = acceptance(observed), observed.deployed
    if rate is None or deployed is None or deployed.model is None or deployed.k is None:
        return finding
    references = published(deployed.model, deployed.method, deployed.k)
    if not references:
        return finding
    length, least = 1 + rate.value * deployed.k, min(references, key=lambda reference: reference.length)
    evidence = Evidence(
        what="tokens a step",
        value=round(length, 2),
        source=rate.source,
        threshold=least.length,
        threshold_source=f"published: {least.conditions} ({least.source})",
    )
    update: dict[str, object] = {"evidence": (*finding.evidence, evidence)}
    reference = f"{least.length} ({least.conditions}; {least.source})"
    if length - 1 < BROKEN_SHARE * (least.length - 1):
        version = f" --engine-version {deployed.version}" if deployed.version else ""
        update |= {
            "severity": "cause",
            "message": f"{length:.1f} tokens a step; published {reference}",
            "cause": "the draft or its engine is broken; harder traffic alone does not explain so little",
            "fix": f"specops issues --engine {deployed.engine}{version}",
        }
    return finding.model_copy(update=update)


def _by_break_even(observed: Observations) -> DiagnosisFinding:
    """Judge acceptance by a measured break-even: below it, the draft is the cause. Without one, by the
    defaults: below 0.3 it is, below 0.5 it may be, unless speculation is observed to be faster all the
    same."""
    rate = acceptance(observed)
    if rate is None:
        why = f"acceptance is not known: {why_not(observed, 'compared')}"
        return QUALITY.unknown(why, show="specops run ROLLOUT")
    evidence = Evidence(
        what="acceptance",
        value=round(rate.value, 4),
        source=rate.source,
        threshold=rate.gate,
        threshold_source=rate.gate_source,
    )
    message = f"acceptance {rate.value:.2f} ± {rate.error:.2f}"
    if rate.gate is None:
        why = f"{message}, of trees that branch, and {rate.gate_source}"
        return QUALITY.unknown(why, evidence, show="specops sweep ROLLOUT")
    gate = f"{rate.gate:.2f} ({rate.gate_source})"
    if rate.value - rate.error >= rate.gate:
        return QUALITY.ruled_out(f"{message} is not below {gate}", evidence)
    if rate.value + rate.error >= rate.gate:
        cause = (
            "possibly the draft: acceptance is within its error of break-even, or too few tokens were drafted"
            " to decide"
        )
        again = "specops diagnose ROLLOUT  # after more traffic"
        return QUALITY.contributing(f"{message} is close to {gate}", evidence, cause=cause, fix=again)
    cause = "acceptance is too low: a step gains fewer tokens than drafting costs time"
    if rate.gate_source != DEFAULT:
        return QUALITY.cause(f"{message} is below {gate}", evidence, cause=cause, fix=ANOTHER)
    if _pays(observed):
        message = f"{message} is below {gate}, {ALL_THE_SAME}; its break-even was not measured"
        return QUALITY.contributing(message, evidence, cause=cause, fix="specops sweep ROLLOUT")
    if rate.value + rate.error < CRITICAL:
        message = f"{message} is below {CRITICAL:.2f} ({DEFAULT})"
        low = evidence.model_copy(update={"threshold": CRITICAL})
        return QUALITY.cause(message, low, cause=cause, fix=ANOTHER)
    likely = f"below {LOW} the draft is likely too weak; break-even was not measured"
    fix = f"specops sweep ROLLOUT  # or {OTHER_DRAFT}"
    return QUALITY.contributing(f"{message} is below {gate}", evidence, cause=likely, fix=fix)


def _pays(observed: Observations) -> bool:
    """Observed not to be slower: a value past the playbook's threshold may cost, but causes no slowdown
    here."""
    return slower(observed).severity == "ruled_out"


def cost(observed: Observations) -> DiagnosisFinding:
    """Judge the cost of drafting by the sweep's step times, since no engine says how long drafting takes."""
    swept = observed.sweep
    if swept is None or swept.draft_ms is None or not swept.target_ms:
        why = observed.why_not("sweep") if swept is None else swept.lacks("its step times fit no line")
        return COST.unknown(f"the cost of a drafted token is not known: {why}", show="specops sweep ROLLOUT")
    share = swept.draft_ms / swept.target_ms
    evidence = Evidence(
        what="a drafted token's time over a target step's",
        value=round(share, 4),
        source=swept.source,
        threshold=DRAFT_SHARE,
        threshold_source=DEFAULT,
    )
    target = f"a target step's {swept.target_ms:.2f} ms"
    message = f"a drafted token costs {swept.draft_ms:.2f} ms ({share:.0%} of {target})"
    if share >= DRAFT_SHARE:
        cause = "drafting and verifying a token costs about as much as decoding one"
        fix = "a smaller draft, a head (EAGLE-3) or n-grams; then specops sweep ROLLOUT"
        if _pays(observed):
            return COST.contributing(f"{message}, {ALL_THE_SAME}", evidence, cause=cause, fix=fix)
        return COST.cause(message, evidence, cause=cause, fix=fix)
    return COST.ruled_out(f"{message}: below {DRAFT_SHARE:.0%}", evidence)


def length(observed: Observations) -> DiagnosisFinding:
    """Return whether the last positions bring what they cost: acceptance by position, with the sweep's
    costs."""
    swept, live = observed.sweep, observed.live
    if observed.branches:
        return LENGTH.unknown("a branching tree has no K", show="specops sweep ROLLOUT")
    curve, source = (live.per_position, live.source) if live and live.per_position else ((), "")
    if not curve and swept is not None:
        curve, source = swept.per_position, swept.source
    if not curve:
        why = f"acceptance by position is not known: {observed.why_not('live', 'sweep')}"
        return LENGTH.unknown(why, show="specops sweep ROLLOUT")
    shares = " ".join(f"{share:.2f}" for share in curve)
    if swept is None or swept.draft_ms is None or not swept.target_ms:
        evidence = Evidence(what="acceptance by position", value=shares, source=source)
        lacks = swept.lacks("its step times fit no line") if swept is not None else observed.why_not("sweep")
        why = f"accepted by position: {shares}; the cost of a position is not known: {lacks}"
        return LENGTH.unknown(why, evidence, show="specops sweep ROLLOUT")
    costs = StepCost(swept.target_ms, swept.draft_ms, None, ())
    best = economics.cut(economics.positions(curve, costs))
    worth = f"a position's worth by {swept.source}"
    evidence = Evidence(
        what="acceptance by position", value=shares, source=source, threshold=best, threshold_source=worth
    )
    if best >= len(curve):
        return LENGTH.ruled_out(f"all {len(curve)} positions gain more than they cost ({shares})", evidence)
    message = f"of {len(curve)} positions ({shares}) only the first {best} gain more than they cost"
    if best == 0:
        message = f"not even the first of {len(curve)} positions ({shares}) gains what it costs"
        if _pays(observed):
            cause = "sweep and comparison disagree: noise, or another load"
            return LENGTH.contributing(
                f"{message}, {ALL_THE_SAME}", evidence, cause=cause, fix="specops sweep ROLLOUT"
            )
        return LENGTH.cause(message, evidence, cause="no K pays with this draft", fix=ANOTHER)
    cause = f"K is too large: tokens drafted after position {best} are mostly rejected"
    return LENGTH.contributing(
        message,
        evidence,
        cause=cause,
        fix=f"specops sweep ROLLOUT --k {best}",
    )


def fallbacks(observed: Observations) -> DiagnosisFinding:
    history = observed.fallbacks
    if history is None:
        why = observed.why_not("fallbacks")
        return FALLBACKS.unknown(
            f"the guard's fallbacks are not known: {why}", show="specops guard run ROLLOUT"
        )
    evidence = Evidence(
        what="fallbacks in 7 days",
        value=history.week,
        source=history.source,
        threshold=WEEKLY_FALLBACKS,
        threshold_source=DEFAULT,
    )
    last = f"; the last: {history.last}" if history.last else ""
    message = f"{history.week} fallbacks within 7 days{last}"
    if history.week > WEEKLY_FALLBACKS:
        return FALLBACKS.contributing(
            message, evidence, cause="speculation repeatedly turns bad", fix=ANOTHER
        )
    return FALLBACKS.ruled_out(message, evidence)


DRIFTED = DiagnosisCheck("acceptance-drift", "acceptance")
DECAY = DiagnosisCheck("decay-with-uptime", "acceptance")
TOO_FEW = "possibly lower: too few drafted tokens to decide"
AGAIN = "specops diagnose ROLLOUT  # after more traffic"


def drifted(observed: Observations) -> DiagnosisFinding:
    live = _counted(observed)
    before = [
        (value, when, source)
        for value, when, source in (
            (observed.compared.acceptance, "when it was compared", observed.compared.source)
            if observed.compared
            else (None, "", ""),
            (observed.earlier.week, "in the week before", observed.earlier.source)
            if observed.earlier
            else (None, "", ""),
        )
        if value is not None
    ]
    if live is None or live.acceptance is None or not before:
        why = why_not(observed, "earlier", "compared")
        return DRIFTED.unknown(
            f"a change of acceptance is not known: {why}",
            show=NEEDS_PROMETHEUS,
        )
    now = live.acceptance
    evidence = (
        Evidence(what="acceptance now", value=round(now, 4), source=live.source),
        *(
            Evidence(
                what=f"acceptance now, less {when}",
                value=round(now - value, 4),
                source=source,
                threshold=-DRIFT,
                threshold_source=OURS,
            )
            for value, when, source in before
        ),
    )
    message = f"acceptance {now:.2f} over {live.over}; " + ", ".join(
        f"{value:.2f} {when}" for value, when, _ in before
    )
    if all(now > value - DRIFT for value, _, _ in before):
        return DRIFTED.ruled_out(message, *evidence)
    if not any(_fell(observed, value) for value, _, _ in before):
        return DRIFTED.contributing(message, *evidence, cause=TOO_FEW, fix=AGAIN)
    return DRIFTED.cause(
        message,
        *evidence,
        cause="the traffic changed, or the target or the draft was replaced",
        fix="specops run ROLLOUT --only ab --fresh  # with prompts of today's traffic; then another draft, or"
        " route what it is weak in",
    )


def decay(observed: Observations) -> DiagnosisFinding:
    live, earlier = _counted(observed), observed.earlier
    if live is None or live.acceptance is None or earlier is None or earlier.after_start is None:
        why = why_not(observed, "earlier")
        return DECAY.unknown(
            f"a decay of acceptance is not known: {why}",
            show=NEEDS_PROMETHEUS,
        )
    fell = earlier.after_start - live.acceptance
    hours = f"{earlier.up_hours:.0f} hours" if earlier.up_hours is not None else "a while"
    evidence = Evidence(
        what="acceptance lost since the first hour",
        value=round(fell, 4),
        source=earlier.source,
        threshold=DRIFT,
        threshold_source=OURS,
    )
    message = (
        f"{hours} up: acceptance {live.acceptance:.2f} now, and {earlier.after_start:.2f} in the first hour"
        " after the start"
    )
    if fell < DRIFT:
        return DECAY.ruled_out(message, evidence)
    if not _fell(observed, earlier.after_start):
        return DECAY.contributing(message, evidence, cause=TOO_FEW, fix=AGAIN)
    return DECAY.cause(
        message,
        evidence,
        cause="acceptance decays with uptime (as in sglang#37326), unless the traffic changed",
        fix="restart one server of the pool and compare it with the others; if it recovers, restart"
        " all of them in turn, regularly",
    )


def _fell(observed: Observations, before: float) -> bool:
    """Return whether acceptance fell by as much as counts, and by more than the error of the present
    figure."""
    now = acceptance(observed)
    return now is not None and now.value <= before - max(DRIFT, now.error)


def _counted(observed: Observations) -> Live | None:
    """The live figures, where enough was drafted for a rate."""
    live = observed.live
    enough = live is not None and live.acceptance is not None and (live.drafted or 0) >= ENOUGH_DRAFTED
    return live if enough else None


CLASSES = DiagnosisCheck("weak-classes", "acceptance")
LENGTHS = DiagnosisCheck("long-prompts", "acceptance")
TEMPERATURES = DiagnosisCheck("high-temperature", "acceptance")
STREAMS = DiagnosisCheck("acceptance-under-load", "acceptance")


def classes(observed: Observations) -> DiagnosisFinding:
    """Judge traffic classes by what each gains in comparison or sweep, since no server counts acceptance by
    class. A no of either counts, as it does for the router."""
    comparison, swept = observed.compared, observed.sweep
    if (comparison is None or not comparison.classes) and swept is None:
        why = observed.why_not("compared", "sweep")
        return CLASSES.unknown(
            f"the gain of each traffic class is not known: {why}", show="specops run ROLLOUT"
        )
    message: dict[str, Evidence] = {}
    if swept is not None:
        for name, reason in swept.classes_off.items():
            message[name] = Evidence(what=f"class {name}", value=reason, source=swept.source)
    if comparison is not None:
        for name, figures in comparison.classes.items():
            if figures.verdict == "no":
                value = f"E2E {figures.e2e}" if figures.e2e else figures.reason
                message[name] = Evidence(
                    what=f"class {name}", value=value, source=comparison.source, threshold=1.0
                )
    class_count = len(comparison.classes) if comparison is not None else 0
    if not message:
        if (
            comparison is None
            or not class_count
            or any(figures.verdict != "yes" for figures in comparison.classes.values())
        ):
            why = "no class is measurably slower, but not every class is measurably faster"
            return CLASSES.unknown(
                why, show="specops run ROLLOUT --only ab  # with more prompts of each class"
            )
        return CLASSES.ruled_out(f"all {class_count} traffic classes gain ({comparison.source})")
    everywhere = class_count > 1 and len(message) >= class_count
    written = observed.classes
    standard = [written.get(name, named_by_header(name)) | {"speculate": False} for name in message]
    return CLASSES.cause(
        f"{', '.join(message)}: speculation does not pay",
        *message.values(),
        cause="speculation pays for no class" if everywhere else "the draft is weak for these classes",
        fix="keep these classes standard (below), then: specops route render ROLLOUT",
        paste=classes_block(standard),
    )


def lengths(observed: Observations) -> DiagnosisFinding:
    swept = observed.sweep
    if swept is None or len(swept.by_length) < 2:
        why = observed.why_not("sweep") if swept is None else swept.lacks("one prompt length was swept")
        show = "specops sweep ROLLOUT  # with sweep.prompt_tokens"
        return LENGTHS.unknown(f"acceptance by prompt length is not known: {why}", show=show)
    low, message, evidence = _below(swept.by_length, observed)
    if pays_from(observed)[0] is None:
        return LENGTHS.unknown(
            f"{message}; {pays_from(observed)[1]}", *evidence, show="specops sweep ROLLOUT"
        )
    if not low:
        return LENGTHS.ruled_out(f"acceptance by prompt length: {message}", *evidence)
    return LENGTHS.cause(
        f"acceptance by prompt length: {message}: too low for {', '.join(low)}",
        *evidence,
        cause="the draft reads less of a long prompt than the target: its own max_model_len, or what it was"
        " trained on",
        fix="speculation.max_model_len keeps longer sequences off (vLLM); else another draft",
    )


def temperatures(observed: Observations) -> DiagnosisFinding:
    swept = observed.sweep
    if swept is None or len(swept.by_temperature) < 2:
        why = observed.why_not("sweep") if swept is None else swept.lacks("one temperature was swept")
        show = "specops sweep ROLLOUT  # with two or more values in sweep.temperature"
        return TEMPERATURES.unknown(f"acceptance by temperature is not known: {why}", show=show)
    rates = {f"{temperature:g}": rate for temperature, rate in sorted(swept.by_temperature.items())}
    low, message, evidence = _below(rates, observed)
    if pays_from(observed)[0] is None:
        return TEMPERATURES.unknown(
            f"{message}; {pays_from(observed)[1]}", *evidence, show="specops sweep ROLLOUT"
        )
    if not low:
        return TEMPERATURES.ruled_out(f"acceptance by temperature: {message}", *evidence)
    least = min(float(name) for name in low)
    fine = [float(name) for name in rates if float(name) < least]
    fix = (
        f"route.max_temperature: {max(fine):g}"
        if fine
        else "specops guard override ROLLOUT standard --why temperature"
    )
    return TEMPERATURES.cause(
        f"acceptance by temperature: {message}: too low from {least:g} on",
        *evidence,
        cause="the target spreads its choice over more tokens, so fewer drafted ones are accepted",
        fix=f"{fix}; then specops route render ROLLOUT",
    )


def streams(observed: Observations) -> DiagnosisFinding:
    """Judge whether acceptance falls with the number of streams. A sound engine accepts a token by its
    sequence alone, so load must not change it."""
    rates = observed.compared.by_streams if observed.compared is not None else ()
    if observed.compared is None or len(rates) < 2:
        why = (
            observed.why_not("compared")
            if observed.compared is None
            else "one number of streams was compared"
        )
        return STREAMS.unknown(
            f"acceptance under load is not known: {why}",
            show="specops run ROLLOUT --only ab  # with two or more values in measure.concurrency",
        )
    few, many = rates[0], min(rates[1:], key=lambda point: point.rate)
    fall = few.rate - many.rate
    error = 2 * math.sqrt(
        sum(point.rate * (1 - point.rate) / max(point.drafts, 1.0) for point in (few, many))
    )
    message = ", ".join(f"{point.rate:.2f} at {point.streams}" for point in rates)
    evidence = Evidence(
        what="acceptance lost from few streams to many",
        value=round(fall, 4),
        source=observed.compared.source,
        threshold=DRIFT,
        threshold_source=OURS,
    )
    if fall < DRIFT:
        return STREAMS.ruled_out(f"acceptance by number of streams: {message}", evidence)
    if fall < DRIFT + error:
        return STREAMS.contributing(
            f"acceptance by number of streams: {message}", evidence, cause=TOO_FEW, fix=AGAIN
        )
    return STREAMS.cause(
        f"acceptance falls with the number of streams: {message}",
        evidence,
        cause="a defect of the engine, such as a state of the draft that all slots share; load alone does not"
        " change acceptance",
        fix="serve with one slot a server, or a newer build; known ones: specops issues",
    )


def _below(rates: Mapping[str, float], observed: Observations) -> tuple[list[str], str, tuple[Evidence, ...]]:
    """Return which of them are below where speculation pays; all, in words; and as evidence."""
    assert observed.sweep is not None
    gate, source = pays_from(observed)
    evidence = tuple(
        Evidence(
            what=f"acceptance, {name}",
            value=rate,
            source=observed.sweep.source,
            threshold=gate,
            threshold_source=source,
        )
        for name, rate in rates.items()
    )
    message = ", ".join(f"{name} {rate:.2f}" for name, rate in rates.items())
    low = [name for name, rate in rates.items() if gate is not None and rate < gate]
    return low, message, evidence


VOCABULARY = DiagnosisCheck("vocabulary-mismatch", "vocabulary")
SAME_FAMILY = "a draft of the target's family, with its tokenizer: specops verify-draft TARGET DRAFT"


def vocabulary(observed: Observations) -> DiagnosisFinding:
    """Judge the vocabularies by what a server's log says, else by the pair's files."""
    logged, drafts = observed.vocabulary_log, observed.drafts
    if logged is not None and logged.lines:
        return VOCABULARY.cause(
            f"a server refused the pair: {logged.lines[0]}",
            *(Evidence(what="a server's log", value=line, source=logged.source) for line in logged.lines),
            cause="the draft belongs to another model family than the target, with another vocabulary",
            fix=f"{SAME_FAMILY}; or, from vLLM 0.25, use_heterogeneous_vocab",
        )
    if drafts is None:
        return VOCABULARY.unknown(
            f"the vocabularies were not compared: {observed.why_not('drafts')}",
            show="specops run ROLLOUT --only drafts",
        )
    evidence = tuple(
        Evidence(what="verify-draft", value=reason, source=drafts.source) for reason in drafts.wrong
    )
    if drafts.verdict == "incompatible":
        cause = "token ids mean other text to the draft than to the target: almost no token is accepted"
        return VOCABULARY.cause(drafts.reason, *evidence, cause=cause, fix=SAME_FAMILY)
    if drafts.verdict == "degraded":
        cause = "the draft was trained with another tokenization: fewer of its tokens are accepted"
        return VOCABULARY.contributing(drafts.reason, *evidence, cause=cause, fix=SAME_FAMILY)
    if drafts.verdict not in ("compatible", "needs_setting"):
        return VOCABULARY.unknown(
            f"{drafts.reason} ({drafts.source})", *evidence, show="specops verify-draft TARGET DRAFT"
        )
    return VOCABULARY.ruled_out(f"{drafts.reason} ({drafts.source})", *evidence)

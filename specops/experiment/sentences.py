"""The only place where findings become English. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from specops.experiment.findings import Cause, ClaimName, Counts, Decision, Finding
from specops.load.arrivals import Level
from specops.render.figures import count, times
from specops.results import Verdict

if TYPE_CHECKING:
    from specops.experiment.decide import Judged

PER: Mapping[str, str] = {"e2e": "", "tpot": " per output token", "per_character": " per character"}
"""How a speed-up is named that is not of whole answers."""

NAMES: Mapping[ClaimName, str] = {
    "wait": "wait",
    "open-loop wait": "wait, open loop",
    "sampled wait": "wait, sampled",
    "failures": "failed, refused or late",
    "answers": "unacceptable answers",
    "sampled answers": "sampled answers",
    "length": "length of answers",
    "first token": "first token",
    "speculation": "accepted tokens",
    "cached tokens": "prompt tokens from the cache",
}
_WHERE: Mapping[ClaimName, str] = {
    "open-loop wait": "with arrivals in an open loop, ",
    "sampled wait": "sampled beside greedy requests, ",
}
WORDS: Mapping[str, str] = {"shown": "shown", "open": "not shown", "against": "against", "unknown": "unknown"}

_FACTORS: Mapping[Cause | None, str] = {
    "time": "the speed-up changed during the run",
    "drift": "an even change of one server during the run could have made it",
    "order": "the speed-up depends on which server goes first",
    "place": "the speed-up differs between the beginning and the end of a window",
    "connection": "the speed-up depends on the connection",
    "pause": "the speed-up depends on whether a server had a pause before",
    "known prompt": "the speed-up depends on whether a prompt was sent before, as with a cache",
    "repeat": "repeats come from a cache, so only first requests count",
    "not decoding": "more is gained before the first token or after the last, which is not speculation's",
}
_OF_TRAFFIC: Mapping[Cause | None, str] = {
    "turn": "the speed-up depends on the turn",
    "cache": "the speed-up depends on what of the prompt is cached",
    "context": "the speed-up depends on the length of the prompt",
}


def reason(verdict: Verdict, findings: Sequence[Finding], wait: Finding | None) -> str:
    """Return why: of a yes the speed-up, else what speaks against it or is not shown."""
    if verdict == "yes" and wait is not None and wait.ratio is not None:
        return f"{_speedup(wait)}{_noted(wait)}"
    spoken = "; ".join(dict.fromkeys(describe(finding) for finding in findings))
    alone = {finding.claim for finding in findings} == {"wait"}
    if wait is None or wait.ratio is None or alone:
        return spoken
    return f"{spoken}; by speed alone: {_speedup(wait)}"


def head(decision: Decision) -> str:
    """The reason for a decision that is no yes, without what speed alone would say."""
    return "; ".join(dict.fromkeys(describe(finding) for finding in decision.findings)) or decision.reason


def noted(findings: Sequence[Finding]) -> list[str]:
    """Sentences beside any verdict: what divides the samples, what is not known, what is accepted."""
    notes = [_FACTORS[f.cause] for f in findings if f.verdict == "shown" and f.cause in _FACTORS]
    notes += [describe(f) for f in findings if f.claim == "speculation" and f.verdict == "unknown"]
    notes += [describe(f) for f in findings if f.cause == "always fails" and f.verdict != "against"]
    notes += [describe(f) for f in findings if f.cause == "other prompts" and f.verdict == "shown"]
    notes += [describe(f) for f in findings if f.cause == "cache" and f.verdict == "shown"]
    notes += [f"{describe(f)}: accepted" for f in findings if f.cause == "accepted"]
    return list(dict.fromkeys(notes))


def has_divided(finding: Finding) -> bool:
    """Whether the samples divide into parts that differ, or this program limited the load."""
    return finding.cause in _FACTORS or finding.cause == "client"


def divided(finding: Finding) -> str:
    """Return what divides the samples of a wait, and the speed-up of each part."""
    if finding.cause == "client":
        return "; ".join(finding.examples)
    parts = ", ".join(f"{times(part.ratio)} {part.name}" for part in finding.parts)
    sentence = _FACTORS.get(finding.cause) or _OF_TRAFFIC[finding.cause]
    return f"{sentence}{f': {parts}' if parts else ''}"


def not_reached(decision: Decision) -> str:
    return f"{decision.reason}, but a lighter load is not shown to pay"


def deployed(judged: Judged, deploy: Sequence[tuple[str, Level]]) -> str:
    by_level: dict[Level, list[str]] = {}
    for name, level in deploy:
        by_level.setdefault(level, []).append(name)
    where = "; ".join(
        f"{', '.join(names)} at {level}"
        for level, names in sorted(by_level.items(), key=lambda item: judged.levels.index(item[0]))
    )
    gains = []
    for level in by_level:
        place = judged.levels.index(level)
        paying = [judged.classes[name][place] for name in by_level[level]]
        of_all = judged.together[place]
        decisions = [of_all] if len(paying) == len(judged.classes) and of_all.speedup else paying
        speedups = [decision.speedup for decision in decisions if decision.speedup is not None]
        estimates = dict.fromkeys(
            f"{speedup.estimate:.2f}" for speedup in sorted(speedups, key=lambda speedup: speedup.estimate)
        )
        least = min(speedup.low for speedup in speedups)
        gains.append(
            f"{' to '.join(list(estimates)[:: max(1, len(estimates) - 1)])}× (at least {least:.2f}×)"
            f"{PER[paying[0].basis]} at {level}"
        )
    failures = next(finding for finding in judged.findings if finding.claim == "failures")
    return f"deploy for {where}: {', '.join(gains)}, n={failures.n}"


def not_shown(classes: Mapping[str, Sequence[Decision]], levels: Sequence[Level]) -> str:
    reasons = _by_class(classes, levels, "undecided") or "no requests of both arms to compare"
    against = _by_class(classes, levels, "no")
    return f"not enough evidence: {reasons}{f'; against: {against}' if against else ''}"


def refused(classes: Mapping[str, Sequence[Decision]], levels: Sequence[Level]) -> str:
    return f"do not deploy: {_by_class(classes, levels, 'no')}"


def _by_class(classes: Mapping[str, Sequence[Decision]], levels: Sequence[Level], verdict: Verdict) -> str:
    """The reasons at the lightest load, each once with the classes that have it."""
    reasons: dict[str, list[str]] = {}
    for name, decisions in classes.items():
        if decisions and decisions[0].verdict == verdict:
            reasons.setdefault(decisions[0].reason, []).append(name)
    parts = [
        text if len(names) == len(classes) else f"{', '.join(names)}: {text}"
        for text, names in reasons.items()
    ]
    where = f" (at {levels[0]})" if parts and len(levels) > 1 else ""
    return "; ".join(parts) + where


def over_loads(decisions: Sequence[Decision], levels: Sequence[Level]) -> str:
    words = {"yes": "pays at", "no": "does not pay at", "undecided": "is not shown to pay at"}
    return "; ".join(
        f"{words[decision.verdict]} {level}: {decision.reason}"
        for level, decision in zip(levels, decisions, strict=True)
        if decision.verdict in words
    )


def load_sentence(decisions: Sequence[Decision], levels: Sequence[Level]) -> str:
    """Return one sentence on the loads above the lightest, for all classes together; empty for one load."""
    if len(levels) < 2:
        return ""
    paying = [level for level, decision in zip(levels, decisions, strict=True) if decision.verdict == "yes"]
    if len(paying) == len(levels):
        return f"For all classes together, speculation is faster at every measured level, up to {levels[-1]}."
    outcomes: dict[str, list[str]] = {}
    for level, decision in zip(levels, decisions, strict=True):
        if decision.verdict != "yes":
            outcomes.setdefault(_outcome(decision), []).append(str(level))
    start = f"speculation pays up to {paying[-1]}; " if paying else "speculation is "
    listed = "; ".join(f"{words} {', '.join(loads)}" for words, loads in outcomes.items())
    return f"For all classes together, {start}{listed}."


def _outcome(decision: Decision) -> str:
    if decision.verdict == "undecided":
        return "not shown to pay at"
    return "slower at" if decision.speedup is not None and decision.speedup.high < 1 else "not deployed at"


def describe(finding: Finding) -> str:
    """Return a finding as a clause: what was observed, its bound and its margin."""
    match finding.claim:
        case "wait" | "open-loop wait" | "sampled wait":
            return _wait(finding)
        case "failures":
            return _failures(finding)
        case "answers":
            return _answers(finding)
        case "sampled answers":
            return _sampled(finding)
        case "length":
            return _length(finding)
        case "first token":
            return _first_token(finding)
        case "speculation":
            return _speculation(finding)
        case "cached tokens":
            return _cached(finding)


def _speedup(finding: Finding) -> str:
    return f"{times(finding.ratio)}{PER[finding.basis]}"


def _noted(finding: Finding) -> str:
    return f"; {_FACTORS[finding.cause]}" if finding.cause in _FACTORS else ""


def _wait(finding: Finding) -> str:
    where = _WHERE.get(finding.claim, "")
    if finding.cause == "client":
        return "; ".join(finding.examples)
    if finding.cause == "incomparable":
        return (
            f"{where}no request can be compared: each one failed, was refused or was late in one of the "
            "arms, or its tokens came all at once"
        )
    if finding.cause == "unmatched":
        beside = "no turn of the other arm has a prompt of like length"
        return f"{where}{_speedup(finding)}, but for {finding.examples[0]} of the later turns, {beside}"
    if finding.ratio is None:
        return f"{where}too few requests for an interval{_needs(finding)}"
    if finding.cause in (*_FACTORS, *_OF_TRAFFIC) and finding.verdict != "shown":
        slower = ": slower" if finding.verdict == "against" and finding.ratio.high < 1 else ""
        return f"{where}{_speedup(finding)}{slower}, but {divided(finding)}"
    if finding.verdict == "against" and finding.ratio.high >= 1:
        return f"{_speedup(finding)}: gains less than {(finding.margin or 1) - 1:.0%} at best"
    if finding.verdict == "against":
        return f"{where}{_speedup(finding)}: slower"
    if finding.cause == "starts":
        starts = "two starts of a server differ by more than is gained (more repeats would decide)"
        return f"{_speedup(finding)} includes 1: {starts}"
    return f"{where}{_speedup(finding)} is not surely above {finding.margin:.2f}×{_needs(finding)}"


def _failures(finding: Finding) -> str:
    where = _where(finding)
    if finding.cause == "late" and finding.counts is not None:
        return f"{_counted(finding.counts, 'failed or were late')}: they cost more than the others gain"
    if finding.cause == "always fails":
        more = f" and {len(finding.examples) - 3} more" if len(finding.examples) > 3 else ""
        arms = "which the standard answers" if finding.verdict == "against" else "in both arms"
        return f"each request of {', '.join(finding.examples[:3])}{more} fails, {arms}"
    assert finding.counts is not None
    such = f", such as: {'; '.join(finding.examples)}" if finding.examples else ""
    counted = _counted(finding.counts, "failed, were refused or were late")
    return f"{counted}{where}{_bound(finding)}{such}{_needs(finding)}"


def _answers(finding: Finding) -> str:
    if finding.cause == "blind":
        return (
            "the standard gives another answer each time, so its greedy answers say nothing: make it repeat "
            "itself (one replica, a fixed batch), and compare again"
        )
    if finding.cause == "other prompts" and finding.counts is not None:
        counts = finding.counts
        return (
            f"the servers count other tokens in {counts.challenger} of {counts.challenger_n} prompts "
            f"({'; '.join(finding.examples)}): one of them cuts prompts, or has another tokenizer or "
            "chat template"
        )
    if finding.cause == "always fails":
        return "greedy answers were not compared: each greedy request fails, in both arms"
    if finding.counts is None or not finding.counts.challenger_n:
        return "no answers were compared"
    such = f", such as: {'; '.join(finding.examples)}" if finding.examples else ""
    trouble = "differ from the standard's" if finding.cause == "other answers" else "are not acceptable"
    counts = finding.counts
    return (
        f"{counts.challenger} of {counts.challenger_n} answers {trouble} (control {counts.standard} of "
        f"{counts.standard_n}){_where(finding)}{_bound(finding)}{such}{_needs(finding)}"
    )


def _sampled(finding: Finding) -> str:
    if finding.cause == "temperature" and finding.counts is not None:
        counts = finding.counts
        return (
            f"{counts.challenger} of {counts.challenger_n} sampled answers are the greedy answer (standard "
            f"{counts.standard} of {counts.standard_n}): the temperature is ignored"
        )
    if finding.cause == "standard":
        return "the standard's sampled answers differ from themselves, so nothing can be compared with them"
    if finding.bound is None:
        return f"{count(finding.n, 'sampled answer')}: too few to compare{_needs(finding)}"
    by_chance = f"as different by chance in {finding.bound:.1%} of cases, n={finding.n}"
    if finding.verdict == "against":
        return f"sampled answers are not the standard's ({by_chance})"
    if finding.verdict == "open":
        return f"sampled answers may not be the standard's ({by_chance}){_needs(finding)}"
    return f"sampled answers cannot be distinguished from the standard's ({by_chance}){_needs(finding)}"


def _length(finding: Finding) -> str:
    if finding.ratio is None:
        return f"length of answers: too few to compare{_needs(finding)}"
    change = [100 * (end - 1) for end in (finding.ratio.estimate, finding.ratio.low, finding.ratio.high)]
    if change[0] < 0:
        words = f"answers are {-change[0]:.0f}% [{-change[2]:.0f}, {-change[1]:.0f}] shorter"
    else:
        words = f"answers are {change[0]:.0f}% [{change[1]:.0f}, {change[2]:.0f}] longer"
    return f"{words} (margin {100 * ((finding.margin or 1) - 1):.0f}%)"


def _first_token(finding: Finding) -> str:
    where = _where(finding) if finding.scope == "open" else ""
    if finding.ratio is None:
        return f"TTFT{where} is not known"
    if finding.verdict == "unknown":
        return f"TTFT{where} is unknown: first tokens can be compared only at equal cache state"
    change = ", ".join(finding.examples)
    return f"TTFT{where} is {times(finding.ratio)} as long ({change}; margin {_margin(finding)[2:]})"


def _speculation(finding: Finding) -> str:
    if finding.verdict == "unknown":
        return f"accepted tokens are not known{''.join(f': {text}' for text in finding.examples[:1])}"
    if finding.counts is None:
        return "the gain is not speculation's: its counters show no drafts"
    accepted = (
        f"{finding.counts.challenger:,} of {finding.counts.challenger_n:,} drafted tokens were accepted"
    )
    return f"the gain is not speculation's: {accepted}" if finding.verdict == "against" else accepted


def _cached(finding: Finding) -> str:
    if finding.counts is None:
        because = f" ({', '.join(finding.examples)})" if finding.examples else ""
        unknown = f"how many prompt tokens came from the cache is not known{because}"
        return f"{unknown}: no equal cache state is shown"
    counts = finding.counts
    challenger, standard = (
        number / max(1, of_number)
        for number, of_number in (
            (counts.challenger, counts.challenger_n),
            (counts.standard, counts.standard_n),
        )
    )
    beside = "".join(f" ({text})" for text in finding.examples)
    shares = (
        f"the challenger had {challenger:.0%} of its prompt tokens in its cache{_where(finding)}, the "
        f"standard {standard:.0%}{beside}: "
    )
    if finding.verdict == "against":
        return f"{shares}its TTFT is {times(finding.ratio)} as long, a loss of its own"
    return f"{shares}first tokens can be compared only at equal cache state"


def _counted(counts: Counts, trouble: str) -> str:
    standard = f"standard {counts.standard} of {counts.standard_n}"
    return f"{counts.challenger} of {counts.challenger_n} requests {trouble} ({standard})"


def _where(finding: Finding) -> str:
    scopes = {"open": " in an open loop", "mixed": " among sampled requests", "warm-up": " in the warm-up"}
    if finding.scope in scopes:
        return scopes[finding.scope]
    return f" at {finding.load}" if finding.load is not None else ""


def _bound(finding: Finding) -> str:
    if finding.bound is None or finding.margin is None:
        return ""
    return f": at most {100 * finding.bound:.1f}% more (margin {100 * finding.margin:g}%)"


def _needs(finding: Finding) -> str:
    if finding.verdict != "open":
        return ""
    return f"; about {finding.needs} more requests would decide" if finding.needs else ""


def table(findings: Iterable[Finding]) -> list[tuple[str, str, str, str, str, str]]:
    """Return the rows of the table on which a decision rests: item, observed, bound, margin, n, verdict."""
    return [
        (
            _item(finding),
            _observed(finding),
            _shown_bound(finding),
            _margin(finding),
            str(finding.n),
            "accepted" if finding.cause == "accepted" else WORDS[finding.verdict],
        )
        for finding in findings
    ]


def _item(finding: Finding) -> str:
    name = NAMES[finding.claim]
    where = ", ".join(
        filter(
            None,
            (
                finding.traffic_class,
                str(finding.load) if finding.load else "",
                "" if finding.scope == "measured" else finding.scope,
            ),
        )
    )
    return f"{name} ({where})" if where else name


def _observed(finding: Finding) -> str:
    if finding.ratio is not None and finding.claim != "cached tokens":
        return times(finding.ratio)
    if finding.counts is not None:
        control = (
            f" (standard {finding.counts.standard} of {finding.counts.standard_n})"
            if finding.counts.standard_n
            else ""
        )
        return f"{finding.counts.challenger} of {finding.counts.challenger_n}{control}"
    return "–"


def _shown_bound(finding: Finding) -> str:
    if finding.bound is None:
        return "–"
    if finding.unit:
        return f"{finding.bound:+.2g} {finding.unit}"
    if finding.claim in ("failures", "answers", "sampled answers", "speculation", "cached tokens"):
        percent = 100 * finding.bound
        return f"{percent:.0f}%" if percent >= 10 else f"{percent:.2g}%"
    return f"{finding.bound:.2f}×"


def _margin(finding: Finding) -> str:
    if finding.margin is None:
        return "–"
    if finding.unit:
        return f"≤ {finding.margin:+g} {finding.unit}"
    if finding.claim in ("failures", "answers", "cached tokens"):
        return f"≤ {100 * finding.margin:g}%"
    if finding.claim == "sampled answers":
        return f"≥ {100 * finding.margin:g}% by chance"
    if finding.claim == "speculation":
        return "> 0"
    sign = "≤" if finding.claim in ("length", "first token") else ">"
    return f"{sign} {finding.margin:g}×"

"""The claims on answers: those that nobody can use, greedy ones that differ beyond near ties, and sampled
ones whose distribution differs. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from specops.experiment import answers
from specops.experiment.claims import ONE_SIDED, Evidence, judge_share, windows_by_scope
from specops.experiment.findings import Counts, Finding, Ternary
from specops.experiment.records import sent_to
from specops.load.record import Row
from specops.stats import shares, texts

SURE_DIFFERENCES = 2
"""For one prompt, rounding may be the reason whatever the margin; for two prompts it does not explain it."""

OTHER_DISTRIBUTION = 0.002
POSSIBLY_OTHER = 0.005
"""Probabilities of answers as different by chance: below the first it is another distribution, from the
second on it cannot be distinguished. Several looks share the first."""

MOST_SWAPS = 5999
FEWEST_SAMPLED = 16
FEWEST_CONTROLS = 8


def acceptable_answers(evidence: Evidence) -> list[Finding]:
    """Answers that are not acceptable: greedy ones that differ beyond near ties, and those that nobody
    can use."""
    margin = evidence.settings.answer_margin
    originals = answers.greedy_answers(evidence.windows, evidence.standard)
    challengers = answers.greedy_answers(evidence.windows, evidence.challenger)
    control = answers.compare_with_itself(originals)
    findings = []
    for scope in (None, *windows_by_scope(evidence.windows)):
        greedy = answers.compare_greedy(originals, challengers, scope=scope).with_margins(evidence.margins)
        if evidence.settings.accept_length_change:
            greedy = greedy.without_ends
        finding = _of_greedy(evidence, greedy, control, margin, scope)
        faults = {
            arm: [fault for fault in listed if scope in (None, fault[0])]
            for arm, listed in evidence.unusable.items()
        }
        windows = [w for w in evidence.windows if scope in (None, (w.kind, w.level))]
        answered = {arm: sum(row.error is None for row in sent_to(windows, arm)) for arm in faults}
        counts = Counts(
            standard=len(faults[evidence.standard]),
            standard_n=answered[evidence.standard],
            challenger=len(faults[evidence.challenger]),
            challenger_n=answered[evidence.challenger],
        )
        kinds = Counter(fault for _, _, fault in faults[evidence.challenger])
        usable = judge_share(
            "answers", counts, margin, [f"{kind} {number}" for kind, number in kinds.most_common(3)], scope
        )
        worst = min(finding, usable, key=lambda f: (_SEVERITY.index(f.verdict), -(f.bound or 0.0)))
        if finding.verdict == usable.verdict != "shown":
            worst = worst.model_copy(update={"examples": [*usable.examples, *finding.examples]})
        findings.append(worst)
    return findings


_SEVERITY = ("against", "open", "unknown", "shown")


def _of_greedy(
    evidence: Evidence,
    greedy: answers.Greedy,
    control: answers.Greedy,
    margin: float,
    scope: answers.Scope | None,
) -> Finding:
    differing = greedy.beyond_ties
    counts = Counts(
        standard=len(control.differences),
        standard_n=control.compared,
        challenger=len(differing),
        challenger_n=greedy.compared,
    )
    examples = [
        f"{difference.prompt}: {difference.standard!r} / {difference.challenger!r}"
        for difference in differing[:3]
    ]
    finding = judge_share("answers", counts, margin, examples, scope)
    if differing and finding.verdict != "shown":
        finding = finding.model_copy(update={"cause": "other answers"})
    steady = control.compared >= FEWEST_CONTROLS and not control.differences
    sure = [
        difference
        for difference in differing
        if difference.margin is not None or difference.character < answers.OPENING
    ]
    if steady and len({difference.prompt for difference in sure} | greedy.lasting) >= SURE_DIFFERENCES:
        return finding.model_copy(update={"verdict": "against", "cause": "other answers"})
    # A standard that was compared with itself too rarely may be steady: few differences are no evidence of
    # rounding then, either.
    if differing and not control.differences and finding.verdict == "shown":
        return finding.model_copy(update={"verdict": "open", "cause": "other answers", "needs": None})
    if not greedy.compared:
        greedy_requests = {(row.prompt, row.temperature) for row in _greedy_rows(evidence)}
        refused = greedy_requests and greedy_requests <= evidence.hopeless
        cause = "always fails" if refused else finding.cause
        return finding.model_copy(update={"verdict": "shown" if scope else "unknown", "cause": cause})
    varies = control.compared and 2 * len(control.differences) > control.compared
    if varies and scope is None:
        return _of_openings(finding, differing, control)
    return _of_alike(finding)


def _greedy_rows(evidence: Evidence) -> list[Row]:
    arms = (evidence.standard, evidence.challenger)
    return [row for arm in arms for row in sent_to(evidence.windows, arm) if row.temperature == 0]


def _of_openings(
    finding: Finding, differing: Sequence[answers.Difference], control: answers.Greedy
) -> Finding:
    """A standard that hardly repeats itself: beginnings still reveal another model, since rounding rarely
    changes the first tokens."""
    counts = finding.counts
    assert counts is not None
    openings = counts.model_copy(
        update={
            "standard": sum(difference.character < answers.OPENING for difference in control.differences),
            "challenger": sum(difference.character < answers.OPENING for difference in differing),
        }
    )
    judged = judge_share("answers", openings, finding.margin or 0.0, finding.examples)
    alike = 1 - openings.standard / openings.standard_n
    # Answers of another model would differ from a standard that varies, too.
    few = shares.share_upper(counts.challenger, counts.challenger_n, ONE_SIDED) <= (finding.margin or 0.0)
    if judged.verdict != "against" and alike < LEAST_ALIKE and not few:
        return judged.model_copy(update={"verdict": "unknown", "cause": "blind", "needs": None})
    return _of_alike(judged).model_copy(update={"cause": "standard"})


LEAST_ALIKE = 0.2
"""Share of answers of which a standard must repeat the beginning; with fewer, other answers hardly show."""


def _of_alike(finding: Finding) -> Finding:
    """Only an answer that the standard repeats can show that the challenger gives another one: where it
    repeats half, 5% of other answers differ in 2.5% more."""
    counts = finding.counts
    if counts is None or not counts.standard or finding.bound is None or finding.bound <= 0:
        return finding
    bound = min(1.0, finding.bound / max(1 - counts.standard / counts.standard_n, 1 / counts.standard_n))
    verdict: Ternary = (
        "open" if finding.verdict == "shown" and bound > (finding.margin or 0.0) else finding.verdict
    )
    return finding.model_copy(update={"bound": bound, "verdict": verdict})


def same_prompts_read(evidence: Evidence) -> list[Finding]:
    """Open, where both arms report how many tokens a prompt has, and not the same number: one of them
    cuts prompts, or has another tokenizer. Against, where the challenger reads fewer and as many prompts
    have the same number: then it is the same tokenizer. Shown, where all greedy answers are the same for all
    that. Empty where both have the same number, or do not say it."""
    counted, unlike = answers.prompts_read_otherwise(
        evidence.windows, evidence.standard, evidence.challenger, evidence.settings.length_margin
    )
    originals, challengers = (
        answers.greedy_answers(evidence.windows, arm) for arm in (evidence.standard, evidence.challenger)
    )
    greedy = answers.compare_greedy(originals, challengers)
    if not unlike:
        return []
    cut = all(challenger < standard for standard, challenger in unlike.values())
    verdict: Ternary = "against" if cut and 2 * len(unlike) <= counted else "open"
    if greedy.compared and not greedy.differences:
        verdict = "shown"
    finding = Finding(
        claim="answers",
        verdict=verdict,
        cause="other prompts",
        counts=Counts(standard=0, standard_n=0, challenger=len(unlike), challenger_n=counted),
        n=counted,
        examples=[
            f"{prompt}: {in_standard} / {in_challenger}"
            for prompt, (in_standard, in_challenger) in list(unlike.items())[:3]
        ],
    )
    return [finding]


def sampled_answers(evidence: Evidence) -> Finding:
    """Sampled answers cannot be distinguished from the standard's, by a two-sample test with the standard
    itself as control; and they are sampled."""
    originals = answers.sampled_texts(evidence.windows, evidence.standard)
    challengers = answers.sampled_texts(evidence.windows, evidence.challenger)
    if evidence.settings.accept_length_change:
        originals, challengers = answers.equally_long(originals, challengers)
    count = sum(map(len, challengers.values()))
    own, own_n = answers.greedy_instead(evidence.windows, evidence.standard)
    instead, instead_n = answers.greedy_instead(evidence.windows, evidence.challenger)
    base: dict[str, Any] = {"claim": "sampled answers", "n": count, "margin": POSSIBLY_OTHER}
    if instead_n and shares.difference_lower(own, own_n, instead, instead_n, 1 - OTHER_DISTRIBUTION) > 0:
        counts = Counts(standard=own, standard_n=own_n, challenger=instead, challenger_n=instead_n)
        return Finding(**base, verdict="against", cause="temperature", counts=counts)
    expected = evidence.temperature > 0 or evidence.settings.mixed_prompts > 0
    if not count or not originals:
        return Finding(**base, verdict="open" if expected and not challengers else "unknown")
    likely: dict[str, list[str]] = defaultdict(list)
    for (prompt, _), listed in answers.greedy_answers(evidence.windows, evidence.standard).items():
        likely[prompt] += [row.text for _, row in listed]
    probability = texts.compare_samples(originals, challengers, likely, seed=0)
    if probability is not None and probability < POSSIBLY_OTHER:  # few swaps cannot show how rare it is
        probability = texts.compare_samples(originals, challengers, likely, seed=0, swaps=MOST_SWAPS)
    halves = [
        {prompt: listed[part::2] for prompt, listed in originals.items() if len(listed) > 1}
        for part in (0, 1)
    ]
    control = texts.compare_samples(*halves, seed=0) if min(map(len, halves)) else None
    base["bound"] = probability
    if probability is None or count < FEWEST_SAMPLED:
        return Finding(**base, verdict="open", needs=FEWEST_SAMPLED)
    if control is not None and control < POSSIBLY_OTHER:
        return Finding(**base, verdict="unknown", cause="standard")
    if probability <= OTHER_DISTRIBUTION:
        return Finding(**base, verdict="against")
    if probability < POSSIBLY_OTHER:
        return Finding(**base, verdict="open", needs=count)
    return Finding(**base, verdict="shown")

"""The verdict of an edge bench: whether to draft at the edge, and why, in sentences. Pure."""

from __future__ import annotations

from specops.experiment.sentences import PER, describe, head
from specops.phases.edge_bench.judging import ArmDecision, EdgeComparison
from specops.phases.edge_bench.settings import AUTOREGRESSIVE, SERVER_ONLY
from specops.render.figures import count, times
from specops.results import Verdict


def verdict(comparison: EdgeComparison) -> tuple[Verdict, str]:
    """Yes where an edge arm is shown to be better than drafting on the server, at some number of clients; no
    where each is surely not."""
    wrong = [finding for finding in comparison.answers[SERVER_ONLY] if finding.verdict == "against"]
    if wrong:
        spoken = "; ".join(describe(finding) for finding in wrong)
        return "no", f"{SERVER_ONLY} does not answer as {AUTOREGRESSIVE}: {spoken}"
    best = [decision for clients in comparison.clients if (decision := decisive(comparison, clients))]
    places: dict[str, list[str]] = {}
    for arm_decision in best:
        places.setdefault(_reason(arm_decision, comparison), []).append(_place(arm_decision))
    outcomes = {arm_decision.decision.verdict for arm_decision in best}
    outcome: Verdict = "yes" if "yes" in outcomes else "no" if outcomes == {"no"} else "undecided"
    clauses = [f"{'; '.join(listed)}: {reason}" for reason, listed in places.items()]
    return outcome, "; ".join(clauses) or "nothing to compare"


def decisive(comparison: EdgeComparison, clients: int) -> ArmDecision | None:
    """The arm on which the answer for a number of clients rests: the fastest of those to be used, else of
    those that may be; where none may be, of all."""
    of_load = [decision for decision in comparison.decisions if decision.clients == clients]
    for outcome in ("yes", "undecided", "no"):
        among = [arm_decision for arm_decision in of_load if arm_decision.decision.verdict == outcome]
        if among:
            ratios = {e.arm: comparison.ratio("wait", e.arm, SERVER_ONLY, clients) for e in among}
            return max(
                among, key=lambda arm_decision: ratio.estimate if (ratio := ratios[arm_decision.arm]) else 0.0
            )
    return None


def _place(arm_decision: ArmDecision) -> str:
    """The load and the arm; with the speed-up, unless the reason has it."""
    decision, place = arm_decision.decision, f"{count(arm_decision.clients, 'client')}, {arm_decision.arm}"
    in_reason = decision.verdict != "yes" and any(f.claim == "wait" for f in decision.findings)
    if decision.speedup is None or in_reason:
        return place
    return f"{place}, {times(decision.speedup)}{PER[decision.basis]}"


def _reason(arm_decision: ArmDecision, comparison: EdgeComparison) -> str:
    if arm_decision.decision.verdict != "yes":
        start = "do not draft at the edge" if arm_decision.decision.verdict == "no" else "not enough evidence"
        return f"{start}: {head(arm_decision.decision)}"
    cost = comparison.ratio("filled cost", arm_decision.arm, SERVER_ONLY, arm_decision.clients)
    price = f", tokens for {1 / cost.estimate:.2f}× the money on a server that is filled" if cost else ""
    return f"draft at the edge{price}"


def same_answers(comparison: EdgeComparison) -> str | None:
    """Whether greedy answers are those of autoregressive decoding; None where none were compared."""
    total = sum(counts.compared for counts in comparison.parity.values())
    differing = total - sum(counts.equal for counts in comparison.parity.values())
    if not total:
        return None
    words = f"differ in {count(differing, 'answer')}" if differing else "are the same in all arms"
    return f"greedy answers {words} ({total} compared with {AUTOREGRESSIVE})"

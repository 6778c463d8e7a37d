"""Two measurements of the same prompts, set against each other: does speculation pay, and for whom? Pure.

Speed-ups are standard over speculative, so above 1 speculation is faster. They are paired by prompt: each
prompt's latency is its mean over the repeats that succeeded in that arm, and prompts are resampled in pairs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from specops import results, stats
from specops.errors import UsageError
from specops.load.arrivals import Level
from specops.load.record import CellRecord, Row
from specops.phases import parity
from specops.phases.measurement import cells_of
from specops.phases.parity import Parity
from specops.results import Result, Verdict
from specops.stats import Interval

PHASE = "compare"
_ARM_OWN = ("base_url", "model", "identity", "api_key_env", "prompts")
"""Settings in which the arms may differ: where they are, not what they are asked."""


class CompareSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = 0
    confidence: float = Field(default=0.95, gt=0, lt=0.999)
    """Of intervals; those of the traffic classes hold it together (Bonferroni)."""

    ttft_veto_ratio: float = Field(default=1.2, gt=1)
    ttft_veto_ms: float = Field(default=50.0, ge=0)
    """A class is kept off speculation when its TTFT surely grows by more than the ratio, and by at least
    so many milliseconds: a fifth of very little is nothing that a user would notice."""


def compare(standard: Result, speculative: Result, settings: CompareSettings | None = None) -> Result:
    """Compare the speculative arm with the standard one; both are results of `baseline.measure`.

    A class deploys when the low end of its end-to-end speed-up, at the first level of load, is above 1 and
    TTFT does not veto. The verdict is yes when some class deploys, no when speculation surely helps none,
    else undecided. At temperature 0 it is never yes where the arms surely answer differently (parity.py).
    Raises UsageError for arms that were asked different things.
    """
    settings = settings or CompareSettings()
    _refuse_unlike(standard, speculative)
    before = cells_of(standard, "the standard result")
    after = cells_of(speculative, "the speculative result")
    levels = [level for level in dict.fromkeys(c.level for c in before) if level in {c.level for c in after}]
    if not levels:
        raise UsageError(
            "the two measurements share no level of load", hint="measure both with the same --concurrency"
        )
    pairs = {level: _paired(before, after, level) for level in levels}
    classes = sorted({row.traffic_class for c in before if c.level == levels[0] for row in c.rows})
    # Any class may say yes: shared among them, the chance that one does so by luck stays what was asked for.
    each = settings.model_copy(update={"confidence": 1 - (1 - settings.confidence) / len(classes)})
    by_class = {
        name: _verdict_of_class(_of_class(pairs[levels[0]], name), each)
        | {"levels": [_head(level) | _speedups(_of_class(pairs[level], name), each) for level in levels]}
        for name in classes
    }
    by_concurrency = [
        _head(level) | _speedups(pairs[level], settings) | _throughput(before, after, level)
        for level in levels
    ]
    greedy = standard.settings.get("temperature") == 0
    alike = parity.of(before, after, levels[0]) if greedy else None
    verdict, reason = _verdict(by_class, standard, speculative)
    if verdict == "yes" and alike is not None:
        verdict, reason = _unless_answers_differ(alike, reason, settings)
    pays_up_to = _pays_up_to(by_concurrency)
    return Result(
        phase=PHASE,
        inputs={
            "standard": results.sha256(standard.model_dump(mode="json", by_alias=True)),
            "speculative": results.sha256(speculative.model_dump(mode="json", by_alias=True)),
        },
        settings=settings.model_dump(mode="json"),
        environment=speculative.environment,
        verdict=verdict,
        reason=reason,
        summary={
            "e2e_speedup": by_concurrency[0]["e2e"],
            "tpot_speedup": by_concurrency[0]["tpot"],
            "throughput_ratio": by_concurrency[0]["throughput_ratio"],
            "parity": str(alike.arms) if alike else None,
            "parity_control": str(alike.control) if alike and alike.control else None,
            "acceptance_rate": (speculative.data.get("acceptance") or {}).get("rate"),
            "acceptance_length": (speculative.data.get("acceptance") or {}).get("length"),
            "deploy": [
                name for name, found in by_class.items() if verdict == "yes" and found["verdict"] == "yes"
            ],
            "pays_up_to": pays_up_to,
        },
        data={
            "by_class": by_class,
            "by_concurrency": by_concurrency,
            "parity": alike.told() if alike else None,
            "parity_missing": None if greedy else "outputs are comparable at temperature 0 only",
            "acceptance": speculative.data.get("acceptance"),
            "acceptance_missing": speculative.data.get("acceptance_missing"),
        },
    )


@dataclass(frozen=True)
class _Pair:
    """One prompt at one level in both arms: mean latencies in milliseconds over its good repeats."""

    prompt: str
    traffic_class: str
    ttft: tuple[float, float] | None
    tpot: tuple[float, float] | None
    e2e: tuple[float, float] | None


Figure = Literal["ttft", "tpot", "e2e"]


def _refuse_unlike(standard: Result, speculative: Result) -> None:
    for arm, result in (("standard", standard), ("speculative", speculative)):
        if "cells" not in result.data:
            raise UsageError(
                f"the {arm} result is of phase {result.phase}, not of a measurement",
                hint="give a result that `specops baseline` or `specops run` measured",
            )
        if result.verdict == "partial":
            raise UsageError(
                f"the {arm} measurement is partial: {result.reason}",
                hint="run the same command again; it resumes",
            )
    if standard.inputs.get("prompts") != speculative.inputs.get("prompts"):
        raise UsageError("the two measurements used different prompts", hint="measure both with one file")
    keys = (standard.settings.keys() | speculative.settings.keys()) - set(_ARM_OWN)
    unlike = sorted(k for k in keys if standard.settings.get(k) != speculative.settings.get(k))
    if unlike:
        told = ", ".join(
            f"{key} ({standard.settings.get(key)} and {speculative.settings.get(key)})" for key in unlike
        )
        raise UsageError(
            f"the two measurements were made with different settings: {told}",
            hint="measure one of them again with the other's settings",
        )


def _paired(before: Sequence[CellRecord], after: Sequence[CellRecord], level: Level) -> list[_Pair]:
    ours, theirs = _by_prompt(before, level), _by_prompt(after, level)

    def both(prompt: str, name: str) -> tuple[float, float] | None:
        one, two = _mean(ours[prompt], name), _mean(theirs[prompt], name)
        return (one, two) if one and two else None

    return [
        _Pair(
            prompt=prompt,
            traffic_class=rows[0].traffic_class,
            ttft=both(prompt, "ttft_ms"),
            tpot=both(prompt, "tpot_ms"),
            e2e=both(prompt, "e2e_ms"),
        )
        for prompt, rows in sorted(ours.items())
        if prompt in theirs
    ]


def _by_prompt(cells: Sequence[CellRecord], level: Level) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for cell in cells:
        for row in cell.rows if cell.level == level else ():
            if row.error is None:
                found[row.prompt].append(row)
    return found


def _mean(rows: Sequence[Row], name: str) -> float | None:
    values = [value for row in rows if (value := getattr(row, name)) is not None]
    return sum(values) / len(values) if values else None


def _of_class(pairs: Sequence[_Pair], name: str) -> list[_Pair]:
    return [pair for pair in pairs if pair.traffic_class == name]


def _ratio(pairs: Sequence[_Pair], figure: Figure, settings: CompareSettings) -> Interval | None:
    values = [value for pair in pairs if (value := getattr(pair, figure)) is not None]
    return stats.paired_ratio(
        [standard for standard, _ in values],
        [speculative for _, speculative in values],
        seed=settings.seed,
        level=settings.confidence,
    )


def _speedups(pairs: Sequence[_Pair], settings: CompareSettings) -> dict[str, Any]:
    return {
        "prompts": len(pairs),
        **{figure: _told(_ratio(pairs, figure, settings)) for figure in ("e2e", "tpot", "ttft")},
        "ttft_change_ms": _ttft_change(pairs),
    }


def _told(interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    return {name: round(getattr(interval, name), 4) for name in ("estimate", "low", "high", "n")}


def _ttft_change(pairs: Sequence[_Pair]) -> float | None:
    """Speculative minus standard, milliseconds, mean over prompts."""
    changes = [pair.ttft[1] - pair.ttft[0] for pair in pairs if pair.ttft is not None]
    return round(sum(changes) / len(changes), 4) if changes else None


def _head(level: Level) -> dict[str, Any]:
    return {"concurrency": level.concurrency, "rate": level.rate}


def _throughput(before: Sequence[CellRecord], after: Sequence[CellRecord], level: Level) -> dict[str, Any]:
    """Ratio of mean tokens/s over repeats, speculative over standard: above 1 it serves more."""
    rates = []
    for cells in (before, after):
        known = [c.tokens_per_sec for c in cells if c.level == level and c.complete and c.tokens_per_sec]
        rates.append(sum(known) / len(known) if known else None)
    standard, speculative = rates
    ratio = round(speculative / standard, 4) if standard and speculative else None
    return {"throughput_ratio": ratio, "tokens_per_sec": {"standard": standard, "speculative": speculative}}


def _verdict_of_class(pairs: Sequence[_Pair], settings: CompareSettings) -> dict[str, Any]:
    speedup = _ratio(pairs, "e2e", settings)
    if speedup is None:
        short = f"{len(pairs)} prompts succeeded in both arms, an interval needs {stats.MIN_PAIRS}"
        return {"verdict": "undecided", "reason": short}
    told = f"{speedup.estimate:.2f}× [{speedup.low:.2f}, {speedup.high:.2f}]"
    ttft, change = _ratio(pairs, "ttft", settings), _ttft_change(pairs)
    if (
        ttft is not None
        and change is not None
        and ttft.high < 1 / settings.ttft_veto_ratio
        and change >= settings.ttft_veto_ms
    ):
        return {"verdict": "no", "reason": f"TTFT grows by {change:.0f} ms, {1 / ttft.estimate:.2f}×"}
    if speedup.low > 1:
        return {"verdict": "yes", "reason": told}
    if speedup.high < 1:
        return {"verdict": "no", "reason": f"{told}: slower"}
    return {"verdict": "undecided", "reason": f"{told}: its interval includes 1"}


def _verdict(
    by_class: dict[str, dict[str, Any]], standard: Result, speculative: Result
) -> tuple[Verdict, str]:
    if speculative.verdict == "no":  # what survived of a failing arm says nothing about the arm
        return "no", f"do not deploy: the speculative measurement failed: {speculative.reason}"
    if standard.verdict == "no":
        return "undecided", f"the standard measurement failed: {standard.reason}"
    verdicts = {name: found["verdict"] for name, found in by_class.items()}
    deploy = [name for name, verdict in verdicts.items() if verdict == "yes"]
    rest = "; ".join(f"not for {n}: {by_class[n]['reason']}" for n, v in verdicts.items() if v != "yes")
    if deploy:
        return "yes", f"deploy for {', '.join(deploy)}" + (f"; {rest}" if rest else "")
    if all(verdict == "no" for verdict in verdicts.values()):
        return "no", f"do not deploy: {rest}"
    return (
        "undecided",
        f"not enough evidence: {rest}; more repeats or more prompts would narrow the intervals",
    )


def _unless_answers_differ(alike: Parity, reason: str, settings: CompareSettings) -> tuple[Verdict, str]:
    """The verdict and reason of a yes, held against parity: speculation may change no greedy answer."""
    found = f"{alike.arms} greedy answers are the same in both arms"
    if alike.control is None:
        if alike.arms.equal == alike.arms.compared:
            return "yes", reason
        return "undecided", f"{found}, and one repeat cannot tell whether the server differs from itself"
    if alike.surely_lower(settings.confidence):
        return "no", f"do not deploy: {found}, and {alike.control} when the standard arm repeats itself"
    return "yes", reason


def _pays_up_to(by_concurrency: Sequence[dict[str, Any]]) -> int | None:
    """The highest concurrency to which every measured one surely pays; None where the lowest does not."""
    best = None
    levels = [entry for entry in by_concurrency if entry["concurrency"] is not None]
    for entry in sorted(levels, key=lambda entry: entry["concurrency"]):
        if entry["e2e"] is None or entry["e2e"]["low"] <= 1:
            break
        best = entry["concurrency"]
    return best

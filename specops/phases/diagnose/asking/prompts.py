"""Is it some prompts only? Traffic classes, long prompts, temperatures. The playbook's second symptom."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from specops.phases.diagnose.asking.thresholds import pays_from
from specops.phases.diagnose.finding import Asks, Evidence, Finding
from specops.phases.diagnose.observations import Observations

CLASSES = Asks("weak-classes", "acceptance")
LENGTHS = Asks("long-prompts", "acceptance")
TEMPERATURES = Asks("high-temperature", "acceptance")


def classes(seen: Observations) -> Finding:
    """By class no server counts acceptance, so it goes by what each gains in comparison or sweep.
    A no of either counts, as it does for the router."""
    compared, swept = seen.compared, seen.swept
    if (compared is None or not compared.classes) and swept is None:
        why = seen.why_not("compared", "swept")
        return CLASSES.unknown(
            f"what each traffic class gains is not known: {why}", show="specops run ROLLOUT"
        )
    told: dict[str, Evidence] = {}
    if swept is not None:
        for name, reason in swept.classes_off.items():
            told[name] = Evidence(what=f"class {name}", value=reason, source=swept.source)
    if compared is not None:
        for name, one in compared.classes.items():
            if one.verdict == "no":
                value = f"E2E {one.e2e}" if one.e2e else one.reason
                told[name] = Evidence(
                    what=f"class {name}", value=value, source=compared.source, threshold=1.0
                )
    known = len(compared.classes) if compared is not None else 0
    if not told:
        if compared is None or any(one.verdict != "yes" for one in compared.classes.values()):
            why = "no class is shown to lose, and not every one to gain"
            return CLASSES.unknown(why, show="specops run ROLLOUT --only ab, with more prompts of each class")
        return CLASSES.ruled_out(f"every one of {known} traffic classes gains ({compared.source})")
    everywhere = known > 1 and len(told) >= known
    return CLASSES.cause(
        f"{', '.join(told)}: speculation does not pay",
        *told.values(),
        cause="it pays for no class at all" if everywhere else "the draft is weak in this domain",
        fix="keep these classes standard, as below, then specops route render ROLLOUT",
        paste=_routing(list(told), seen.classes),
    )


def _routing(names: list[str], written: Mapping[str, dict[str, object]]) -> str:
    """As `route.classes` takes it. A class that the rollout file does not tell gets the header that clients
    would have to send: what its content looks like nobody measured."""
    entries = [
        written.get(name, {"name": name, "headers": {"X-Traffic-Class": name}}) | {"speculate": False}
        for name in names
    ]
    return yaml.safe_dump({"route": {"classes": entries}}, sort_keys=False, allow_unicode=True)


def lengths(seen: Observations) -> Finding:
    swept = seen.swept
    if swept is None or len(swept.by_length) < 2:
        why = seen.why_not("swept") if swept is None else "the sweep had one class of length"
        show = "specops sweep ROLLOUT, with sweep.prompt_tokens"
        return LENGTHS.unknown(f"acceptance by length of prompt is not known: {why}", show=show)
    low, told, evidence = _below(swept.by_length, seen)
    if pays_from(seen)[0] is None:
        return LENGTHS.unknown(f"{told}; {pays_from(seen)[1]}", *evidence, show="specops sweep ROLLOUT")
    if not low:
        return LENGTHS.ruled_out(f"acceptance by length of prompt: {told}", *evidence)
    return LENGTHS.cause(
        f"acceptance by length of prompt: {told}: too low for {', '.join(low)}",
        *evidence,
        cause="the draft sees less of long prompts than the target: its own max_model_len, or what it was"
        " trained on",
        fix="speculation.max_model_len keeps longer sequences off (vLLM); else another draft",
    )


def temperatures(seen: Observations) -> Finding:
    swept = seen.swept
    if swept is None or len(swept.by_temperature) < 2:
        why = seen.why_not("swept") if swept is None else "the sweep had one temperature"
        show = "specops sweep ROLLOUT, with two or more in sweep.temperature"
        return TEMPERATURES.unknown(f"acceptance by temperature is not known: {why}", show=show)
    rates = {f"{temperature:g}": rate for temperature, rate in sorted(swept.by_temperature.items())}
    low, told, evidence = _below(rates, seen)
    if pays_from(seen)[0] is None:
        return TEMPERATURES.unknown(f"{told}; {pays_from(seen)[1]}", *evidence, show="specops sweep ROLLOUT")
    if not low:
        return TEMPERATURES.ruled_out(f"acceptance by temperature: {told}", *evidence)
    least = min(float(name) for name in low)
    fine = [float(name) for name in rates if float(name) < least]
    fix = (
        f"route.max_temperature: {max(fine):g}"
        if fine
        else "specops guard override ROLLOUT standard --why temperature"
    )
    return TEMPERATURES.cause(
        f"acceptance by temperature: {told}: too low from {least:g} on",
        *evidence,
        cause="the target's choice is spread over more tokens, and the draft meets it less often",
        fix=f"{fix}; then specops route render ROLLOUT",
    )


def _below(rates: Mapping[str, float], seen: Observations) -> tuple[list[str], str, tuple[Evidence, ...]]:
    """Which of them are below where speculation pays; all, in words; and as evidence."""
    assert seen.swept is not None
    gate, source = pays_from(seen)
    evidence = tuple(
        Evidence(
            what=f"acceptance, {name}",
            value=rate,
            source=seen.swept.source,
            threshold=gate,
            threshold_source=source,
        )
        for name, rate in rates.items()
    )
    told = ", ".join(f"{name} {rate:.2f}" for name, rate in rates.items())
    low = [name for name, rate in rates.items() if gate is not None and rate < gate]
    return low, told, evidence

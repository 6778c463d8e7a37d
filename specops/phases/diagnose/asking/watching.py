"""Are settings heeded, and are the series there? What is ignored in silence, and panels that went blank."""

from __future__ import annotations

from specops.phases.diagnose.finding import Asks, Evidence, Finding
from specops.phases.diagnose.observations import LintFinding, Observations

SETTINGS = Asks("settings-without-effect", "slower")
NAMES = Asks("series-missing", "watching")


def settings(seen: Observations) -> Finding:
    """By the lint of the command that starts the pool, for the version that it is for."""
    lint = seen.lint
    if lint is None:
        why = seen.why_not("lint")
        return SETTINGS.unknown(
            f"the command that starts the pool is not known: {why}",
            show="specops launch lint, with the command",
        )
    bad = [one for one in lint.findings if one.level != "note"]
    evidence = tuple(
        Evidence(what=f"{one.level}: {one.flag}", value=one.why, source=lint.source) for one in bad
    )
    if not bad:
        return SETTINGS.ruled_out(f"the lint has nothing against the pool's command ({lint.source})")
    told = f"{', '.join(one.flag for one in bad)}: {bad[0].why}"
    fix = "; ".join(filter(None, map(_fix, bad))) or "specops launch lint shows the command as it should be"
    cause = "a setting is refused, or taken and ignored, by this version of the engine"
    if any(one.level == "error" for one in bad):
        return SETTINGS.cause(told, *evidence, cause=cause, fix=fix)
    return SETTINGS.contributing(told, *evidence, cause="a setting may not do what it says", fix=fix)


def _fix(one: LintFinding) -> str | None:
    return f"{one.flag} -> {one.replacement}" if one.replacement else None


def names(seen: Observations) -> Finding:
    found = seen.names
    if found is None:
        why = seen.why_not("names")
        return NAMES.unknown(
            f"whether Prometheus has the series is not known: {why}", show="specops monitor check ROLLOUT"
        )
    if not found.lacking:
        return NAMES.ruled_out(
            f"all {found.requested} names that rules and panels need are there ({found.source})"
        )
    return NAMES.cause(
        f"{len(found.lacking)} of {found.requested} names are not there: {found.lacking[0]}",
        *(Evidence(what="a series", value=one, source=found.source) for one in found.lacking),
        cause="panels and alerts are blind: a release or an exporter renamed a series, or it is not scraped",
        fix=found.fixes[0] if found.fixes else "specops monitor render ROLLOUT, and load what it writes",
    )

"""What is wrong with a command line of vLLM for a version, and the command line as it should be."""

from __future__ import annotations

from collections.abc import Sequence

from specops.launch.findings import Finding
from specops.launch.vllm.given import Given
from specops.launch.vllm.rules import Rule, batches, flags, keys, method, together
from specops.launch.vllm.versions import Release, Version, table

RULES: tuple[Rule, ...] = (
    flags.unknown_flags,
    flags.old_way,
    flags.deprecated_flags,
    flags.secrets,
    keys.unread,
    keys.unknown_keys,
    keys.unknown_choices,
    keys.twice,
    keys.trees,
    method.missing_method,
    method.unknown_method,
    method.missing_parts,
    method.path_names,
    keys.ngrams,
    keys.lengths,
    keys.sampling,
    keys.vocabularies,
    batches.disable_by_batch_size,
    batches.schedule,
    together.pipeline_parallel,
    together.draft_tensor_parallel,
    together.per_request_metrics,
    together.module,
)
ROUNDS = 4
"""A mend may bring something else to light: a flag made a key, which this version does not have."""


def lint(words: Sequence[str], version: Version | None) -> list[Finding]:
    """Errors first. `version`: None is the newest known. What it does not say is no error: vLLM decides.

    ConfigError for a version from before the table's first.
    """
    found, _ = _mended(Given.parse(words), table().release(version))
    order = ("error", "warning", "note")
    return sorted(dict.fromkeys(found), key=lambda finding: order.index(finding.level))


def corrected(words: Sequence[str], version: Version | None) -> list[str] | None:
    """The words with everything mended that a rule can mend; None where there was nothing to mend."""
    given = Given.parse(words)
    _, mended = _mended(given, table().release(version))
    return None if mended == given else mended.words()


def _mended(given: Given, release: Release) -> tuple[list[Finding], Given]:
    """What was found on the way, also where only a mend brought it to light, and where the way ends."""
    findings: list[Finding] = []
    for _ in range(ROUNDS):
        found = [entry for rule in RULES for entry in rule(given, release)]
        findings += [entry.finding for entry in found]
        before = given
        for entry in found:
            given = entry.mend(given) if entry.mend is not None else given
        if given == before:
            break
    return findings, given

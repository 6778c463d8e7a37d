"""Known issues of serving engines that concern speculation, and published acceptance lengths.

known_issues.yaml has an entry for each issue. An entry applies where the version is in its range and the
command meets its conditions. An issue that also needs certain traffic is a note, any other a warning.
reference_acceptance.yaml has published acceptance lengths, to compare a server's own with.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import yaml
from pydantic import Field

from specops.section import Frozen
from specops.serving.argv import ORDER, CallPattern, Finding, Words, by_level, is_unknown

Settings = Mapping[str, str]
"""What a command says: flags without dashes, keys of a flag's JSON as FLAG.KEY, env.NAME, and model."""

DEVICE = "device"
K_FLAGS = (
    "speculative-config.num_speculative_tokens",
    "spec-tokens",
    "speculative-dspark-block-size",
    "speculative-num-steps",
    "spec-draft-n-max",
    "speculative_config.max_draft_len",
)
"""Settings that hold the number of drafted tokens, by engine."""

QUANTISATION_FLAGS = ("quantization", "quant_config.quant_algo")
QUANTISATION = re.compile(
    r"nvfp4|mxfp[48]|fp8|fp4|awq|gptq|int[48]|w\d+a\d+|(?<![a-z0-9])i?q\d_\w+?(?=[.-]|$)", re.IGNORECASE
)
"""What a model's name says of its quantisation."""

RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
ADAPTER_FLAGS = ("enable-lora", "lora-modules", "lora-paths", "lora", "lora_config")

DEFAULT_ANSWER = "true"
"""The value of a flag that has none."""


class KnownIssue(Frozen):
    id: str
    engine: str
    since: str | None = None
    before: str | None = None
    when: dict[str, str | list[str]]
    traffic: str | None = None
    symptom: str
    workaround: str
    canary: str | None = None
    """The canary's check that shows it."""

    device: tuple[str, ...] = ()
    """Devices that have it, such as rocm or sm120, which no command shows; none: any."""

    errors: tuple[str | tuple[str, ...], ...] = ()
    """Patterns of a log in which it shows itself: any of these, and of each all parts."""

    reported: str | None = Field(default=None, pattern=r"^20\d\d-[01]\d$")
    """Year and month of the first report; None: not known."""

    status: Literal["open", "fixed", "closed", "design"]
    source: str = Field(pattern="^https://")

    def of_version(self, version: str | None) -> bool:
        """Return whether `version` has it. True where the version is not known."""
        if version is None:
            return True
        number = numbers(version)
        return (self.since is None or numbers(self.since) <= number) and (
            self.before is None or number < numbers(self.before)
        )

    def of_settings(self, settings: Settings) -> bool:
        """Return whether the settings have it; not where a setting that it depends on is not known."""
        return all(
            not is_unknown(settings.get(key.partition(".")[0])) and _holds(settings.get(key), condition)
            for key, condition in self.when.items()
        )

    def of_log(self, text: str) -> bool:
        """Return whether a log or a traceback has its error."""
        alternatives = [(parts,) if isinstance(parts, str) else parts for parts in self.errors]
        return any(
            all(re.search(part, text, re.IGNORECASE) for part in parts) for parts in alternatives if parts
        )

    def of_key(self, key: str, value: str) -> bool:
        """Return whether it is of this value of a condition: a key of `when`, or device."""
        if key == DEVICE:
            return value.lower() in self.device
        return key in self.when and _holds(value, self.when[key])

    @property
    def needs(self) -> str:
        """What it needs beside its settings, in words; empty where it needs nothing else."""
        parts = [f"with {self.traffic}"] if self.traffic else []
        return "; ".join([*parts, f"on {', '.join(self.device)}"] if self.device else parts)

    def finding(self, obstacles: Iterable[str] = ()) -> Finding:
        """A warning, or a note where it also needs requests or a device that a command does not show.
        `obstacles`: what the workaround would bring, which is then not proposed."""
        why = f"known issue, {self.status}: {self.symptom}{f' ({self.needs})' if self.needs else ''}"
        why = f"{why}; {self.source}"
        against = ", ".join(obstacles)
        if against:
            why = f"{why}; its workaround {self.workaround} is not for this command ({against})"
        return Finding(
            "note" if self.needs else "warning", self.id, why, None if against else self.workaround
        )

    def is_of(self, finding: Finding) -> bool:
        """Return whether a finding of a lint is about the same: it names this issue, or its flag is one that
        this issue depends on, and says how something is served, not what."""
        setting = ".".join(finding.flag.lstrip("-").split())
        keys = {setting, f"env.{setting}", *(["runner"] if setting == RUNNER else [])}
        return self.id in finding.why or not keys.isdisjoint(self.when.keys() - {*IDENTITY, *METHODS})

    @property
    def workaround_words(self) -> list[str]:
        """The words that the workaround adds to a command, where it is a flag and its value; else none."""
        try:
            words = shlex.split(self.workaround)
        except ValueError:
            return []
        clean = not any(word.endswith((",", ";", ")", ":")) for word in words)
        return words if words[:1] and words[0].startswith("--") and len(words) <= 2 and clean else []


def numbers(version: str) -> tuple[int, ...]:
    """0.27.1rc1 → (0, 27, 1); b9235 → (9235,). A version without a number comes before all others."""
    match = re.search(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def _holds(value: str | None, condition: str | list[str]) -> bool:
    return any(_is(value, pattern) for pattern in ([condition] if isinstance(condition, str) else condition))


def _is(value: str | None, condition: str) -> bool:
    if condition in ("present", "absent"):
        return (value is None) == (condition == "absent")
    if value is None or is_unknown(value):
        return False
    bound = re.fullmatch(r"(>=|<)(\d+)", condition)
    if bound:
        return value.isdigit() and (int(value) < int(bound[2])) == (bound[1] == "<")
    return fnmatchcase(value.lower(), condition.lower())


@cache
def issues() -> tuple[KnownIssue, ...]:
    return tuple(map(KnownIssue.model_validate, _data("known_issues.yaml")))


def with_keys(settings: Settings) -> Settings:
    """`settings` with what several of them say together: k (drafted tokens), runner (vLLM's model runner),
    quantisation (of the target) and adapters. What none of them says is absent."""
    runner = settings.get(f"env.{RUNNER}", "")
    not_read = (
        settings[flag] for name in K_FLAGS if is_unknown(settings.get(flag := name.partition(".")[0]))
    )
    keys = {
        "k": next((settings[flag] for flag in K_FLAGS if flag in settings), None) or next(not_read, None),
        "runner": {"1": "v2", "0": "v1"}.get(runner, runner if is_unknown(runner) else None),
        "quantisation": next((settings[flag] for flag in QUANTISATION_FLAGS if flag in settings), None),
        "adapters": next((DEFAULT_ANSWER for flag in ADAPTER_FLAGS if flag in settings), None),
    }
    if keys["quantisation"] is None and (named := QUANTISATION.search(settings.get("model", ""))):
        keys["quantisation"] = named[0].lower()
    return {**settings, **{key: value for key, value in keys.items() if value is not None}}


def matching(text: str) -> list[KnownIssue]:
    """The issues whose error a log or a traceback shows, the newest report first."""
    return sorted(
        (issue for issue in issues() if issue.of_log(text)),
        key=lambda issue: issue.reported or "",
        reverse=True,
    )


def applying(engine: str, version: str | None, settings: Settings) -> list[KnownIssue]:
    """The issues that a server of these settings has, as far as settings show it."""
    settings = with_keys(settings)
    return [
        issue
        for issue in issues()
        if issue.engine == engine and issue.of_version(version) and issue.of_settings(settings)
    ]


def of_check(engine: str, version: str | None, check: str) -> list[KnownIssue]:
    """The issues that a failed check of the canary may be."""
    return [
        issue
        for issue in issues()
        if issue.engine == engine and issue.canary == check and issue.of_version(version)
    ]


def findings(
    engine: str,
    version: str | None,
    words: Words,
    call: CallPattern,
    refused: Callable[[Words], Iterable[str]] = lambda words: (),
    around: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Return the known issues of a command line, as findings of a lint; `call` says how the engine is
    recognised in it. `refused`: what a lint has against a command; a workaround that it refuses, or that
    another known issue is about, is not proposed. `around`: variables that are set outside the words."""
    outside = {f"env.{name}": value for name, value in (around or {}).items()}
    settings, errors = outside | settings_of(words, call), set(refused(words))
    issue_findings = []
    for issue in applying(engine, version, settings):
        obstacles: list[str] = []
        if added := issue.workaround_words:
            after = type(words).parse([*words.words(), *added])
            obstacles = [
                *objections(engine, version, settings, outside | settings_of(after, call)),
                *(flag for flag in refused(after) if flag not in errors),
            ]
        issue_findings.append(issue.finding(obstacles))
    return issue_findings


IDENTITY = ("model", "speculative-config", "speculative-config.method", "speculative-config.model")
"""Settings that say what is served, not how: an issue of theirs is not a proposal's doing."""

METHODS = ("speculative-algorithm", "spec-type", "speculative_config", "speculative_config.decoding_type")
"""The other engines' settings of the method. Many faults share a method: an issue and a finding of it are of
two causes."""


def joined(lint_findings: Sequence[Finding], of_issues: Sequence[Finding]) -> list[Finding]:
    """Return the findings of a lint and those of known issues, errors first. What both are about is one
    finding, with both sources."""
    by_id = {issue.id: issue for issue in issues()}
    lines = list(dict.fromkeys(lint_findings))
    for entry in of_issues:
        issue = by_id[entry.flag]
        index = next((n for n, line in enumerate(lines) if issue.is_of(line)), None)
        if index is None:
            lines.append(entry)
        else:
            lines[index] = _merge(lines[index], entry, issue.workaround_words)
    return by_level(lines)


def _merge(line: Finding, of_issue: Finding, workaround: Sequence[str]) -> Finding:
    """The lint knows the version, so its proposal stands. Where that is a flag's new name, the workaround is
    written with it."""
    proposal = line.replacement or of_issue.replacement
    if workaround[:1] == [line.flag] and proposal and re.fullmatch(r"--[\w-]+", proposal):
        proposal = shlex.join([proposal, *workaround[1:]])
    first = min(line, of_issue, key=lambda finding: ORDER.index(finding.level))
    return Finding(first.level, line.flag, f"{line.why}; {of_issue.why}", proposal)


def objections(engine: str, version: str | None, before: Settings, after: Settings) -> list[str]:
    """Return the ids of the issues that a change brings by what it sets itself. An issue of certain devices
    is none, since no command shows a device: the lint notes it afterwards."""
    before, after = with_keys(before), with_keys(after)
    removed = [before[key] for key in before if key not in after]  # a value under a new name is no proposal
    changed = {key for key in after if before.get(key) != after[key] and after[key] not in removed}
    ids_before = {issue.id for issue in applying(engine, version, before)}
    return [
        issue.id
        for issue in applying(engine, version, after)
        if issue.id not in ids_before
        and not issue.device
        and any(key in issue.when for key in changed.difference(IDENTITY))
    ]


def command_objections(
    engine: str, version: str | None, call: CallPattern, before: Words, after: Words
) -> list[str]:
    """Return the `objections` to a change of a command; `call` says how the engine is recognised in it."""
    return objections(engine, version, settings_of(before, call), settings_of(after, call))


def settings_of(words: Words, call: CallPattern) -> dict[str, str]:
    """The model's name is the value of --model or --model-path, else the word after the program."""
    settings: dict[str, str] = {}
    for word in words.program:
        name, assigned, value = word.partition("=")
        if assigned and re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
            settings[f"env.{name}"] = value
    for option in words.options:
        flag = option.flag.lstrip("-")
        value = option.values[0] if option.values else DEFAULT_ANSWER
        settings[flag] = value
        settings |= {f"{flag}.{key}": text for key, text in _flat(_object(value))}
    named = words.program[call.start(words.program) :]
    target = settings.get("model") or settings.get("model-path") or (named[0] if named else None)
    return settings | ({"model": target} if target else {})


def flat(content: Mapping[str, Any]) -> dict[str, str]:
    """A YAML file of settings, as `Settings`."""
    return dict(_flat(content))


def _object(text: str) -> Mapping[str, Any]:
    if not text.lstrip().startswith("{"):
        return {}
    try:
        content = json.loads(text)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _flat(content: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, str]]:
    for key, value in content.items():
        name = before + str(key)
        if isinstance(value, Mapping):
            yield name, DEFAULT_ANSWER
            yield from _flat(value, f"{name}.")
        else:
            yield name, json.dumps(value) if isinstance(value, bool | list) else str(value)


class ReferenceAcceptance(Frozen):
    """A published acceptance length: tokens a step, the target's own token included."""

    model: str
    """A pattern of the target's name."""

    method: str
    k: int
    length: float
    conditions: str
    date: str = Field(pattern=r"^20\d\d-\d\d-\d\d$")
    """When the source last changed it."""

    source: str


@cache
def reference_acceptances() -> tuple[ReferenceAcceptance, ...]:
    return tuple(
        ReferenceAcceptance.model_validate({**row, "k": k, "length": length})
        for row in _data("reference_acceptance.yaml")
        for k, length in row.pop("lengths").items()
    )


def published(model: str, method: str | None, k: int | None) -> list[ReferenceAcceptance]:
    """Return what was published for this target, method and number of drafted tokens."""
    return [
        reference
        for reference in reference_acceptances()
        if fnmatchcase(model.lower(), reference.model) and reference.method == method and reference.k == k
    ]


def _data(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = yaml.safe_load(files("specops.serving").joinpath(name).read_text("utf-8"))
    return rows

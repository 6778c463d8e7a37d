"""The lint of a command line of SGLang for a release, and the command line as it should be.

The flags of each release are in releases.json. What SGLang refuses or changes of speculation was read in
`_handle_speculative_decoding` of srt/server_args.py up to 0.5.12, and in srt/arg_groups/speculative_hook.py
since.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import methodcaller
from typing import ClassVar, TypeAlias

import yaml

from specops.errors import ConfigError
from specops.section import SECRET_FLAGS
from specops.serving import argv, known_issues
from specops.serving.argv import (
    Arity,
    CallPattern,
    Command,
    CommandLine,
    ConfigFile,
    Finding,
    LintResult,
    Objections,
    Words,
    configured,
    error_flags,
    is_unknown,
    setting_words,
    settled,
    unknown_values,
    version_behind,
)
from specops.serving.sglang.releases import Release, parse, table
from specops.serving.sglang.settings import EAGLE_FAMILY

CALL = CallPattern(
    mark="sglang", programs=(("sglang", "serve"),), modules=("sglang.launch_server", "dynamo.sglang")
)
ALGORITHM, DRAFT = "--speculative-algorithm", "--speculative-draft-model-path"
STEPS, BRANCHES = "--speculative-num-steps", "--speculative-eagle-topk"
NODES = "--speculative-num-draft-tokens"
WITH_DRAFT = ("EAGLE3", "STANDALONE", "DFLASH")
ANY_CASE = "0.5.12"
"""The first release that makes the algorithm upper case, and lets plugins register their own."""
OVERLAPPED = "0.5.11"
"""The first whose EAGLE family keeps the overlap schedule by itself."""
MIXED = "0.5.19"
"""The first that keeps mixed chunks on with these algorithms."""
MIXING = ("EAGLE", "EAGLE3", "NEXTN", "DFLASH", "DSPARK")
PAGED_TREES = (
    ("0.5.2", ("flashinfer",)),
    ("0.5.6", ("flashinfer", "fa3")),
    ("0.5.13", ("flashinfer", "fa3", "triton")),
)
"""Attention backends that verify a tree over pages of more than one token, from a release on."""
PAGED_N_GRAMS = ("flashinfer",)
FLAT = "trtllm_mha"
"""The attention backend that verifies chains alone."""
BACKENDS = ("--attention-backend", "--decode-attention-backend", "--prefill-attention-backend")
PREFILL_IN_PIPELINES = "0.5.21"
"""The first whose prefill server with DSpark may be a pipeline."""
REJECTION = "--speculative-use-rejection-sampling"
REJECTING = ("EAGLE", "EAGLE3", "NEXTN")
WITH_RADIX = "0.5.23"
"""The first whose decode server keeps a radix cache with these algorithms."""
KEEPING_RADIX = ("EAGLE", "EAGLE3", "NEXTN", "DSPARK")

ALIASES = {DRAFT: ("--speculative-draft-model",)}
FORMER = {"--speculative-draft": DRAFT}
"""Abbreviations from old guides that are ambiguous in today's releases."""
DEPRECATED = r"^\W*(note: --[\w-]+ is )?deprecated( now)?\W*"
"""How SGLang begins to say that a flag is deprecated."""


class ParsedCommand(Words):
    CALL: ClassVar[CallPattern] = CALL

    @classmethod
    def arity(cls, flag: str) -> Arity:
        releases = table()
        return releases.arity(releases.spelt(flag))

    def stated(self, flag: str) -> str | None:
        """Return its value, however the flag is written."""
        names = [option.flag for option in self.options if self._is(option.flag, flag)]
        return self.value(names[-1]) if names else None

    def states(self, flag: str) -> bool:
        return any(self._is(option.flag, flag) for option in self.options)

    def number_of(self, flag: str) -> int | None:
        value = self.stated(flag)
        return int(value) if value is not None and value.isdigit() else None

    @staticmethod
    def _is(written: str, flag: str) -> bool:
        return FORMER.get(written, table().spelt(written)) in (flag, *ALIASES.get(flag, ()))


Found: TypeAlias = argv.RuleFinding[ParsedCommand]


def without_value(command: ParsedCommand, release: Release) -> Iterator[Found]:
    for option in command.options:
        if not option.values and release.meant(option.flag) and command.arity(option.flag) == "one":
            yield Found(Finding("error", option.flag, "it takes a value"))


def unknown(command: ParsedCommand, release: Release) -> Iterator[Found]:
    for flag in dict.fromkeys(option.flag for option in command.options):
        meant, history = release.meant(flag), table().history("flags", flag)
        if meant and meant[0] in release.deprecated:
            message = release.deprecated[meant[0]]
            replacement, fix = _renaming(flag, message, release)
            why = f"deprecated in SGLang {release.version}"
            # What SGLang says of it, without saying that it is deprecated.
            advice = re.sub(DEPRECATED, "", message, flags=re.IGNORECASE).rstrip(".)")
            yield Found(Finding("warning", flag, why, replacement or advice or None), fix)
        elif len(meant) > 1 and not history:
            why = f"SGLang {release.version} finds it ambiguous"
            long = FORMER.get(flag)
            fix = methodcaller("renamed", flag, long) if long else None
            yield Found(Finding("error", flag, why, long or " or ".join(meant[:4])), fix)
        elif flag not in release.flags and flag.startswith("--") and (history or not meant):
            yield _missing(flag, history, release)


def _missing(flag: str, history: str | None, release: Release) -> Found:
    """`history`: the releases that do have it, one of which may have said what comes in its place."""
    why = f"SGLang {release.version} does not have it{f' ({history} do)' if history else ''}"
    message = table().last_words(flag)
    if history:
        replacement, fix = _renaming(flag, message, release) if message else (None, None)
        return Found(Finding("error", flag, why, replacement), fix)
    first, dashes, second = flag[2:].partition("--")
    if dashes:
        return Found(Finding("error", flag, why, f"a space: --{first} --{second}"))
    if flag.replace("--", "--speculative-", 1) in release.flags:
        return Found(Finding("error", flag, why, flag.replace("--", "--speculative-", 1)))
    near = difflib.get_close_matches(flag, release.flags, n=1, cutoff=0.85)
    return Found(Finding("error", flag, why, near[0] if near else None))


def _renaming(
    flag: str, message: str, release: Release
) -> tuple[str | None, Callable[[ParsedCommand], ParsedCommand] | None]:
    """Return what `message` names in place of `flag`, and the change, where the new name takes the same
    values."""
    named = re.search(r"(lias for|[Uu]se) (--[\w-]+)(?:=(\w+))?(?: instead|[).])", message)
    if named is None or named[2] not in release.flags:
        return None, None
    alias, new, value = named[1] == "lias for", named[2], named[3]
    if value:
        return f"{new} {value}", lambda command: command.renamed(flag, new).with_option(new, value)
    same = alias or table().arity(flag) == table().arity(new) == "none"
    return new, (lambda command: command.renamed(flag, new)) if same else None


def speculation(command: ParsedCommand, release: Release) -> Iterator[Found]:
    named = command.stated(ALGORITHM)
    if named is None or is_unknown(named):
        return
    algorithm = named.upper()
    if algorithm == "NONE" and not release.before(ANY_CASE):
        return
    if algorithm not in release.algorithms:
        history = table().history("algorithms", algorithm)
        availability = (
            f" ({history})"
            if history
            else ""
            if release.before(ANY_CASE)
            else ", unless a plugin registers it"
        )
        why = f"SGLang {release.version} has no algorithm {named}{availability}"
        yield Found(Finding("error", ALGORITHM, why, ", ".join(sorted(release.algorithms))))
        return
    if named != algorithm and release.before(ANY_CASE):
        why = f"SGLang {release.version} takes it in upper case only"
        fix = methodcaller("with_option", ALGORITHM, algorithm)
        yield Found(Finding("error", ALGORITHM, why, f"{ALGORITHM} {algorithm}"), fix)
    if algorithm in WITH_DRAFT and not command.states(DRAFT):
        why = f"{algorithm} needs a draft: SGLang {release.version} refuses to start"
        yield Found(Finding("error", DRAFT, why, "its path or id"))
    if algorithm in ("STANDALONE", "NGRAM") and command.states("--enable-dp-attention"):
        why = f"SGLang {release.version} refuses it with {algorithm}"
        yield Found(Finding("error", "--enable-dp-attention", why, "leave it out on both pools"))
    if algorithm in EAGLE_FAMILY and not command.states("--speculative-adaptive"):
        yield from _shape(command, release)
    if algorithm in EAGLE_FAMILY:
        yield from _rejection(algorithm, command, release)
    yield from _tree(algorithm, command, release)
    if algorithm in ("DFLASH", "DSPARK"):
        yield from _blocks(algorithm, command, release)
    radix = "--disaggregation-decode-enable-radix-cache"
    decoding = command.stated("--disaggregation-mode") == "decode"  # elsewhere the flag does nothing
    if decoding and command.states(radix) and (release.before(WITH_RADIX) or algorithm not in KEEPING_RADIX):
        why = f"SGLang {release.version} refuses it with {algorithm}"
        yield Found(
            Finding("error", radix, why, "leave it out on both pools"), methodcaller("without", radix)
        )


def _shape(command: ParsedCommand, release: Release) -> Iterator[Found]:
    """Steps, branches and nodes of the EAGLE family are all given, or none; a chain may leave out nodes."""
    stated = {flag: command.stated(flag) for flag in (STEPS, BRANCHES, NODES)}
    missing = [flag for flag, value in stated.items() if value is None]
    steps, branches = command.number_of(STEPS), command.number_of(BRANCHES)
    chain = STEPS not in missing and branches == 1
    if missing and len(missing) < len(stated) and not chain:
        why = f"SGLang {release.version} takes all of {STEPS}, {BRANCHES} and {NODES}, or none of them"
        if steps is not None and BRANCHES in missing and command.number_of(NODES) in (None, steps + 1):
            yield Found(
                Finding("error", missing[0], why, f"{BRANCHES} 1 {NODES} {steps + 1}, a chain"),
                lambda g: g.with_option(BRANCHES, "1").with_option(NODES, str(steps + 1)),
            )
        else:
            yield Found(Finding("error", missing[0], why, "give it too"))
        return
    nodes = command.number_of(NODES)
    if chain and steps is not None and nodes not in (None, steps + 1):
        why = f"with one branch a step SGLang {release.version} makes it {steps + 1}, and not {nodes}"
        fix = methodcaller("with_option", NODES, str(steps + 1))
        yield Found(Finding("warning", NODES, why, f"{NODES} {steps + 1}"), fix)


def _tree(algorithm: str, command: ParsedCommand, release: Release) -> Iterator[Found]:
    """Backends that cannot verify more than one branch."""
    paged = [names for first, names in PAGED_TREES if not release.before(first)]
    if algorithm in EAGLE_FAMILY:
        branches, able = command.number_of(BRANCHES) or 1, paged[-1] if paged else ()
        flat = next((flag for flag in BACKENDS if command.stated(flag) == FLAT), None)
        if branches > 1 and flat is not None:
            why = f"SGLang {release.version} verifies one branch alone with {FLAT}, and not {branches}"
            yield Found(Finding("error", flat, why, f"{BRANCHES} 1, or another backend"))
            return
    elif algorithm == "NGRAM":
        breadth = command.number_of("--speculative-ngram-max-bfs-breadth")
        branches, able = 10 if breadth is None else breadth, PAGED_N_GRAMS if paged else ()
    else:
        return
    page, backend = command.number_of("--page-size") or 1, command.stated("--attention-backend")
    if branches > 1 and page > 1 and able and backend and not is_unknown(backend) and backend not in able:
        why = f"with more than one branch and --attention-backend {backend} SGLang {release.version} takes 1"
        yield Found(Finding("error", "--page-size", why, f"--page-size 1, or {' or '.join(able)}"))


def _rejection(algorithm: str, command: ParsedCommand, release: Release) -> Iterator[Found]:
    if not command.states(REJECTION) or REJECTION not in release.flags:
        return
    if algorithm not in REJECTING:
        why = f"SGLang {release.version} has it for {', '.join(REJECTING)} alone"
        yield Found(Finding("error", REJECTION, why, "leave it out"), methodcaller("without", REJECTION))
        return
    branches = command.number_of(BRANCHES)
    if branches is not None and branches != 1:
        why = f"SGLang {release.version} has it for one branch alone, and not {branches}"
        yield Found(Finding("error", REJECTION, why, f"{BRANCHES} 1"))
    for flag in ("--speculative-accept-threshold-single", "--speculative-accept-threshold-acc"):
        if command.stated(flag) not in (None, "1", "1.0") and not is_unknown(command.stated(flag)):
            why = f"SGLang {release.version} refuses it with {REJECTION}"
            yield Found(Finding("error", flag, why, "leave it out"), methodcaller("without", flag))


def _blocks(algorithm: str, command: ParsedCommand, release: Release) -> Iterator[Found]:
    """Yield findings on heads that draft a block at a time."""
    block, nodes = command.number_of("--speculative-dflash-block-size"), command.number_of(NODES)
    if block is not None and nodes is not None and block != nodes:
        why = f"SGLang {release.version} takes one number for both, and the block size is {block}"
        yield Found(Finding("error", NODES, why, f"{NODES} {block}"))
    prefilling = command.stated("--disaggregation-mode") == "prefill"
    if algorithm == "DSPARK" and prefilling and not release.before(PREFILL_IN_PIPELINES):
        return
    for flag in ("--pp-size", "--pipeline-parallel-size"):
        if (command.number_of(flag) or 1) > 1 and command.has(flag):
            why = f"SGLang {release.version} refuses pipelines with {algorithm}"
            yield Found(Finding("error", flag, why, f"{flag} 1"))


def differing(command: ParsedCommand, release: Release) -> Iterator[Found]:
    """Yield what speculation changes by itself, so that two pools are unlike."""
    named = command.stated(ALGORITHM)
    algorithm = (named or "NONE").upper()
    if algorithm == "NONE":
        return
    if not command.states("--max-running-requests") and algorithm != "UNO":
        why = (
            f"unset, SGLang {release.version} makes it 48 with speculation and far more without: pools differ"
        )
        yield Found(Finding("warning", "--max-running-requests", why, "--max-running-requests 48 on both"))
    if command.states("--enable-mixed-chunk") and (release.before(MIXED) or algorithm not in MIXING):
        why = f"SGLang {release.version} turns it off where it speculates: the pools differ in it"
        yield Found(Finding("warning", "--enable-mixed-chunk", why, "leave it out on both"))
    if release.before(OVERLAPPED) and not command.states("--disable-overlap-schedule"):
        why = f"SGLang {release.version} turns the overlap schedule off where it speculates, unless "
        why += "SGLANG_ENABLE_SPEC_V2=1 is set: the pools differ in it"
        yield Found(Finding("note", "--disable-overlap-schedule", why, "give it on both to compare them"))


LORA = ("--lora-paths", "--enable-lora")
LORA_REFUSED = "0.5.6"
"""The first that refuses adapters with speculation other than n-grams (server_args.py)."""
LORA_WITH_HEADS = "0.5.19"
"""The first that takes them with these algorithms (arg_groups/lora_hook.py)."""
WITH_LORA = ("EAGLE", "EAGLE3", "NEXTN", "DFLASH", "DSPARK")
ASSISTANTS = "0.5.12"
"""The first that tells Gemma 4's assistants by their architecture."""
ASSISTANT = re.compile(r"gemma-?4[^/]*assistant[^/]*$", re.IGNORECASE)
"""How Gemma 4's assistants are named; a command shows no more of a draft than its name."""


def adapters(command: ParsedCommand, release: Release) -> Iterator[Found]:
    """LoRA adapters, which some algorithms do not go with."""
    flag = next((flag for flag in LORA if command.states(flag)), None)
    algorithm = (command.stated(ALGORITHM) or "NONE").upper()
    if (
        flag is None
        or algorithm in ("NONE", "NGRAM")
        or is_unknown(algorithm)
        or release.before(LORA_REFUSED)
    ):
        return
    if release.before(LORA_WITH_HEADS):
        why = (
            f"SGLang {release.version} takes adapters with NGRAM alone: it refuses to start with {algorithm}"
        )
        yield Found(
            Finding("error", flag, why, f"serve adapters without speculation, or SGLang {LORA_WITH_HEADS}")
        )
    elif algorithm not in WITH_LORA or (algorithm != "EAGLE3" and _assistant(command)):
        draft = " and a Gemma 4 assistant" if _assistant(command) else ""
        why = f"SGLang {release.version} refuses adapters with {algorithm}{draft}"
        yield Found(Finding("error", flag, why, "serve adapters without speculation"))
    elif command.states("--speculative-adaptive"):
        why = f"SGLang {release.version} refuses it with LoRA adapters"
        fix = methodcaller("without", "--speculative-adaptive")
        yield Found(Finding("error", "--speculative-adaptive", why, "leave it out"), fix)


def assistants(command: ParsedCommand, release: Release) -> Iterator[Found]:
    if (
        (command.stated(ALGORITHM) or "").upper() == "EAGLE3"
        and _assistant(command)
        and not release.before(ASSISTANTS)
    ):
        why = (
            f"the draft is a Gemma 4 assistant by its name: SGLang {release.version} takes NEXTN or EAGLE "
            "with one, and refuses to start with EAGLE3"
        )
        fix = methodcaller("with_option", ALGORITHM, "NEXTN")
        yield Found(Finding("error", ALGORITHM, why, f"{ALGORITHM} NEXTN"), fix)


def _assistant(command: ParsedCommand) -> bool:
    return ASSISTANT.search(command.stated(DRAFT) or "") is not None


def secrets(command: ParsedCommand, release: Release) -> Iterator[Found]:
    for flag in SECRET_FLAGS:
        if command.has(flag) and not is_unknown(command.value(flag)):
            why = "the secret is visible in the process list, the manifest and the shell history"
            fix = methodcaller("without", flag)
            yield Found(Finding("warning", flag, why, "a file that only the server can read"), fix)


RULES: tuple[Callable[[ParsedCommand, Release], Iterator[Found]], ...] = (
    unknown,
    without_value,
    speculation,
    adapters,
    assistants,
    differing,
    secrets,
)


DECIDING = (
    "--spec",
    "--config",
    "--tp",
    "--tensor-parallel-size",
    "--pp-size",
    "--pipeline-parallel-size",
    "--page-size",
    "--attention-backend",
    "--decode-attention-backend",
    "--prefill-attention-backend",
    "--disaggregation-mode",
    "--lora",
)
"""Beginnings of the flags by whose values a rule finds an error."""


def config_words(settings: Mapping[str, object]) -> list[str]:
    """Return a file of --config as words, as SGLang reads it: a switch that is off is left out."""
    stated = {str(key): value for key, value in settings.items() if value is not None and value is not False}
    return [word for key, value in stated.items() for word in setting_words(key, value)]


PACKAGES = ("sglang",)
CONFIG_FILE = ConfigFile(("--config",), config_words)


def lint(
    words: Sequence[str], version: str | None = None, around: Mapping[str, str] | None = None
) -> list[Finding]:
    """Return what SGLang would refuse, or silently change where it speculates. Errors first.

    `version`: None is the newest known. `around`: variables outside the words. Raises ConfigError for an
    invalid version.
    """
    release = table().release(version) if version else table().newest
    command, judged_version = ParsedCommand.parse(words), version or release.version
    findings, _ = settled(command, release, RULES, _objections(judged_version))

    def refused(words: Words) -> list[str]:
        return error_flags(ParsedCommand.parse(words.words()), release, RULES)

    issues = known_issues.findings("sglang", judged_version, command, CALL, refused, around)
    return known_issues.joined(findings, issues)


def _objections(version: str) -> Objections[ParsedCommand]:
    return partial(known_issues.command_objections, "sglang", version, CALL)


def judge(command: Command, requested: str | None) -> LintResult:
    """Judge a command. `requested`: a version that the operator names. Raises ConfigError for an invalid
    one."""
    version, because = _version(command, requested)
    release = table().release(version)
    words, unread = configured(command, CONFIG_FILE, CALL)
    parsed = ParsedCommand.parse(words)
    _, fixed = settled(parsed, release, RULES, _objections(version))
    corrected = _yaml(fixed) if command.flags_file else fixed.text()
    return LintResult(
        where=command.where,
        engine="SGLang",
        version=release.version,
        because=because,
        findings=lint(words, version, command.environment),
        corrected=None if fixed == parsed else corrected,
        left=[finding for finding in lint(fixed.words(), version) if finding.level == "error"],
        unknown=[*command.unread, *unread, *unknown_values(parsed, CALL, DECIDING)],
    )


def _yaml(command: ParsedCommand) -> str:
    """Return the flags as a file of --config has them."""
    keys = {}
    for option in command.options:
        values = [yaml.safe_load(value) for value in option.values]
        keys[option.flag.removeprefix("--")] = (values[0] if len(values) == 1 else values) if values else True
    return yaml.safe_dump(keys, sort_keys=False, width=1000)


def _version(command: Command, requested: str | None) -> tuple[str, str]:
    """The release that the command is judged for, and why."""
    releases, version = table(), requested or command.version
    newest, source = releases.newest.version, "as requested" if requested else command.version_source
    if version is None:
        version, source = version_behind(command.words, PACKAGES), "as the program says"
    if version is None:
        return newest, "the newest known: no version was given, and the program is not on this machine"
    try:
        numbers = parse(version)
    except ConfigError:
        if requested:
            raise
        return newest, f"the newest known: the image's tag, {version}, is not a release of SGLang"
    if numbers[0] != 0:  # 25.10-py3: builds of others have numbers of their own
        return newest, f"the newest known: {version}, {source}, is not a release of SGLang"
    if numbers < parse(releases.oldest):
        return (
            newest,
            f"into which the command is translated; {version}, {source}, is older than {releases.oldest}, "
            "the oldest known",
        )
    nearest = releases.release(version).version
    if parse(nearest) != numbers:
        why = "newer than any known" if numbers > parse(newest) else "not in the table"
        return version, f"the nearest known before {version}, {source}, which is {why}"
    return version, source


COMMAND_LINE = CommandLine(
    call=CALL,
    packages=PACKAGES,
    example="python -m sglang.launch_server …",
    judge=judge,
    flag=lambda flag: table().history("flags", flag) is not None,
)

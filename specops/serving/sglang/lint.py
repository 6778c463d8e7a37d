"""What is wrong with a command line of SGLang 0.5.23, and the command line as it should be.

flags.json lists the release's flags, made by tools/sglang_table.py. What it refuses of speculation was read
in srt/arg_groups/speculative_hook.py.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from operator import methodcaller
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from specops.section import SECRET_FLAGS
from specops.serving import correction, known_issues
from specops.serving.argv import Call, Command, CommandLine, Finding, Judged, Words, is_unknown
from specops.serving.correction import by_level, settled
from specops.serving.sglang.command import EAGLE_FAMILY, VERSION

CALL = Call(mark="sglang", programs=(("sglang", "serve"),), modules=("sglang.launch_server",))
ALGORITHM, DRAFT = "--speculative-algorithm", "--speculative-draft-model-path"
STEPS, BRANCHES = "--speculative-num-steps", "--speculative-eagle-topk"
NODES = "--speculative-num-draft-tokens"
ALGORITHMS = (*EAGLE_FAMILY, "NGRAM", "DFLASH", "DSPARK", "UNO")
WITH_DRAFT = ("EAGLE3", "STANDALONE", "DFLASH")
Table = dict[str, Any]


class Given(Words):
    CALL: ClassVar[Call] = CALL

    def whole(self, name: str) -> str:
        """The flag that `name` means: argparse takes what only one flag begins with."""
        flags = _table()["flags"]
        if name in flags:
            return name
        meant = [flag for flag in flags if name.startswith("--") and flag.startswith(name)]
        return meant[0] if len(meant) == 1 else name

    def stated(self, flag: str) -> str | None:
        """Its value, however the flag is written."""
        names = [option.flag for option in self.options if self.whole(option.flag) == flag]
        return self.value(names[-1]) if names else None

    def number_of(self, flag: str) -> int | None:
        value = self.stated(flag)
        return int(value) if value is not None and value.isdigit() else None


Found: TypeAlias = correction.Found[Given]


def unknown(given: Given, table: Table) -> Iterator[Found]:
    for flag in dict.fromkeys(option.flag for option in given.options):
        whole = given.whole(flag)
        if whole in table["deprecated"]:
            why = f"deprecated: SGLang {VERSION}: {table['deprecated'][whole]}"
            yield Found(Finding("warning", flag, why))
        if whole in table["flags"] or not flag.startswith("--") or flag in ("--help", "--version"):
            continue
        meant = [known for known in table["flags"] if known.startswith(flag)]
        if meant:
            why = f"SGLang {VERSION} cannot tell which it is short for"
            yield Found(Finding("error", flag, why, " or ".join(sorted(meant)[:4])))
            continue
        near = difflib.get_close_matches(flag, table["flags"], n=1, cutoff=0.75)
        yield Found(Finding("error", flag, f"SGLang {VERSION} does not have it", near[0] if near else None))


def speculation(given: Given, table: Table) -> Iterator[Found]:
    named = given.stated(ALGORITHM)
    if named is None or is_unknown(named):
        return
    algorithm = named.upper()
    if algorithm not in ALGORITHMS:
        why = f"SGLang {VERSION} has no algorithm {named}, unless a plugin registers it"
        yield Found(Finding("error", ALGORITHM, why, ", ".join(ALGORITHMS)))
        return
    if algorithm in WITH_DRAFT and given.stated(DRAFT) is None and not given.has("--speculative-draft-model"):
        why = f"{algorithm} needs a draft: SGLang {VERSION} refuses to start"
        yield Found(Finding("error", DRAFT, why, "its path or id"))
    if algorithm in EAGLE_FAMILY and not given.has("--speculative-adaptive"):
        yield from _shape(given)


def _shape(given: Given) -> Iterator[Found]:
    """Steps, branches and nodes of the EAGLE family are all given, or none."""
    stated = {flag: given.stated(flag) for flag in (STEPS, BRANCHES, NODES)}
    missing = [flag for flag, value in stated.items() if value is None]
    steps = given.number_of(STEPS)
    if missing and len(missing) < len(stated):
        why = f"SGLang {VERSION} takes all of {STEPS}, {BRANCHES} and {NODES}, or none of them"
        if steps is not None and given.number_of(BRANCHES) in (None, 1) and STEPS not in missing:
            yield Found(
                Finding("error", missing[0], why, f"{BRANCHES} 1 {NODES} {steps + 1}, a chain"),
                lambda g: g.with_option(BRANCHES, "1").with_option(NODES, str(steps + 1)),
            )
        else:
            yield Found(Finding("error", missing[0], why, "give it too"))
        return
    nodes = given.number_of(NODES)
    if given.number_of(BRANCHES) == 1 and steps is not None and nodes not in (None, steps + 1):
        why = f"with one branch a step SGLang {VERSION} makes it {steps + 1}, and not {nodes}"
        fix = methodcaller("with_option", NODES, str(steps + 1))
        yield Found(Finding("warning", NODES, why, f"{NODES} {steps + 1}"), fix)


def differing(given: Given, table: Table) -> Iterator[Found]:
    """What speculation changes by itself, so that two pools are unlike."""
    if given.stated(ALGORITHM) is None:
        return
    if given.stated("--max-running-requests") is None:
        why = f"unset, SGLang {VERSION} makes it 48 with speculation and far more without: pools differ"
        yield Found(Finding("warning", "--max-running-requests", why, "--max-running-requests 48 on both"))
    if given.has("--enable-mixed-chunk"):
        why = f"SGLang {VERSION} turns it off where it speculates: the pools differ in it"
        yield Found(Finding("warning", "--enable-mixed-chunk", why, "leave it out on both"))


def secrets(given: Given, table: Table) -> Iterator[Found]:
    for flag in SECRET_FLAGS:
        if given.has(flag) and not is_unknown(given.value(flag)):
            why = "whoever lists processes, reads the manifest or the shell's history has the secret"
            fix = methodcaller("without", flag)
            yield Found(Finding("warning", flag, why, "a file that only the server can read"), fix)


RULES: tuple[Callable[[Given, Table], Iterator[Found]], ...] = (unknown, speculation, differing, secrets)


def lint(words: Sequence[str], version: str = VERSION) -> list[Finding]:
    """What SGLang `VERSION` would refuse, or silently change where it speculates. Errors first.

    `version`: the one whose known issues are looked up.
    """
    given = Given.parse(words)
    found, _ = settled(given, _table(), RULES)
    return by_level([*found, *known_issues.findings("sglang", version, given, CALL)])


def judge(command: Command, asked: str | None) -> Judged:
    """`asked`: a version that the operator names."""
    version = asked or command.version or VERSION
    source = "as requested" if asked else "as the image's tag says"
    because = "the one release whose flags are known"
    if version != VERSION:
        because += f"; for {version}, {source}, it was not checked"
    given = Given.parse(command.words)
    _, fixed = settled(given, _table(), RULES)
    left = [finding for finding in lint(fixed.words(), version) if finding.level == "error"]
    return Judged(
        where=command.where,
        engine="SGLang",
        version=VERSION,
        because=because,
        findings=lint(command.words, version),
        corrected=None if fixed == given else fixed.text(),
        left=left,
    )


@cache
def _table() -> Table:
    table: Table = json.loads(Path(__file__).with_name("flags.json").read_text(encoding="utf-8"))
    return table


COMMAND_LINE = CommandLine(call=CALL, example="python -m sglang.launch_server …", judge=judge)

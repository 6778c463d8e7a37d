"""The lint on commands, scripts and manifests as people run them (real_commands/), by the released tables.

That corrected commands are accepted by real parsers is tested in tests/vllm and tests/llamacpp. SGLang's
parser is made of its table here: argparse decides then, with its abbreviations.
"""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace

import pytest
from real_commands import ENGINES, Case, cases

from specops.launch.command_files import judge
from specops.launch.command_files.shell import commands as shell_commands
from specops.serving import Command, LintResult
from specops.serving.argv import is_unknown
from specops.serving.sglang.lint import ParsedCommand
from specops.serving.sglang.releases import table

ALL = [(engine, case) for engine in ENGINES for case in cases(engine)]
IDS = [f"{engine} {case}" for engine, case in ALL]
SGLANG = cases("sglang")


def test_there_are_enough_and_each_has_its_source() -> None:
    assert len(ALL) >= 120
    assert len({(case.source, case.text, case.version) for _, case in ALL}) == len(ALL)
    assert all(case.source.startswith("https://") for _, case in ALL)


@pytest.mark.parametrize(("engine", "case"), ALL, ids=IDS)
def test_what_the_lint_finds_and_what_it_leaves(engine: str, case: Case) -> None:
    judged = case.judged()
    found = [f"{one.level} {one.flag}" for one in judged.findings if one.level != "note"]
    assert found == list(case.finds)
    assert [one.flag for one in judged.left] == list(case.left)
    assert case.command.engine == engine


@pytest.mark.parametrize(("engine", "case"), ALL, ids=IDS)
def test_a_corrected_command_is_corrected_for_good(engine: str, case: Case) -> None:
    command, judged = case.command, case.judged()
    if judged.corrected is None or command.flags_file:
        return
    again = judge(pasted(command, judged.corrected), case.version)
    assert [one.flag for one in again.findings if one.level == "error"] == list(case.left)
    assert again.corrected in (None, judged.corrected)


def pasted(command: Command, corrected: str) -> Command:
    """`corrected` as a command: TensorRT-LLM's is a script, which writes the file of settings too."""
    if command.engine == "trtllm":
        (found,) = shell_commands(corrected, command.where)
        return found
    return replace(command, words=tuple(shlex.split(shell(corrected))))


def test_a_file_of_settings_keeps_its_variables() -> None:
    mtp = next(case for case in cases("trtllm") if "dsr1_fp8_h200_trt_mtp" in case.source)
    corrected = str(mtp.judged().corrected)
    assert corrected.startswith("cat > dsr1-fp8-mtp.yml <<CONFIG\n")  # 'CONFIG' would write $MTP as it stands
    assert "num_nextn_predict_layers: $MTP\n" in corrected


def shell(corrected: str) -> str:
    return corrected.replace("\\\n", " ")


@pytest.mark.parametrize("case", SGLANG, ids=map(str, SGLANG))
def test_sglangs_flags_by_argparse(case: Case) -> None:
    judged = case.judged()
    words = shlex.split(shell(judged.corrected)) if judged.corrected else list(case.command.words)
    assert accepted(words, judged) or judged.left
    unknown = [one for one in judged.findings if "does not have it" in one.why or "short for" in one.why]
    if unknown:
        assert not accepted(case.command.words, judged)


def accepted(words: list[str] | tuple[str, ...], judged: LintResult) -> bool:
    release, known = table().release(judged.version), table()
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    nargs = {"one": None, "maybe": "?", "many": "*"}
    for flag in sorted(release.flags):
        match known.arity(flag):
            case "none":
                parser.add_argument(flag, action="store_true")
            case arity:
                parser.add_argument(flag, nargs=nargs[arity])
    given = ParsedCommand.parse(words)
    flags = words[ParsedCommand.CALL.start(words) :]
    assert given.options, words
    try:
        parser.parse_args([word for word in flags if not (is_unknown(word) and "[@]" in word)])
    except (argparse.ArgumentError, SystemExit):
        return False
    return True

"""Holds the lint of SGLang's commands against SGLang's own parser and its validation of speculation.

    PYTHONPATH=WHEEL PYTHON tools/sglang_commands.py VERSION CASES.json
    .venv/bin/python tools/sglang_commands.py --write VERSION CASES.json

WHEEL is the unpacked wheel of VERSION, from PyPI. PYTHON has torch, transformers and what the wheel imports
for its arguments (orjson, msgspec, triton, IPython, traitlets): that of .venv-vllm has most. No kernel is
needed, and no server runs. `--write` stores the commands of tests/unit/real_commands, as they are and as the
lint corrects them for VERSION, with 1 for unknown variables. Without it they are tried, on the shipped pair.
A line is printed for each on which the two disagree, or that could not be tried. With 0.5.23: EAGLE3 without
a draft passes its validation, and the server ends when it loads the draft; DSPARK needs torchvision.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import shlex
import sys
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TARGET, DRAFT = (str(ROOT / "playbooks" / "embedded" / name) for name in ("target", "draft"))
MODEL = ("--model", "--model-path")
DRAFTS = ("--speculative-draft-model-path", "--speculative-draft-model")


def write(version: str, path: Path) -> None:
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "unit")]
    real_commands = importlib.import_module("real_commands")
    from specops.launch.command_files import judge
    from specops.serving.argv import UNKNOWN
    from specops.serving.sglang.lint import ParsedCommand

    def flags(words: list[str]) -> list[str]:
        return [UNKNOWN.sub("1", word) for word in words[ParsedCommand.CALL.start(words) :]]

    stored = []
    for case in real_commands.cases("sglang"):
        judged = judge(case.command, version)
        words = list(case.command.words)
        fixed = shlex.split(judged.corrected.replace("\\\n", " ")) if judged.corrected else words
        errors = [one.flag for one in judged.findings if one.level == "error"]
        left = [one.flag for one in judged.left]
        row = {"source": case.source, "words": flags(words), "fixed": flags(fixed)}
        stored.append(row | {"errors": errors, "left": left})
    path.write_text(json.dumps(stored, indent=1), encoding="utf-8")


def on_the_pair(words: list[str]) -> list[str]:
    """The words with the shipped pair in the place of their models, for a GPU."""
    found: list[str] = []
    for word in words:
        flag = found[-1] if found else ""
        name = word.partition("=")[0]
        if flag in MODEL or flag in DRAFTS:
            found.append(DRAFT if flag in DRAFTS else TARGET)
        else:
            found.append(f"{name}={TARGET}" if name in MODEL and "=" in word else word)
    if found[:1] and not found[0].startswith("-"):
        found[0] = TARGET
    return [*found, "--device", "cuda"]


class SGLang:
    def __init__(self) -> None:
        """Without what reads models of other families: their packages are for GPUs."""
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(TARGET)
        reader: Any = types.ModuleType("sglang.srt.utils.hf_transformers_utils")
        reader.get_config = lambda *_, **__: config
        sys.modules[reader.__name__] = reader
        self.hook: Any = importlib.import_module("sglang.srt.arg_groups.speculative_hook")
        self.hook.model_config_of = lambda _: types.SimpleNamespace(hf_config=config)  # type: ignore[attr-defined]
        self.hook._handle_iquest_q1_mtp_draft = lambda _: None  # type: ignore[attr-defined]
        self.arguments: Any = importlib.import_module("sglang.srt.server_args")

    def refusal(self, words: list[str]) -> str | None:
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                given = self.arguments.prepare_server_args(on_the_pair(words))
                given.page_size = given.page_size or 1
                self.hook.handle_speculative_decoding(given)
        except SystemExit:
            return said.getvalue().strip().splitlines()[-1]
        except ImportError as error:
            return f"not tried: {error}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description="Hold the lint against SGLang's own parser.")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("version")
    parser.add_argument("cases", type=Path)
    given = parser.parse_args()
    if given.write:
        write(given.version, given.cases)
        return
    engine, rows = SGLang(), json.loads(given.cases.read_text(encoding="utf-8"))
    wrong = []
    for row in rows:
        for key, errors in (("words", row["errors"]), ("fixed", row["left"])):
            why = engine.refusal(row[key])
            if (why is None) != (not errors):
                wrong.append(f"{row['source']} ({key}): the lint has {errors}; SGLang: {why}")
    print(
        *wrong, f"{2 * len(rows) - len(wrong)} of {2 * len(rows)} agree with SGLang {given.version}", sep="\n"
    )


if __name__ == "__main__":
    main()

"""Runs in vLLM's own environment: what vLLM itself says of command lines. JSON in, JSON out.

In: a list of lists of words, each without the program, its model as --model. Out: {"flags": every flag of
`vllm serve`, "arities": how many words each takes, as vllm_table.py has it, "verdicts": for each command
line {"error": of its parser or of create_engine_config, or null, "method": of its speculation, "refused":
"parser", "configuration" or null}}.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser


def main() -> None:
    commands = json.load(sys.stdin)
    parser = make_arg_parser(FlexibleArgumentParser())
    flags = sorted(flag for action in parser._actions for flag in action.option_strings)
    taken = {0: "none", None: "one", "?": "maybe", "+": "many", "*": "many"}
    arities = {flag: taken[action.nargs] for action in parser._actions for flag in action.option_strings}
    with contextlib.redirect_stdout(sys.stderr):  # what vLLM logs
        verdicts = [verdict(parser, words) for words in commands]
    print(json.dumps({"flags": flags, "arities": arities, "verdicts": verdicts}))


def verdict(parser: FlexibleArgumentParser, words: list[str]) -> dict[str, str | None]:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            args = parser.parse_args(words)
    except SystemExit:
        return {"error": said.getvalue().strip().splitlines()[-1], "method": None, "refused": "parser"}
    try:
        speculation = AsyncEngineArgs.from_cli_args(args).create_engine_config().speculative_config
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "method": None, "refused": "configuration"}
    return {"error": None, "method": speculation.method if speculation else None, "refused": None}


if __name__ == "__main__":
    main()

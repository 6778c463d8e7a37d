"""How the table of SGLang's releases is made: what is read from both forms of its sources."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import sglang_table

from specops.serving.sglang.releases import table

CALLS = """
class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model-path", "--model", type=str, help="The model.", required=True)
        parser.add_argument("--enable-lora", action="store_true", help="LoRA.")
        parser.add_argument("--tune", action=argparse.BooleanOptionalAction, help="Tune.")
        parser.add_argument("--cuda-graph-bs", type=int, nargs="+", help="Sizes.")
        parser.add_argument("--stream-output", action="store_true", help="[Deprecated] Use --other instead.")
        parser.add_argument("--old", action=DeprecatedAction, help="Note: --old is deprecated now.")
        parser.add_argument("--speculative-algorithm", type=str, choices=["EAGLE", "NEXTN"], help="Which.")
"""
FIELDS = """
class ServerArgs:
    model_path: A[str, Arg(help="The model.", aliases=["--model"])]
    tp_size: A[int, Arg(help="GPUs.", cli_name="--tensor-parallel-size", aliases=["--tp"]), NS("p")] = 1
    enable_lora: A[Optional[bool], "LoRA."] = None
    tune: A[bool, Arg(help="Tune.", action=argparse.BooleanOptionalAction)] = False
    sizes: A[Optional[List[int]], "Sizes."] = None
    parsed: A[Optional[List[int]], Arg(help="Sizes.", type_parser=json_list)] = None
    lora_paths: A[Optional[List[str]], Arg(help="Paths.", action=P, action_kwargs={"nargs": "*"})] = None
    inner: A[bool, Arg(help="Not a flag.", no_cli=True)] = False
    rejoin: A[bool, "[Deprecated] Alias for --join."] = False
    derived: int = 3
    speculative_algorithm: A[
        Optional[str], "Speculative algorithm. Builtins: EAGLE, NEXTN, UNO. Or any name of a plugin."
    ] = None
"""
MEMBERS = """
class SpeculativeAlgorithm(Enum):
    __slots__ = ()
    EAGLE = auto()
    FROZEN_KV_MTP = auto()
    NONE = auto()
"""
PATH = "sglang/srt/server_args.py"


def read(sources: dict[str, str]) -> tuple[dict[str, str], dict[str, str], set[str]]:
    """Arities and deprecations by flag, and the algorithms."""
    options = list(sglang_table.options({path: ast.parse(text) for path, text in sources.items()}))
    return (
        {name: option.arity for option in options for name in option.names},
        {name: option.deprecated for option in options for name in option.names if option.deprecated},
        {name for option in options for name in option.algorithms},
    )


def test_calls_of_add_argument() -> None:
    arities, deprecated, algorithms = read({PATH: CALLS})
    assert arities == {
        "--help": "none",
        "-h": "none",
        "--model-path": "one",
        "--model": "one",
        "--enable-lora": "none",
        "--tune": "none",
        "--no-tune": "none",
        "--cuda-graph-bs": "many",
        "--stream-output": "none",
        "--old": "none",
        "--speculative-algorithm": "one",
    }
    assert deprecated.keys() == {"--stream-output", "--old"}
    assert algorithms == {"EAGLE", "NEXTN"}


def test_annotated_fields_become_flags_as_sglang_makes_them() -> None:
    fields = "sglang/srt/arg_groups/fields/all.py"
    arities, deprecated, algorithms = read({fields: FIELDS, "sglang/srt/speculative/spec_info.py": MEMBERS})
    assert arities == {
        "--help": "none",
        "-h": "none",
        "--model-path": "one",
        "--model": "one",
        "--tensor-parallel-size": "one",
        "--tp": "one",
        "--enable-lora": "none",
        "--tune": "none",
        "--no-tune": "none",
        "--sizes": "many",
        "--parsed": "one",
        "--lora-paths": "many",
        "--rejoin": "none",
        "--speculative-algorithm": "one",
    }
    assert deprecated == {"--rejoin": "[Deprecated] Alias for --join."}
    assert algorithms == {"EAGLE", "NEXTN", "UNO", "FROZEN_KV_MTP"}


def test_the_stored_table_has_as_many_flags_as_sglangs_own_parser() -> None:
    # Counted at `ServerArgs.add_cli_args` of each release, run with stand-ins for what it imports.
    counts = {
        "0.5.1": 208, "0.5.5": 283, "0.5.10": 367, "0.5.12": 404, "0.5.13": 421,
        "0.5.14": 435, "0.5.18": 508, "0.5.19": 523, "0.5.20": 515, "0.5.23": 561,
    }  # fmt: skip
    assert {version: len(table().release(version).flags) for version in counts} == counts

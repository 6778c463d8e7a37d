"""What was not read is never called ok: each positive sentence of verify-draft, and an input that lacks what
the sentence rests on.

The positive sentences are enumerated from the code: every check that any function can answer with
`compatible`. A new one without a row here fails the first test.
"""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_pairs as made
import pytest

import specops.phases.verify_draft as package
from specops.phases.verify_draft.document import document
from specops.phases.verify_draft.pair import PairFinding, VerifySettings, decide, worst
from specops.phases.verify_draft.verify import verify
from specops.progress import SilentProgress
from specops.results import Result

MODULES = ("differences.py", "engine_fit.py", "heads.py", "verify.py", "memory.py")
POSITIVE = {"compatible"}


def positive_checks() -> set[str]:
    """Names of the checks that some function of the package can answer with `compatible`."""
    found: set[str] = set()
    for module in MODULES:
        tree = ast.parse((Path(package.__file__).parent / module).read_text())
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            local = _constants(function)
            for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
                named = {keyword.arg: keyword.value for keyword in call.keywords}
                name = getattr(call.func, "id", None)
                if name in POSITIVE and call.args:
                    check = call.args[0]
                elif name == "PairFinding" and "'compatible'" in ast.dump(named.get("verdict", call.func)):
                    check = named["check"]
                elif name == "finding" and call.args and getattr(call.args[0], "value", "") == "compatible":
                    check = ast.Name("check")
                else:
                    continue
                if isinstance(check, ast.Constant):
                    found.add(str(check.value))
                elif isinstance(check, ast.Name) and check.id in local:
                    found.add(local[check.id])
                elif isinstance(check, ast.Name) and function.name in ("_part", "_keys", *POSITIVE):
                    continue  # called with the names below
                else:
                    raise AssertionError(f"{module}: {function.name} answers a check without a name")
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if getattr(call.func, "id", "") in ("_part", "_keys"):
                found.add(str(getattr(call.args[0], "value", "")))
    return found - {""}


def _constants(function: ast.FunctionDef) -> dict[str, str]:
    """Names that a function gives to a text, alone or in a tuple."""
    local: dict[str, str] = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            names, values = [target], [node.value]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                names, values = list(target.elts), list(node.value.elts)
            for name, value in zip(names, values, strict=True):
                if isinstance(name, ast.Name) and isinstance(value, ast.Constant):
                    local[name.id] = str(value.value)
    return local


ROWS = made.made(random.Random(1)).config["vocab_size"]
SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "vocab_size": ROWS,
    "max_position_embeddings": 2048,
    "dtype": "bfloat16",
}
EAGLE3 = SHAPE | {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"}
REDUCED = EAGLE3 | {"draft_vocab_size": 200}
SPECULATORS = {
    "architectures": ["Eagle3DraftModel"],
    "speculators_model_type": "eagle3",
    "speculators_config": {
        "proposal_methods": [{"speculative_tokens": 3}],
        "verifier": {"name_or_path": "org/target", "architectures": ["LlamaForCausalLM"]},
    },
    "transformer_layer_config": SHAPE | {"model_type": "llama"},
}
FC = {"fc.weight": (64, 192)}


def judged(
    place: Path,
    config: dict[str, Any] | None,
    tensors: dict[str, Any] | None = None,
    target: dict[str, Any] | None = None,
    **settings: Any,
) -> Result:
    """A head of `config` for a small target. None: the target's own small sibling, with a tokenizer."""
    own = made.made(random.Random(1))
    own.config |= target or {}
    own.config = {key: value for key, value in own.config.items() if value is not None}
    own.write(place / "target")
    if config is None:
        own.layers_of = 16
        own.write(place / "draft")
        changed = settings.pop("draft_config", {})
        whole = {key: value for key, value in (own.config | changed).items() if value is not None}
        (place / "draft" / "config.json").write_text(json.dumps(whole))
    else:
        (place / "draft").mkdir()
        (place / "draft" / "config.json").write_text(json.dumps(config))
        if tensors is not None:
            made.write_header(place / "draft" / "model.safetensors", tensors)
    draft = settings.pop("draft", str(place / "draft"))
    asked = VerifySettings(target=str(place / "target"), draft=draft, **settings)
    return verify(asked, None, SilentProgress())


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in keys}


def head(place: Path, config: dict[str, Any], more: dict[str, Any] | None = None, **settings: Any) -> Result:
    tensors = made.eagle3(config.get("draft_vocab_size", ROWS), 64) | FC | (more or {})
    return judged(place, config, tensors, **settings)


def without_lm_head(place: Path) -> Result:
    tensors = without(made.eagle3(ROWS, 64) | FC, "lm_head.weight")
    return judged(place, EAGLE3, tensors, engine="trtllm")


def own_layers_unread(place: Path) -> Result:
    """The index of a target's shards is here, and names tensors; the target counts MTP layers."""
    own = made.made(random.Random(1))
    own.config |= {"num_nextn_predict_layers": 1}
    own.write(place / "target")
    (place / "target" / "model.safetensors").unlink()
    asked = VerifySettings(target=str(place / "target"), draft=str(place / "target"))
    return verify(asked, None, SilentProgress())


def ends_unnamed(place: Path) -> Result:
    result = judged(place, None, target={"eos_token_id": None})
    for folder in ("target", "draft"):
        (place / folder / "generation_config.json").unlink()
    asked = VerifySettings(target=str(place / "target"), draft=str(place / "draft"))
    assert result.verdict == "yes"
    return verify(asked, None, SilentProgress())


def no_special_tokens(place: Path) -> Result:
    judged(place, None)
    (place / "draft" / "tokenizer_config.json").write_text("{}")
    asked = VerifySettings(target=str(place / "target"), draft=str(place / "draft"))
    return verify(asked, None, SilentProgress())


UNKNOWN: dict[str, Callable[[Path], Result]] = {
    "kind": lambda place: judged(place, EAGLE3),
    "engine": lambda place: judged(
        place,
        SHAPE | {"architectures": ["DFlash2DraftModel"]},
        {"fc.weight": (64, 128), "hidden_norm.weight": (64,), "norm.weight": (64,)},
        engine="trtllm",
    ),
    "tensor parallel": lambda place: judged(
        place, None, draft_config={"num_attention_heads": None}, tensor_parallel=2
    ),
    "vocabulary size": lambda place: judged(place, None, draft_config={"vocab_size": None}),
    "own layers": own_layers_unread,
    "format": lambda place: head(place, SPECULATORS, engine="trtllm"),
    "trained for": lambda place: head(place, SPECULATORS, target={"architectures": None}),
    "architecture": lambda place: head(
        place, EAGLE3 | {"architectures": ["NewEagle3"]}, engine_version="0.99"
    ),
    "features": lambda place: judged(place, EAGLE3, made.eagle3(ROWS, 64)),
    "block": lambda place: judged(
        place,
        SHAPE | {"architectures": ["DFlashDraftModel"], "dflash_config": {"target_layer_ids": [0, 1]}},
        {"fc.weight": (64, 128), "hidden_norm.weight": (64,), "norm.weight": (64,)},
    ),
    "config keys": lambda place: head(place, EAGLE3 | {"a_switch_of_tomorrow": True}),
    "positions": lambda place: head(place, without(EAGLE3, "max_position_embeddings")),
    "rows": lambda place: head(place, without(EAGLE3, "vocab_size")),
    "reduced vocabulary": lambda place: head(place, REDUCED, {"d2t": ("F16", (200,))}),
    "output head": without_lm_head,
    "number format": lambda place: head(
        place, EAGLE3, engine="trtllm", target={"quantization_config": {"quant_method": "fp8"}}
    ),
    "model max length": lambda place: judged(place, None, draft_config={"max_position_embeddings": None}),
    "end of text": ends_unnamed,
    "special tokens": no_special_tokens,
    "chat template": lambda place: head(place, EAGLE3),
}
"""Checks whose evidence can be missing: the answer is then unknown."""

NEVER_WITHOUT_TOKENIZERS = {
    "tokenizers", "token ids", "merges", "model", "byte fallback", "added tokens", "normaliser",
    "pre-tokeniser", "decoder", "post-processor", "encodings",
}  # fmt: skip
"""Checks of two whole tokenizers. A head without one gets none of these lines."""

ALWAYS_KNOWN = {
    "path": "the text of the path is what was given",
    "form": "tensors that were not read are lacking, which is a no",
}


def test_every_positive_sentence_has_an_input_that_does_not_reach_it() -> None:
    assert positive_checks() == set(UNKNOWN) | NEVER_WITHOUT_TOKENIZERS | set(ALWAYS_KNOWN)


@pytest.mark.parametrize("check", UNKNOWN)
def test_an_unknown_input_is_answered_with_unknown(tmp_path: Path, check: str) -> None:
    result = UNKNOWN[check](tmp_path)
    findings = [PairFinding(**found) for found in result.data["findings"]]
    (found,) = [finding for finding in findings if finding.check == check]
    assert found.answer == "unknown", found.detail
    assert found.find_out
    assert result.summary["unknown"][check] == found.find_out
    assert f"unknown: {', '.join(f.check for f in findings if f.answer == 'unknown')}" in result.reason
    if found.essential:
        assert result.verdict != "yes"
        assert not result.reason.startswith("compatible")
        if not any(finding.answer == "wrong" for finding in findings):
            assert (result.verdict, int(result.exit_code)) == ("undecided", 4)


@pytest.mark.parametrize(
    ("check", "asked"),
    [("engine", {"engine_version": "0.99"}), ("files", {"engine": "llamacpp"})],
)
def test_a_release_or_a_format_that_nobody_read_is_undecided(
    tmp_path: Path, check: str, asked: dict[str, Any]
) -> None:
    result = head(tmp_path, EAGLE3, **asked)
    assert check in result.summary["unknown"]
    assert result.verdict == "undecided"
    command = document(result).steps[-1].command
    assert all(f"--{name.replace('_', '-')} {text}" in command for name, text in asked.items())


def test_no_server_is_proposed_for_files_that_it_does_not_read(tmp_path: Path) -> None:
    result = judged(tmp_path, None, engine="llamacpp")
    assert result.summary["verdict"] == "needs_setting"
    assert "llama-server" not in str(document(result).steps)


def test_a_head_without_a_tokenizer_gets_no_line_about_tokenizers(tmp_path: Path) -> None:
    result = head(tmp_path, EAGLE3)
    assert not {found["check"] for found in result.data["findings"]} & NEVER_WITHOUT_TOKENIZERS


def test_further_files_of_weights_are_not_passed_over(tmp_path: Path) -> None:
    head(tmp_path, EAGLE3)
    (tmp_path / "draft" / "warp.bin").write_bytes(b"PK")
    (tmp_path / "draft" / "training_args.bin").write_bytes(b"PK")
    asked = VerifySettings(target=str(tmp_path / "target"), draft=str(tmp_path / "draft"))
    result = verify(asked, None, SilentProgress())
    (found,) = [one for one in result.data["findings"] if one["check"] == "other weights"]
    assert (found["verdict"], result.verdict) == ("unknown", "undecided")
    assert "warp.bin may" in found["detail"]


VERDICTS = ("compatible", "needs_setting", "degraded", "unknown", "incompatible")


def made_finding(verdict: str, essential: bool = True) -> PairFinding:
    find_out = "look" if verdict == "unknown" else None
    return PairFinding(check=verdict, verdict=verdict, detail="made", find_out=find_out, essential=essential)  # type: ignore[arg-type]


@pytest.mark.parametrize("allowed", [False, True])
def test_a_yes_needs_every_finding_that_it_rests_on(allowed: bool) -> None:
    for seed in range(300):
        dice = random.Random(seed)
        findings = [
            made_finding(dice.choice(VERDICTS), dice.random() < 0.5) for _ in range(dice.randrange(6))
        ]
        verdict, reason = decide(findings, allow_degraded=allowed)
        verdicts = {f.verdict for f in findings}
        open_ = any(f.verdict == "unknown" and f.essential for f in findings)
        if verdict == "yes":
            assert findings
            assert not open_
            assert "incompatible" not in verdicts
            assert allowed or "degraded" not in verdicts
        if open_ and not {"incompatible", "degraded"} & verdicts:
            assert verdict == "undecided"
        count = sum(f.verdict == "unknown" for f in findings)
        assert not count or f"{count} unknown" in reason


def test_nothing_examined_is_not_compatible() -> None:
    assert worst([]) == "unknown"
    assert decide([], allow_degraded=True)[0] == "undecided"

"""What serving engines do with kinds of drafts, by version; heads' shapes; memory; the guide."""

from __future__ import annotations

import json
import math
import random
import re
from pathlib import Path
from typing import Any

import made_pairs as made
import pytest

from specops.checkpoints.draft_kind import WORDS, Draft
from specops.errors import ModelError, UsageError
from specops.phases.verify_draft.engine_fit import EngineRelease, files_finding, finding, path_finding
from specops.phases.verify_draft.guide import PUBLIC, advise
from specops.phases.verify_draft.memory import MIB, memory_of
from specops.phases.verify_draft.pair import VerifySettings
from specops.phases.verify_draft.verify import verify
from specops.progress import SilentProgress
from specops.results import Result
from specops.serving import ENGINES

ROOT = Path(__file__).parents[2]


def of(engine: str, version: str | None = None) -> EngineRelease:
    return EngineRelease.at_version(engine, version)  # type: ignore[arg-type]


def draft(kind: str, **fields: Any) -> Draft:
    return Draft(kind, "made", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "version", "does"),
    [
        ("independent", "0.9.2", "works"),
        ("independent", "0.10.0", "refused"),
        ("independent", "0.14.1", "refused"),
        ("independent", "0.15.0", "works"),
        ("independent", "0.33", "works"),
        ("medusa", "0.32.0", "works"),
        ("medusa", "0.33.0", "refused"),
        ("mlp_speculator", "0.9.2", "works"),
        ("mlp_speculator", "0.32.0", "refused"),
        ("eagle3", "0.8.4", "refused"),
        ("eagle3", "0.8.5", "works"),
        ("mtp", "0.10.2", "needs_setting"),
        ("dflash", "0.19.1", "refused"),
        ("dspark", "0.25.0", "works"),
        ("suffix", "0.11.0", "refused"),
        ("suffix", "0.33.0", "needs_setting"),
        ("ngram", "0.8.0", "works"),
        ("early_exit", "0.33.0", "refused"),
    ],
)
def test_what_vllm_does_by_version(kind, version, does) -> None:
    treatment = of("vllm", version).treats(draft(kind))
    assert treatment.does == does
    assert (treatment.method is None) == (does == "refused")
    verdict = {"works": "compatible", "needs_setting": "needs_setting", "refused": "incompatible"}[does]
    assert finding(of("vllm", version), treatment, draft(kind)).verdict == verdict


@pytest.mark.parametrize("engine", [name for name, one in ENGINES.items() if one.drafts is not None])
@pytest.mark.parametrize("kind", WORDS)
def test_every_engine_has_an_answer_for_every_kind(engine, kind) -> None:
    treatment = of(engine).treats(draft(kind))
    assert treatment.message or treatment.does == "works"
    assert (treatment.does == "unknown") >= (kind == "unknown")
    if kind != "unknown":
        support = ENGINES[engine].drafts
        assert support is not None
        assert any(kind in rule.kinds for rule in support.rules), "no rule covers it"


@pytest.mark.parametrize(
    ("kind", "version", "does"),
    [
        ("p_eagle", "0.15.0", "refused"),
        ("p_eagle", "0.16.0", "needs_setting"),
        ("eagle3_1", "0.17.1", "refused"),
        ("eagle3_1", "0.18.0", "works"),
        ("dflash2", "0.27.1", "refused"),
        ("dflash2", "0.28.0", "works"),
        ("gemma4_assistant", "0.20.2", "refused"),
        ("hydra", "0.33.0", "refused"),
    ],
)
def test_forms_that_came_later(kind, version, does) -> None:
    assert of("vllm", version).treats(draft(kind)).does == does


@pytest.mark.parametrize(
    ("engine", "version", "kind", "does"),
    [
        ("sglang", "0.5.10", "dflash", "refused"),
        ("sglang", "0.5.11", "dflash", "works"),
        ("sglang", "0.5.15", "dspark", "refused"),
        ("sglang", "0.5.16", "dspark", "works"),
        ("sglang", "0.5.2", "ngram", "refused"),
        ("sglang", "0.5.11", "gemma4_assistant", "refused"),
        ("llamacpp", "b8672", "independent", "refused"),
        ("llamacpp", "b11549", "independent", "works"),
        ("llamacpp", "b8672", "dspark", "refused"),
        ("trtllm", "1.2.1", "dflash", "refused"),
        ("trtllm", "1.3.0rc26", "dflash", "works"),
        ("trtllm", "1.4.0rc1", "domino", "unknown"),
        ("trtllm", "0.20.0", "mtp", "unknown"),  # older than the oldest that was read
        ("trtllm", "1.0.0", "mtp", "works"),  # 1.0.0rc5 and 1.2.1 have it
        ("trtllm", "1.3.0rc5", "dflash", "unknown"),  # 1.2.1 has no such type, 1.3.0rc26 has
        ("trtllm", "1.3.0rc5", "mtp", "works"),  # both have
    ],
)
def test_engines_are_judged_by_release(engine, version, kind, does) -> None:
    """The releases are those of each engine's own table."""
    assert of(engine, version).treats(draft(kind)).does == does


@pytest.mark.parametrize(
    ("path", "kind", "version", "verdict", "told"),
    [
        ("org/Qwen3-0.6B", "independent", "0.33", "compatible", ""),
        ("org/eagle-tuned-1B", "independent", "0.33", "needs_setting", "whatever method is named"),
        ("models/EAGLE3-x", "medusa", "0.32", "needs_setting", "whatever method is named"),
        ("org/eagle-x", "eagle", "0.33", "compatible", ""),
        ("org/eagle-x", "eagle3", "0.33", "needs_setting", "always name the method"),
        ("org/my-dflash", "independent", "0.19", "compatible", ""),
        ("org/my-dflash", "independent", "0.20", "needs_setting", "dflash"),
    ],
)
def test_the_path_is_no_evidence_to_us_and_is_to_vllm(path, kind, version, verdict, told) -> None:
    found = path_finding(of("vllm", version), draft(kind), path)
    assert found is not None
    assert found.verdict == verdict
    assert told in found.detail
    assert path_finding(of("sglang"), draft(kind), path) is None


@pytest.mark.parametrize(("engine", "version"), [("vllm", "0.7.3"), ("vllm", "new"), ("embedded", "1.0")])
def test_a_version_that_is_none_is_refused(engine, version) -> None:
    with pytest.raises(UsageError):
        of(engine, version)


@pytest.mark.parametrize(("kind", "does"), [("eagle", "serves it with eagle"), ("recurrent", "refuses it")])
def test_a_release_newer_than_all_known_ones_is_unknown(kind, does) -> None:
    newer = of("vllm", "0.34.0")
    answer = finding(newer, newer.treats(draft(kind)), draft(kind))
    assert (answer.answer, answer.essential) == ("unknown", True)
    assert does in answer.detail
    assert "--engine-version 0.33.0" in str(answer.find_out)


@pytest.mark.parametrize(
    ("engine", "kind", "formats", "verdict"),
    [
        ("vllm", "eagle3", {"safetensors"}, None),
        ("vllm", "mtp", {"gguf"}, "unknown"),
        ("sglang", "independent", {"safetensors", "gguf"}, "unknown"),
        ("llamacpp", "mtp", {"gguf"}, None),
        ("llamacpp", "independent", {"safetensors"}, "needs_setting"),
        ("llamacpp", "eagle3", {"safetensors", "gguf"}, "unknown"),
    ],
)
def test_an_engine_reads_its_own_format_of_files(engine, kind, formats, verdict) -> None:
    answer = files_finding(of(engine), draft(kind), formats)
    assert (answer and answer.verdict) == verdict


def test_a_gpu_is_a_name_or_a_size() -> None:
    assert memory_of("H100-80") == MIB["h100-80"] * 2**20
    assert memory_of("24") == 24 * 2**30
    for wrong in ("h100", "0", "-1", "nan"):
        with pytest.raises(UsageError, match="--gpu"):
            memory_of(wrong)


def judged(
    tmp_path: Path, fields: dict[str, Any], tensors: dict[str, list[int]] | None, **settings: Any
) -> Result:
    """A head without a tokenizer, for a target of width 64."""
    target = made.made(random.Random(1))
    target.write(tmp_path / "target")
    rows = target.config["vocab_size"]
    shape = {
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "vocab_size": rows,
        "max_position_embeddings": 2048,
        "dtype": "bfloat16",
    }
    head = tmp_path / "head"
    head.mkdir()
    (head / "config.json").write_text(json.dumps(shape | fields))
    if tensors is not None:
        made.write_header(head / "model.safetensors", tensors)
    asked = VerifySettings(target=str(tmp_path / "target"), draft=str(head), **settings)
    return verify(asked, None, SilentProgress())


EAGLE = {"architectures": ["EagleLlamaForCausalLM"]}
EAGLE3 = {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 200}
NARROW = EAGLE3 | {"hidden_size": 32, "target_hidden_size": 64}
ROWS = made.made(random.Random(1)).config["vocab_size"]


def eagle(*fuse: int, width: int = 64) -> dict[str, Any]:
    return {"fc.weight": fuse, "embed_tokens.weight": (ROWS, width), "layers.0.mlp.up_proj.weight": (8, 8)}


def eagle3(*fuse: int, width: int = 64, **more: Any) -> dict[str, Any]:
    own = {"embed_tokens.weight": (ROWS, width)} if width != 64 else {}
    return made.eagle3(200, width) | ({"fc.weight": fuse} if fuse else {}) | own | more


D2T = {"d2t": ("I64", (200,))}


@pytest.mark.parametrize(
    ("fields", "tensors", "verdict", "checks"),
    [
        (EAGLE, eagle(64, 128), "compatible", []),
        (EAGLE, None, "unknown", ["kind", "features", "output head"]),
        (EAGLE | {"hidden_size": 32}, eagle(32, 64, width=32), "incompatible", ["features"]),
        (EAGLE, eagle(64, 96), "incompatible", ["features"]),
        (EAGLE | {"vocab_size": 100}, eagle(64, 128), "incompatible", ["rows"]),
        (EAGLE3, eagle3(64, 192) | D2T, "compatible", []),
        (EAGLE3, eagle3() | {"model.d2t": ("I64", (200,))}, "unknown", ["features"]),
        (EAGLE3, eagle3(64, 192), "incompatible", ["reduced vocabulary"]),
        (EAGLE3, eagle3(64, 192, d2t=("I64", (100,))), "incompatible", ["reduced vocabulary"]),
        (EAGLE3, eagle3(64, 200) | D2T, "incompatible", ["features"]),
        (NARROW | {"draft_vocab_size": ROWS}, made.eagle3(ROWS, 32) | {"fc.weight": (32, 192)},
         "incompatible", ["embedding"]),
        ({"architectures": ["LlamaForCausalLM"]}, eagle(64, 128), "compatible", []),
        ({"speculators_config": {}, "speculators_model_type": "eagle3"}, eagle3(64, 192), "incompatible",
         ["format"]),
        ({"model_type": "medusa", "num_heads": 3}, {"0.0.linear.weight": [64, 64]}, "incompatible",
         ["engine"]),
    ],
)  # fmt: skip
def test_a_heads_shapes_are_held_against_the_target(tmp_path, fields, tensors, verdict, checks) -> None:
    result = judged(tmp_path, fields, tensors, gpu="1")
    assert result.summary["verdict"] == verdict, result.reason
    telling = [
        found["check"]
        for found in result.data["findings"]
        if found["verdict"] == (verdict if verdict != "compatible" else "incompatible") and found["essential"]
    ]
    assert telling == checks
    assert result.data["encodings"] is None
    assert set(result.summary["unknown"]) >= {"chat template"}


def test_the_embedded_engine_takes_a_head_with_its_embedding(tmp_path: Path) -> None:
    rows = made.made(random.Random(1)).config["vocab_size"]
    whole = {"fc.weight": [64, 128], "embed_tokens.weight": [rows, 64]}
    for number, (tensors, verdict) in enumerate(
        [
            (whole, "yes"),
            ({"fc.weight": [64, 128]}, "undecided"),  # no embedding: another kind, perhaps
            (whole | {"embed_tokens.weight": [rows + 1, 64]}, "no"),
        ]
    ):
        (place := tmp_path / str(number)).mkdir()
        assert judged(place, EAGLE, tensors, engine="embedded").verdict == verdict


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("medusa_head.0.0.linear.weight", "yes"),
        ("0.0.linear.weight", "yes"),  # the authors' separate files of heads
        ("1.0.linear.weight", "no"),
    ],
)
def test_the_embedded_engine_takes_medusa_heads_by_either_name(
    name: str, verdict: str, tmp_path: Path
) -> None:
    fields = {"model_type": "medusa", "medusa_num_heads": 1, "hidden_size": 64}
    result = judged(tmp_path, fields, {name: [64, 64]}, engine="embedded")
    assert result.verdict == verdict, result.reason


def test_blocks_lost_are_the_drafts_weights_and_its_share_of_every_block(tmp_path: Path) -> None:
    head = judged(tmp_path, EAGLE, eagle(64, 128), gpu="1", tensor_parallel=2)
    memory = head.data["memory"]
    config = made.made(random.Random(1)).config
    target = 2 * sum(math.prod(shape) for shape in made.model_tensors(config, 64).values())
    draft_ = 2 * sum(math.prod(shape) for shape in eagle(64, 128).values())
    assert (memory["target"]["weights_bytes"], memory["draft"]["weights_bytes"]) == (target, draft_)
    # 4 heads of 16 on two GPUs, keys and values, two bytes; two layers of the target, one of the head
    assert (memory["target"]["kv_bytes_per_token"], memory["draft"]["kv_bytes_per_token"]) == (256, 128)
    room = 2**30 * 0.92
    assert memory["blocks"]["without_draft"] == int((room - target / 2) // (256 * 16))
    assert memory["blocks"]["with_draft"] == int((room - (target + draft_) / 2) // (384 * 16))
    assert (
        head.summary["kv_blocks_lost"] == memory["blocks"]["without_draft"] - memory["blocks"]["with_draft"]
    )


def test_without_safetensors_memory_says_why_there_are_no_blocks(tmp_path: Path) -> None:
    memory = judged(tmp_path, EAGLE, None, gpu="h100-80").data["memory"]
    assert memory["blocks"] is None
    assert "no weights in safetensors" in memory["blocks_missing"]


def test_a_model_without_a_tokenizer_is_told(tmp_path: Path) -> None:
    fields = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4}
    with pytest.raises(ModelError, match="has no tokenizer"):
        judged(tmp_path, fields, made.model_tensors({"vocab_size": ROWS} | fields, 4))


def test_the_guide_knows_families_and_gives_every_figure_a_source() -> None:
    guide = advise("Qwen/Qwen2.5-72B-Instruct", "vllm", "0.33")
    assert guide.family == "Qwen 2.5"
    assert [advice.draft for advice in guide.drafts] == ["Qwen 2.5 1.5B", "Qwen 2.5 7B"]
    assert all(advice.source for advice in guide.drafts)
    assert all(kind.source for kind in guide.kinds if kind.accepted)
    served = {kind.kind: kind.serving for kind in guide.kinds}
    assert served["Medusa heads"].startswith("no: 0.33 removed Medusa")
    assert served["independent model"] == "draft_model"
    assert advise("meta-llama/Llama-3.1-70B-Instruct", "vllm", None).family == "Llama 3.1"
    public = advise("meta-llama/Llama-3.1-8B-Instruct", "vllm", None)
    assert public.drafts[0].draft == "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3"
    assert not any("trained" in advice.why for advice in public.drafts)
    of_sibling = advise("meta-llama/Llama-3.1-70B-Instruct", "vllm", None)
    heads = {advice.draft: advice.why for advice in of_sibling.drafts if "public" in advice.why}
    assert "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B" in heads
    assert all("of a sibling" in why for why in heads.values())
    assert not any("search the hub" in note for note in of_sibling.notes)
    assert "of a sibling" not in advise("meta-llama/Llama-3.3-70B-Instruct", "vllm", None).drafts[0].why
    assert not any("public" in head.why for head in advise("Qwen/Qwen2.5-7B-Instruct", "vllm", None).drafts)
    assert any("search the hub" in note for note in advise("org/nobodys-model", "vllm", None).notes)
    assert advise("./mine", "sglang", None).family is None


def test_a_kind_with_a_public_head_needs_no_training() -> None:
    for head in PUBLIC:
        target = head.head.rpartition("/")[2]
        training = {kind.kind: kind.training for kind in advise(target, "vllm", None).kinds}
        if head.target.search(target):
            assert training[WORDS[head.kind]] == "none: a public head is above", head.head
    unknown = {kind.kind: kind.training for kind in advise("org/nobodys-model", "vllm", None).kinds}
    assert unknown["EAGLE-3 head"] == "needed, or a public head"


def test_the_pages_name_heads_of_the_guide() -> None:
    """A head that does not exist stops the reader at the first command."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "playbooks").glob("*.yaml")]
    named = {name for page in pages for name in re.findall(r"\byuhuili/[\w.-]+\w", page.read_text())}
    assert named
    assert named <= {head.head for head in PUBLIC}


@pytest.mark.parametrize(("gpus", "verdict"), [(1, "compatible"), (2, "compatible"), (8, "incompatible")])
def test_vllm_divides_a_draft_model_as_the_target(tmp_path: Path, gpus, verdict) -> None:
    target, draft_ = made.pair(0, made.alike)
    draft_.config["num_attention_heads"] = 4
    folders = target.write(tmp_path / "target"), draft_.write(tmp_path / "draft")
    asked = VerifySettings(target=str(folders[0]), draft=str(folders[1]), tensor_parallel=gpus)
    assert verify(asked, None, SilentProgress()).summary["verdict"] == verdict

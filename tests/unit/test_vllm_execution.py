"""Runner, async scheduling and CUDA graphs: what specops says, against what vLLM's own functions decided.

vllm_execution_rows.json has each method with each flag, for each release: tools/vllm_execution.py took the
functions out of the released sources and ran them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from vllm_words import found, serve

from specops.config import load
from specops.phases.launch import render
from specops.progress import SilentProgress
from specops.serving.vllm.arguments import ParsedCommand
from specops.serving.vllm.execution import PIN, ModelFacts, execution
from specops.serving.vllm.versions import Version, table

ROWS = json.loads(Path(__file__).with_name("vllm_execution_rows.json").read_text(encoding="utf-8"))
FLAGS = {
    "pipeline": ["--pipeline-parallel-size", "2"],
    "dual_batch_overlap": ["--enable-dbo"],
    "prefill_context_parallel": ["--prefill-context-parallel-size", "2"],
    "elastic_expert_parallel": ["--enable-elastic-ep"],
    "logits_processors": ["--logits-processors", "made.up"],
    "prompt_embeds": ["--enable-prompt-embeds"],
    "routed_experts": ["--enable-return-routed-experts"],
    "raw_logits": ["--logprobs-mode", "raw_logits"],
    "kv_sharing_fast_prefill": ["--kv-sharing-fast-prefill"],
}
KEYS = {
    "parallel_drafting": {"parallel_drafting": True},
    "use_heterogeneous_vocab": {"use_heterogeneous_vocab": True},
    "disable_padded_drafter_batch": {"disable_padded_drafter_batch": True},
    "schedule": {"num_speculative_tokens_per_batch_size": [[1, 8, 3]]},
}
OF_MODEL = ("mixture_of_experts", "hybrid", "quantized")
PINS: list[list[str]] = [[], [f"{PIN}=0"], [f"{PIN}=1"], []]


def rows() -> Iterator[tuple[Version, str, str, list[str]]]:
    for versions, methods in ROWS.items():
        for method, lines in methods.items():
            for line in lines:
                flag, *cells = line.split()
                # The first and the last of releases that decide alike.
                for version in {versions.split(", ")[0], versions.split(", ")[-1]}:
                    yield Version.parse(version), method, flag, cells


def said(version: Version, method: str, flag: str, pin: list[str], listed: str | None, asked: bool) -> str:
    words = ["vllm", "serve", "m", *FLAGS.get(flag, []), *(["--async-scheduling"] if asked else [])]
    if method:
        keys = {"method": method, "num_speculative_tokens": 3} | KEYS.get(flag, {})
        words += ["--speculative-config", json.dumps(keys)]
    features = frozenset({flag} & set(OF_MODEL))
    model = ModelFacts((listed or "MadeUpForCausalLM",), features)
    found = execution(ParsedCommand.parse([*pin, *words]), table().release(version), model)
    runner = {"V1": "1", "V2": "2", "refused": "x"}[str(found.runner.value)]
    letter = {"on": "+", "off": "-", "refused": "x"}.get(str(found.asynchronous.value), "?")
    return runner + letter + str(found.graphs.value)[0]


def listed_in(version: Version) -> str | None:
    known = json.loads(
        (Path(execution.__code__.co_filename).with_name("execution.json")).read_text(encoding="utf-8")
    )["V2 by default"]
    for name in sorted(known):
        first, last = (Version.parse(end) for end in known[name].split("-"))
        if name != "any" and first <= version <= last:
            return name
    return None


@pytest.mark.quick(1)
@pytest.mark.parametrize("asked", [False, True], ids=["", "async asked for"])
def test_every_method_with_every_flag_is_decided_as_vllm_does(asked) -> None:
    wrong, count = [], 0
    for version, method, flag, cells in rows():
        pins = PINS if PIN in table().release(version).variables else PINS[:1]
        for number, (pin, cell) in enumerate(zip(pins, cells, strict=False)):
            count += 1
            listed = listed_in(version) if number == 3 else None
            # runner, async by default, async asked for, graphs. A runner that refuses decides nothing else.
            wanted = cell[0] + (cell[2] if asked else cell[1]) + cell[3]
            got = said(version, method, flag, pin, listed, asked)
            if got[: 1 if wanted[0] == "x" else 3] != wanted[: 1 if wanted[0] == "x" else 3]:
                wrong.append(f"{version} {method or 'none'} {flag} {pin} {listed}: {got}, vLLM {wanted}")
    assert count > 10_000
    assert not wrong, f"{len(wrong)} of {count}\n" + "\n".join(wrong[:20])


ROLLOUT = """\
rollout: made
pools:
  standard: &vllm {engine: vllm, model: org/m, version: 0.33.0%s}
  speculative:
    <<: *vllm
    speculation: {method: suffix}
"""


def test_a_runner_that_another_option_decides_is_no_difference_between_the_pools() -> None:
    """V2 has neither suffix decoding nor this option, so that the pool without speculation is on V1 too."""
    assert "--speculative-config" in found(serve(method="suffix"), "0.33.0")
    assert "--speculative-config" not in found(serve("--enable-dbo", method="suffix"), "0.33.0")


@pytest.mark.parametrize(("pin", "differ"), [("", True), (f', environment: {{{PIN}: "0"}}', False)])
def test_rendering_names_what_differs_between_the_pools_and_the_pin(pin, differ, tmp_path) -> None:
    file = tmp_path / "made.yaml"
    file.write_text(ROLLOUT % pin)
    data = render(load(file), tmp_path / "out", SilentProgress()).data
    chosen = {
        name: {one["name"]: one["value"] for one in pool["conditions"]}
        for name, pool in data["pools"].items()
    }
    assert chosen["speculative"]["model runner"] == "V1"
    assert chosen["standard"]["model runner"] == ("V2" if differ else "V1")
    findings = {found["flag"]: found for found in data["pools"]["speculative"]["findings"]}
    assert ("model runner" in findings) == differ
    if differ:
        assert PIN in findings["model runner"]["replacement"]
    # Suffix decoding is without async scheduling on V1, pinned or not.
    assert findings["async scheduling"]["replacement"] == "arguments: [--no-async-scheduling] in both pools"

"""From a rollout file to settings and loads: each engine's word for K, trees, drafts, classes of length."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specops.assets import asset
from specops.config import Rollout
from specops.errors import ConfigError, UsageError
from specops.load.workload import Prompt
from specops.phases.sweep import spec
from specops.phases.sweep.plan import ANY_LENGTH, Load
from specops.phases.sweep.spec import lengths_of
from specops.serving.embedded import EmbeddedPool
from specops.serving.endpoint import EndpointPool

EMBEDDED = {"engine": "embedded"}
VLLM = {"engine": "vllm", "model": "target"}
COMMAND = {"engine": "command", "command": "serve --port {port}"}
ENDPOINT = EndpointPool(engine="endpoint", base_url="http://127.0.0.1:9/v1", model="m")


def rollout(standard: dict[str, Any], speculative: dict[str, Any], **sections: Any) -> Rollout:
    pools = {"standard": standard, "speculative": speculative}
    return Rollout.model_validate({"rollout": "r", "pools": pools} | sections)


def test_k_is_a_chain_on_the_embedded_engine_and_the_standard_comes_first() -> None:
    pool = EMBEDDED | {"speculation": {"tree": "chain:3"}, "threads": 1}
    found = spec.swept_settings(rollout(EMBEDDED | {"threads": 1}, pool, sweep={"k": [0, 5, 3, 3]}), Path())
    assert [(one.name, one.k, one.tree) for one in found] == [
        ("standard", 0, None),
        ("k=3", 3, "chain:3"),
        ("k=5", 5, "chain:5"),
    ]
    assert [one.pool.threads for one in found if isinstance(one.pool, EmbeddedPool)] == [1, 1, 1]
    assert found[0].pool == EmbeddedPool(engine="embedded", threads=1)


def test_k_is_an_n_gram_where_the_pool_drafts_by_them() -> None:
    pool = EMBEDDED | {"speculation": {"tree": "ngram:8"}}
    found = spec.swept_settings(rollout(EMBEDDED, pool, sweep={"k": [4]}), Path())
    assert [(one.k, one.tree) for one in found[1:]] == [(4, "ngram:4")]


def test_trees_are_tried_with_every_draft_that_they_need(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "tiny").mkdir()
    pool = EMBEDDED | {"speculation": {"tree": "chain:3", "verifier": "naive"}}
    sweep = {
        "trees": ["chain:2", "expand:3,1", "ngram:8", "dynamic:16:6"],
        "drafts": {"a": "small", "b": "tiny"},
    }
    found = spec.swept_settings(rollout(EMBEDDED, pool, sweep=sweep), tmp_path)[1:]
    assert [(one.name, one.k, one.draft) for one in found] == [
        ("a chain:2", 2, "a"),
        ("b chain:2", 2, "b"),
        ("a expand:3,1", 2, "a"),
        ("b expand:3,1", 2, "b"),
        ("ngram:8", 8, None),
        ("a dynamic:16:6", 6, "a"),
        ("b dynamic:16:6", 6, "b"),
    ]
    speculations = [one.pool.speculation for one in found if isinstance(one.pool, EmbeddedPool)]
    assert [one.draft for one in speculations if one][:2] == [tmp_path / "small", tmp_path / "tiny"]
    verifiers = [one.verifier for one in speculations if one]
    assert verifiers == ["naive", "naive", None, None, None, None, None]


def test_k_of_vllm_takes_the_place_of_a_schedule() -> None:
    speculation = {
        "method": "draft_model",
        "model": "small",
        "num_speculative_tokens": 8,
        "num_speculative_tokens_per_batch_size": [[1, 4, 8], [5, 64, 2]],
    }
    asked = rollout(VLLM, VLLM | {"speculation": speculation}, sweep={"k": [2], "drafts": {"b": "other"}})
    (_, found) = spec.swept_settings(asked, Path())
    assert found.name == "b k=2"
    assert found.pool.model_dump(exclude_none=True)["speculation"] == {
        "method": "draft_model",
        "model": "other",
        "num_speculative_tokens": 2,
        "more": {},
    }


def test_k_of_sglang_is_its_steps() -> None:
    pool = {"engine": "sglang", "model_path": "target"}
    speculation = {"algorithm": "EAGLE", "num_steps": 3, "num_draft_tokens": 4}
    found = spec.swept_settings(rollout(pool, pool | {"speculation": speculation}, sweep={"k": [6]}), Path())
    told = found[1].pool.model_dump()["speculation"]
    assert (told["num_steps"], told["num_draft_tokens"]) == (6, None)


def test_k_is_written_into_a_command_of_the_users_own() -> None:
    words = {"engine": "command", "command": "serve --port {port} --spec '{\"n\": {k}}'"}
    found = spec.swept_settings(rollout(COMMAND, words, sweep={"k": [2, 4]}), Path())
    assert [one.pool.model_dump()["command"] for one in found] == [
        "serve --port {port}",
        "serve --port {port} --spec '{\"n\": 2}'",
        "serve --port {port} --spec '{\"n\": 4}'",
    ]


@pytest.mark.parametrize(
    ("pool", "sweep", "what"),
    [
        (COMMAND, {}, "does not say {k}"),
        (COMMAND | {"command": "s {port} {k}"}, {"drafts": {"a": "b"}}, "cannot put drafts"),
        (COMMAND | {"command": "s {port} {k}"}, {"trees": ["chain:3"]}, "trees are the embedded engine's"),
        (EMBEDDED | {"speculation": {}}, {"k": [0]}, "nothing but K = 0"),
        (EMBEDDED | {"speculation": {}}, {"drafts": {"a": "nowhere"}}, "there is no folder .*nowhere"),
        (ENDPOINT.model_dump(), {}, "an endpoint that runs already"),
    ],
)
def test_what_cannot_be_swept_is_said_before_anything_runs(pool, sweep, what) -> None:
    standard = EMBEDDED if pool["engine"] == "embedded" else COMMAND
    with pytest.raises(ConfigError, match=what) as caught:
        spec.swept_settings(rollout(standard, pool, sweep=sweep), Path())
    assert caught.value.hint


def test_endpoints_that_run_already_are_given_by_their_k() -> None:
    found = spec.attached({5: ENDPOINT, 0: ENDPOINT, 3: ENDPOINT})
    assert [(one.name, one.k) for one in found] == [("standard", 0), ("k=3", 3), ("k=5", 5)]
    for endpoints in ({0: ENDPOINT}, {3: ENDPOINT, 5: ENDPOINT}):
        with pytest.raises(UsageError, match="one that does not"):
            spec.attached(endpoints)


def test_loads_are_every_combination_and_fall_back_to_what_is_measured() -> None:
    asked = rollout(EMBEDDED, EMBEDDED | {"speculation": {}}, measure={"concurrency": [4, 1]})
    assert spec.loads_of(asked, [ANY_LENGTH]) == [Load(1, 0.0, ANY_LENGTH), Load(4, 0.0, ANY_LENGTH)]
    sweep = {"concurrency": [2], "temperature": [0.7, 0.0]}
    asked = rollout(EMBEDDED, EMBEDDED | {"speculation": {}}, sweep=sweep)
    assert [str(load) for load in spec.loads_of(asked, ["under 9 tokens", ANY_LENGTH])] == [
        "2 streams, prompts of under 9 tokens",
        "2 streams, temperature 0.7, prompts of under 9 tokens",
        "2 streams",
        "2 streams, temperature 0.7",
    ]


def test_lengths_are_counted_by_the_targets_own_tokenizer() -> None:
    texts = {"a": "the", "b": "the server measures what it serves " * 8, "c": "the server " * 3}
    prompts = [Prompt(name, "all", text) for name, text in texts.items()]
    prompts += [
        Prompt("ids", "all", tuple(range(30))),
        Prompt("chat", "all", ({"role": "user", "content": "the"},)),
    ]
    found = lengths_of(prompts, [4, 25], None, EmbeddedPool(engine="embedded"))
    assert found.counted_by == f"the tokenizer {asset('playbooks', 'embedded', 'target')}"
    names = {name: [prompt.id for prompt in of] for name, of in found.classes.items()}
    assert names == {
        "under 4 tokens": ["a", "chat"],
        "4 to 24 tokens": ["c"],
        "25 tokens and more": ["b", "ids"],
    }


def test_lengths_without_a_tokenizer_are_guessed_and_a_class_without_prompts_is_left_out() -> None:
    prompts = [
        Prompt("a", "all", "x" * 9),
        Prompt("b", "all", ({"role": "user", "content": [{"text": "y"}]},)),
    ]
    found = lengths_of(prompts, [3, 50, 60], None, ENDPOINT)
    assert "guessed" in found.counted_by
    assert list(found.classes) == ["3 to 49 tokens"]
    assert len(json.dumps([{"text": "y"}])) > 8  # the other one is so long


def test_one_class_of_length_needs_no_counting() -> None:
    prompts = [Prompt("a", "all", "text")]
    assert list(lengths_of(prompts, [], None, ENDPOINT).classes) == [ANY_LENGTH]

"""Arms as they are written on the command line: what each form means, and what is wrong in one sentence."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.errors import Exit, UsageError
from specops.experiment.arms import parse_arm, parse_arms
from specops.serving.command import CommandPool
from specops.serving.embedded import EmbeddedPool, Speculation, arguments
from specops.serving.endpoint import EndpointPool


def embedded(**settings: object) -> EmbeddedPool:
    return EmbeddedPool.model_validate({"engine": "embedded"} | settings)


@pytest.mark.parametrize(
    ("spec", "pool"),
    [
        (
            "http://127.0.0.1:8000/v1/#org/model",
            EndpointPool(engine="endpoint", base_url="http://127.0.0.1:8000/v1", model="org/model"),
        ),
        ("embedded", embedded(speculation={})),
        ("embedded:none", embedded()),
        ("embedded:none,threads=1,max_batch=4", embedded(threads=1, max_batch=4)),
        ("embedded:ngram:8", embedded(speculation={"tree": "ngram:8"})),
        (
            "embedded:expand:3,1,1,verifier=mss,max_length=99",
            embedded(speculation={"tree": "expand:3,1,1", "verifier": "mss"}, max_length=99),
        ),
        ("embedded:threads=2", embedded(speculation={}, threads=2)),
        (
            "embedded:none,device=cuda:1,dtype=bfloat16,attention=kernel,graphs=no",
            embedded(device="cuda:1", dtype="bfloat16", attention="kernel", graphs=False),
        ),
        (
            "command:vllm serve m --port={port} --seed 1",
            CommandPool(engine="command", command="vllm serve m --port={port} --seed 1"),
        ),
    ],
)
def test_what_each_form_means(spec, pool) -> None:
    arm = parse_arm(f"new.1={spec}")
    assert (arm.name, arm.pool) == ("new.1", pool)


def test_where_an_arm_runs_is_said_to_its_server_where_it_is_not_as_ever() -> None:
    plain, other = (
        parse_arm(f"a=embedded:none{said}").pool for said in ("", ",device=cuda,attention=kernel,graphs=no")
    )
    assert isinstance(plain, EmbeddedPool)
    assert isinstance(other, EmbeddedPool)
    added = ["--device", "cuda", "--attention", "kernel", "--no-graphs"]
    assert arguments(other, "m", port=1) == [*arguments(plain, "m", port=1), *added]


def test_models_are_folders(tmp_path: Path) -> None:
    arm = parse_arm(f"own=embedded:chain:2,target={tmp_path},draft={tmp_path}")
    assert arm.pool == embedded(
        target=tmp_path, speculation=Speculation(draft=tmp_path, tree="chain:2").model_dump()
    )


def test_the_model_of_an_endpoint_may_be_its_own_to_say() -> None:
    arm = parse_arm("a=https://host:1/v1")
    assert isinstance(arm.pool, EndpointPool)
    assert (arm.pool.base_url, arm.pool.model) == ("https://host:1/v1", "")


def test_each_arm_has_its_own_key(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    arm = parse_arm(f"a=https://host:1/v1#m,api_key_env=A_KEY,ca_file={tmp_path / 'ca.pem'}")
    assert isinstance(arm.pool, EndpointPool)
    assert (arm.pool.base_url, arm.pool.model, arm.pool.api_key_env) == ("https://host:1/v1", "m", "A_KEY")
    assert arm.pool.ca_file == tmp_path / "ca.pem"
    plain = parse_arm("b=http://host:1/v1,api_key_env=B_KEY")
    assert isinstance(plain.pool, EndpointPool)
    assert (plain.pool.model, plain.pool.api_key_env) == ("", "B_KEY")


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("a=http://h/v1,api_key_env=sk-12", "it is not the name of an environment variable", "a=http://"),
        ("a=https://h/v1,ca_file=/nowhere.pem", "does not exist", "a=http"),
        ("a=http://h/v1,ca_file=/nowhere.pem", "certificates have no effect", "a=http://"),
        ("embedded", "expected NAME=SPEC", "NAME=embedded:ngram:8"),
        ("=embedded", "expected NAME=SPEC", "NAME=embedded:ngram:8"),
        ("a b=embedded", "expected NAME=SPEC", "NAME="),
        ("../a=embedded", "expected NAME=SPEC", "NAME="),
        (
            "a=vllm",
            "'vllm' is not a pool that can be served or measured: expected http://",
            "a=embedded:ngram:8",
        ),
        ("a=http://", "http:// is not a usable address: it must be", "a=http://127.0.0.1"),
        ("a=http://me:secret@h/v1", "must not hold credentials", "a=http://127.0.0.1"),
        ("a=embedded:chain", "invalid tree 'chain': expected chain:3", "a=embedded:ngram:8"),
        ("a=embedded:chain:3,thread=1", "no setting 'thread': did you mean threads?", "a=embedded:ngram:8"),
        (
            "a=embedded:chain:3,threads=one",
            "threads is 'one', and should be a whole number",
            "a=embedded:ngram:8",
        ),
        ("a=embedded:chain:3,threads=0", "threads is 0, and should be greater", "a="),
        ("a=embedded:chain:3,verifier=best", "invalid verifier 'best': expected one of naive,", "a="),
        ("a=embedded:none,device=gpu", "device is 'gpu', and should be text that matches", "a="),
        ("a=embedded:chain:3,target=/nowhere", "/nowhere does not exist", "a="),
        ("a=embedded:none,draft=x", "embedded:none does not speculate", "a=embedded:ngram:8"),
        ("a=command:vllm serve m", "the command does not say {port}", "--port {port}"),
        ("a=command:{port}", "the command does not say {port}", "--port {port}"),
        (
            "a=command:vllm 'serve --port {port}",
            "invalid command line: no closing quotation; check the quotes",
            "a=command:",
        ),
        ("a=command:vllm --port {port} --api-key sk", "VLLM_API_KEY", "a=command:"),
        ("a=command:vllm --port {port} --api-key=sk", "leave the key to the environment", "a=command:"),
    ],
)
def test_what_is_wrong_is_a_sentence_and_a_hint(text, says, hint, monkeypatch) -> None:
    """The hint is the typed command with a right arm in the place of the wrong one."""
    monkeypatch.setattr(sys, "argv", ["specops", "ab", "--arm", text])
    with pytest.raises(UsageError) as caught:
        parse_arm(text)
    assert says in caught.value.message
    assert "\n" not in caught.value.message
    assert str(caught.value.hint).startswith("specops ab --arm ")
    assert hint in str(caught.value.hint)
    assert caught.value.exit_code == Exit.USAGE


def test_arms_are_two_or_more_with_names_of_their_own() -> None:
    assert [arm.name for arm in parse_arms(["b=embedded:none", "a=embedded"])] == ["b", "a"]
    with pytest.raises(UsageError, match="two arms are called a"):
        parse_arms(["a=embedded:none", "b=embedded", "a=embedded"])
    with pytest.raises(UsageError, match="a comparison needs two arms, not 1"):
        parse_arms(["a=embedded"])


@given(st.text(max_size=40), st.text(max_size=40))
def test_whatever_is_written_is_an_arm_or_wrong_usage(name, spec) -> None:
    for text in (name, f"a={spec}", f"a=embedded:{spec}", f"a=command:{spec}", f"a=http://{spec}"):
        with suppress(UsageError):
            assert text.startswith(parse_arm(text).name)

"""llama.cpp: settings -> words of a build, held against the flags of its sources."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from specops.errors import ConfigError
from specops.serving import ENGINES
from specops.serving.engine import Grid
from specops.serving.llamacpp import wheel
from specops.serving.llamacpp.builds import parse, table
from specops.serving.llamacpp.lint import lint
from specops.serving.llamacpp.pool import LlamacppPool
from specops.serving.llamacpp.settings import SpecType, command

NEWEST = table().build(table().newest)
TYPES = get_args(SpecType)


def pool(speculation: dict[str, Any] | None = None, **settings: Any) -> LlamacppPool:
    return LlamacppPool.model_validate(
        {"engine": "llamacpp", "model": "target.gguf", "speculation": speculation, **settings}
    )


def drafting(type_: str, **settings: Any) -> LlamacppPool:
    draft = {"model": "draft.gguf"} if type_.startswith("draft-") else {}
    return pool({"type": type_} | draft | settings)


def value(words: list[str], flag: str) -> str | None:
    return words[words.index(flag) + 1] if flag in words else None


EVERYTHING: dict[str, Any] = {
    "alias": "m",
    "parallel": 8,
    "ctx_size": 4096,
    "threads": 2,
    "threads_batch": 4,
    "batch_size": 512,
    "ubatch_size": 256,
    "n_gpu_layers": "all",
    "flash_attn": "on",
    "cache_type_k": "q8_0",
    "cache_type_v": "q8_0",
}


@pytest.mark.parametrize("build", table().builds)
def test_every_setting_is_one_flag_with_its_value_in_every_build(build) -> None:
    known = table().build(build)
    words = command(pool(**EVERYTHING, cache_prompt=False), port=80, build=known)
    for name, setting in EVERYTHING.items():
        assert words.count("--" + name.replace("_", "-")) == 1
        assert value(words, "--" + name.replace("_", "-")) == str(setting)
    assert "--no-cache-prompt" in words
    assert [found for found in lint(words, known) if found.level != "note"] == []


def test_all_settings_are_tried_above() -> None:
    others = {"engine", "model", "version", "program", "arguments", "environment", "speculation"}
    others |= {"start_timeout_s", "gpu_count", "cache_prompt"}
    assert set(LlamacppPool.model_fields) == set(EVERYTHING) | others


@pytest.mark.parametrize("build", table().builds)
@pytest.mark.parametrize("type_", TYPES)
def test_every_type_is_written_as_each_build_has_it(type_, build) -> None:
    known = table().build(build)
    served = drafting(type_, n_max=4)
    if type_ not in known.types and type_ != "draft-simple":
        with pytest.raises(ConfigError, match=f"b{build} has no --spec-type {type_}"):
            command(served, port=80, build=known)
        return
    words = command(served, port=80, build=known)
    assert [found for found in lint(words, known) if found.level != "note"] == []
    if type_ != "ngram-cache":
        assert words[-1] == "4", "K is the last thing that is said"


@pytest.mark.parametrize(
    ("type_", "new", "old"),
    [
        ("draft-simple", "--spec-draft-n-max", "--draft-max"),
        ("ngram-simple", "--spec-ngram-simple-size-m", "--spec-ngram-size-m"),
        ("ngram-mod", "--spec-ngram-mod-n-max", "--draft-max"),
    ],
)
def test_k_is_what_the_build_calls_it(type_, new, old) -> None:
    assert value(command(drafting(type_, n_max=7), port=1, build=NEWEST), new) == "7"
    assert value(command(drafting(type_, n_max=7), port=1, build=table().build(8929)), old) == "7"


def test_a_setting_that_the_build_lacks_is_refused_with_the_builds_that_have_it() -> None:
    served = drafting("draft-simple", sampling="probabilistic")
    with pytest.raises(
        ConfigError, match=r"b11063 has no --spec-draft-sampling: b11549 and newer have it"
    ) as refused:
        command(served, port=1, build=table().build(11063))
    assert "name a build that has it" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("speculation", "message"),
    [
        ({"type": "draft-simple"}, "draft-simple has no draft"),
        ({"type": "ngram-mod", "model": "d.gguf"}, "drafts from the text itself"),
        ({"type": "draft-simple", "model": "d.gguf", "size_n": 3}, "size_n is of n-grams"),
        ({"type": "ngram-simple", "p_min": 0.5}, "p_min and sampling are of draft"),
        ({"type": "draft"}, "draft-simple"),
        ({"type": "draft-simple", "model": "d.gguf", "draft_max": 3}, "draft_max"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(speculation, message) -> None:
    with pytest.raises(ValidationError, match=message):
        pool(speculation)


def test_a_hub_id_and_a_file_are_told_apart() -> None:
    words = command(pool(), port=1, build=NEWEST)
    assert value(words, "--model") == "target.gguf"
    words = command(pool(model="ggml-org/Qwen3-0.6B-GGUF:Q8_0"), port=1, build=NEWEST)
    assert value(words, "--hf-repo") == "ggml-org/Qwen3-0.6B-GGUF:Q8_0"


def test_a_file_beside_the_rollout_file_is_found_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "t.gguf").touch()
    fields = {"engine": "llamacpp", "model": "t.gguf"}
    made = LlamacppPool.model_validate(fields, context={"folder": tmp_path})
    assert made.model == str(tmp_path / "t.gguf")
    gone = LlamacppPool.model_validate(fields | {"model": "x.gguf"}, context={"folder": tmp_path})
    assert gone.model == "x.gguf", "it may be the server's machine that has it"


def test_the_sweep_varies_k_and_the_draft() -> None:
    grid = Grid(ks=[2, 4], trees=None, drafts={"a": "a.gguf", "b": "b.gguf"}, folder=Path())
    found: Any = drafting("draft-simple").variants(grid)
    chosen = [(one.name, one.draft, one.pool.speculation) for one in found]
    assert [(name, draft, spec.n_max, spec.model) for name, draft, spec in chosen] == [
        ("k=2", "a", 2, "a.gguf"),
        ("k=4", "a", 4, "a.gguf"),
        ("k=2", "b", 2, "b.gguf"),
        ("k=4", "b", 4, "b.gguf"),
    ]
    with pytest.raises(ConfigError, match="ngram-cache has no setting"):
        drafting("ngram-cache").variants(grid)
    assert drafting("ngram-cache").fixed_k
    assert drafting("ngram-simple").fixed_k is None


def test_its_container_names_the_build() -> None:
    found = pool(version="b10068", gpu_count=2).container(8000, "m", None, 30)
    assert found.image == "ghcr.io/ggml-org/llama.cpp:server-cuda-b10068"
    assert found.words[:3] == ["/app/llama-server", "--model", "target.gguf"]
    assert value(found.words, "--host") == "0.0.0.0"
    assert (found.gpus, found.downloads, found.drains) == (2, False, False)
    assert pool().container(8000, "m", "11063", 30).image == "ghcr.io/ggml-org/llama.cpp:server-b11063"


@pytest.mark.parametrize(("text", "build"), [("b11549", 11549), ("9093", 9093), ("2026.4.8672.1", 8672)])
def test_a_build_is_read(text, build) -> None:
    assert parse(text) == build


@pytest.mark.parametrize("text", ["", "0.3.16", "newest", "b"])
def test_what_is_no_build_is_refused(text) -> None:
    with pytest.raises(ConfigError, match="invalid build"):
        parse(text)


def test_the_build_is_the_programs_own(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\necho 'version: 9300 (0123abc)' >&2\n")
    program.chmod(0o755)
    rendering = pool(program=str(program)).rendering(80, "m")
    assert rendering.version == "b9300"
    (note,) = rendering.notes
    assert note.why == "llama.cpp b9300 is not in the table; the flags were checked for b9294"
    survey = ENGINES["llamacpp"].survey
    assert survey is not None
    assert survey(str(program)).status == "ok"
    assert survey(str(program)).description.startswith(
        "b9300; drafts by draft-eagle3, draft-mtp, draft-simple"
    )
    assert survey("no-such/llama-server").status == "missing"


def test_every_flag_of_the_launcher_is_one_of_the_server() -> None:
    names = [name for names in wheel.FLAGS for name in names]
    assert {name for name in names if NEWEST.flags.get(name) != 1} == set()
    assert {name for name in wheel.SWITCHES if NEWEST.flags.get(name) != 0} == set()


def test_the_launcher_takes_all_that_settings_become() -> None:
    known = {name for names in wheel.FLAGS for name in names} | set(wheel.SWITCHES)
    for type_ in TYPES:
        words = command(drafting(type_), port=80, build=NEWEST)
        words += command(pool(**EVERYTHING, cache_prompt=True), port=80, build=NEWEST)
        flags = {word for word in words if re.match("--?[a-z]", word)} - {"-m"}
        assert flags <= known


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--jinja"], "xllamacpp is not given --jinja; llama-server itself takes it"),
        (["--port=80", "stray"], "xllamacpp is not given stray"),
    ],
)
def test_the_launcher_refuses_what_it_does_not_know(words, message, capsys) -> None:
    assert wheel.main(words) == 2
    assert message in capsys.readouterr().err

"""A rollout file that is wrong in any way is one clear sentence; a right one is read as it stands."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from specops.actions import ACTIONS
from specops.assets import asset
from specops.config import Rollout, Section, load
from specops.errors import ConfigError, Exit, FileError, UsageError
from specops.phases.init import write_commented
from specops.phases.inputs import settings_of
from specops.serving.command import CommandPool
from specops.serving.embedded import EmbeddedPool
from specops.serving.endpoint import EndpointPool

GOOD = """\
rollout: first
prompts: prompts.json
pools:
  standard:
    engine: embedded
  speculative:
    engine: endpoint
    base_url: http://127.0.0.1:8000/v1
    model: mine
measure:
  concurrency: [1, 8]
  temperature: 1
"""


@pytest.fixture
def read(tmp_path: Path):
    (tmp_path / "prompts.json").write_text("[]")

    def read(text: str) -> Rollout:
        (tmp_path / "rollout.yaml").write_text(text)
        return load(tmp_path / "rollout.yaml")

    return read


def test_a_good_file_is_read_and_the_rest_is_defaults(read, tmp_path) -> None:
    rollout = read(GOOD)
    assert rollout.rollout == "first"
    assert isinstance(rollout.pools.standard, EmbeddedPool)
    assert isinstance(rollout.pools.speculative, EndpointPool)
    assert rollout.measure.concurrency == [1, 8]
    assert rollout.measure.temperature == 1.0
    assert rollout.measure.repeats == 2
    assert rollout.slo is None


def test_a_server_to_start_is_a_command_with_a_free_port(read) -> None:
    lines = "engine: command\n    command: vllm serve 'my model' --port {port}\n"
    pool = read(GOOD.replace("engine: embedded\n", lines, 1)).pools.standard
    assert isinstance(pool, CommandPool)
    assert (pool.command, pool.model) == ("vllm serve 'my model' --port {port}", None)


@pytest.mark.parametrize(
    ("command", "says", "advice"),
    [
        ("vllm serve m", "the command does not say {port}", "--port {port}"),
        ("vllm 'serve --port {port}", "invalid command line: no closing quotation", "quotes"),
        ("vllm serve m --port {port} --api-key=sk-1", "the command holds a key", "VLLM_API_KEY"),
        ("''", "the command does not say {port}", "--port {port}"),
    ],
)
def test_a_command_that_cannot_start_a_server_is_named(read, command, says, advice) -> None:
    with pytest.raises(ConfigError) as caught:
        read(GOOD.replace("engine: embedded\n", f"engine: command\n    command: {command}\n", 1))
    assert "line 6, column " in caught.value.message
    assert says in caught.value.message
    assert "sk-1" not in caught.value.message
    assert advice in caught.value.message


def test_relative_paths_are_relative_to_the_file(read, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir("/")
    assert read(GOOD).prompts == tmp_path / "prompts.json"


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("concurrency", "concurency", 11, "unknown key 'measure.concurency'"),
        ("rollout: first", "rollout: first\nrolout: x", 2, "unknown key 'rolout'"),
        ("engine: embedded", "engine: embedded\n    tre: 1", 6, "unknown key 'pools.standard.tre'"),
        (
            "engine: embedded",
            "engine: embeded",
            5,
            "pools.standard.engine is 'embeded', and should be embedded",
        ),
        ("engine: embedded", "max_batch: 8", 4, "lacks the key 'engine'"),
        ("base_url: http", "base_url: ftp", 8, "should be a URL that begins with http:// or https://"),
        ("    base_url: http://127.0.0.1:8000/v1\n", "", 6, "lacks the key 'base_url'"),
        ("rollout: first\n", "", 1, "lacks the key 'rollout'"),
        ("rollout: first", "rollout: 12", 1, "rollout is 12, and should be text"),
        ("rollout: first", "rollout: ../x", 1, "rollout is '../x', and should be text that matches"),
        ("temperature: 1", "temperature: hot", 12, "is 'hot', and should be a number"),
        ("temperature: 1", "temperature: -1", 12, "is -1, and should be greater than or equal to 0"),
        ("temperature: 1", "repeats: 1.5", 12, "is 1.5, and should be a whole number"),
        ("temperature: 1", "repeats: true", 12, "is True, and should be a whole number"),
        ("temperature: 1", "ignore_eos: 1", 12, "is 1, and should be true or false"),
        ("[1, 8]", "[1, 0]", 11, "concurrency.1 is 0, and should be greater than or equal to 1"),
        ("[1, 8]", "[]", 11, "is empty, and should be a list of at least 1"),
        ("[1, 8]", "8", 11, "is 8, and should be a list"),
        ("prompts.json", "absent.json", 2, "absent.json does not exist"),
        ("prompts.json", "[a, b]", 2, "expected the path of a file or folder"),
        ("temperature: 1", "concurrency: [2]", 12, "the key 'concurrency' is given twice"),
        ("temperature: 1", "? [a]\n  : 1", 12, "a key must be plain text"),
        ("measure:", "measure", 11, "invalid YAML"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(read, old, new, line, says) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        read(GOOD.replace(old, new, 1))
    assert f"rollout.yaml, line {line}, column " in caught.value.message
    assert says in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code == Exit.USAGE


@pytest.mark.parametrize("text", ["", "# nothing\n", "- 1\n", "text\n"])
def test_a_file_without_keys_is_no_rollout_file(read, text) -> None:
    with pytest.raises(ConfigError, match="invalid rollout file"):
        read(text)


def test_a_folder_is_answered_with_the_rollout_file_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["specops", "run", str(tmp_path)])
    with pytest.raises(ConfigError, match="is a folder: expected a rollout file") as caught:
        load(tmp_path)
    assert caught.value.hint == f"specops init {tmp_path}"
    for name in ("a.yaml", "rollout.yaml"):
        (tmp_path / name).write_text("rollout: x\n")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert caught.value.hint == f"specops run {tmp_path / 'rollout.yaml'}"


def test_a_missing_file_names_init(tmp_path) -> None:
    with pytest.raises(FileError, match="there is no rollout file") as caught:
        load(tmp_path / "rollout.yaml")
    assert caught.value.hint == f"specops init {tmp_path}"


def test_a_file_of_bytes_is_refused(tmp_path) -> None:
    (tmp_path / "rollout.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="could not read") as caught:
        load(tmp_path / "rollout.yaml")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("standard", "speculative", "says"),
    [
        ({"speculation": {}}, {"speculation": {}}, "the standard pool must not have speculation"),
        ({}, {}, "the speculative pool has no speculation"),
        ({}, {"target": ".", "speculation": {}}, "a target of your own has no draft"),
    ],
)
def test_pools_that_do_not_fit_together(read, standard, speculative, says) -> None:
    pools = {
        "standard": {"engine": "embedded", **standard},
        "speculative": {"engine": "embedded", **speculative},
    }
    with pytest.raises(ConfigError, match=says) as caught:
        read(yaml.safe_dump({"rollout": "x", "pools": pools}))
    assert "speculation" in caught.value.message.partition(";")[2] or "pool has no" in says


def test_an_ngram_tree_needs_no_draft(read) -> None:
    pool = {"engine": "embedded", "target": ".", "speculation": {"tree": "ngram:8"}}
    rollout = read(
        yaml.safe_dump({"rollout": "x", "pools": {"standard": {"engine": "embedded"}, "speculative": pool}})
    )
    assert isinstance(rollout.pools.speculative, EmbeddedPool)


KEYS = sorted({key for section in Section.__subclasses__() for key in section.model_fields})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_any_value_is_read_or_refused_as_configuration(tmp_path_factory, value: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(yaml.safe_dump(value), encoding="utf-8")
    with suppress(ConfigError):
        load(path)


@given(
    key=st.sampled_from(["measure", "pools", "slo", "prompts"]), position=st.integers(0, 20), data=st.data()
)
def test_a_misspelt_key_is_answered_with_the_right_one(tmp_path_factory, key, position, data) -> None:
    letter = data.draw(st.sampled_from("xyz"))
    wrong = key[: position % len(key)] + letter + key[position % len(key) + 1 :]
    path = tmp_path_factory.getbasetemp() / "misspelt.yaml"
    path.write_text(f"rollout: first\n{wrong}: 1\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert f"line 2, column 1: unknown key '{wrong}'" in caught.value.message
    assert f"did you mean '{key}'?" in caught.value.message
    assert caught.value.hint == f"sed -i '2s/\\b{wrong}:/{key}:/' {path}"


def test_a_misspelt_key_beside_the_right_one_is_not_renamed(tmp_path) -> None:
    path = tmp_path / "rollout.yaml"
    path.write_text("rollout: first\nmeasure: {seed: 1}\nmeasure2: {seed: 2}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="unknown key 'measure2'") as caught:
        load(path)
    assert "sed" not in (caught.value.hint or "")


def test_the_file_that_init_writes_is_valid_and_speaks_of_every_key(tmp_path) -> None:
    path = write_commented(tmp_path / "new" / "folder")
    assert load(path).rollout == "folder"
    text = path.read_text()
    for section in (*Section.__subclasses__(), *ACTIONS):
        for key in section.model_fields:
            assert f"{key}:" in text, f"{section.__name__}.{key} is missing from the template"


def test_the_template_is_valid_with_its_comments_taken_away(tmp_path) -> None:
    """What stands in a comment as an example must be right as well."""
    text = asset("playbooks", "rollout.template.yaml").read_text()
    head, _, rest = text.partition("pools:\n")
    pools, _, rest = rest.partition("measure:\n")
    own, *examples = pools.split("\n\n  # ")
    assert len(examples) == 6
    for name in ("ca.pem", "client.pem", "client.key"):  # which one of them names
        (tmp_path / name).touch()
    for example in examples:
        lines = [line.removeprefix("  # ") for line in f"  # {example}".splitlines() if line.strip()]
        start = next(number for number, line in enumerate(lines) if line.startswith("standard:"))
        pair = yaml.safe_load(own) | yaml.safe_load("\n".join(lines[start:]))
        assert pair["standard"]["engine"] != "embedded"
        (tmp_path / "rollout.yaml").write_text(yaml.safe_dump({"rollout": "x", "pools": pair}))
        assert load(tmp_path / "rollout.yaml").pools.standard.engine == pair["standard"]["engine"]
    for line in (head + rest[: rest.index("# slo:")]).splitlines():
        if line.strip().startswith("# ") and ":" in line and "  # " in line.replace("# ", "", 1):
            assert isinstance(yaml.safe_load(line.replace("# ", "", 1)), dict), line
    enabled = "\n".join(line.removeprefix("# ") for line in rest[rest.index("# slo:") :].splitlines())
    (tmp_path / "rollout.yaml").write_text(text + "\n" + enabled)
    rollout = load(tmp_path / "rollout.yaml")
    assert rollout.slo is not None
    assert rollout.peak is not None
    assert rollout.deploy.secrets


def test_init_never_overwrites(tmp_path) -> None:
    path = write_commented(tmp_path)
    path.write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        write_commented(tmp_path)
    assert path.read_text() == "mine"


def test_init_into_what_is_no_folder_is_said_with_a_hint(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="could not write") as caught:
        write_commented(tmp_path / "file" / "folder")
    assert caught.value.hint


def test_an_endpoint_with_a_password_cannot_be_measured(read) -> None:
    rollout = read(GOOD.replace("http://", "http://me:secret@"))
    with pytest.raises(ConfigError, match="base_url must not hold credentials") as caught:
        settings_of(rollout, rollout.pools.speculative)
    assert "secret" not in caught.value.message
    assert caught.value.hint


def test_the_committed_schema_is_the_models() -> None:
    committed = json.loads(asset("playbooks", "rollout.schema.json").read_text())
    assert committed == Rollout.model_json_schema(), "run `make generate`"


@pytest.mark.parametrize(("tree", "words"), [("chian:3", "invalid tree"), ("none", "does not speculate")])
def test_a_wrong_tree_is_found_before_anything_is_measured(tmp_path: Path, tree: str, words: str) -> None:
    path = tmp_path / "rollout.yaml"
    path.write_text(
        "rollout: x\npools:\n  standard: {engine: embedded}\n"
        f"  speculative: {{engine: embedded, speculation: {{tree: '{tree}'}}}}\n"
    )
    with pytest.raises(ConfigError, match=words) as caught:
        load(path)
    assert "line 4, column" in caught.value.message
    assert "speculation.tree: invalid tree" in caught.value.message
    assert caught.value.hint is not None


def test_all_problems_are_listed_with_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "rollout.yaml"
    path.write_text(
        "rollout: x\npools:\n  standard: {engine: embedded}\n  speculative: {engine: embeded}\n"
        "measure:\n  repeats: many\n  temprature: 0\n  seeed: 1\nguard: {interval_s: soon}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(path)
    head, *lines = caught.value.message.splitlines()
    assert head == f"{path} has 5 problems:"
    places = [line.partition(": ")[0].strip() for line in lines]
    assert places == [
        "line 4, column 17",
        "line 6, column 3",
        "line 7, column 3",
        "line 8, column 3",
        "line 9, column 9",
    ]
    assert "did you mean 'temperature'?" in lines[2]
    assert "more)" not in caught.value.message


def test_all_keys_that_are_given_twice_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "rollout.yaml"
    path.write_text("rollout: x\nrollout: y\nguard:\n  interval_s: 1\n  interval_s: 2\n")
    with pytest.raises(ConfigError, match=r"(?s)2 problems:.*line 2, column 1: .*line 5, column 3: "):
        load(path)

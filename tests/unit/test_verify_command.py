"""`specops verify-draft` as it is called: its page, its JSON, its exit codes, and what it does not load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import made_pairs as made
import pytest
from test_cli import loaded_by

from specops.checkpoints.source import Folder
from specops.checkpoints.tokenizer import tokenizer_of
from specops.cli.app import main
from specops.phases.verify_draft import differences
from specops.results import read


def specops(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specops", "verify-draft", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    target, draft = made.pair(1, made.dropped_merge)
    return str(target.write(tmp_path / "target")), str(draft.write(tmp_path / "draft"))


def test_neither_torch_nor_transformers_is_loaded(pair) -> None:
    (loaded,) = loaded_by(["verify-draft", *pair, "--quiet", "--json"])
    assert "tokenizers" in loaded
    assert loaded.isdisjoint({"torch", "transformers", "openai", "aiohttp", "matplotlib", "huggingface_hub"})


def test_a_degraded_pair(pair, tmp_path: Path) -> None:
    out = tmp_path / "drafts.json"
    done = specops(*pair, "--out", str(out), "--quiet")
    assert (done.returncode, done.stderr) == (1, "")
    assert "  merges  " in done.stdout
    assert "first: merge " in done.stdout
    assert "Degraded: " in done.stdout
    result = read(out)
    assert (result.phase, result.verdict) == ("verify-draft", "no")
    assert set(result.inputs) == {"target", "draft"}
    assert result.data["encodings"]["count"] >= 1000
    allowed = specops(*pair, "--allow-degraded", "--json", "--quiet")
    assert allowed.returncode == 0
    assert json.loads(allowed.stdout)["summary"]["verdict"] == "degraded"


def test_a_pair_that_fits_says_how_to_serve_it(tmp_path: Path) -> None:
    target, draft = made.pair(0, made.alike)
    names = str(target.write(tmp_path / "target")), str(draft.write(tmp_path / "draft"))
    done = specops(*names, "--quiet")
    assert done.returncode == 0
    told = done.stdout.splitlines()[-1].partition("--speculative-config ")[2].strip("'")
    assert json.loads(told) == {"method": "draft_model", "model": names[1], "num_speculative_tokens": 5}


def test_drafts_without_a_model(pair) -> None:
    assert specops(pair[0], "ngram").returncode == 0
    refused = specops(pair[0], "suffix", "--engine", "sglang", "--json")
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["data"]["kind"]["kind"] == "suffix"


def test_a_users_own_prompts_are_encoded_first(pair, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    text = json.loads((Path(pair[0]) / "tokenizer.json").read_text())["model"]["merges"]
    messages = [{"role": "user", "content": [{"type": "text", "text": "".join(map("".join, text))}]}]
    prompts.write_text(json.dumps({"custom_id": "a", "body": {"messages": messages}}) + "\n")
    done = specops(*pair, "--prompts", str(prompts), "--json", "--quiet")
    result = json.loads(done.stdout)
    assert (result["data"]["encodings"]["own"], result["data"]["prompts"]["count"]) == (1, 1)
    assert result["inputs"]["prompts"]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["TARGET"], 2, "DRAFT is missing"),
        (["TARGET", "absent/folder/x"], 2, "there is no folder"),
        (["TARGET", "ngram", "--engine", "tgi"], 2, "--engine"),
        (["TARGET", "ngram", "--engine-version", "0.7"], 2, "0.8 is the oldest"),
        (["TARGET", "ngram", "--gpu", "h100"], 2, "unknown --gpu"),
        (["TARGET", "ngram", "--measure"], 2, "--prompts"),
        (["TARGET", "ngram", "--prompts", "absent.json"], 3, "there are no prompts"),
        (["TARGET", "ngram", "--guide"], 2, "--guide takes a TARGET alone"),
        (["TARGET", "."], 3, "has no config.json"),
    ],
)
def test_what_makes_no_sense_is_a_sentence(pair, monkeypatch, capsys, words, code, told) -> None:
    asked = [pair[0] if word == "TARGET" else word for word in words]
    monkeypatch.setattr(sys, "argv", ["specops", "verify-draft", *asked, "--quiet"])
    with pytest.raises(SystemExit) as caught:
        main()
    said = capsys.readouterr()
    assert (caught.value.code, said.out) == (code, "")
    assert told in said.err
    assert "hint: " in said.err
    assert "Traceback" not in said.err


def test_the_guide_needs_no_file_of_the_target() -> None:
    done = specops("mistralai/Mistral-Large-Instruct-2407", "--guide")
    assert done.returncode == 0
    assert "Mistral 7B" in done.stdout
    guide = json.loads(specops("mistralai/Mistral-Large-Instruct-2407", "--guide", "--json").stdout)
    printed = "".join(done.stdout.split())
    for advice in (*guide["drafts"], *guide["kinds"]):
        assert all("".join(text.split()) in printed for text in advice.values() if text)
    assert all("".join(note.split()) in printed for note in guide["notes"])
    assert json.loads(specops("x/y", "--guide", "--json").stdout)["family"] is None


def test_the_texts_are_many_and_the_same_every_time() -> None:
    texts = differences.texts()
    assert len(texts) >= differences.FEWEST
    assert len(set(texts)) == len(texts)
    found = "".join(texts)
    for needed in (
        "서울",
        "東京",
        "القاهرة",
        "दिल्ली",
        "\u200d",
        "\u0301",
        "\x00",
        "\u3000" * 4,
        "    ",
        "\t\t",
    ):
        assert needed in found
    program = "from specops.phases.verify_draft import differences; print(hash(differences.texts()))"
    environment = {"PYTHONHASHSEED": "0", "PATH": ""}
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]


def test_a_tokenizer_of_another_format_is_converted_and_said_so(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs the engine extra")
    target = made.pair(0, made.alike)[0]
    target.write(tmp_path / "fast")
    slow = target.write(tmp_path / "slow")
    (slow / "tokenizer.json").unlink()
    alphabet = target.model
    (slow / "vocab.json").write_text(json.dumps(alphabet["vocab"]))
    (slow / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(m) for m in alphabet["merges"]))
    (slow / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    found, whole = tokenizer_of(Folder(slow)), tokenizer_of(Folder(tmp_path / "fast"))
    assert found is not None
    assert whole is not None
    assert found.read_from == "vocab.json, converted by transformers"
    assert found.merges() == whole.merges()
    assert set(found.tokens.items()) >= {(index, token) for token, index in alphabet["vocab"].items()}

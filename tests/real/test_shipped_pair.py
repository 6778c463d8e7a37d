"""The pair that ships: it loads by itself, behaves as its card says, and is as small as promised."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from benchmark_scripts import run_benchmark

from specops.assets import asset
from specops.load.workload import load_prompts

pytest.importorskip("torch", reason="needs the engine extra")

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from specops.engine import Sampling, load_engine

PAIR = asset("playbooks", "embedded")


def test_it_is_at_most_sixteen_megabytes() -> None:
    files = [PAIR / "prompts.json", *(PAIR / "target").iterdir(), *(PAIR / "draft").iterdir()]
    assert sum(file.stat().st_size for file in files) <= 16_000_000


def test_the_prompts_are_held_out_material_in_three_classes() -> None:
    prompts = load_prompts(PAIR / "prompts.json").prompts
    assert Counter(p.traffic_class for p in prompts) == {"short": 22, "long": 21, "edit": 21}
    tokenizer = AutoTokenizer.from_pretrained(PAIR / "target")
    assert all(128 <= len(tokenizer.encode(str(p.content))) <= 176 for p in prompts)


@pytest.mark.parametrize("name", ["target", "draft"])
def test_each_folder_loads_by_itself(name: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(PAIR / name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(PAIR / name)
    text = "def main() -> None:\n    return 서울\n"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert model.config.vocab_size == len(tokenizer)


def test_the_head_is_at_most_four_more() -> None:
    assert sum(file.stat().st_size for file in (PAIR / "head").iterdir()) <= 4_000_000


@pytest.mark.parametrize(("draft", "accepted"), [("draft", 0.2), ("head", 0.4)])
def test_speculation_is_accepted_and_changes_no_greedy_token(draft: str, accepted: float) -> None:
    target = AutoModelForCausalLM.from_pretrained(PAIR / "target", dtype=torch.float32).eval()
    engine = load_engine(PAIR / "target", PAIR / draft, tree="chain:3", max_batch=1)
    for prompt in load_prompts(PAIR / "prompts.json").prompts[::16]:
        ids = engine.tokenizer.encode(prompt.content)[-128:]
        found = engine.generate(ids, Sampling(max_tokens=24)).tokens
        with torch.inference_mode():
            whole = target.generate(torch.tensor([ids]), max_new_tokens=24, do_sample=False)
        assert found == whole[0, len(ids) :].tolist()
    counters = engine.counters
    assert counters.accepted_tokens > accepted * counters.draft_tokens


def test_its_acceptance_is_measured(tmp_path: Path) -> None:
    out = tmp_path / "acceptance.json"
    done = run_benchmark("acceptance", "--count", "2", "--tokens", "16", "--json", str(out))
    assert done.returncode == 0, done.stderr
    assert "multi-step, without replacement" in done.stdout
    rates = json.loads(out.read_text())["rates"]
    assert all(len(values) == 5 and values == sorted(values) for values in rates.values())
    assert 0.1 < rates["greedy"][0] < 1


@pytest.mark.slow
def test_specinfers_tables_are_regenerated(tmp_path: Path) -> None:
    out = tmp_path / "specinfer.json"
    done = run_benchmark("specinfer", "--count", "1", "--tokens", "24", "--json", str(out))
    assert done.returncode == 0, done.stderr
    titles = [line[:7] for line in done.stdout.splitlines() if line.startswith("Table")]
    assert titles == ["Table 1", "Table 2", "Table 3"]
    assert re.search(r"paper's Alpaca +1\.87 +2\.38 .*1\.27×", done.stdout)
    found = json.loads(out.read_text())
    for table in ("success", "tokens"):
        for rows in found[table].values():
            assert set(rows) == {"edit", "long", "short", "all"}
            assert all(len(row) == 5 for row in rows.values())
    for row in found["success"]["stochastic"].values():
        rates = [figure["value"] for figure in row]
        assert rates == sorted(rates)
    of_all = found["verifiers"]["all"]
    assert of_all["MSS"] == found["tokens"]["stochastic"]["all"][-1]
    assert 1 < of_all["naive"]["value"] < of_all["MSS"]["value"] < 9


@pytest.mark.slow
def test_verifiers_are_ranked_on_the_very_same_trees(tmp_path: Path) -> None:
    out = tmp_path / "verifiers.json"
    asked = ["--count", "2", "--tokens", "24", "--rounds", "1", "--tree", "chain:3", "--tree", "expand:2"]
    done = run_benchmark("verifiers", *asked, "--json", str(out))
    assert done.returncode == 0, done.stderr
    assert "without replacement" in done.stdout
    ranked = json.loads(out.read_text())["ranked"]
    assert [(one["tree"], one["draw"]) for one in ranked] == [
        (tree, draw)
        for tree in ("chain:3", "expand:2")
        for draw in ("i.i.d.", "without replacement", "deterministic")
    ]
    for one in ranked:
        found = {name: of["expected"] for name, of in one["verifiers"].items()}
        if one["draw"] == "deterministic":
            assert list(found) == ["naive"]
            continue
        assert 1 < found["naive"] < found["mss"] <= found["traversal"] + 0.05 < 4
        assert found["traversal"] < found["ranked"] + 0.05
        assert all(
            of["measured"] == pytest.approx(of["expected"], abs=0.5) for of in one["verifiers"].values()
        )

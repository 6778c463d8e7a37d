"""What the benchmarks of a pair say where there is nothing to measure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmark_scripts import load_benchmark
from drafts_cases import save_medusa

from specops.engine.load import Pair
from specops.engine.planner.offline_acceptance import rates
from specops.errors import UsageError

specinfer, verifiers = load_benchmark("specinfer"), load_benchmark("verifiers")
NEVER_REPEATS, REPEATS = "abcdefgh", "xyxyxyxyxyxy"


def settings(pair: tuple[Path, Path], folder: Path, tree: str, *texts: str) -> object:
    prompts = folder / "prompts.json"
    prompts.write_text(json.dumps([{"text": text} for text in texts]))
    target, draft = pair
    return verifiers.VerifierSettings(
        target=target, draft=draft, prompts=prompts, trees=(tree,), tokens=2, continuations=3, rounds=1
    )


@pytest.mark.parametrize("tree", ["none", "ngram:2"])
def test_no_trees_to_verify(tree: str, tiny_pair: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=f"could not compare verifiers on '{tree}'"):
        verifiers.measure(settings(tiny_pair, tmp_path, tree, NEVER_REPEATS))


def test_prompts_without_trees_say_nothing(tiny_pair: tuple[Path, Path], tmp_path: Path) -> None:
    (one,) = verifiers.measure(settings(tiny_pair, tmp_path, "ngram:2", REPEATS)).ranked
    (other,) = verifiers.measure(settings(tiny_pair, tmp_path, "ngram:2", NEVER_REPEATS, REPEATS)).ranked
    assert one.verifiers["naive"].expected == other.verifiers["naive"].expected
    assert one.steps > 1


def test_one_token_is_too_few_for_a_head(tiny_pair: tuple[Path, Path], tmp_path: Path) -> None:
    """The step that reads the prompt gives the first token; a head has read no feature before it."""
    pair = Pair(tiny_pair[0], save_medusa(tmp_path / "heads", 32))
    with pytest.raises(UsageError, match="none to draft the first token from"):
        rates(pair, [5, 6, 7], 1, 2, seed=0)
    assert set(map(len, rates(pair, [5, 6, 7], 2, 2, seed=0).values())) == {2}


def test_specinfers_tables_have_a_row_for_the_class_and_for_all(
    tiny_pair: tuple[Path, Path], tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.json"
    prompts.write_text(json.dumps([{"text": NEVER_REPEATS, "class": "short"}]))
    target, draft = tiny_pair
    settings = specinfer.SpecInferSettings(
        target=target, draft=draft, prompts=prompts, count=1, tokens=specinfer.FEWEST_TOKENS
    )
    with pytest.raises(SystemExit, match="invalid --tokens 15: expected 16 or more"):
        specinfer.measure(settings.model_copy(update={"tokens": 15}))
    tables = specinfer.measure(settings)
    shares = [figure.value for figure in tables.success["stochastic"]["all"]]
    assert shares == sorted(shares)  # a wider tree holds what a narrower one does
    assert set(tables.tokens["stochastic"]) == {"short", "all"}
    titles = [page[0][:7] for page in specinfer.pages(tables)]
    assert titles == ["Table 1", "Table 2", "Table 3"]

"""`plan explain`: the page, the result, and what it refuses; the pair itself runs in tests/engine."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specops.cli.app import app
from specops.cli.plan import page
from specops.errors import UsageError
from specops.phases.plan import PlanExplanation, PlanSettings, explain
from specops.progress import SilentProgress

RUN = CliRunner()


@pytest.fixture(scope="module")
def explained(tiny_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> PlanExplanation:
    """Of a tiny random pair, whose draft is its target."""
    prompts = tmp_path_factory.mktemp("plan") / "prompts.json"
    texts = [
        {"id": f"p{n}", "class": "code", "text": f"def f{n}(x):\n    return x + {n}\n"} for n in range(4)
    ]
    prompts.write_text(json.dumps(texts), encoding="utf-8")
    target, _ = tiny_pair
    settings = PlanSettings(
        target=target,
        draft=str(target),
        prompts=prompts,
        batches=(2, 1),
        nodes=6,
        threads=1,
        tokens=40,
        steps=40,
    )
    result = explain(settings, SilentProgress())
    assert result.phase == "plan"
    assert result.exit_code == (0 if result.verdict == "yes" else 1)
    assert result.summary["chosen"].keys() == {1, 2}
    return PlanExplanation.model_validate(result.data)


def test_every_batch_size_has_its_costs_and_its_options(explained: PlanExplanation) -> None:
    assert [at.batch for at in explained.by_batch] == [1, 2]
    for at in explained.by_batch:
        assert at.steps >= 40
        assert list(at.pass_ms) == [0, 1, 2, 4]
        assert min(at.pass_ms.values()) > 0
        assert at.plain_ms == pytest.approx(at.pass_ms[0] + at.rest_ms, abs=1e-3)
        assert at.chosen == at.options[0].tree
        speeds = [option.tokens_per_s for option in at.options]
        assert speeds == sorted(speeds, reverse=True)
        kinds = {option.tree.partition(":")[0] for option in at.options}
        assert {"none", "chain", "expand", "ngram"} <= kinds


def test_a_draft_that_is_its_target_is_accepted(explained: PlanExplanation) -> None:
    root = explained.acceptance[0]
    assert root.observations[0] > 15
    assert root.by_rank[0] > 0.9


def test_break_even_is_where_the_options_meet(explained: PlanExplanation) -> None:
    for at in explained.by_batch:
        best = at.options[0]
        for option in at.options[1:]:
            per_token = best.step_ms / best.tokens_per_step
            assert option.wins_at_tokens == pytest.approx(option.step_ms / per_token, rel=0.01)
            assert option.wins_at_tokens >= option.tokens_per_step - 1e-3


def test_no_shape_gives_less_than_the_expansion(explained: PlanExplanation) -> None:
    for at in explained.by_batch:
        for option in at.options:
            if option.any_shape is not None:
                assert option.any_shape >= option.tokens_per_step - 2e-3


def test_the_page_says_what_was_chosen_and_why(explained: PlanExplanation) -> None:
    lines = page(explained)
    text = "\n".join(lines)
    for at in explained.by_batch:
        assert re.search(rf"^{at.batch} +{re.escape(at.chosen)} ", text, re.MULTILINE)
        assert f"batch {at.batch}, {at.steps} steps observed" in text
    assert "depth 1" in text
    assert max(map(len, lines)) <= 130


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--nodes", "0"], "nodes"),
        (["--batch", "0"], "batch"),
        (["--target", "absent"], "absent"),
        (["absent.yaml", "--draft", "x"], "names its own pair"),
        (["absent.yaml"], "absent.yaml"),
        (["--tpot-ms", "-1"], "token"),
    ],
)
def test_what_cannot_be_planned_is_said_in_a_sentence(words: list[str], says: str) -> None:
    done = RUN.invoke(app, ["plan", "explain", "--quiet", *words])
    assert done.exit_code != 0
    assert says in (str(done.exception) + done.output)
    assert not isinstance(done.exception, AssertionError | KeyError | TypeError)


def test_where_nothing_but_no_draft_fits(tiny_pair: tuple[Path, Path], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.json"
    prompts.write_text(json.dumps([{"id": "a", "class": "c", "text": "x = 1"}]), encoding="utf-8")
    settings = PlanSettings(
        target=tiny_pair[0], draft=None, prompts=prompts, batches=(1,), nodes=1, threads=1, tokens=8, steps=4
    )
    found = PlanExplanation.model_validate(explain(settings, SilentProgress()).data)
    [at] = found.by_batch
    assert [option.tree for option in at.options] == ["none"]
    assert at.why in "\n".join(page(found)).lower()


def test_answers_that_leave_no_room_are_refused(tiny_pair: tuple[Path, Path], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.json"
    prompts.write_text(json.dumps([{"id": "a", "class": "c", "text": "x = 1"}]), encoding="utf-8")
    target, _ = tiny_pair
    settings = PlanSettings(target=target, draft=None, prompts=prompts, batches=(1,), nodes=2, tokens=100_000)
    with pytest.raises(UsageError, match="leave no room"):
        explain(settings, SilentProgress())

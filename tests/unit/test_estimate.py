"""From texts and costs to seconds, by hand; the sample; and the page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="needs the engine extra")

import numpy as np

from specops.engine.planner.cost_model import Curve
from specops.engine.planner.offline_acceptance import Trace
from specops.engine.planner.step_costs import Costs, CostsByContext
from specops.engine.text import load_tokenizer
from specops.errors import PromptsError, UsageError
from specops.load.workload import Prompt
from specops.phases.verify_draft import prediction
from specops.phases.verify_draft.document import answer, estimate_section
from specops.phases.verify_draft.estimate import estimate, predict
from specops.phases.verify_draft.estimate_record import Estimate
from specops.phases.verify_draft.prediction import (
    Machine,
    Overhead,
    Predictor,
    WrittenSample,
    WrittenText,
    _encoded,
    _spread,
)
from specops.progress import SilentProgress

FLAT = Costs(
    plain=1.0,
    first_pass=0.2,
    level=Curve(((1, 0.1), (8, 0.8))),
    target=Curve(((1, 0.9), (17, 2.5))),
    crowding=0.0,
    commit=0.1,
    gather=0.05,
    prompt=5.0,
    prompt_drafted=6.0,
)


def machine(*, slow: float = 1.0, copied: bool = True) -> Machine:
    curve = Curve(((0, slow), (8, 2 * slow))) if copied else None
    costs = FLAT.towards(FLAT, 0.0)
    return Machine(CostsByContext(10, 20, costs, costs, curve), Overhead(request=2.0, chunk=0.5))


def text(
    hits: Sequence[float], *, bare: bool = False, length: int | None = None, of: str = "all"
) -> WrittenText:
    """Whose tokens are accepted, each, with such a probability as the first choice."""
    n = len(hits)
    trace = Trace(tuple(range(4)), tuple(range(10, 10 + n)), np.array(hits).reshape(1, n, 1), bare)
    return WrittenText(of, trace, n if length is None else length)


def test_a_request_is_its_prompt_its_steps_and_the_api() -> None:
    predictor = Predictor([text([1.0] * 6)], machine(), [])
    plain = 2.0 + 5.0 + 6 * (1.0 + 0.5)
    # chain:2: three tokens a step, so two steps; each 0.2 + 0.1 drafting, 1.1 verifying, 0.1 committing
    chain = 2.0 + 6.0 + 2 * (0.3 + 1.1 + 0.1 + 0.5)
    ratio, interval = predictor.speedup("chain:2")
    assert (ratio, interval) == (pytest.approx(plain / chain), None)
    assert predictor.tokens_per_step("chain:2") == 3
    assert predictor.step_seconds("chain:2") == pytest.approx(1.5)
    assert predictor.speedup("none")[0] == 1


def test_a_head_has_no_draft_in_the_step_of_the_prompt() -> None:
    predictor = Predictor([text([1.0] * 7, bare=True)], machine(), [])
    plain = 2.0 + 5.0 + 7 * 1.5
    chain = 2.0 + 6.0 + 0.5 + 2 * 2.0  # the first token comes with the prompt, and six in two steps
    assert predictor.speedup("chain:2")[0] == pytest.approx(plain / chain)


def test_an_answer_that_was_cut_goes_on_as_it_began() -> None:
    short, long = text([1.0] * 6), text([1.0] * 6, length=60)
    predictor = Predictor([short, long], machine(), [])
    plain = 2 * 7.0 + 66 * 1.5
    chain = 2 * 8.0 + 22 * 2.0
    assert predictor.speedup("chain:2")[0] == pytest.approx(plain / chain)


def test_what_rounds_disagree_on_widens_the_interval() -> None:
    texts = [text([0.5 + 0.01 * number] * 6) for number in range(12)]
    alike = Predictor(texts, machine(), [machine()] * 4).speedup("ngram:8")[1]
    rounds = [machine(slow=slow) for slow in (0.7, 0.9, 1.1, 1.3)]
    unlike = Predictor(texts, machine(), rounds).speedup("ngram:8")[1]
    assert alike is not None
    assert unlike is not None
    assert unlike.high / unlike.low > 1.1 * alike.high / alike.low


def test_a_class_has_its_own_figure() -> None:
    texts = [text([1.0] * 6, of="easy"), text([0.0] * 6, of="hard")]
    predictor = Predictor(texts, machine(), [])
    easy, hard = (predictor.speedup("chain:2", name)[0] for name in ("easy", "hard"))
    assert easy > predictor.speedup("chain:2")[0] > hard
    assert hard == pytest.approx((7.0 + 9.0) / (8.0 + 12.0))


def test_dynamic_trees_are_refused() -> None:
    with pytest.raises(ValueError, match="dynamic"):
        Predictor([text([1.0])], machine(), []).speedup("dynamic:8:4")


def made_estimate(share: float) -> Estimate:
    texts = tuple(text([share] * 24, of=name) for name in ("long", "short") for _ in range(10))
    predictor = Predictor(texts, machine(copied=False), [machine(copied=False)] * 3)
    return predict(WrittenSample(texts, 64, too_long=1, shortened=2, temperature=1.0, threads=1), predictor)


def test_the_page_says_what_to_take_and_what_it_rests_on() -> None:
    found = made_estimate(0.9)
    assert found.chosen == found.drafted.tree == found.alternatives[0].tree
    assert answer(found).startswith(f"take {found.chosen}: it is predicted to be ")
    page = str(estimate_section(found))
    assert "20 of 64 prompts" in page
    assert "temperature 1" in page
    assert "2 answers are longer" in page
    assert "left out" in page
    assert "ngram" not in page  # nothing was measured of it
    assert estimate_section(Estimate.model_validate(found.model_dump(mode="json"))) == estimate_section(found)


def test_a_draft_that_is_always_wrong_is_not_taken() -> None:
    found = made_estimate(0.0)
    assert (found.chosen, found.best) == ("none", None)
    assert answer(found).startswith("no tree is predicted to pay; the best of this draft is chain:1, 0.")


def test_the_sample_keeps_the_classes_proportions_and_any_beginning_is_spread() -> None:
    prompts = [Prompt(str(n), "abc"[n % 3], "text") for n in range(90)] + [Prompt("rare", "d", "text")]
    chosen = _spread(prompts, 30)
    assert len({prompt.id for prompt in chosen}) == 30
    assert [sum(p.traffic_class == name for p in chosen) for name in "abc"] == [10, 10, 10]
    for stop in range(6, 30):
        counts = [sum(p.traffic_class == name for p in chosen[:stop]) for name in "abc"]
        assert max(counts) - min(counts) <= 2
    assert len(_spread(prompts[:5], 30)) == 5


def test_a_conversation_is_encoded_by_the_models_template(tiny_pair: tuple[Path, Path]) -> None:
    tokenizer = load_tokenizer(tiny_pair[0])
    pair = SimpleNamespace(
        tokenizer=tokenizer, target=SimpleNamespace(shape=SimpleNamespace(vocab=len(tokenizer.get_vocab())))
    )
    asked = Prompt("1", "a", ({"role": "user", "content": "what does it serve?"},))
    ids = _encoded(pair, asked)  # type: ignore[arg-type]
    assert tokenizer.decode(ids) == "<|user|>what does it serve?\n<|assistant|>"


@pytest.mark.slow
def test_a_real_pair_end_to_end(
    tiny_pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a random pair, whose draft is of no use: text, a conversation, and a prompt that is too long."""
    monkeypatch.setattr(prediction, "ROUNDS", 2)
    prompts = tmp_path / "prompts.jsonl"
    bodies = [{"prompt": f"the server measures {n}", "max_tokens": 12} for n in range(8)]
    bodies += [{"messages": [{"role": "user", "content": "what does it serve?"}], "max_tokens": 12}]
    bodies += [{"prompt": [5] * 600, "max_tokens": 12}]
    prompts.write_text("\n".join(json.dumps({"custom_id": str(n), "body": b}) for n, b in enumerate(bodies)))
    found = estimate(*tiny_pair, prompts, SilentProgress(), threads=1, temperature=0.0)
    assert found.acceptance.prompts == 9
    assert any("left out" in assumption for assumption in found.assumptions)
    assert found.drafted.overall.interval is not None
    assert found.costs[0].context < found.costs[1].context
    assert estimate_section(found).tables


def test_prompts_that_cannot_be_asked(tiny_pair: tuple[Path, Path], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"body": {"prompt": [5] * 600}}))
    with pytest.raises(UsageError, match="leaves room for an answer"):
        estimate(*tiny_pair, prompts, SilentProgress(), threads=1, temperature=0.0)
    prompts.write_text(json.dumps({"body": {"prompt": [10**6]}}))
    with pytest.raises(PromptsError, match="ids that the target does not know"):
        estimate(*tiny_pair, prompts, SilentProgress(), threads=1, temperature=0.0)

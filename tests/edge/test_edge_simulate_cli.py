"""`edge simulate` as it is called, the plan behind it, and the rounds of a real pair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("simpy", reason="the edge extra is not installed")
pytest.importorskip("google.protobuf", reason="the edge extra is not installed")

from specops.assets import asset
from specops.cli.app import app
from specops.economics import Prices
from specops.edge.settings import Drafting
from specops.edge.simulation.planning import IDLE, SEEDS, EdgePlanner
from specops.edge.simulation.real_rounds import LEVELS, GreedyText, measure
from specops.edge.simulation.rounds import of_rates
from specops.edge.simulation.setting import EdgeCosts, Setting, straight
from specops.engine.load import load_engine
from specops.engine.models import load_model
from specops.engine.request import Sampling
from specops.progress import SilentProgress

QUICK = ["--acceptance", "0.8", "--rtt", "5,60", "--clients", "1,3", "--verify-ms", "30", "--draft-ms", "4"]
FIXED = ["--depth", "included:4"]


def called(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["edge", "simulate", "-q", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def test_a_plan_in_json_and_on_a_page(tmp_path: Path) -> None:
    kept, out = tmp_path / "rounds.json", tmp_path / "plan.json"
    arguments = [*QUICK, *FIXED, "--server-draft-ms", "12"]
    code, said = called(*arguments, "--save-rounds", str(kept), "--json", "--out", str(out))
    found = json.loads(said)
    assert code == {"yes": 0, "no": 1}[found["verdict"]]
    assert json.loads(out.read_text())["data"] == found["data"]
    cells = {(cell["rtt_ms"], cell["clients"]): cell for cell in found["data"]["cells"]}
    assert set(cells) == {(5.0, 1), (5.0, 3), (60.0, 1), (60.0, 3)}
    assert cells[5.0, 1]["itl_ratio"] < cells[60.0, 1]["itl_ratio"]
    assert cells[60.0, 1]["figures"]["idle"]["mean"] > cells[5.0, 3]["figures"]["idle"]["mean"]
    assert found["data"]["costs_from"] == "the options"
    assert found["summary"]["round_bytes"] < 1000
    plot = tmp_path / "plan.svg"
    again, told = called("--rounds", str(kept), *arguments[2:], "--plot", str(plot))
    assert again == code
    assert "round trip, ms" in plot.read_text()
    for cell in cells.values():
        assert f"{cell['itl_ratio']:.2f}" in told
    assert "idle below 10%" in told


def test_the_shipped_file_declares_what_is_needed() -> None:
    code, said = called(
        "--acceptance", "0.8", "--rtt", "15", "--clients", "2", "--depth", "adaptive", "--json"
    )
    found = json.loads(said)
    assert code in (0, 1)
    assert found["data"]["cells"][0]["setting"]["depth"] == "adaptive"
    assert found["data"]["costs_from"] == "edge.stand_in of edge.yaml"


@pytest.mark.slow
def test_rounds_are_sent_ahead_as_the_file_has_it_or_as_is_asked() -> None:
    arguments = ["--acceptance", "0.8", "--hit", "0.6", "--rtt", "15", "--clients", "1", *FIXED]
    itl = {}
    for asked, ahead in (([], 32), (["--ahead", "0"], 0)):
        found = json.loads(called(*arguments, *asked, "--json")[1])
        [cell] = found["data"]["cells"]
        assert found["settings"]["ahead"] == cell["setting"]["ahead"] == ahead
        assert (cell["figures"]["taken"]["mean"] > 0.3) == (ahead > 0)
        itl[ahead] = cell["figures"]["itl_ms"]["mean"]
    assert itl[32] < itl[0]
    told = called(*arguments)[1]
    assert "the trees below them sent ahead" in told
    assert "hits  ahead" in told
    assert "No round is sent ahead" in called(*arguments, "--ahead", "0")[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rtt", "near"], "invalid --rtt"),
        (["--clients", "1,x"], "invalid --clients"),
        (["--clients", "0"], "expected whole numbers of at least 1"),
        (["--rtt", "5,-1"], "expected numbers of at least 0"),
        (["--rtt", "nan"], "expected numbers of at least 0"),
        ([*QUICK, "--rounds", "x.json"], "exclude each other"),
        (["--acceptance", "0.8", "--verify-ms", "30"], "both --verify-ms and --draft-ms"),
        (["--acceptance", "0.8", "--costs", "nowhere.json"], "could not read nowhere.json"),
        (["--acceptance", "0.8", "--costs", "c.json", "--draft-ms", "3"], "--costs excludes"),
        ([*QUICK, "--jitter", "inf"], "--jitter"),
        ([*QUICK, "--server-draft-ms", "0"], "invalid time of a pass"),
        ([*QUICK, "--plot", "plan.gif"], "expected a name that ends with .svg or .png"),
        ([*QUICK, "--depth", "deep"], "invalid depth 'deep'"),
        ([*QUICK, "--batching", "often"], "invalid batching 'often'"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(arguments: list[str], said: str) -> None:
    from specops.errors import SpecopsError

    with pytest.raises(SpecopsError, match=said) as error:
        called(*arguments)
    assert error.value.hint


def test_a_plan_against_every_setting_tried_by_hand() -> None:
    costs = EdgeCosts(straight(0.004), straight(0.03), straight(0.01))
    rounds = of_rates([0.8] * 3, hit=0.3, hit_many=0.3, source="")
    prices = Prices(4.0, 0.3)
    base = Setting(heads="many", nodes=8, max_batch=4)
    planner = EdgePlanner(base, costs, rounds, prices, fixed_depth=False)
    plan = planner.plan([0.005, 0.06], [1, 4], None, SilentProgress())
    for cell in plan.cells:
        depths = [
            planner._run(
                Setting(
                    heads="many",
                    nodes=8,
                    max_batch=4,
                    rtt_s=cell.rtt_s,
                    clients=cell.clients,
                    depth=f"included:{d}",
                ),
                SEEDS[:1],
            )
            for d in range(1, 4)
        ]
        best = min(depths, key=lambda summary: summary.known_mean("itl_ms"))
        assert cell.edge.setting == best.setting
    assert plan.itl_bound_ms == plan.by_clients[0].server_only.known_mean("itl_ms")
    for at in plan.by_rtt:
        row = [cell for cell in plan.cells if 1000 * cell.rtt_s == at.rtt_ms]
        for cell in row:
            idle = cell.edge.known_mean("idle")
            assert (idle < IDLE) == (at.busy_from is not None and cell.clients >= at.busy_from)
            within = cell.edge.known_mean("itl_ms") <= plan.itl_bound_ms
            assert within == (at.clients_carried is not None and cell.clients <= at.clients_carried)


def test_a_model_that_drafts_for_itself_is_accepted_and_hits() -> None:
    """With room for all, its own choice is always in the tree, and then among the guesses: two passes on."""
    itself = asset("playbooks", "embedded", "draft")
    texts = _texts(itself, LEVELS + 6)[:2]
    rounds = measure(
        load_model(itself), texts, Drafting(nodes=64, beams=16, heads=64), "itself", SilentProgress()
    )
    assert rounds.hit_share("many", 1, 1) == 0.0  # the first pass runs the leaf
    for levels in (1, 2):
        assert rounds.accepted[levels - 1] == (*(0.0,) * levels, 1.0)
        assert rounds.hit_share("many", levels, 2) > 0.9  # but for what is less likely than LEAST
        assert rounds.hit_share("many", levels, 9) >= rounds.hit_share("one", levels, 9)
    assert rounds.levels == LEVELS


def test_rounds_of_a_pair_are_those_of_its_engine(tiny_pair: tuple[Path, Path]) -> None:
    """A chain, walked here token by token with the draft's own first choices."""
    texts = _texts(tiny_pair[0])
    model = load_model(tiny_pair[1])
    rounds = measure(model, texts, Drafting(nodes=1, beams=1, heads=2), "chain", SilentProgress())
    engine = load_engine(tiny_pair[1], tree="none")
    accepted = total = 0
    for text in texts:
        place = 1
        while place < len(text.written) - LEVELS:  # every deeper tree has its tokens too
            context = text.prompt + text.written[:place]
            first = engine.generate(context, Sampling(max_tokens=1, ignore_eos=True)).tokens[0]
            right = first == text.written[place]
            accepted, total, place = accepted + right, total + 1, place + 1 + right
    assert rounds.accepted[0] == pytest.approx((1 - accepted / total, accepted / total))


def _texts(target: Path, tokens: int = 24) -> list[GreedyText]:
    engine = load_engine(target, tree="none")
    sampling = Sampling(max_tokens=tokens, ignore_eos=True)
    prompts = [[3, 1, 4, 1, 5], [9, 2, 6], [5, 3, 5, 8, 9, 7]]
    return [GreedyText(prompt, engine.generate(prompt, sampling).tokens) for prompt in prompts]

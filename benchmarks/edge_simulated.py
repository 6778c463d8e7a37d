"""How well `edge simulate` foretells: real servers and clients over a delaying relay, and the same simulated.

    python benchmarks/edge_simulated.py            # about nine minutes, on a machine that does nothing else
    python benchmarks/edge_simulated.py --quick    # two links and fewer prompts

Real are the verify-server, its clients, gRPC and the relay, all on this machine; passes take the times
that playbooks/edge.yaml declares. Simulated are the same passes, links and numbers of clients; what rounds
bring is counted over the same prompts. What a round, a step and a draft pass take beside what is declared is
read off one real setting, the first, which is then left out of the errors.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specops.assets import asset
from specops.config import StandIn, load
from specops.economics import Prices
from specops.edge.simulation.outcome import replicate
from specops.edge.simulation.real_rounds import LEVELS
from specops.edge.simulation.rounds import Rounds
from specops.edge.simulation.setting import EdgeCosts, Setting, straight
from specops.engine.text import load_tokenizer
from specops.experiment.plan import Request, Window
from specops.load.arrivals import Level
from specops.load.workload import load_prompts
from specops.phases.edge_bench.judging import BenchFigures, figures
from specops.phases.edge_bench.measure import site, tokenized, warm_up
from specops.phases.edge_bench.settings import Arm, EdgeBenchSettings, settings_of
from specops.phases.edge_simulate import Measuring, rounds_of
from specops.progress import SilentProgress
from specops.render.figures import aligned

DEPTHS, HEADS = (2, 5), (0, 8)
AHEAD, AHEAD_DEPTHS = 16, ("included:2", "adaptive")
CLIENTS = (1, 2, 4)
RTTS_MS, QUICK_RTTS_MS = (5.0, 15.0, 50.0), (5.0, 50.0)
CALIBRATED_DEPTH = 5
SECONDS, SEEDS = 200.0, (0, 1, 2)
PRICES = Prices(4.05, 0.35)
MEASURES = ("itl_ms", "tokens_per_s", "idle", "tokens_per_verification")
TAKEN = "taken"
"""Rounds that had been sent ahead, as a share: told, and not among the errors."""


@dataclass(frozen=True)
class Pair:
    """One setting: what was found, and what was foretold."""

    rtt_ms: float
    arm: Arm
    clients: int
    real: dict[str, float]
    simulated: dict[str, float]
    calibrates: bool

    def error(self, measure: str) -> float:
        """Relative; of the idle share, in points."""
        real, simulated = self.real[measure], self.simulated[measure]
        return simulated - real if measure == "idle" else simulated / real - 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rtts = QUICK_RTTS_MS if asked.quick else RTTS_MS
    rollout = load(asset("playbooks", "edge.yaml"))
    base = settings_of(rollout, count=asked.prompts, tokens=asked.tokens)
    stand_in = base.edge.stand_in
    assert stand_in is not None  # the shipped file declares them
    rounds = rounds_of(
        Measuring(
            target=base.target,
            draft=base.draft,
            prompts=base.prompts,
            count=asked.prompts,
            prompt_tokens=base.prompt_tokens,
            tokens=asked.tokens + LEVELS + 1,  # so that each of an answer's tokens is a root
            nodes=base.edge.nodes,
            beams=base.edge.beams,
            heads=max(HEADS),
        ),
        SilentProgress(),
    )
    found: list[tuple[float, Arm, int, BenchFigures]] = []
    for rtt_ms in rtts:
        for arm, clients, real in _real(base, rtt_ms):
            print(f"real: {rtt_ms:g} ms, {arm.name}, {clients} clients", file=sys.stderr)
            found.append((rtt_ms, arm, clients, real))
    costs = _calibrated(_declared(stand_in), stand_in, found[0][3], rtts[0], base.edge.beams)
    pairs = [
        _compared(base, costs, rounds, rtt_ms, arm, clients, real, calibrates=number == 0)
        for number, (rtt_ms, arm, clients, real) in enumerate(found)
    ]
    print("\n".join(_page(pairs, costs, rounds)))
    if asked.out is not None:
        kept = [
            {
                "rtt_ms": p.rtt_ms,
                "arm": p.arm.name,
                "clients": p.clients,
                "real": p.real,
                "simulated": p.simulated,
            }
            for p in pairs
        ]
        asked.out.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 0


def _arms() -> list[Arm]:
    """The one that calibrates comes first."""
    edge = [
        Arm(name=f"included:{depth}, {heads} heads", kind="edge", heads=heads, depth=f"included:{depth}")
        for depth in (CALIBRATED_DEPTH, *(depth for depth in DEPTHS if depth != CALIBRATED_DEPTH))
        for heads in HEADS
    ]
    most = max(HEADS)
    ahead = [
        Arm(name=f"{depth}, {most} heads, {AHEAD} ahead", kind="edge", heads=most, ahead=AHEAD, depth=depth)
        for depth in AHEAD_DEPTHS
    ]
    return [*edge, *ahead, Arm(name="autoregressive", kind="autoregressive")]


def _real(base: EdgeBenchSettings, rtt_ms: float) -> Iterator[tuple[Arm, int, BenchFigures]]:
    edge = base.edge.model_copy(update={"rtt_ms": rtt_ms, "clients": list(CLIENTS)})
    settings = base.model_copy(update={"edge": edge})
    tokenizer = load_tokenizer(settings.target)
    prompts = {
        prompt.id: tokenized(prompt, tokenizer, settings.prompt_tokens)
        for prompt in load_prompts(settings.prompts).spread(settings.count)
    }
    requests = tuple(Request(name, "") for name in prompts)
    arms = _arms()
    with site(settings, arms, tokenizer) as here:
        for arm in arms:
            here.measure(arm, warm_up(arm.name, next(iter(prompts))), prompts)
        for clients in CLIENTS:
            for order, arm in enumerate(arms):
                window = Window(0, "measured", Level(concurrency=clients), order, 0, arm.name, requests)
                measured = here.measure(arm, window, prompts)
                failed = [row for row in measured.cell.rows if row.error]
                if failed:
                    raise SystemExit(f"{arm.name}, {clients} clients: {failed[0].detail}")
                yield arm, clients, figures([measured], settings.prices)


def _declared(stand_in: StandIn) -> EdgeCosts:
    draft, verify, server_draft = (
        straight(one.pass_ms / 1000, one.token_ms / 1000)
        for one in (stand_in.edge_draft, stand_in.verify, stand_in.server_draft)
    )
    return EdgeCosts(draft, verify, server_draft)


def _calibrated(
    costs: EdgeCosts, stand_in: StandIn, real: BenchFigures, rtt_ms: float, beams: int
) -> EdgeCosts:
    """What one client without a head was found to need beside what is declared."""
    effort = real.effort
    beside = effort.draft_s / effort.passes - costs.draft.seconds(beams)
    declared = stand_in.edge_draft
    step_s = effort.step_s / effort.verdicts
    return replace(
        costs,
        draft=straight(declared.pass_ms / 1000 + max(beside, 0.0), declared.token_ms / 1000),
        step_s=max(step_s - costs.verify.seconds(1 + effort.nodes / effort.rounds), 0.0),
        round_s=max(effort.network_s / effort.rounds - rtt_ms / 1000, 0.0),
    )


def _compared(
    base: EdgeBenchSettings,
    costs: EdgeCosts,
    rounds: Rounds,
    rtt_ms: float,
    arm: Arm,
    clients: int,
    real: BenchFigures,
    *,
    calibrates: bool,
) -> Pair:
    setting = Setting(
        arm.kind,
        clients,
        rtt_s=rtt_ms / 1000,
        depth=arm.depth or "included:4",
        batching=base.edge.batching,
        heads="many" if arm.heads else "none",
        ahead=arm.ahead,
        nodes=base.edge.nodes,
        beams=base.edge.beams,
        max_batch=base.max_batch,
        prompt_tokens=base.prompt_tokens,
        tokens=base.tokens,
    )
    foretold = replicate(setting, costs, rounds, PRICES, seeds=SEEDS, seconds=SECONDS)
    assert real.tpot_ms.mean is not None
    assert real.tokens_a_verification is not None
    found = {
        "itl_ms": real.tpot_ms.mean,
        "tokens_per_s": real.tokens_per_s,
        "idle": real.server.idle,
        "tokens_per_verification": real.tokens_a_verification,
        TAKEN: real.effort.taken / max(real.effort.rounds, 1),
    }
    told = {name: foretold.known_mean(name) for name in (*MEASURES, TAKEN)}
    return Pair(rtt_ms, arm, clients, found, told, calibrates)


def _page(pairs: Sequence[Pair], costs: EdgeCosts, rounds: Rounds) -> list[str]:
    rows = [["RTT", "arm", "clients", "ITL real", "simulated", "error", "tokens/s", "error"]]
    rows[0] += ["idle", "error", "tokens a verification", "error", "ahead", "simulated"]
    for pair in pairs:
        rows.append(
            [
                f"{pair.rtt_ms:g} ms",
                pair.arm.name,
                str(pair.clients),
                f"{pair.real['itl_ms']:.2f}",
                f"{pair.simulated['itl_ms']:.2f}",
                f"{100 * pair.error('itl_ms'):+.1f}%" + (" (calibrates)" if pair.calibrates else ""),
                f"{pair.real['tokens_per_s']:.1f}",
                f"{100 * pair.error('tokens_per_s'):+.1f}%",
                f"{100 * pair.real['idle']:.0f}%",
                f"{100 * pair.error('idle'):+.1f} points",
                f"{pair.real['tokens_per_verification']:.2f}",
                f"{100 * pair.error('tokens_per_verification'):+.1f}%",
                *(f"{100 * of[TAKEN]:.0f}%" for of in (pair.real, pair.simulated)),
            ]
        )
    judged = [pair for pair in pairs if not pair.calibrates]
    ends = [["", "median", "worst"]]
    for measure in MEASURES:
        errors = [100 * abs(pair.error(measure)) for pair in judged]
        unit = " points" if measure == "idle" else "%"
        ends.append(
            [measure.replace("_", " "), f"{statistics.median(errors):.1f}{unit}", f"{max(errors):.1f}{unit}"]
        )
    return [
        f"rounds: {rounds.source}",
        f"beside the declared: a step {1000 * costs.step_s:.2f} ms, a round {1000 * costs.round_s:.2f} ms;"
        f" a pass of the draft {1000 * costs.draft.seconds(Setting().beams):.2f} ms in all",
        "",
        *aligned(rows),
        "",
        f"errors of {len(judged)} settings, as sizes:",
        *aligned(ends),
    ]


if __name__ == "__main__":
    raise SystemExit(main())

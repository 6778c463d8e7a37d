"""The input of `edge simulate`, from options, files and the rollout file: costs, rounds, settings."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specops.assets import asset
from specops.config import Rollout
from specops.economics import HOUR_S
from specops.edge.simulation.rounds import Rounds, of_rates
from specops.edge.simulation.setting import EdgeCosts, straight
from specops.errors import FileError, UsageError
from specops.hints import with_options
from specops.phases.edge_simulate import Measuring

LEVELS = 10
"""Number of levels of trees whose acceptance is given as one number."""
A100_80, RTX_4090 = 0.0014028, 0.0000972
"""Prices in dollars a second, by SpecEdge's released code (src/metric/__init__.py)."""


@dataclass(frozen=True)
class PassTimes:
    """Times of passes in milliseconds; None where an option was not given."""

    verify: float | None
    verify_token: float
    draft: float | None
    server_draft: float | None
    """None: as at the edge."""


@dataclass(frozen=True)
class RoundSource:
    """The source of rounds: a file, one number, or else the pair, over so many prompts."""

    file: Path | None
    acceptance: float | None
    hit: float
    prompts: int


def costs_of(file: Rollout, path: Path, costs: Path | None, passes: PassTimes) -> tuple[EdgeCosts, str]:
    """Return the costs and their source: --costs, the options, or the file's stand_in, whichever is there
    first."""
    if costs is not None:
        if (passes.verify, passes.draft, passes.server_draft) != (None, None, None):
            raise UsageError(
                "--costs excludes --verify-ms, --draft-ms and --server-draft-ms",
                hint=with_options({"--costs": None}),
            )
        return EdgeCosts.of_json(_read(costs), str(costs)), str(costs)
    if passes.verify is not None and passes.draft is not None:
        own = passes.draft if passes.server_draft is None else passes.server_draft
        verify = straight(passes.verify / 1000, passes.verify_token / 1000)
        return EdgeCosts(straight(passes.draft / 1000), verify, straight(own / 1000)), "the options"
    if passes.verify is not None or passes.draft is not None or passes.server_draft is not None:
        required = {"--verify-ms": passes.verify, "--draft-ms": passes.draft}
        raise UsageError(
            "costs need both --verify-ms and --draft-ms",
            hint=with_options({name: "10" for name, value in required.items() if value is None}),
        )
    if file.edge is None or file.edge.stand_in is None:
        raise UsageError(
            f"{path} declares no costs of passes",
            hint=with_options({"--verify-ms": "80", "--draft-ms": "10"}),
        )
    declared = file.edge.stand_in
    draft, verify, server_draft = (
        straight(cost.pass_ms / 1000, cost.token_ms / 1000)
        for cost in (declared.edge_draft, declared.verify, declared.server_draft)
    )
    return EdgeCosts(draft, verify, server_draft), f"edge.stand_in of {path.name}"


def given_rounds(brought: RoundSource) -> Rounds | None:
    """Return the rounds that the options give; None: they are to be measured."""
    if brought.file is not None and brought.acceptance is not None:
        raise UsageError(
            "--rounds and --acceptance exclude each other", hint=with_options({"--acceptance": None})
        )
    if brought.file is not None:
        return Rounds.of_json(_read(brought.file), str(brought.file))
    if brought.acceptance is None:
        return None
    source = f"{brought.acceptance:g} at every level, guesses hit in {brought.hit:g} of the rounds"
    return of_rates([brought.acceptance] * LEVELS, hit=brought.hit, hit_many=brought.hit, source=source)


def measuring(file: Rollout, path: Path, prompts: int, *, nodes: int, beams: int, heads: int) -> Measuring:
    own = file.pools.speculative.own
    if own is None or own.tree is None or own.draft is None:
        raise UsageError(
            f"could not measure the speculative pool of {path}: it is not an embedded pair of two models",
            hint=with_options({"--acceptance": "0.8"}),
        )
    return Measuring(
        target=own.target,
        draft=Path(own.draft),
        prompts=file.prompts or asset("playbooks", "embedded", "prompts.json"),
        count=prompts,
        nodes=nodes,
        beams=beams,
        heads=max(heads, 2),
    )


def of_file(file: Rollout) -> dict[str, Any]:
    """Settings that the rollout file has; prices that it lacks are SpecEdge's."""
    fields: dict[str, Any] = {
        "server_per_hour": A100_80 * HOUR_S,
        "edge_per_hour": RTX_4090 * HOUR_S,
    }
    if file.costs is not None:
        fields["server_per_hour"] = file.costs.speculative
        if file.costs.edge_per_hour is not None:
            fields["edge_per_hour"] = file.costs.edge_per_hour
    if file.edge is not None:
        fields |= {
            "nodes": file.edge.nodes,
            "beams": file.edge.beams,
            "heads": max(file.edge.heads),
            "ahead": max(file.edge.ahead),
            "batching": file.edge.batching,
        }
    own = file.pools.speculative.own
    if own is not None:
        fields["max_batch"] = own.max_batch
    return fields


def save(rounds: Rounds, path: Path) -> None:
    try:
        path.write_text(json.dumps(rounds.to_json(), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise FileError(
            f"could not write {path}: {error.strerror}",
            hint=with_options({"--save-rounds": f"/tmp/{path.name}"}),
        ) from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(
            f"could not read {path}: {getattr(error, 'strerror', None) or error}",
            hint=f"ls -l {path}",
        ) from error

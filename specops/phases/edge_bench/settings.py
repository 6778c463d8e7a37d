"""The bench's arms (who drafts), and what is measured of a pair at the edge, read from a rollout file."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from specops.assets import asset
from specops.config import Ab, Edge, Rollout, StandIn
from specops.economics import Prices
from specops.engine.heads import needs_target
from specops.errors import ConfigError
from specops.section import Frozen
from specops.serving import OwnModels

Kind = Literal["autoregressive", "server-only", "edge"]
AUTOREGRESSIVE, SERVER_ONLY = "autoregressive", "server-only"


class Arm(Frozen):
    name: str
    kind: Kind
    heads: int = 0
    """Guesses that the edge drafts on from while its round is away; 0 where nothing does."""

    ahead: int = 0
    """Number of these whose next trees it sends before it knows which is right."""

    depth: str = ""
    """When the edge sends; empty where the server drafts, or nobody."""

    def tree(self, server_tree: str) -> str:
        """Return what the arm's server drafts for itself."""
        return server_tree if self.kind == "server-only" else "none"


def arms_of(heads: Iterable[int], depths: Iterable[str], ahead: Iterable[int]) -> list[Arm]:
    """The two that need no edge, and at each depth an edge arm for each number of heads, which sends as few
    trees ahead as were requested; with the most heads, one for each other number of them as well."""
    heads, ahead, depths = sorted(set(heads)), sorted(set(ahead)), list(dict.fromkeys(depths))
    tried = [(count, ahead[0]) for count in heads]
    if heads[-1] > 0:  # without guesses there is nothing to send ahead
        tried += [(heads[-1], trees) for trees in ahead[1:]]
    edge = [
        Arm(name=_name(count, trees, depth, len(depths)), kind="edge", heads=count, ahead=trees, depth=depth)
        for depth, (count, trees) in product(depths, tried)
    ]
    return [
        Arm(name=AUTOREGRESSIVE, kind="autoregressive"),
        Arm(name=SERVER_ONLY, kind="server-only"),
        *edge,
    ]


def _name(heads: int, ahead: int, depth: str, depths: int) -> str:
    name = f"edge, {heads} head{'' if heads == 1 else 's'}" + (f", {ahead} ahead" if ahead else "")
    return name if depths == 1 else f"{name}, {depth}"


TOKENS = 64
_OWN_DESIGN = {"design": "interleaved", "accept_length_change": False}


class EdgeBenchSettings(Frozen):
    target: Path
    draft: Path
    prompts: Path
    count: int = 64
    """Prompts, spread over the set, and least requests to each arm at each load. At 1, 4 and 8 clients, whole
    windows then have 330 requests to each arm: the bounds on failures need about 300."""

    prompt_tokens: int = 128  # the last ones of each prompt
    tokens: int = TOKENS  # of each answer; decoded to the end whatever the model says
    temperature: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    top_p: float = 1.0
    seed: int = 0
    edge: Edge
    server_tree: str
    verifier: str | None = None
    max_batch: int = 8
    prices: Prices | None = None
    currency: str = "USD"
    margins: Ab = Ab()
    """Margins and confidence of a comparison. The design is the bench's own: arms in turn, one look at the
    end, answers of one length."""

    def recorded(self) -> dict[str, Any]:
        """Return the settings as a result stores them: models by name, since their hashes are among its
        inputs."""
        own_design = {"margins": set(_OWN_DESIGN) | {"looks", "requests", "min_duration_s"}}
        fields = self.model_dump(
            mode="json", exclude={"target": True, "draft": True, "prompts": True, **own_design}
        )
        return fields | {"target": self.target.name, "draft": self.draft.name}


EXAMPLE = f"cat {shlex.quote(str(asset('playbooks', 'edge.yaml')))}  # an example"


def settings_of(rollout: Rollout, **changed: Any) -> EdgeBenchSettings:
    """Return the settings of the rollout's `edge`, its speculative pool, `measure` and `costs`.

    `changed` takes their places; what of it is None does not. Raises ConfigError for a file that has none of
    it, or a pool whose draft no edge could run; ValidationError for what `changed` cannot be.
    """
    own = rollout.pools.speculative.own
    if own is None or own.tree is None:
        raise ConfigError(
            "could not bench edge drafting: the speculative pool is not of the embedded engine",
            hint=EXAMPLE,
        )
    draft = _draft(own)
    costs, measure, prices = rollout.costs, rollout.measure, None
    if costs is not None and costs.edge_per_hour is not None:
        prices = Prices(costs.speculative, costs.edge_per_hour)
    chosen = {key: value for key, value in changed.items() if value is not None}
    changed_edge = {key: chosen.pop(key) for key in list(chosen) if key in Edge.model_fields}
    edge = Edge.model_validate(dict(rollout.edge or Edge()) | changed_edge)
    of_file: dict[str, Any] = {
        "target": own.target,
        "draft": draft,
        "prompts": rollout.prompts or asset("playbooks", "embedded", "prompts.json"),
        "tokens": measure.max_tokens or TOKENS,
        "temperature": measure.temperature,
        "top_p": measure.top_p,
        "seed": measure.seed,
        "edge": edge,
        "server_tree": own.tree,
        "verifier": own.verifier,
        "max_batch": own.max_batch,
        "prices": prices,
        "currency": costs.currency if costs else "USD",
        "margins": rollout.ab.model_copy(update=_OWN_DESIGN),
    }
    return EdgeBenchSettings(**(of_file | chosen))


def _draft(own: OwnModels) -> Path:
    folder = own.draft_model
    if folder is None:
        raise ConfigError(
            "could not bench edge drafting: the speculative pool has no draft model that an edge could run: "
            "expected speculation.draft, a folder with a model of its own",
            hint=EXAMPLE,
        )
    if own.draft is not None and needs_target(folder):
        raise ConfigError(
            f"could not bench edge drafting with {folder}: it is a head or an early exit, which "
            "reads the target's features, and these stay on the server. Expected a model of its own",
            hint=EXAMPLE,
        )
    return folder


def stands_in(stand_in: StandIn) -> list[str]:
    """The declared costs, in words."""

    def line(subject: str, pass_ms: float, token_ms: float) -> str:
        return f"{subject} {pass_ms:g} ms a pass" + (f" and {token_ms:g} ms a token" if token_ms else "")

    return [
        line("the target on the server", stand_in.verify.pass_ms, stand_in.verify.token_ms),
        line("the draft on the server", stand_in.server_draft.pass_ms, stand_in.server_draft.token_ms),
        line("the draft at the edge", stand_in.edge_draft.pass_ms, stand_in.edge_draft.token_ms),
    ]

"""The record of `verify-draft --measure`: `data.estimate`. It needs no engine to be read."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from specops.experiment.findings import StoredInterval
from specops.section import Frozen


class DepthAcceptance(Frozen):
    """Acceptance of the children of nodes at one depth, along the draft's first choices; the root's is 0."""

    parents: float
    """How many nodes were reached; at temperature 0 a count, above it an expected one."""

    by_rank: tuple[float, ...]
    """The share of them whose child of rank 0, 1, … was accepted."""


class MeasuredAcceptance(Frozen):
    prompts: int
    tokens: int
    """Number of tokens that the target wrote after them."""

    depths: tuple[DepthAcceptance, ...]


class PredictedSpeedup(Frozen):
    """Predicted, end to end, over the target alone."""

    estimate: float
    interval: StoredInterval | None
    """95%; None where the sample has too few prompts for one."""


class Prediction(Frozen):
    tree: str
    tokens_per_step: float
    step_ms: float
    """Milliseconds of a step in the engine."""

    overall: PredictedSpeedup
    by_class: dict[str, PredictedSpeedup]


class CostsAt(Frozen):
    """Milliseconds, at one length of context."""

    context: int
    plain_step: float
    draft_first_pass: float
    draft_level: dict[int, float]
    """A further pass of the draft, by its nodes."""

    target: dict[int, float]
    """The target's pass and the verification, by tokens."""

    crowding: float
    """What each further pass of the draft adds to the target's."""

    commit: float
    gather: float
    """What committing takes longer where a tree branches."""

    prompt: float
    prompt_drafted: float


class ApiCosts(Frozen):
    """Milliseconds that the API adds."""

    request: float
    chunk: float


class Estimate(Frozen):
    chosen: str
    """The tree to take: this draft's, one of n-grams, or `none`. The smallest of those that are predicted
    to be as fast as the best."""

    drafted: Prediction
    """The best that this draft does, whether or not it pays."""

    alternatives: tuple[Prediction, ...]
    """Every tree that was predicted answer by answer; the best first."""

    any_shape: float
    """How many times the tokens a step of `drafted` a tree of any shape with as many nodes would give, by the
    table of acceptance."""

    acceptance: MeasuredAcceptance
    by_class: dict[str, MeasuredAcceptance]
    costs: tuple[CostsAt, ...]
    """Costs at a short and at a long context."""

    api: ApiCosts
    temperature: float
    assumptions: tuple[str, ...]

    @property
    def best(self) -> Prediction | None:
        """Return what `chosen` is predicted to do; None for none."""
        return next((prediction for prediction in self.alternatives if prediction.tree == self.chosen), None)


class EstimateData(TypedDict):
    """A key of `data` of the result, beside `verify.VerifyDraftData`."""

    estimate: NotRequired[Estimate]

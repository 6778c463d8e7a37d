"""What a dashboard is made of, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["lines", "value", "bars", "states"]

# Grafana's variables: the dashboard serves every rollout that a Prometheus has.
OURS = '{specops_rollout="$rollout",model_name=~"$model"}'
SPECULATIVE = '{specops_rollout="$rollout",specops_pool="speculative",model_name=~"$model"}'
ALL = '{specops_rollout="$rollout"}'
BOTH = '{specops_rollout="$rollout",specops_pool="speculative"}'
RATE = "[$__rate_interval]"
POOL_AND_MODEL = "{{specops_pool}} {{model_name}}"


@dataclass(frozen=True)
class Query:
    expr: str
    legend: str


@dataclass(frozen=True)
class Panel:
    title: str
    description: str
    queries: Sequence[Query]
    unit: str = "short"
    """By Grafana's ids: percentunit (0 to 1), percent (0 to 100), s, reqps, ops."""

    kind: Kind = "lines"
    width: int = 8
    """Of 24."""

    height: int = 8
    steps: Sequence[tuple[float, str]] = ()
    """Colours from a value on, rising; below the first it is red."""

    words: Mapping[str, str] | None = None
    """Of values that stand for something."""


@dataclass(frozen=True)
class Row:
    title: str
    panels: Sequence[Panel]

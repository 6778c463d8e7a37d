"""What a rule file of Prometheus is made of, and how it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specops.render.server import header, to_yaml


@dataclass(frozen=True)
class Record:
    """A recorded series."""

    name: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def as_rule(self) -> dict[str, Any]:
        rule: dict[str, Any] = {"record": self.name, "expr": self.expr}
        return rule | ({"labels": dict(self.labels)} if self.labels else {})

    def labelled(self, labels: Mapping[str, str]) -> Record:
        """The same with more labels."""
        return replace(self, labels={**self.labels, **labels})


@dataclass(frozen=True)
class Alert:
    name: str
    expr: str
    for_s: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    def as_rule(self) -> dict[str, Any]:
        rule: dict[str, Any] = {"alert": self.name, "expr": self.expr}
        if self.for_s:
            rule["for"] = duration(self.for_s)
        return rule | {"labels": dict(self.labels), "annotations": dict(self.annotations)}


def rule_file(rollout: str, group: str, rules: Sequence[Record | Alert], *notes: str) -> str:
    """One group, whose rules Prometheus evaluates in their order: a rule may read those before it."""
    return header(rollout, *notes) + to_yaml(
        {"groups": [{"name": group, "rules": [rule.as_rule() for rule in rules]}]}
    )


def duration(seconds: int) -> str:
    """Prometheus' words: 90s, 5m, 1h."""
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds and seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"

"""What `monitor check` makes of a Prometheus' answers; a real one is asked in tests/real."""

from __future__ import annotations

from typing import cast

import pytest
from made_monitoring import rollout

from specops.phases.monitor.check import NameState, check
from specops.progress import SilentProgress
from specops.prometheus import series
from specops.prometheus.api import Api, Sample

OF_DRAFTS = (series.ACCEPTANCE, series.ACCEPTED_LENGTH, series.DRAFTED)


class Answering:
    """Has every name but `lacking`, each a second old; so many requests ended on each pool."""

    url = "http://127.0.0.1:9090"

    def __init__(self, lacking: tuple[str, ...], standard: float, speculative: float) -> None:
        self.lacking = lacking
        self.finished = {'specops_pool="speculative"': speculative, series.FINISHED: standard + speculative}

    def ready(self) -> None:
        pass

    def instant(self, expr: str) -> list[Sample]:
        if expr.startswith("sum("):
            return [Sample({}, next((n for part, n in self.finished.items() if part in expr), 1.0), 0.0)]
        return [] if any(name in expr for name in self.lacking) else [Sample({}, 1.0, 0.0)]


def found(standard: float, speculative: float, *lacking: str) -> tuple[str, dict[str, NameState]]:
    result = check(rollout(), cast(Api, Answering(lacking, standard, speculative)), SilentProgress())
    names = [NameState.model_validate(each) for each in result.data["names"]]
    return result.verdict, {each.name: each for each in names}


def test_after_a_fall_back_acceptance_waits_for_traffic() -> None:
    """There are requests, on the standard pool; the rules are as they should be."""
    verdict, names = found(500.0, 0.0, *OF_DRAFTS)
    assert verdict == "yes"
    assert {names[name].status for name in OF_DRAFTS} == {"no traffic"}


@pytest.mark.parametrize("name", [*OF_DRAFTS, series.ANSWER_TOKENS, series.REQUESTS])
def test_rules_that_do_not_record_under_traffic_are_told(name: str) -> None:
    verdict, names = found(0.0, 500.0, name)
    assert verdict == "no"
    assert names[name].status == "absent"
    assert "render again" in (names[name].fix or "")

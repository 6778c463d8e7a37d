"""What tokens cost: by the paper's own prices, and the properties that any prices have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.economics import Prices, TokenTime

A100_40, RTX_4090 = 0.001125, 0.0000972
"""USD a second, as SpecEdge's metrics have them."""

money = st.floats(0.01, 100)
seconds = st.floats(0.1, 1e5)
counts = st.integers(1, 10**9)


def test_the_papers_prices() -> None:
    """1000 tokens / ($server T_server + $edge sum T_edge): server-only for 100 s, and four edges with it."""
    prices = Prices(A100_40 * 3600, RTX_4090 * 3600)
    alone = TokenTime(2000, 100.0, 0.0)
    helped = TokenTime(4440, 100.0, 400.0)
    assert alone.thousands_per_unit(prices) == pytest.approx(2 / 0.1125)
    assert helped.thousands_per_unit(prices) == pytest.approx(4.44 / (0.1125 + 0.03888))
    assert alone.per_million(prices) == pytest.approx(56.25)


def test_nothing_said_and_nothing_spent_have_no_price() -> None:
    prices = Prices(4.0, 0.0)
    assert TokenTime(0, 10.0, 0.0).per_million(prices) is None
    assert TokenTime(10, 0.0, 5.0).thousands_per_unit(prices) is None


@pytest.mark.parametrize(("server", "edge"), [(0.0, 1.0), (-1.0, 1.0), (1.0, -0.1)])
def test_prices_that_are_none(server: float, edge: float) -> None:
    with pytest.raises(ValueError, match="invalid prices"):
        Prices(server, edge)


@given(money, money, seconds, seconds, counts)
def test_both_ways_of_saying_it_agree(server: float, edge: float, busy: float, used: float, n: int) -> None:
    prices, spent = Prices(server, edge), TokenTime(n, busy, used)
    each, reverse = spent.per_million(prices), spent.thousands_per_unit(prices)
    assert each is not None
    assert reverse is not None
    assert each * reverse == pytest.approx(1000)

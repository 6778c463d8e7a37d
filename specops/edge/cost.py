"""What tokens cost where a server verifies and edges draft. Pure.

    money = server's price * server's seconds + edge's price * the sum of the edges' seconds

SpecEdge (arXiv 2505.17052) gives its reverse, thousands of tokens for a unit of money, as cost efficiency.
Which of a server's seconds are counted is said by whoever counts: all that passed, where it has nobody else
to serve, or those in which it was busy, where others fill the rest. An edge's seconds are all that passed
while somebody used it: nobody else does in between.
"""

from __future__ import annotations

from dataclasses import dataclass

HOUR_S = 3600.0


@dataclass(frozen=True)
class Prices:
    """Of one machine of each kind for an hour, in any currency."""

    server_per_hour: float
    edge_per_hour: float
    """0 where the user owns it and would not use it otherwise."""

    def __post_init__(self) -> None:
        if self.server_per_hour <= 0 or self.edge_per_hour < 0:
            raise ValueError(f"a server costs something, and an edge no less than nothing: {self}")


@dataclass(frozen=True)
class Spent:
    """What so many tokens took."""

    tokens: int
    server_s: float
    edge_s: float
    """Of all edges together; 0 where none drafts."""

    def money(self, prices: Prices) -> float:
        return (prices.server_per_hour * self.server_s + prices.edge_per_hour * self.edge_s) / HOUR_S

    def per_million(self, prices: Prices) -> float | None:
        """Money for a million tokens; None where there were none."""
        return self.money(prices) / self.tokens * 1e6 if self.tokens else None

    def thousands_per_unit(self, prices: Prices) -> float | None:
        """Thousands of tokens for one unit of money; None where nothing was spent."""
        money = self.money(prices)
        return self.tokens / money / 1000 if money > 0 else None

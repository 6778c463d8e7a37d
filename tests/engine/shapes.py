"""Random tree shapes, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st


@st.composite
def parents(draw: st.DrawFn, max_nodes: int = 90) -> tuple[int, ...]:
    """Of any tree whose nodes follow their parents: bushy, deep or in between."""
    nodes = draw(st.integers(1, max_nodes))
    reach = draw(st.sampled_from([1, 3, nodes]))  # how far back a parent may lie
    found = [-1]
    for node in range(1, nodes):
        found.append(draw(st.integers(max(0, node - reach), node - 1)))
    return tuple(found)


def ancestors(parents: tuple[int, ...], node: int) -> list[int]:
    """The node and what lies above it, from the bottom up."""
    found = [node]
    while parents[found[-1]] >= 0:
        found.append(parents[found[-1]])
    return found

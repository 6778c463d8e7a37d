"""The choice of who drafts, the client or the server: whichever gives a stream more tokens a second.

A round at the edge costs a round trip. A server that drafts for itself streams its tokens, and pays for the
path once. So the server takes over on a slow link, and when drafts are rarely accepted. While the server
drafts, the link is probed, and the client drafts again once it is fast enough. A probe does not show whether
drafts are better; that is tried, more rarely after each failure.

Pure: time is an argument, and every call returns the next state.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

Cause = Literal["link", "drafts", "healed", "trial"]
"""Cause of a change: to the server for a slow link or poor drafts, to the client for a link that is fast
again or to try its drafts again."""

CAUSES: tuple[Cause, ...] = ("link", "drafts", "healed", "trial")


@dataclass(frozen=True)
class FallbackRules:
    margin: float = 0.15  # by which the other one must be faster
    dwell_rounds: int = 6  # verdicts, or probes, before a change is thought of
    dwell_s: float = 2.0  # between changes at least; after a return that did not last, twice as long
    longest_s: float = 120.0  # what that grows to
    probe_s: float = 0.5  # between probes of the link
    memory: float = 0.85  # what an older observation weighs, beside the one after it


@dataclass(frozen=True)
class Mean:
    """Mean of observations, in which older ones weigh less."""

    weight: float = 0.0
    total: float = 0.0

    def add(self, value: float, memory: float) -> Mean:
        return Mean(self.weight * memory + 1.0, self.total * memory + value)

    @property
    def value(self) -> float:
        return self.total / self.weight


@dataclass(frozen=True)
class TokenPace:
    """Mean tokens and seconds of verdicts."""

    tokens: Mean = Mean()
    seconds: Mean = Mean()

    def add(self, tokens: int, seconds: float, memory: float) -> TokenPace:
        return TokenPace(self.tokens.add(tokens, memory), self.seconds.add(seconds, memory))

    def rate(self, more: float = 0.0) -> float:
        """Tokens a second, if each verdict takes `more` seconds more."""
        return self.tokens.value / max(self.seconds.value + more, 1e-9)

    @property
    def observed(self) -> bool:
        return self.tokens.weight > 0


@dataclass(frozen=True)
class Fallback:
    """State of the choice, shared by all streams of a link."""

    server_drafts: bool = False
    rules: FallbackRules = FallbackRules()
    fixed: bool = False
    """Whether the choice never changes."""

    switches: dict[Cause, int] = field(default_factory=dict)
    rounds: TokenPace = TokenPace()
    """Rounds drafted at the edge, without the round-trip time."""

    way: Mean = Mean()
    """Round-trip time in seconds: from rounds while the client drafts, from probes while the server does."""

    own: TokenPace = TokenPace()
    """Verdicts on the server's own drafts."""

    step: Mean = Mean()
    """Seconds of a server's step, used while the pace of its own drafting is unknown."""

    since: float | None = None  # when this began
    observed: int = 0  # verdicts or probes since then
    patience: float = 0.0  # how long the server keeps it this time, at least
    probed: float = float("-inf")

    @staticmethod
    def always(*, server_drafts: bool) -> Fallback:
        """A choice that never changes."""
        return Fallback(server_drafts, fixed=True)

    def round(self, now: float, *, tokens: int, seconds: float, rtt: float, step: float) -> Fallback:
        """The state after a verdict on a round, except for a session's first, which is its prompt's.

        tokens: number of tokens that it gave. seconds: time since the session's last verdict. rtt: the
        round-trip time in it, without the wait and the step. step: the server's step in it.
        """
        memory = self.rules.memory
        state = replace(self, step=self.step.add(step, memory))
        if self.server_drafts:  # one that was under way when that was decided
            return state
        state = replace(
            state,
            rounds=self.rounds.add(tokens, max(seconds - rtt, 0.0), memory),
            way=self.way.add(rtt, memory),
        )
        return state._observed(now)._decided(now)

    def streamed(self, now: float, *, tokens: int, seconds: float) -> Fallback:
        """The state after a verdict on the server's own draft. seconds: time since the session's last
        verdict."""
        if not self.server_drafts:
            return self
        return replace(self, own=self.own.add(tokens, seconds, self.rules.memory))._decided(now)

    def pinged(self, now: float, rtt: float) -> Fallback:
        """The state after a probe with the round-trip time `rtt`."""
        if not self.server_drafts:
            return self
        state = replace(self, way=self.way.add(rtt, self.rules.memory), probed=now)
        return state._observed(now)._decided(now)

    def due(self, now: float) -> bool:
        """Return whether the link should be probed."""
        return self.server_drafts and not self.fixed and now - self.probed >= self.rules.probe_s

    def _observed(self, now: float) -> Fallback:
        since = now if self.since is None else self.since
        return replace(self, since=since, observed=self.observed + 1)

    def _decided(self, now: float) -> Fallback:
        rules = self.rules
        if self.fixed or self.since is None or self.observed < rules.dwell_rounds:
            return self
        if now - self.since < (max(self.patience, rules.dwell_s) if self.server_drafts else rules.dwell_s):
            return self
        return self._decided_here(now) if self.server_drafts else self._decided_away(now)

    def _decided_away(self, now: float) -> Fallback:
        """The state, in which the server drafts if the client is too slow."""
        bar = self._server_rate / (1 + self.rules.margin)
        if self.rounds.rate(self.way.value) >= bar:
            return self
        cause: Cause = "drafts" if self.rounds.rate() < bar else "link"
        rules, stayed = self.rules, now - (now if self.since is None else self.since)
        brief = self.observed < 2 * rules.dwell_rounds or stayed < 2 * self.patience
        patience = max(2 * self.patience, rules.dwell_s) if brief else rules.dwell_s
        return self._changed(now, cause, patience=min(patience, rules.longest_s))

    def _decided_here(self, now: float) -> Fallback:
        """The state, in which the client drafts if its earlier rounds promise more, or for a trial."""
        bar = self._server_rate * (1 + self.rules.margin)
        if not self.rounds.observed:  # it began so
            return self._changed(now, "trial", self.patience)
        if self.rounds.rate(self.way.value) > bar:
            return self._changed(now, "healed", self.patience)
        if self.rounds.rate() <= bar:
            return self._changed(now, "trial", self.patience)
        return self

    def _changed(self, now: float, cause: Cause, patience: float) -> Fallback:
        return replace(
            self,
            server_drafts=not self.server_drafts,
            switches={**self.switches, cause: self.switches.get(cause, 0) + 1},
            rounds=TokenPace() if self.server_drafts else self.rounds,  # now it shows anew what it can do
            way=Mean(),
            since=now,
            observed=0,
            patience=patience,
        )

    @property
    def _server_rate(self) -> float:
        if self.own.observed:
            return self.own.rate()
        return 1 / max(self.step.value, 1e-9) if self.step.weight else 0.0

"""Both pools of a rollout, where they run already: two servers, and only the speculative one speculates."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import product

from specops.config import Rollout
from specops.errors import SpecopsError
from specops.load.server_identity import address
from specops.load.settings import BaselineSettings
from specops.load.speculation import Observed, several_tokens, speculating_standard
from specops.phases.doctor.check import Check
from specops.phases.inputs import settings_of
from specops.prometheus.exposed import POOLS

SWAP = "swap pools.standard and pools.speculative in ROLLOUT, or start the standard without speculation"


def pools(rollout: Rollout) -> Iterator[Check]:
    """Sends short requests to each pool that is an endpoint."""
    yield from _addresses(rollout)
    if all(getattr(rollout.pools, name).endpoint is None for name in POOLS):
        return
    from specops.load.server_probe import probe  # it loads an HTTP client, which nothing else here needs

    try:
        asked = settings_of(rollout, rollout.pools.standard)
        running: dict[str, BaselineSettings] = {}
        for name in POOLS:
            at = getattr(rollout.pools, name).endpoint
            if at is not None:
                running[name] = asked.at(at.base_url, at.model)
        shared, observed = asyncio.run(probe(running))
    except SpecopsError:  # prompts that cannot be read have a check of their own
        return
    if shared is not None:
        yield Check(
            name="pools",
            status="fail",
            found=f"both pools are one server: {shared}",
            fix="write the address of the second server to pools.*.base_url in ROLLOUT",
        )
    elif "standard" in observed:
        yield _standard(observed["standard"], observed.get("speculative"))


def _addresses(rollout: Rollout) -> Iterator[Check]:
    """A check where the router would send the traffic of both pools to one server."""
    pairs = product(rollout.addresses.standard, rollout.addresses.speculative)
    both = [one for one, other in pairs if address(f"http://{one}") == address(f"http://{other}")]
    if both:
        yield Check(
            name="pool addresses",
            status="fail",
            found=f"addresses.standard and addresses.speculative both have {', '.join(both)}",
            fix="give each server to one pool in ROLLOUT",
        )


def _standard(standard: Observed, speculative: Observed | None) -> Check:
    name = "standard speculates"
    wrong = speculating_standard(standard, speculative)
    if wrong is not None:
        return Check(name=name, status="fail", found=wrong, fix=SWAP)
    several = several_tokens(standard)
    if several is not None:
        fix = "see its start command for speculation, and for an interval of its stream"
        return Check(name=name, status="warn", found=several, fix=fix)
    known = standard.drafts is not None or standard.sends_one
    found = "no" if known else "not known: it shows neither counters of drafts nor tokens per chunk"
    return Check(name=name, status="ok", found=found)

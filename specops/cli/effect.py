"""`specops effect ROLLOUT`."""

from __future__ import annotations

from typing import Annotated

import typer

from specops.cli.call import Answer, RolloutCall, shared_options
from specops.hints import in_rollout
from specops.quantities import HOURS, SECONDS


@shared_options()
def effect(
    call: RolloutCall,
    hours: Annotated[
        float, HOURS, typer.Option(min=0.1, help="Hours, or a time as 7d, up to now. Default: a week.")
    ] = 168.0,
    timeout_s: Annotated[
        float, SECONDS, typer.Option(min=0.1, help="Timeout of one query, in seconds or as 30s.")
    ] = 30.0,
) -> Answer:
    """Exit 0: a latency is surely lower with speculation. 1: one is surely higher, or more fail. 4: neither.

    Chance keeps `effect.holdout` of the eligible requests on the standard pool, so both groups have the same
    traffic. The routers count them, and Prometheus has the counts.
    """
    import time

    from specops.errors import ConfigError, Exit
    from specops.phases.effect import lines, live_effect
    from specops.prometheus.api import Api

    url = call.file.addresses.prometheus
    if url is None:
        raise ConfigError(
            "the live effect needs Prometheus, and the rollout file names none: expected"
            " addresses.prometheus",
            hint=in_rollout("addresses", "add addresses.prometheus: http://127.0.0.1:9090"),
        )
    now = time.time()
    api = Api(url, timeout_s=timeout_s)
    try:
        result = live_effect(call.file, api, (now - hours * 3600, now))
    finally:
        api.close()
    codes = {"yes": Exit.YES, "no": Exit.NO}
    return Answer(result, lines(result), codes.get(result.verdict, Exit.UNDECIDED))

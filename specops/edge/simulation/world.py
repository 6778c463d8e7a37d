"""Clients, a network and a server, event by event (simpy). Time is simulated; nothing is computed or sent."""

from __future__ import annotations

import random

import simpy

from specops.edge.simulation.client import Edge, Served
from specops.edge.simulation.log import Log
from specops.edge.simulation.model import EdgeCosts, Setting
from specops.edge.simulation.rounds import Rounds
from specops.edge.simulation.server import Server


def simulate(setting: Setting, costs: EdgeCosts, rounds: Rounds, *, seed: int, seconds: float) -> Log:
    """What happens in so many simulated seconds, which begin with every client's first request."""
    env, log = simpy.Environment(), Log()
    server = Server(env, setting, costs, rounds, log)
    kind = Edge if setting.arm == "edge" else Served
    for number in range(setting.clients):
        # Each client has its own, so that what one meets with does not depend on how many others there are.
        env.process(kind(server, number, random.Random(f"{seed}/{number}")).run())
    env.process(server.run())
    env.run(until=seconds)
    log.ended = seconds
    return log

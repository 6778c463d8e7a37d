"""The rollout file: what is served, what is measured, and what it is held against.

Read strictly. Relative paths are relative to the rollout file.

pools.py     what serves: a section of each engine (specops/serving), two of them together
rollout.py   what is measured, and the whole; sweep.py, canary.py, deploy.py
addresses.py where things answer; monitor.py, route.py, guard.py: what watches, routes and switches;
             report.py: what is reported of it, and prices; edge.py: drafting elsewhere
reading.py   from a file to a Rollout, or to an error that says where and what; its run folder
"""

from specops.config.addresses import Addresses
from specops.config.canary import Canary
from specops.config.deploy import Deploy, Peak
from specops.config.edge import DeclaredPass, Edge, StandIn
from specops.config.guard import Guard
from specops.config.monitor import Monitor
from specops.config.pools import Pools
from specops.config.reading import beside, load, run_folder
from specops.config.report import Costs, Report
from specops.config.rollout import Ab, Measure, Rollout, Slo
from specops.config.route import Route
from specops.config.sweep import Sweep
from specops.section import PORT, ExistingPath, Section
from specops.serving import Pool

__all__ = [
    "PORT",
    "Ab",
    "Addresses",
    "Canary",
    "Costs",
    "DeclaredPass",
    "Deploy",
    "Edge",
    "ExistingPath",
    "Guard",
    "Measure",
    "Monitor",
    "Peak",
    "Pool",
    "Pools",
    "Report",
    "Rollout",
    "Route",
    "Section",
    "Slo",
    "StandIn",
    "Sweep",
    "beside",
    "load",
    "run_folder",
]

"""The rollout file: what is served, what is measured, and what it is held against.

Read strictly. Relative paths are relative to the rollout file.

deploy.py    where pools are deployed and where the parts answer
monitor.py, route.py, effect.py, guard.py, edge.py   what watches (with the alerts that ship), routes,
             compares live traffic, switches, and drafts elsewhere
referee.py   the load programme of an adaptive pool, and its fixed settings
rollout.py   the pools, each a section of its engine (specops/serving); what is measured, swept, compared and
             reported; prices; and the whole
reading.py   from a file to a Rollout, or to an error that says where and what; its run folder
"""

from specops.config.deploy import Addresses, Deploy, Peak
from specops.config.edge import DeclaredPass, Edge, StandIn
from specops.config.effect import Effect
from specops.config.guard import Guard
from specops.config.monitor import Monitor
from specops.config.reading import beside, load, run_folder
from specops.config.referee import LoadPhase, Referee
from specops.config.rollout import Ab, Canary, Capacity, Costs, Measure, Pools, Report, Rollout, Slo, Sweep
from specops.config.route import Route
from specops.section import PORT, ExistingPath, Section
from specops.serving import Pool

__all__ = [
    "PORT",
    "Ab",
    "Addresses",
    "Canary",
    "Capacity",
    "Costs",
    "DeclaredPass",
    "Deploy",
    "Edge",
    "Effect",
    "ExistingPath",
    "Guard",
    "LoadPhase",
    "Measure",
    "Monitor",
    "Peak",
    "Pool",
    "Pools",
    "Referee",
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

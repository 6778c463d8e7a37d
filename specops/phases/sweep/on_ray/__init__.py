"""The sweep on many machines: jobs run where Ray has a node for them.

connection.py   one Ray: a cluster that is there, or one started for this machine; kept quiet
nodes.py        which nodes can serve the settings, and how many servers at a time
testbed.py      an actor of Ray that holds a node's devices, or some of its GPUs, and runs errands on them
apart.py        the process that measures one errand, started by a testbed
sharing.py      who measures what next, and what becomes of an errand whose machine is lost; pure
executor.py     ties them together
"""

from specops.phases.sweep.on_ray.executor import OnRay

__all__ = ["OnRay"]

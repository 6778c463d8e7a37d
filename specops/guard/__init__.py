"""The guard: takes speculation off when it stops paying, never for any other reason, and brings it back
carefully.

state.py      records: an evaluation, the state, a decision
policy.py     what to do after an evaluation: pure, with its rules
signals/      from Prometheus to an evaluation, and what it is compared with
guard.py      one turn: observe, decide, write it down, act, write down the result; overrides and status
journal.py    what was decided and done, written before it is done
lock.py       one guard for a run folder, and for each thing that is switched
switch.py     all targets (specops/actions) as one, and the routers' counters
service.py    the daemon: a turn every interval, HTTP and metrics beside it
simulation/   recorded or synthetic weeks, through the same rules
"""

"""The sweep: which K, or which tree, at which load, and from where on it stops paying.

spec.py          what is swept: settings, loads, prompts; checked before anything runs; --plan
plan.py          jobs and rungs as data, their order and time; what was measured, as it is stored (pure)
stages.py        where the requests go: the choice by halving, then the confirmation (pure)
sweep.py         ties them together: stores every cell at once, resumes where it stopped
measure.py       one job: its server is started, measured and stopped; jobs on this machine
ray_executor.py  jobs on a Ray cluster: which machine measures what next
ray_cluster.py   the connection to Ray, its nodes, and the testbeds that are held on them
ray_testbed.py   an actor on a node, and the process that it starts for each job
speedups.py      how much faster, paired by prompt, with intervals (pure)
recommend.py     which setting pays, which is picked for the confirmation, which is recommended (pure)
claims.py        what must hold of a setting; what divides its requests (pure)
advice.py        what follows from the choice: costs of a step, crossover, schedule, rivals (pure)
judging.py       from the cells to the report and the verdict (pure)
report.py        the shape of sweep.json, how it is read and what of it is drawn
"""

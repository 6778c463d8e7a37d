"""The sweep: which K, or which tree, at which load, and where it stops paying.

jobs.py            what is measured, as data: settings, loads, and jobs, each one start of a server
records.py         what was measured, as it is kept
grid.py            from a rollout to settings and loads: pure
lengths.py         classes of prompt length
wanted.py          grid, prompts and how they are asked: all that is checked before anything runs
plan.py            rungs: which prompts each setting is asked, and in which order: pure
halving.py         where a budget goes: pure
timing.py          how long a plan takes, by what was measured: pure
forecast.py        what would be measured, for --dry-run
measure.py         one job: its server is started, asked and stopped
memory.py          what a server takes while it is measured
machines.py        where jobs run: here.py on this machine, on_ray/ on the nodes of a Ray cluster
sweep.py           ties them together, keeps every cell at once, and goes on where it was stopped
speedups.py        how much faster, paired by prompt, with intervals: pure; starts.py is their restarts' share
costs.py           what a step takes and must bring: pure
recommend.py       which setting pays, and which is best: pure; choice.py, groups.py
advice.py          what follows from the choice: pure
crossover.py       from how many streams on it stops paying: pure
schedule.py        the best K by batch size, as vLLM takes it: pure
judging.py         from the cells to the report and the verdict: pure
report.py          what sweep.json says beside the cells; cells.py
picture.py         what of it is drawn: pure
"""

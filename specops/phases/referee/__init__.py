"""`referee`: whether a pool that adapts by itself matches the best fixed setting, under a load that changes.

programme.py  the load programme: phases of load, their requests, the order of the servers
measure.py    sends it to all servers in turn, and stores each segment
records.py    what is stored, and what is concluded
judging.py    segments in, findings out: ratios, regret, collapse. Pure
dynamics.py   within a phase: time to adapt, and swings. Pure
document.py   its page; phase.py: the phase of the playbook
"""

"""What switches: one file for each kind of action of the rollout file.

target.py     what a target can be asked
nginx.py      the switch of a router
flag_file.py  a file that others read
http.py       a feature flag
command.py    commands of one's own
restart.py    a single server, started anew without speculation or with it
made.py       a rollout's actions as targets
asking.py     HTTP; running.py, holding.py: commands that outlive a guard that is killed
"""

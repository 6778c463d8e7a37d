"""The guard: takes speculation off when it stops paying, never for any other reason, and brings it back
carefully.

evaluation.py   what one look found; seeing/, how it looks, and by what it judges
policy.py       what to do about it: pure; state.py, rules.py, what it goes from and by; hysteresis.py
guard.py        a turn: look, decide, write it down, act, write down what came of it
journal.py      what it did, written before it does it; lock.py, one guard at a time
owned_file.py   files that only the guard's user may write
switch.py       all that is switched, as one; actions/, one file for each kind; routers.py, where requests go
service.py      a turn every interval, and HTTP beside it: metrics.py, status.py, asked.py, alerts.py
drill.py        a rehearsal on the live set-up
simulation/     what was recorded, or made up, through the same rules and the playbook's
"""

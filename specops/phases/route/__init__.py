"""The router: its rules from the rollout file and what was measured, for NGINX, asked offline, tried.

servers.py     where the pools answer
thresholds.py  the rules, each with its source
render.py      `route render`: the folder that NGINX runs from, and route.json
explain.py     `route explain`: the same Lua, here
cases.py, check.py   `route check`: NGINX started on loopback, and a table of requests
"""

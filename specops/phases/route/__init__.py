"""The router: rules from the rollout file and the measurements, and their test on a real NGINX.

thresholds.py  the rules, each with its source, and the pools' servers
render.py      `route render`: the folder that NGINX runs from, and route.json
explain.py     `route explain`: decide.lua, the file that NGINX runs, in Python
cases.py       requests whose pool is known, and seeded fuzz
check.py       `route check`: NGINX on loopback, and a table of requests
"""

"""`doctor`: the first look at an environment. Each check is one line, with its fix where it needs one.

machine.py     what is installed here, and what there is room for
gpu.py         GPUs and their driver
programs.py    NGINX, Prometheus, Alertmanager, what schedules; a Prometheus that runs
endpoint.py    an endpoint, and the names on its /metrics
pools.py       whether both pools are one server, and whether the standard one speculates
deployment.py  all that a rollout file names
examine.py     all of them
"""

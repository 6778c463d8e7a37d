"""`doctor`: the first look at an environment. Each check is one line, with its fix where it needs one.

machine.py     what is installed here, what there is room for, GPUs and their driver
programs.py    NGINX, Prometheus, Alertmanager, what schedules; a Prometheus that runs
endpoint.py    an endpoint, and the names on its /metrics
deployment.py  all that a rollout file names; whether both pools are one server, or the standard speculates
examine.py     all of them
"""

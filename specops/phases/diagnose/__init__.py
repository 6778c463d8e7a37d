"""`diagnose`: finds why traffic is slow, or answers are odd. Observations are collected once; checks of them
are pure.

observations.py  what is observed; each missing part has a reason
collectors/      live.py (Prometheus, /metrics, GPU memory, a few streams), run_folder.py (results, logs, the
                 pool's command); `gather` runs them
finding.py       a finding: cause, contributing, ruled out or unknown, with evidence and a fix
checks/          one function a finding; thresholds.py has what they compare with
diagnose.py      the order of the checks, and the result
"""

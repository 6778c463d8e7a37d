"""`checklist`: may it go live? The playbook's eleven items and those of specops, each with its evidence.

evidence.py         the run folder: results of this rollout as it is now, unedited and fresh; Open without one
item.py             an item before and after it is decided, and attestations by people
items.py            all items in their order
result_items.py     items decided by results of phases and by files of the models
live_items.py       items decided by what runs: router, Prometheus, guard, canary
report_schedule.py  whether something makes the weekly report: cron, systemd, shell commands
checklist.py        decides each item, and the verdict
"""

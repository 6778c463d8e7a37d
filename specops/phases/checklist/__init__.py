"""`checklist`: may it go live? The playbook's eleven items and those of specops, each with its evidence.

evidence.py         an item before and after it is decided; its evidence in the run folder, unedited and
                    fresh; attestations by people
result_items.py     items decided by results of phases and by files of the models
live_items.py       items decided by what runs: router, Prometheus, guard, canary
report_schedule.py  whether something makes the weekly report: cron, systemd, shell commands
checklist.py        all items in their order, and the verdict
"""

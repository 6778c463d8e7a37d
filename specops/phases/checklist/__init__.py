"""`checklist`: may it go live? The playbook's eleven items and ours, each with what it was decided from.

evidence.py      what an answer rests on; Open: there is none, and why
looking.py       the run folder, read for evidence: of this rollout as it is now, and fresh
item.py          an item, before it is looked at and after
measured.py      items decided by what was measured; memory.py, GPU memory with the KV cache
operated.py      items of what runs: router, Prometheus, guard, canary
scheduled.py     whether something makes the weekly report: crontab.py, how often a line of cron fires;
                 shell_command.py, whether a command makes a report
attestations.py  what only a person can say
items.py         the items in their order
checklist.py     each looked at, and the verdict
"""

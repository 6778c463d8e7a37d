"""`checklist`: may it go live? The playbook's eleven items and those of specops, each with its evidence.

evidence.py    an item before and after it is decided; its evidence in the run folder, unedited and
               fresh; attestations by people
items.py       items decided by results of phases and files of the models, or by what runs: router,
               Prometheus, guard, canary, weekly report
signatures.py  signed results, by OpenSSH
checklist.py   all items in their order, and the verdict
"""

"""`predict`: what speculation would do to logged traffic, before it is deployed.

log.py        answers of a log, of any format
tokens.py     the same in the pool's own tokens
drafts.py     the steps that each setting would take along them, exactly
acceptance.py counts of those steps, with intervals over conversations
costs.py      what steps cost, by a run folder
batching.py   requests on a server with those costs
predict.py    the whole, as a result; records.py has its data, document.py its page
"""

"""`verify-draft`: a target and a draft, judged from their files before anything is launched.

settings.py     what is asked
side.py         one of the two checkpoints, read as far as it is asked for
findings.py     what a check found, how bad it is, and the verdict: pure
differences.py  two tokenizers, part by part: pure
speech.py       where texts end, and how chats are laid out: pure
witness.py      the same texts through both tokenizers
heads.py        whether a head's shapes fit its target: pure
engine.py       what the engine named makes of this pair, by its draft table (specops/serving): pure
memory.py       weights, KV bytes, and the KV blocks lost to the draft; sizes of GPUs
verify.py       every check, in order; settings in, one result out
guide.py        the playbook's advice on drafts, each figure with its source
estimate.py     --measure: the pair on the embedded engine
sampling.py     what it measures: answers to a sample of the prompts, and the costs of steps over them
over_http.py    and the API's own time
predicting.py   from these to what requests would take with a tree
"""

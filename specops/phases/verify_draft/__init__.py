"""`verify-draft`: a target and a draft, judged from their files before anything is launched.

pair.py         settings, the two checkpoints, each part read when it is needed, and a check's finding
differences.py  two tokenizers, part by part and over the same texts; where texts end; chat templates
engine_fit.py   how the named engine treats the pair: pure
heads.py        whether a head fits its target and a release of the engine: pure
memory.py       weights, KV bytes, and the KV blocks lost to the draft; sizes of GPUs
verify.py       every check, in order; settings in, one result out
guide.py        the playbook's advice on drafts, each figure with its source
estimate.py     --measure: the pair on the embedded engine
prediction.py   its sample of answers, the costs of steps and of the API, the time of requests with a tree
"""

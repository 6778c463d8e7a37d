"""vLLM: settings -> the command line of a version, and what is wrong with a command line that one has.

versions.json   which release knows which flag and speculative key, made by tools/vllm_table.py
versions.py     reads it; installed.py asks a program which one it is
command.py      a pool -> words
given.py        words -> what they set, and back
lint.py         what is wrong with it, why, and what to write instead; rules/ one file per subject
"""

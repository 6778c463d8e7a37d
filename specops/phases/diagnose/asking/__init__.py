"""The questions. Each takes what was seen and gives one finding, whatever was seen: none is ever silent.

thresholds.py  what is held against what, with where it comes from
slower.py      is it slower; draft.py, is it the draft; load.py, the load and memory; first_token.py
prompts.py     acceptance down on some prompts; drifted.py, since when
bursts.py      how text comes        vocabulary.py  do the pair's tokens agree
answers.py     are answers right     watching.py    settings that do nothing, names that moved
"""

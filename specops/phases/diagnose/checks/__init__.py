"""Checks. Each takes all observations and returns one finding, also where nothing was observed.

speed.py        is it slower, in both pools, beyond the crossover, out of memory; is the first token late
speculation.py  is it on, alive, and are its settings and series effective
draft.py        how well the draft guesses, what it costs, since when, on which prompts; vocabularies
answers.py      are answers right; do they arrive in bursts
"""

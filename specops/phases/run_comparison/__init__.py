"""`compare`: two run folders side by side.

comparison.py   what changed in settings, and what surely changed in speed-ups. Pure, but for `compared`
latencies.py    latencies and acceptance of both runs, with intervals. Pure
document.py     the page, for the terminal and as HTML
"""

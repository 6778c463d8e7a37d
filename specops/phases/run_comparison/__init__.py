"""`compare`: two run folders side by side.

comparison.py   what changed in settings, and what surely changed in speed-ups. Pure, but for `compared`
document.py     the page, for the terminal and as HTML
"""

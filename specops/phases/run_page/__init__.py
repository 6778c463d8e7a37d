"""`runs/NAME/index.html`: a run folder on one page, for people.

folder.py       reads the run folder: each phase's result, or why it is unreadable
conclusion.py   the answer of a run and the state of each phase; the terminal page uses it too
document.py     the page: the answer, the phases, what to do next, then the sections
sections.py     one function a section
index.py        writes the page, after each result of the folder
"""

INDEX = "index.html"

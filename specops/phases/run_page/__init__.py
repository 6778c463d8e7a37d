"""`runs/NAME/index.html`: a run folder on one page, for people.

folder.py       reads the run folder: each phase's result, or why it is unreadable
conclusion.py   the answer of a run and the state of each phase; the terminal page uses it too
document.py     the page, written after each result: the answer, the phases, the next step, the sections
sections.py     one function a section; conditions.py has that of servers, prompts and machine
"""

INDEX = "index.html"

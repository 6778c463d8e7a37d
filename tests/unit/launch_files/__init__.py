"""Public launch files, from which no rule was written: one half was developed on, the other tried once.

A case has `source` (where it was read), `file` and `text` (shortened), `beside` (files in the same folder),
`version` (as --engine-version), `commands` (the engines whose commands the lint has to find), `finds` (errors
and warnings that it has to report), `absent` (what it must not complain of), `unknown` (what it has to say
that it did not read) and `exit` (the exit code).
"""

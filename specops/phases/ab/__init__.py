"""`ab`: two or more arms are sent the same requests and compared. The first arm is the standard.

settings.py   what the section `ab` of the rollout file has, and what only this program sets
measure.py    runs the experiment (specops/experiment) and stores its result
judging.py    from the experiment to the report
report.py     the shape of ab.json, how it is read and what of it is drawn
sentences.py  the answer of a comparison in sentences (pure)
earlier.py    what differs between the arms, and what changed since an earlier comparison (pure)
"""

"""`edge bench`: one pair and one set of prompts over one link, drafted for by the server and at the edge.

settings.py  the arms, what is measured, and the costs that this machine stands in for
records.py   what a visit recorded
measure.py   makes the visits, in the order of ab/visits.py, with servers, relay and clients as processes of
             this machine; server.py and client.py, one each
judging.py   the figures of an arm at a number of clients, ratios with intervals, whether the arms' outputs
             are equal, and the verdict: pure
"""

"""`edge bench`: one pair and one set of prompts over one link, drafted for by the server and at the edge.

settings.py   the arms, what is measured, and the costs that this machine stands in for
records.py    a window of the experiment, with the work of clients and server
measure.py    measures the windows of the experiment's plan (specops/experiment), with servers, relay and
              clients as processes of this machine; server.py and client.py, one each
judging.py    decisions from the experiment's claims, and the figures beside them: pure
sentences.py  the verdict in sentences: pure
"""

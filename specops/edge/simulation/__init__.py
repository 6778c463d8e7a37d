"""Edge drafting with servers, links and clients that are not here: a discrete-event simulation.

model.py        what is told: costs, a setting
rounds.py       what rounds bring; measured.py, counted of a real pair
world.py        a run: clients and a server, event by event
client.py       what clients do; ahead.py, while a round is out
server.py       the server, and the way to it
log.py          what happened
outcome.py      the figures of a run, and of replications
planning.py     the best depth, how many clients, up to which RTT
paper.py        SpecEdge's published costs and figures, with their sources
"""

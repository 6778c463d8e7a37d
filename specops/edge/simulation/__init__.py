"""Edge drafting with simulated servers, links and clients: a discrete-event simulation.

setting.py      plain data: costs, a setting, the log
rounds.py       what rounds bring; real_rounds.py, counted with a real pair
client.py       what clients do
server.py       the server, and the path to it
outcome.py      a run, its figures, and their means over replications
planning.py     the best depth, the number of clients, the largest RTT
"""

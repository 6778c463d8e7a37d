"""Drives an endpoint with requests and turns its answers into figures.

settings.py          what is measured and how: endpoint, decoding, load, objectives
workload.py          prompt sets, from files of four formats
clock.py             instants that stay right where the wall clock is set
arrivals.py          levels of load, send instants, ramps, the cap on requests a second, when to stop
traces.py            traces of real traffic, from files of four formats
replay.py            the requests of a trace or a ramp: instants, prompts of the set, windows
http1.py             framing of HTTP/1.1 (pure); connection.py: sockets with the kernel's timestamps
client.py            one streamed request after another; exceptions as failures, failures as errors
answer.py            from the bytes of a stream to chunks, text, tokens and failures (pure)
request_times.py     one request as observed, and its figures (pure)
runner.py            drives one cell: every prompt once, at one level
record.py            cells: how a result stores them, put together by level and by traffic class (pure)
target_server.py     a server that is up: its description, and its answers to one visit
counters.py          what the server's own counters say of a cell, and whether it speculates
server_identity.py   whether two addresses lead to one server
validity.py          what makes figures doubtful: caches, stock answers, counts of tokens, drift (pure)
"""

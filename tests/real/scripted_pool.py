"""A server of a pool that does what the request's body says, by the pool's name:

    {"script": {"speculative": {"wait_s": 1, "status": 503, "chunks": 3, "gap_s": 0.1, "hang_up": true}}}

    python scripted_pool.py NAME PORT [FILE]

It answers what it saw. GET /seen: how many requests it has begun, by path. Each is a line of FILE, which
outlives the server: the time, and the body's "id".
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NAME, PORT = sys.argv[1], int(sys.argv[2])
LOG = open(sys.argv[3], "a", buffering=1) if len(sys.argv) > 3 else None  # noqa: PTH123, SIM115
seen: Counter[str] = Counter()
lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/seen":
            return self.answer(200, dict(seen))
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            body = None
        asked = body if isinstance(body, dict) else {}
        with lock:
            seen[self.path] += 1
            if LOG:
                LOG.write(f"{time.time()} {asked.get('id')}\n")
        script = asked.get("script", {}).get(NAME, {})
        time.sleep(script.get("wait_s", 0))
        if script.get("hang_up"):
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return None
        if chunks := script.get("chunks"):
            return self.stream(chunks, script.get("gap_s", 0))
        return self.answer(script.get("status", 200), self.saw(raw))

    do_POST = do_PUT = do_DELETE = do_HEAD = do_GET

    def saw(self, raw: bytes) -> dict[str, Any]:
        return {
            "pool": NAME,
            "method": self.command,
            "path": self.path,
            "version": self.request_version,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "length": len(raw),
            "connection": self.client_address[1],
            "data": [{"id": NAME}],
        }

    def answer(self, status: int, what: dict[str, Any]) -> None:
        body = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def stream(self, chunks: int, gap_s: float) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(chunks):
            data = f"data: {NAME} {number}\n\n".encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
            time.sleep(gap_s)
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_: object) -> None:
        pass


Server(("127.0.0.1", PORT), Handler).serve_forever()

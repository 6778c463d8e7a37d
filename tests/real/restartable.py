"""A server that an operator's scripts start and stop in the background, in miniature.

python restartable.py FOLDER PORT start-standard | start-speculative | stop | drain | admit | serve …
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

COUNTER = b'vllm:spec_decode_num_drafts_total{model_name="m"} 0.0\n'


def main(folder: Path, port: int, what: str, how: str = "") -> None:
    pid = folder / "pid"
    if what == "serve":
        serve(port, speculates=how == "start-speculative")
        return
    with (folder / "said").open("a") as said:
        said.write(f"{what}\n")
    if what == "stop" and pid.exists():
        number = int(pid.read_text())
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGTERM)
            while _listens(port):
                time.sleep(0.02)
        pid.unlink()
    elif what.startswith("start"):
        command = [sys.executable, __file__, str(folder), str(port), "serve", what]
        with (folder / "log").open("ab") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        pid.write_text(str(server.pid))


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def serve(port: int, *, speculates: bool) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(COUNTER if speculates and self.path == "/metrics" else b"")

    HTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])

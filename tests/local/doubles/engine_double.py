"""Stands for vLLM's server: /health, one slow completion, drain on SIGTERM. Behaviour comes by environment.

ENGINE_DOUBLE_EXIT=code   print a reason and exit at once
ENGINE_DOUBLE_HANGS=1     never get healthy, ignore SIGTERM
ENGINE_DOUBLE_PIDS=file   start a child and write both pids there
"""

import argparse
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

REQUEST_SECONDS = 0.6


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(b"ok")

    def do_POST(self) -> None:
        body = b"finished"
        self._headers(body)
        # In flight, as whoever has the headers knows.
        threading.Event().wait(REQUEST_SECONDS)
        self.wfile.write(body)

    def _answer(self, body: bytes) -> None:
        self._headers(body)
        self.wfile.write(body)

    def _headers(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_known_args()[0].port
    if "ENGINE_DOUBLE_EXIT" in os.environ:
        print("weights do not fit", flush=True)
        sys.exit(int(os.environ["ENGINE_DOUBLE_EXIT"]))
    if "ENGINE_DOUBLE_PIDS" in os.environ:
        child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        Path(os.environ["ENGINE_DOUBLE_PIDS"]).write_text(f"{os.getpid()} {child.pid}")
    if "ENGINE_DOUBLE_HANGS" in os.environ:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("loading forever", flush=True)
        while True:
            signal.pause()
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = False
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print("engine double serves", flush=True)
    server.serve_forever()
    # Joins the threads of requests in flight.
    server.server_close()


main()

"""Stands for the sidecar: /readyz, and /status that says which settings it read.

SIDECAR_DOUBLE_REFUSES=1   stay with the first settings, as if the engine was not built for others
SIDECAR_DOUBLE_EXIT=code   print a reason and exit at once
SIDECAR_DOUBLE_PIDS=file   append the pid of every start
"""

import argparse
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine-socket", required=True)
    parser.add_argument("--settings", type=Path, required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    if "SIDECAR_DOUBLE_EXIT" in os.environ:
        print("no settings, no sidecar", flush=True)
        sys.exit(int(os.environ["SIDECAR_DOUBLE_EXIT"]))
    if "SIDECAR_DOUBLE_PIDS" in os.environ:
        with Path(os.environ["SIDECAR_DOUBLE_PIDS"]).open("a") as pids:
            pids.write(f"{os.getpid()}\n")

    first = json.loads(arguments.settings.read_text())

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = json.loads(arguments.settings.read_text())
            refused = "SIDECAR_DOUBLE_REFUSES" in os.environ and found != first
            state = {**(first if refused else found), "error": "planner: no" if refused else None}
            body = json.dumps({"settings": state}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    HTTPServer((arguments.host, arguments.port), Handler).serve_forever()


main()

"""A server that misbehaves as it is told: SERVER PORT [WHAT [FLAG]]; a flag is a file that switches it on."""

from __future__ import annotations

import http.server
import os
import signal
import subprocess
import sys
import threading


def flagged() -> bool:
    return len(sys.argv) > 3 and os.path.exists(sys.argv[3])


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/health" and flagged():
            threading.Event().wait()  # it hangs
        body = f"{os.getpid()} {self.path} {os.environ.get('KEPT_KEY', '')}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing of requests."""


def main() -> None:
    port, what = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    if what == "exits":
        print("about to fail")
        print("no such model: " + "x" * 400)
        sys.exit(3)
    if what == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print(f"listening on {port}, told {sys.argv[2:]!r}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

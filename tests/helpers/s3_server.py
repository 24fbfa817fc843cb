"""A foreign S3 server (moto), and a proxy before it that does what networks do."""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

BUCKET: Final = "shoal"
CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@contextlib.contextmanager
def moto_server() -> Iterator[str]:
    """Run a server with the bucket BUCKET; yield its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
        env={**os.environ, **CREDENTIALS},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "Running on http" in line:
                port = int(line.rsplit(":", 1)[1])
                break
        threading.Thread(target=process.stderr.read, daemon=True).start()
        call = http.client.HTTPConnection("127.0.0.1", port)
        signed = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
        call.request("PUT", f"/{BUCKET}", headers={"Authorization": signed, "Content-Length": "0"})
        assert call.getresponse().status == 200
        call.close()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


class FlakyProxy:
    """Forwards to `port`. Each request takes the next of `faults`: `503`, `cut` (before it is passed
    on), `lost` (passed on, the reply cut), `slow`. `seen` lists method and path of each request;
    `signers` are the access keys that requests were signed with."""

    def __init__(self, port: int) -> None:
        self.faults: deque[str] = deque()
        self.seen: list[str] = []
        self.signers: set[str] = set()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                proxy._handle(self, port)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address: Final = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handle(self, request: Any, port: int) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        self.seen.append(f"{request.command} {request.path.partition('?')[0]}")
        self.signers.add(request.headers.get("Authorization", "").partition("Credential=")[2].partition("/")[0])
        fault = self.faults.popleft() if self.faults else ""
        request.close_connection = True
        if fault == "cut":
            return
        if fault == "503":
            request.wfile.write(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        if fault == "slow":
            time.sleep(0.2)
        onward = http.client.HTTPConnection("127.0.0.1", port)
        onward.request(request.command, request.path, body, dict(request.headers.items()))
        reply = onward.getresponse()
        data = reply.read()
        onward.close()
        if fault == "lost":
            return
        kept = [
            (name, value)
            for name, value in reply.getheaders()
            if name.lower() not in ("connection", "transfer-encoding")
        ]
        lines = "".join(f"{name}: {value}\r\n" for name, value in kept)
        length = "" if any(name.lower() == "content-length" for name, _ in kept) else f"Content-Length: {len(data)}\r\n"
        head = f"HTTP/1.1 {reply.status} {reply.reason}\r\n{lines}{length}Connection: close\r\n\r\n"
        request.wfile.write(head.encode() + data)

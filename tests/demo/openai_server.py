"""A server that speaks OpenAI's Chat Completions API, on this machine: it streams its answers, or fails as asked."""

from __future__ import annotations

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class OpenAIServer(ThreadingHTTPServer):
    """Answers "status 429" with that status, breaks off in the answer to "break", and echoes everything else.

    Attributes:
        requests: the bodies that were sent, and the keys.
        well: whether to answer everything, whatever is asked.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[dict[str, Any], str]] = []
        self.well = False
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    def __enter__(self) -> OpenAIServer:
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: OpenAIServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        key = self.headers["authorization"].removeprefix("Bearer ")
        self.server.requests.append((body, key))
        asked = body["messages"][-1]["content"]
        if not self.server.well and (status := re.fullmatch(r"status (\d{3})", asked)):
            self._fail(int(status[1]), key)
        else:
            self._answer(asked)

    def _fail(self, status: int, key: str) -> None:
        body = json.dumps({"error": {"message": f"refused, your key is {key}"}}).encode()
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), "x-should-retry": "false"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, asked: str) -> None:
        self.send_response(200)
        for name, value in {"content-type": "text/event-stream", "transfer-encoding": "chunked"}.items():
            self.send_header(name, value)
        self.end_headers()
        self._event({"delta": {"role": "assistant", "content": "You asked:"}})
        if asked == "break" and not self.server.well:
            time.sleep(0.2)
            self.close_connection = True
            return
        for word in asked.split():
            time.sleep(0.01)
            self._event({"delta": {"content": f" {word}"}})
        self._event({"delta": {}, "finish_reason": "stop"})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, choice: dict[str, Any]) -> None:
        choices = [{"index": 0, "finish_reason": None, **choice}]
        event = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "tiny", "choices": choices}
        self._chunk(f"data: {json.dumps(event)}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def log_message(self, *args: object) -> None:
        pass

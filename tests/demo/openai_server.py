"""A server that speaks OpenAI's Chat Completions API, on this machine: it streams its answers, or fails as asked."""

from __future__ import annotations

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class OpenAIServer(ThreadingHTTPServer):
    """Answers "status 429" with that status, says to "quota" that it is used up, breaks off in the answer to "break",
    calls a tool for "use remember {…}", and echoes everything else.

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
        last = body["messages"][-1]
        asked = last["content"]
        if not self.server.well and (status := re.fullmatch(r"status (\d{3})", asked)):
            self._fail(int(status[1]), key)
        elif not self.server.well and asked == "quota":
            self._fail(429, key, "insufficient_quota")
        elif last["role"] == "tool":
            self._answer("The tool answered.", echo=False)
        elif use := re.fullmatch(r"use (\w+) (.*)", asked):
            self._call(use[1], use[2])
        else:
            self._answer(asked)

    def _fail(self, status: int, key: str, code: str | None = None) -> None:
        body = json.dumps({"error": {"message": f"refused, your key is {key}", "code": code}}).encode()
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), "x-should-retry": "false"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, text: str, echo: bool = True) -> None:
        self._begin()
        if echo:
            self._event({"delta": {"role": "assistant", "content": "You asked:"}})
        if text == "break" and not self.server.well:
            time.sleep(0.2)
            self.close_connection = True
            return
        for number, word in enumerate(text.split()):
            time.sleep(0.01)
            self._event({"delta": {"content": f" {word}" if number or echo else word}})
        self._end("stop")

    def _call(self, tool: str, arguments: str) -> None:
        self._begin()
        half = len(arguments) // 2  # arguments come in pieces, too
        function = {"name": tool, "arguments": arguments[:half]}
        call = {"index": 0, "id": f"call_{time.time_ns()}", "type": "function", "function": function}
        self._event({"delta": {"role": "assistant", "tool_calls": [call]}})
        self._event({"delta": {"tool_calls": [{"index": 0, "function": {"arguments": arguments[half:]}}]}})
        self._end("tool_calls")

    def _begin(self) -> None:
        self.send_response(200)
        for name, value in {"content-type": "text/event-stream", "transfer-encoding": "chunked"}.items():
            self.send_header(name, value)
        self.end_headers()

    def _end(self, reason: str) -> None:
        self._event({"delta": {}, "finish_reason": reason})
        self._send([], usage={"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, choice: dict[str, Any]) -> None:
        self._send([{"index": 0, "finish_reason": None, **choice}])

    def _send(self, choices: list[dict[str, Any]], **more: Any) -> None:
        event = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "tiny", "choices": choices}
        self._chunk(f"data: {json.dumps(event | more)}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def log_message(self, *args: object) -> None:
        pass

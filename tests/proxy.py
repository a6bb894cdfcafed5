"""A proxy between a client and a real warm-server, which counts requests and can lose answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    answer_bytes: int = 0


Fault = Callable[[], object] | bytes | str
"""`"drop before"` or `"drop after"` the server has answered, bytes to answer with, or a call to make in between."""


class Proxy:
    """Listens on a port of its own. `faults` are used up one for each request; without any, requests pass."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname, parts.port)
        self.requests: list[Request] = []
        self.faults: list[list[Fault]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None] | None] = []

    @property
    def calls(self) -> list[str]:
        return [f"{request.method} {request.path.split('?')[0].rsplit('/', 1)[1]}" for request in self.requests]

    @property
    def bytes_read(self) -> int:
        return sum(request.answer_bytes for request in self.requests)

    def reset(self) -> None:
        self.requests.clear()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 26)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        for writer in self._writers:
            with suppress(ConnectionError):
                await writer.wait_closed()
        for task in filter(None, self._tasks):
            task.cancel()  # of a connection that still waits for a fault or for the server
            await asyncio.wait([task])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self._tasks.append(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                message, head = await _read_message(reader)
                method, path, _ = head[0].split(" ", 2)
                self.requests.append(Request(method, path, _headers(head)))
                if not await self._answer(message, self.requests[-1], writer):
                    break
        writer.close()

    async def _answer(self, message: bytes, request: Request, writer: asyncio.StreamWriter) -> bool:
        for fault in self.faults.pop(0) if self.faults else ["pass"]:
            if fault == "drop before":
                return False
            if isinstance(fault, bytes):
                writer.write(fault)
                await writer.drain()
                return False
            if callable(fault):
                await asyncio.to_thread(fault)
                continue
            answer = await self._forward(message)
            if fault == "drop after":
                writer.transport.abort()
                return False
            if fault == "pass":
                request.answer_bytes = len(answer)
                writer.write(answer)
                await writer.drain()
        return True

    async def _forward(self, message: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(*self._target, limit=1 << 26)
        try:
            writer.write(message)
            return (await _read_message(reader))[0]
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


async def _read_message(reader: asyncio.StreamReader) -> tuple[bytes, list[str]]:
    raw = await reader.readuntil(b"\r\n\r\n")
    head = raw.decode().split("\r\n")
    return raw + await reader.readexactly(int(_headers(head).get("content-length", 0))), head


def _headers(head: list[str]) -> dict[str, str]:
    return {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}


def answer(status: int, code: str, **headers: str) -> bytes:
    """A problem report, as warm-server would send it."""
    body = json.dumps({"code": code, "detail": "made by the proxy", "status": status, "request_id": "r"})
    extra = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return (
        f"HTTP/1.1 {status} X\r\ncontent-type: application/problem+json\r\n{extra}"
        f"content-length: {len(body)}\r\n\r\n{body}"
    ).encode()

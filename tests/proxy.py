"""A proxy between a client and a real warm-server, which counts requests and can spoil answers."""

from __future__ import annotations

import asyncio
import json
import re
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
"""A step of what happens to a request: bytes to answer with, a call to make in between, or one of

- `"pass"`: the server's answer; `"forward"`: it is asked, but its answer kept back
- `"drop before"`, `"drop after"` it has answered: the connection ends
- `"stall"`: nothing, until the client gives up
- `"cut"`: the connection ends in the middle of the answer; `"truncate"`: a whole answer with half of the body
- `"drip"`: a byte now and then, without end; `"endless"`: as many as the client takes
"""
_ENDLESS = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"


class Proxy:
    """Listens on a port of its own. `faults` are used up one for each request; without any, requests pass."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname, parts.port)
        self.requests: list[Request] = []
        self.faults: list[list[Fault]] = []
        self._connections: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}

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
        """All that was to be forwarded has been."""
        self._server.close()
        for _ in range(5):  # the turns in which a connection that was just accepted comes to its task
            await asyncio.sleep(0)
        for writer in self._connections.values():
            writer.close()
        await asyncio.gather(*filter(None, self._connections))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections[asyncio.current_task()] = writer
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                message, head = await _read_message(reader)
                method, path, _ = head[0].split(" ", 2)
                self.requests.append(Request(method, path, _headers(head)))
                if not await self._answer(message, self.requests[-1], reader, writer):
                    break
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def _answer(
        self, message: bytes, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the connection goes on."""
        for fault in self.faults.pop(0) if self.faults else ["pass"]:
            if isinstance(fault, bytes):
                writer.write(fault)
                await writer.drain()
                return False
            if callable(fault):
                await asyncio.to_thread(fault)
            elif fault == "drop before":
                return False
            elif fault == "stall":
                with suppress(ConnectionError):
                    await reader.read(1)
            elif fault in ("drip", "endless"):
                await _answer_without_end(writer, fault)
            else:
                answer = await self._forward(message)
                if fault == "pass":
                    request.answer_bytes = len(answer)
                    writer.write(answer)
                    await writer.drain()
                elif fault != "forward":
                    writer.write(_spoiled(answer, fault))
                    with suppress(ConnectionError):
                        await writer.drain()
                    writer.transport.abort() if fault == "drop after" else writer.close()
                    return False
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


async def _answer_without_end(writer: asyncio.StreamWriter, fault: str) -> None:
    writer.write(_ENDLESS)
    size, pause = (1, 0.02) if fault == "drip" else (1 << 16, 0)
    while not writer.is_closing():
        writer.write(b"%x\r\n%b\r\n" % (size, b" " * size))
        await writer.drain()
        await asyncio.sleep(pause)


def _spoiled(answer: bytes, fault: str) -> bytes:
    head, _, body = answer.partition(b"\r\n\r\n")
    half = body[: len(body) // 2]
    if fault == "truncate":
        return re.sub(rb"(?i)(content-length: )\d+", rb"\g<1>%d" % len(half), head) + b"\r\n\r\n" + half
    return head + b"\r\n\r\n" + half if fault == "cut" else b""


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

"""What one warm-server holds and does, from which the cost of many users can be computed.

    python benchmarks/scale.py

Prints, for vectors of 384 numbers (memories, or sessions that can be searched) and of 8 (sessions that cannot): bytes
of memory and of disk for each item, appends a second, and seconds until a restarted server serves; and the requests
and bytes of one turn of an agent whose session hands the model its newest 50 items.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "examples")]
import httpx
import psutil
from agents import Agent, RunConfig, Runner, SessionSettings, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message
from paired import command_line

from conversations import filled, turn
from local_server import LocalServer
from warm_integrations.core import HashingEmbedder, WarmConfig
from warm_integrations.openai_agents import WarmSession

ITEMS, OF_A_SESSION, CALLERS, APPENDS, TURNS = 100_000, 1000, 4, 2000, 20


async def fill(config: WarmConfig) -> None:
    async def make() -> WarmSession:
        return WarmSession(uuid.uuid4().hex, config)

    for _ in range(ITEMS // OF_A_SESSION // CALLERS):
        await asyncio.gather(*(filled(make, OF_A_SESSION) for _ in range(CALLERS)))


async def append_all(config: WarmConfig) -> float:
    """Appends a second."""
    numbers = iter(range(10**6, 10**9))

    async def work(session: WarmSession) -> None:
        for _ in range(APPENDS // CALLERS):
            await session.add_items(turn(next(numbers)))

    start = time.perf_counter()
    await asyncio.gather(*(work(WarmSession(uuid.uuid4().hex, config)) for _ in range(CALLERS)))
    return APPENDS / (time.perf_counter() - start)


def on_disk(directory: str) -> int:
    return sum(path.stat().st_size for path in Path(directory).rglob("*") if path.is_file())


async def a_server(dim: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory, LocalServer(directory, "--input-dim", str(dim)) as server:
        config = WarmConfig(url=server.url, embedder=HashingEmbedder(dim=dim))

        def resident() -> int:
            assert server.process is not None
            return int(psutil.Process(server.process.pid).memory_info().rss)

        await WarmSession("first", config).add_items(turn(0))
        before = resident()
        await fill(config)
        memory, rate = (resident() - before) / ITEMS, await append_all(config)
        disk = on_disk(directory) / ITEMS
        server.stop()
        start = time.perf_counter()
        server.start()
        await WarmSession("first", config).get_items()
        ready = time.perf_counter() - start
        memory_again = (resident() - before) / ITEMS
    found = {
        "dim": dim,
        "items": ITEMS,
        "memory bytes": round(memory),
        "memory bytes after a restart": round(memory_again),
        "disk bytes": round(disk),
        "appends a second": round(rate),
        "restart seconds": round(ready, 2),
    }
    print(f"A server of {ITEMS:,} items: {found}")
    return found


async def a_turn() -> dict[str, float]:
    """Requests of a turn, and the bytes of their bodies and paths, those of the answers included."""
    set_tracing_disabled(True)
    seen: list[int] = []
    send = httpx.AsyncHTTPTransport.handle_async_request

    async def counted(self: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        response = await send(self, request)
        answered = int(response.headers["content-length"])
        seen.append(len(request.url.raw_path) + len(request.content) + answered)
        return response

    with tempfile.TemporaryDirectory() as directory, LocalServer(directory) as server:
        session = WarmSession("turns", WarmConfig(url=server.url))
        await session.add_items([item for number in range(50) for item in turn(number)])
        agent = Agent(name="assistant", model=ScriptedModel([[assistant_message("the quick brown fox " * 20)]] * TURNS))
        newest = RunConfig(session_settings=SessionSettings(limit=50))
        httpx.AsyncHTTPTransport.handle_async_request = counted  # type: ignore[method-assign]
        try:
            for number in range(TURNS):
                await Runner.run(agent, f"What is the answer to question {number}?", session=session, run_config=newest)
        finally:
            httpx.AsyncHTTPTransport.handle_async_request = send  # type: ignore[method-assign]
    found = {"requests": len(seen) / TURNS, "bytes": round(sum(seen) / TURNS)}
    print(f"A turn: {found}")
    return found


async def run() -> dict[str, Any]:
    return {"turn": await a_turn(), "servers": [await a_server(dim) for dim in (384, 8)]}


if __name__ == "__main__":
    command_line(__doc__)
    asyncio.run(run())

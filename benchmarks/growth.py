"""What an append and a read cost when there is much else.

    python benchmarks/growth.py [--rounds N]

A session of 100 items in a store of 1,000,000 (on warm-server 100,000) items beside one in a store of 1,000, and a
session of 100,000 items beside one of 100 in one store, timed in turns. The ratio is that of the medians, large to
small.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "examples")]
from agents.memory import Session
from paired import command_line, compared

from conversations import filled, turn
from local_server import LocalServer
from warm_integrations.core import WarmConfig
from warm_integrations.openai_agents import WarmSession

FEW, SMALL, MANY = 100, 1000, 100_000
LARGE = {"embedded": 1_000_000, "warm-server": 100_000}


@contextlib.asynccontextmanager
async def store(kind: str) -> AsyncIterator[WarmConfig]:
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        if kind == "embedded":
            yield WarmConfig(url=f"sqlite:///{directory}/warm.db?synchronous=normal")
        else:
            yield WarmConfig(url=stack.enter_context(LocalServer(directory)).url)


async def session_of(config: WarmConfig, count: int) -> Session:
    async def make() -> Session:
        return WarmSession(uuid.uuid4().hex, config)

    return await filled(make, count)


async def fill(config: WarmConfig, count: int) -> None:
    """Other people's sessions, of 1,000 items each."""
    for _ in range(count // SMALL):
        await session_of(config, SMALL)


async def append(session: Session, numbers: Any) -> None:
    await session.add_items(turn(next(numbers)))


async def newest(session: Session) -> None:
    assert len(await session.get_items(50)) == 50


async def timed(title: str, sessions: dict[str, Session], rounds: int) -> list[dict[str, Any]]:
    numbers = iter(range(10**6, 10**9))
    return [
        await compared(f"{title}: newest 50", {name: lambda s=s: newest(s) for name, s in sessions.items()}, rounds),
        await compared(
            f"{title}: append 2", {name: lambda s=s: append(s, numbers) for name, s in sessions.items()}, rounds
        ),
    ]


async def run(rounds: int) -> list[dict[str, Any]]:
    results = []
    for kind, large in LARGE.items():
        async with store(kind) as much, store(kind) as little:
            await fill(much, large)
            await fill(little, SMALL)
            sessions = {
                f"among {large:,}": await session_of(much, FEW),
                f"among {SMALL:,}": await session_of(little, FEW),
            }
            results += await timed(kind, sessions, rounds)
            sessions = {f"of {MANY:,}": await session_of(little, MANY), f"of {FEW:,}": await session_of(little, FEW)}
            results += await timed(f"{kind}, a session", sessions, rounds)
    return results


if __name__ == "__main__":
    rounds = command_line(__doc__).rounds
    asyncio.run(run(rounds))

"""A long real conversation, message by message through Runner.run, then read back by another process.

    python benchmarks/replay.py DATA.json [--user conv-41] [--url http://127.0.0.1:8080]

DATA is a list of {"user", "kind", "memories": [text, ...]}; the memories of the entry of kind "turns" are the user's
messages, and a script answers each. Prints the times and the number of HTTP requests, and fails unless all items come
back equal. The store is that of --url or WARM_URL, else a temporary SQLite file. The session is deleted at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import httpx
from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage
from agents.testing import assistant_message

from warm_integrations.core import WarmConfig
from warm_integrations.openai_agents import WarmSession

requests = 0
send = httpx.AsyncHTTPTransport.handle_async_request


async def send_counted(transport: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
    global requests
    requests += 1
    return await send(transport, request)


httpx.AsyncHTTPTransport.handle_async_request = send_counted  # type: ignore[method-assign]


class TimedSession(WarmSession):
    """Knows how long the runner waited for it."""

    seconds = 0.0

    async def get_items(self, limit: int | None = None) -> list[Any]:
        start = time.perf_counter()
        items = await super().get_items(limit)
        self.seconds += time.perf_counter() - start
        return items

    async def add_items(self, items: list[Any]) -> None:
        start = time.perf_counter()
        await super().add_items(items)
        self.seconds += time.perf_counter() - start


class Script(Model):
    """Answers the n-th message with a text that names it. `ScriptedModel` would keep a copy of all it was sent."""

    def __init__(self) -> None:
        self.answered = 0

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        self.answered += 1
        return ModelResponse([assistant_message(answer(self.answered))], Usage(), None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("this benchmark does not stream")


def answer(number: int) -> str:
    return f"Answer to message {number}."


def read_messages(path: str, user: str) -> list[str]:
    for entry in json.loads(Path(path).read_text("utf-8")):
        if (entry["user"], entry["kind"]) == (user, "turns"):
            messages: list[str] = entry["memories"]
            return messages
    sys.exit(f"{path} has no turns of {user}")


async def replay(messages: list[str], session_id: str) -> None:
    session = TimedSession(session_id)
    agent = Agent(name="assistant", model=Script())
    no_traces = RunConfig(tracing_disabled=True)
    turns = []
    for message in messages:
        start = time.perf_counter()
        await Runner.run(agent, message, session=session, run_config=no_traces)
        turns.append(time.perf_counter() - start)

    total, tenth = sum(turns), max(1, len(turns) // 10)
    first, last = (statistics.median(part) * 1000 for part in (turns[:tenth], turns[-tenth:]))
    print(f"{len(turns)} messages through Runner.run: {total:.1f} s, of which {session.seconds:.1f} s in the session")
    print(f"a message, median: {first:.1f} ms in the first tenth, {last:.1f} ms in the last")
    print(f"HTTP requests: {requests}, {requests / len(turns):.2f} a message", flush=True)


async def compare(messages: list[str], session_id: str) -> None:
    session = WarmSession(session_id)
    start = time.perf_counter()
    items = await session.get_items()
    seconds = time.perf_counter() - start
    read = requests

    expected: list[Any] = []
    for number, message in enumerate(messages, 1):
        expected.append({"role": "user", "content": message})
        expected.append(assistant_message(answer(number)).model_dump(exclude_unset=True))
    if items != expected:
        same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(items, expected, strict=False)))
        sys.exit(f"NOT EQUAL: {len(items)} items for {len(expected)}, of which the first {same} are equal")
    print(f"{len(items)} items equal in another process, read in {seconds * 1000:.0f} ms, HTTP requests: {read}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", metavar="DATA.json")
    parser.add_argument("--user", default="conv-41")
    parser.add_argument("--url", default=os.environ.get("WARM_URL"))
    parser.add_argument("--compare", metavar="SESSION", help=argparse.SUPPRESS)  # what the second process does
    options = parser.parse_args()
    messages = read_messages(options.data, options.user)
    if options.compare:
        asyncio.run(compare(messages, options.compare))
        return

    with tempfile.TemporaryDirectory() as directory:
        os.environ["WARM_URL"] = options.url or f"sqlite:///{directory}/warm.db"
        print("store:", WarmConfig().url)
        session_id = f"replay-{uuid.uuid4()}"
        try:
            asyncio.run(replay(messages, session_id))
            again = [sys.executable, __file__, options.data, "--user", options.user, "--compare", session_id]
            code = subprocess.run(again).returncode
        finally:
            asyncio.run(WarmSession(session_id).delete())
    sys.exit(code)


if __name__ == "__main__":
    main()

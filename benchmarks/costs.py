"""What the parts cost: a request, a recall, many callers at once, an idle session, an import.

python benchmarks/costs.py [--rounds N]
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import http.client
import subprocess
import sys
import tempfile
import time
import tracemalloc
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "examples")]
import numpy as np
from paired import command_line, compared

from conversations import filled, turn
from local_server import LocalServer
from warm_integrations.core import AsyncWarmBackend, Record, WarmConfig
from warm_integrations.core.digests import digest
from warm_integrations.core.stores.ranking import Candidates
from warm_integrations.openai_agents import WarmSession

DIM, CALLERS, FEW_CALLERS, IDLE = 384, 64, 4, 10_000


async def a_request(config: WarmConfig, rounds: int) -> dict[str, Any]:
    """Newest 50 of a session, and the same request without any of it."""

    async def make() -> WarmSession:
        return WarmSession("a request", config)

    session = await filled(make, 1000)
    server = urlsplit(config.url)
    connection = http.client.HTTPConnection(str(server.hostname), server.port)
    prefix = digest("log", config.collection, "a request") + "/"
    path = f"/api/v1/documents?limit=51&after={quote(prefix, safe='')}"

    async def ours() -> None:
        assert len(await session.get_items(50)) == 50

    async def bare() -> None:
        connection.request("GET", path)
        assert connection.getresponse().read()

    result = await compared("A request: newest 50 over HTTP", {"get_items": ours, "http.client": bare}, rounds)
    connection.close()
    times = result["times"]
    result["own milliseconds"] = round(times["get_items"]["median"] - times["http.client"]["median"], 3)
    print(f"  our own time {result['own milliseconds']:.3f} ms")
    return result


async def a_recall(count: int, rounds: int) -> dict[str, Any]:
    """The ten nearest among `count` vectors, beside numpy alone; and a whole recall, embedding and words included."""
    numbers = np.random.default_rng(0)
    vectors = numbers.standard_normal((count, DIM)).astype("<f4")
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    texts = [" ".join(f"word{n}" for n in row) for row in (3000 * numbers.random((count, 12)) ** 2).astype(int)]
    cache = Candidates(DIM)
    cache.add([(n, str(n), "", vector.tobytes()) for n, vector in enumerate(vectors)])
    questions = iter(numbers.standard_normal((10 * rounds, DIM)).astype("<f4"))

    async def cosines() -> None:
        assert len(cache.nearest(next(questions), 10)) == 10

    async def product() -> None:
        assert len(np.argsort(-(vectors @ next(questions)))[:10]) == 10

    with tempfile.TemporaryDirectory() as directory:
        backend = AsyncWarmBackend(WarmConfig(url=f"sqlite:///{directory}/warm.db?synchronous=normal"))
        user = {"user_id": "ada"}
        for first in range(0, count, 1000):
            batch = slice(first, first + 1000)
            pairs = zip(texts[batch], vectors[batch].tolist(), strict=True)
            await backend.remember([Record(text, user, vector=vector) for text, vector in pairs])
        asked = iter(range(10**6))
        start = time.perf_counter()
        await backend.recall("word1", 10, user)
        first_call = (time.perf_counter() - start) * 1000

        async def whole() -> None:
            question = f"word{next(asked) % 3000} word1 word20 word300 word2000"
            assert len(await backend.recall(question, 10, user)) == 10

        contenders = {"nearest": cosines, "numpy alone": product, "whole recall": whole}
        result = await compared(f"A recall among {count:,}", contenders, rounds)
    result["first call milliseconds"] = round(first_call, 1)
    print(f"  the first recall of a process {first_call:.1f} ms")
    return result


async def many_callers(config: WarmConfig, rounds: int) -> dict[str, Any]:
    """Appends a second by 64 sessions at once, beside 4, with the default limits; both do the same number."""
    numbers = iter(range(10**6, 10**9))

    async def append(callers: int) -> None:
        async def work(session: WarmSession) -> None:
            for _ in range(512 // callers):
                await session.add_items(turn(next(numbers)))

        await asyncio.gather(*(work(WarmSession(uuid.uuid4().hex, config)) for _ in range(callers)))

    contenders = {f"{count} sessions": lambda count=count: append(count) for count in (FEW_CALLERS, CALLERS)}
    result = await compared("512 appends over HTTP", contenders, max(5, rounds // 30))
    print(f"  throughput of {CALLERS} to that of {FEW_CALLERS}: {result['ratios'][f'{CALLERS} sessions']:.2f}")
    return result


def idle_sessions() -> float:
    """Bytes that each session object takes before it is used."""
    config = WarmConfig(url="sqlite://")
    WarmSession("the first", config)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    sessions = [WarmSession(f"session {number}", config) for number in range(IDLE)]
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    each = (after - before) / len(sessions)
    print(f"An idle session: {each:.0f} bytes")
    return round(each)


def an_import(times: int = 9) -> float:
    """Median of the milliseconds that importing the package adds to importing the SDK, in processes of their own."""
    code = (
        "import agents, time; start = time.perf_counter(); import warm_integrations.openai_agents;"
        "print(1000 * (time.perf_counter() - start))"
    )
    took = sorted(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(times))
    print(f"Importing the package, beyond the SDK: {took[times // 2]:.0f} ms ({took[0]:.0f} to {took[-1]:.0f})")
    return round(took[times // 2], 1)


async def run(rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        config = WarmConfig(url=stack.enter_context(LocalServer(directory)).url)
        request, callers = await a_request(config, rounds), await many_callers(config, rounds)
    return {
        "request": request,
        "callers": callers,
        "recalls": [await a_recall(count, rounds) for count in (1000, 10_000, 100_000)],
        "idle session bytes": idle_sessions(),
        "import milliseconds": an_import(),
    }


if __name__ == "__main__":
    rounds = command_line(__doc__).rounds
    asyncio.run(run(rounds))

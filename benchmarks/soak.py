"""Conversations on both stores for minutes on end, while warm-server is stopped and killed now and then.

    python benchmarks/soak.py [--minutes 10] [--sessions 200]

Each session has a task that adds, reads, pops and clears. After a call that failed, the session has to be as before
it or as after it, and after one that returned, as after it. At the end all sessions are read once more by new objects
from a restarted server, and the resident memory, open files and tasks of this process have to be flat: the median of
the last quarter is compared with that of the second. Exits with 1 otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parents[1] / "examples"))
import psutil

from local_server import LocalServer
from warm_integrations.core import WarmConfig, WarmError
from warm_integrations.openai_agents import WarmSession

MOST = 40  # items of a session, before it is cleared
SAMPLE_SECONDS = 2.0
Numbers = list[int]  # each item is made from its number, so that the expected state takes no memory


def item(number: int) -> Any:
    # Every tenth is longer than one record holds.
    return {"role": "user", "content": f"{number} " + "é" * (20_000 if number % 10 == 0 else number % 700)}


class Conversation:
    """One session, what must be in it, and what was done."""

    def __init__(self, session_id: str, config: WarmConfig, done: Counter[str]) -> None:
        self.session_id, self.config, self.done = session_id, config, done
        self.session = WarmSession(session_id, config)
        self.expected: Numbers = []
        self.next = 1

    async def go_on(self, until: float) -> None:
        while time.monotonic() < until:
            await self.step()
            await asyncio.sleep(random.uniform(0, 4))

    async def step(self) -> None:
        kind = "clear" if len(self.expected) > MOST else random.choice(["add", "add", "add", "pop", "read", "newest"])
        try:
            if kind == "read":
                self.check(await self.session.get_items())
            elif kind == "newest":
                self.check(await self.session.get_items(5), 5)
            else:
                await self.write(kind)
        except WarmError as error:
            self.done[f"{kind}: {error.code}"] += 1
        else:
            self.done[kind] += 1

    async def write(self, kind: str) -> None:
        before = after = self.expected
        try:
            if kind == "add":
                new = list(range(self.next, self.next + random.randint(1, 4)))
                self.next, after = new[-1] + 1, before + new
                await self.session.add_items([item(number) for number in new])
            elif kind == "pop":
                after = before[:-1]
                if (got := await self.session.pop_item()) != (item(before[-1]) if before else None):
                    raise AssertionError(f"{self.session_id}: pop gave {str(got)[:40]}, not item {before[-1:]}")
            else:
                after = []
                await self.session.clear_session()
        except WarmError:
            self.expected = await self.one_of(before, after)
            raise
        self.expected = after

    async def one_of(self, *states: Numbers) -> Numbers:
        """Which of the states the session is in, as soon as it can be read."""
        while True:
            try:
                found = await self.session.get_items()
            except WarmError as error:
                self.done[f"read again: {error.code}"] += 1
            else:
                for state in states:
                    if found == [item(number) for number in state]:
                        return state
                self.check(found)

    def check(self, found: list[Any], newest: int | None = None) -> None:
        expected = self.expected[-newest:] if newest else self.expected
        if found != [item(number) for number in expected]:
            got = [one["content"].split()[0] for one in found]
            raise AssertionError(f"{self.session_id} at {self.config.url}: {got} in place of {expected}")


class Sample(NamedTuple):
    memory: float
    files: float
    tasks: float


UNITS = Sample("MB resident", "open files", "tasks")
# What the median may grow by: garbage that is not collected yet, the connections of a pool, and calls under way.
GROWTH = Sample(5, 4, 20)


def take_sample() -> Sample:
    process = psutil.Process()
    return Sample(process.memory_info().rss / 2**20, process.num_fds(), len(asyncio.all_tasks()))


async def watch(samples: list[Sample], server: LocalServer) -> None:
    start = time.monotonic()
    while True:
        samples.append(take_sample())
        if len(samples) % int(30 / SAMPLE_SECONDS) == 1:
            with contextlib.suppress(AttributeError, psutil.Error):  # it is down at this moment
                theirs = psutil.Process(server.process.pid).memory_info().rss / 2**20  # type: ignore[union-attr]
                figures = [f"{value:6.1f} {unit_vector}" for value, unit_vector in zip(samples[-1], UNITS, strict=True)]
                print(f"{time.monotonic() - start:5.0f} s", *figures, f"server {theirs:.0f} MB", sep="   ", flush=True)
        await asyncio.sleep(SAMPLE_SECONDS)


async def disturb(server: LocalServer, done: Counter[str]) -> None:
    """Stop the server in order, or kill it, and start it again, on and on."""
    for end, name in ((server.stop, "SIGTERM"), (server.kill, "SIGKILL")) * 10_000:
        await asyncio.sleep(random.uniform(5, 25))
        await asyncio.to_thread(end)
        await asyncio.sleep(random.choice([0, 1, 8]))  # longer than the retries of a call, too
        await asyncio.shield(asyncio.to_thread(server.start))
        done[name] += 1


def medians(samples: list[Sample]) -> Sample:
    return Sample(*map(statistics.median, zip(*samples, strict=True)))


def growing(samples: list[Sample]) -> list[str]:
    """What grew between the second quarter and the last one."""
    quarter = len(samples) // 4
    second, last = medians(samples[quarter : 2 * quarter]), medians(samples[-quarter:])
    wrong = []
    for unit_vector, before, after, most in zip(UNITS, second, last, GROWTH, strict=True):
        print(f"{unit_vector}: median {before:.1f} in the second quarter, {after:.1f} in the last")
        if after > before + most:
            wrong.append(f"{unit_vector}: {before:.1f} has grown to {after:.1f}")
    return wrong


async def soak(minutes: float, sessions: int, directory: Path) -> list[str]:
    done: Counter[str] = Counter()
    samples: list[Sample] = []
    server = LocalServer(directory / "server")
    with server:
        configs = [WarmConfig(url=server.url), WarmConfig(url=f"sqlite:///{directory}/warm.db")]
        talks = [Conversation(f"talk {number}", config, done) for config in configs for number in range(sessions)]
        until = time.monotonic() + minutes * 60
        watching = asyncio.create_task(watch(samples, server))
        disturbing = asyncio.create_task(disturb(server, done))
        work = asyncio.gather(*(talk.go_on(until) for talk in talks))
        finished, _ = await asyncio.wait([work, disturbing, watching], return_when=asyncio.FIRST_COMPLETED)
        for task in finished:
            task.result()
        for task in (watching, disturbing):
            task.cancel()
        await asyncio.wait([watching, disturbing])
        if server.process is None:
            server.start()
        await asyncio.to_thread(server.restart)
        for talk in talks:
            talk.check(await WarmSession(talk.session_id, talk.config).get_items())
    for what, count in sorted(done.items()):
        print(f"{count:8} {what}")
    kept = sum(len(talk.expected) for talk in talks)
    print(f"{sum(talk.next - 1 for talk in talks)} items were added, and the {kept} that must be there are there")
    return growing(samples)


def main() -> str | None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--sessions", type=int, default=200, help="on each of the two stores")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        try:
            return "\n".join(asyncio.run(soak(options.minutes, options.sessions, Path(directory)))) or None
        except AssertionError as error:
            return f"not as it must be: {error}"


if __name__ == "__main__":
    sys.exit(main())

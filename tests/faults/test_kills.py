"""A hundred kills of the writer and of the server: nothing acknowledged is lost, nothing is torn, doubled or mixed."""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import random
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from local_server import LocalServer
from warm_integrations.core import WarmConfig, WarmError
from warm_integrations.openai_agents import WarmSession

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system with fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
KILLS = 100
State = tuple[int, ...]  # the numbers of a session's items


def item(number: int) -> Any:
    return {"role": "user", "content": f"{number} " + "é" * (9000 if number % 7 == 0 else number % 90)}  # some in parts


def numbers(items: Sequence[Any]) -> State:
    """`ValueError` for an item that is not whole."""
    found = tuple(int(one["content"].split()[0]) for one in items)
    if [item(number) for number in found] != items:
        raise ValueError(f"torn: {items}")
    return found


def session_of(config: WarmConfig, number: int) -> WarmSession:
    return WarmSession(f"s{number}", config, page_size=10)


def read(config: WarmConfig, number: int) -> State:
    return numbers(asyncio.run(session_of(config, number).get_items()))


@contextmanager
def forked(work: Callable[[], Any]) -> Iterator[None]:
    """A process that does `work`, and is killed at the end of the block."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        ended = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(ended) == -signal.SIGKILL, "it had ended by itself"


class Journal:
    """Lines of JSON in a file, which outlive the process that wrote them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.touch()

    def write(self, *entry: Any) -> None:
        with self.path.open("ab", buffering=0) as file:
            file.write(json.dumps(entry).encode() + b"\n")

    def __len__(self) -> int:
        return self.path.read_bytes().count(b"\n")

    def entries(self) -> list[Any]:
        return [json.loads(line) for line in self.path.read_bytes().splitlines()]


async def write_on(config: WarmConfig, number: int, journal: Journal, dice: random.Random) -> None:
    """Appends, pops, replaces and clears without end. Each is in the journal before it begins and when it returned."""
    session, count, items = session_of(config, number), 0, 0
    while True:
        kind = dice.choice(["add", "add", "add", "pop", "pop", "replace", "clear" if items > 15 else "add"])
        new = range(count, count + dice.randint(1, 5)) if kind in ("add", "replace") else range(0)
        count += len(new)
        journal.write("begin", kind, *new)
        result = None
        try:
            if kind == "add":
                await session.add_items([item(n) for n in new])
            elif kind == "replace":
                assert await session._atomic_replace_items([item(n) for n in new])
            elif kind == "clear":
                await session.clear_session()
            elif popped := await session.pop_item():
                result = numbers([popped])[0]
        except WarmError as error:
            journal.write("failed", error.code, *numbers(await session.get_items()))
        else:
            journal.write("done", result)
        items = {"add": items + len(new), "pop": max(0, items - 1)}.get(kind, len(new))


async def read_on(config: WarmConfig, number: Sequence[int], journal: Journal) -> None:
    """Reads the session of the moment without end, each time by a fresh object; what is new goes to the journal."""
    last: tuple[int, State] | None = None
    while True:
        now = number[0]
        found = now, numbers(await session_of(config, now).get_items())
        if found != last:
            journal.write(*found)
            last = found
        await asyncio.sleep(0.002)


@dataclass
class Course:
    """What a writer's journal says of its session."""

    states: list[State] = field(default_factory=lambda: [()])  # one after the other; the last may not have come to be
    last: set[State] = field(default_factory=lambda: {()})  # in one of which the session is
    acknowledged: int = 0
    unknown: int = 0

    @classmethod
    def of(cls, journal: Journal) -> Course:
        course, entries = cls(), journal.entries()
        before: State = ()
        for begin, end in zip(entries[::2], [*entries[1::2], None], strict=False):
            _, kind, *new = begin
            after = {"add": (*before, *new), "pop": before[:-1], "replace": tuple(new), "clear": ()}[kind]
            course.states.append(after)
            if end is None:
                course.last = {before, after}
                break
            if end[0] == "done":
                assert kind != "pop" or end[1] == (before[-1] if before else None), "a pop gave another item"
                course.acknowledged += 1
            else:
                after_all = tuple(end[2:])
                assert after_all in (before, after), (kind, before, after_all)
                course.unknown += 1
                course.states[-1] = after = after_all
            before = after
            course.last = {before}
        return course

    def check_seen(self, seen: Sequence[State]) -> None:
        """What a reader saw is some of the states, in their order."""
        ahead = iter(self.states)
        assert all(any(state == one for state in ahead) for one in seen), f"{seen} is not in {self.states}"


def until(journal: Journal, entries: int, dice: random.Random) -> None:
    """Wait for so many entries, and for a moment in which something is under way."""
    while len(journal) < entries:
        time.sleep(0.001)
    time.sleep(dice.uniform(0, 0.01))


def seen_in(journal: Journal, number: int) -> list[State]:
    return [tuple(found) for now, *found in [(one[0], *one[1]) for one in journal.entries()] if now == number]


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> random.Random:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


def summarize(request: pytest.FixtureRequest, what: str, courses: Sequence[Course]) -> None:
    acknowledged, unknown = (sum(getattr(c, name) for c in courses) for name in ("acknowledged", "unknown"))
    assert acknowledged > KILLS
    line = f"{KILLS} kills of {what}: {acknowledged} acknowledged operations, 0 lost, torn, doubled or mixed"
    request.node.user_properties.append(("summary", line + f"; {unknown} reported as unknown"))


def test_a_writer_is_killed_again_and_again(
    config: WarmConfig, store_kind: str, tmp_path: Path, dice: random.Random, request: pytest.FixtureRequest
) -> None:
    now, reader = mmap.mmap(-1, 1), Journal(tmp_path / "reader")  # shared with the processes that are forked
    journals = [Journal(tmp_path / f"writer-{number}") for number in range(KILLS)]
    with forked(lambda: asyncio.run(read_on(config, now, reader))):
        for number, journal in enumerate(journals):
            now[0], seed = number, dice.random()
            with forked(lambda: asyncio.run(write_on(config, number, journal, random.Random(seed)))):  # noqa: B023
                until(journal, dice.randrange(30), dice)
            assert read(config, number) in Course.of(journal).last
    courses = [Course.of(journal) for journal in journals]
    for number, course in enumerate(courses):
        found = read(config, number)  # once more, since a server may have gone on after the writer was killed
        assert found in course.last
        course.check_seen(seen_in(reader, number))
        asyncio.run(session_of(config, number).add_items([item(1)]))
        assert read(config, number) == (*found, 1)
    assert len(reader) > KILLS
    summarize(request, f"a writer, {store_kind}", courses)


def test_a_server_is_killed_again_and_again(
    warm_server_binary: str, tmp_path: Path, dice: random.Random, request: pytest.FixtureRequest
) -> None:
    request.node.user_properties.append(("store", "warm-server"))
    writer, reader, seed = Journal(tmp_path / "writer"), Journal(tmp_path / "reader"), dice.random()
    with LocalServer(tmp_path / "data") as server:
        config = WarmConfig(url=server.url, retries=100)
        with (
            forked(lambda: asyncio.run(read_on(config, [0], reader))),
            forked(lambda: asyncio.run(write_on(config, 0, writer, random.Random(seed)))),
        ):
            for _ in range(KILLS):
                until(writer, len(writer) + dice.randint(1, 20), dice)
                server.kill()
                server.start()
            until(writer, len(writer) + 2, dice)
        course = Course.of(writer)
        assert read(config, 0) in course.last
        course.check_seen(seen_in(reader, 0))
        server.restart()
        assert read(config, 0) in course.last
    assert len(reader) > KILLS
    summarize(request, "warm-server", [course])

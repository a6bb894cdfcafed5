"""Every fault at every request of every operation: the right result or one clear error, and a history that is whole."""

from __future__ import annotations

import asyncio
import json
import re
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from agents.tool_context import ToolContext
from proxy import Fault, Proxy, answer

from local_server import LocalServer
from warm_integrations.core import AsyncWarmBackend, Record, UserMemory, WarmConfig, WarmError
from warm_integrations.core.memory import memory_id
from warm_integrations.openai_agents import WarmSession, memory_tools

SECRET = "key-8d1f0c6e"
FEW = {"MAX_BATCH": 7, "MAX_DELETE": 4, "MAX_PAGE": 5}  # so that a handful of records take several requests
DIVIDING = {  # the modules that divide what they ask for, and by what
    "batching": ["MAX_BATCH"],
    "catalog": ["MAX_PAGE"],
    "record_reading": ["MAX_PAGE"],
    "record_writing": ["MAX_DELETE"],
    "log.reading": ["MAX_PAGE"],
    "log.searching": ["MAX_PAGE"],
    "log.writing": ["MAX_DELETE", "MAX_PAGE"],
}


@pytest.fixture(autouse=True)
def _counted(request: pytest.FixtureRequest) -> None:
    request.node.user_properties.append(("store", "warm-server"))


@pytest.fixture(autouse=True)
def _small_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, names in DIVIDING.items():
        for name in names:
            monkeypatch.setattr(f"warm_integrations.core.{module}.{name}", FEW[name])  # fails for a name that is gone


@pytest.fixture(scope="module")
def server(warm_server_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """One that is never busy by itself."""
    with LocalServer(tmp_path_factory.mktemp("faults"), "--max-concurrent-work", "256") as server:
        yield server


@dataclass(frozen=True)
class Kind:
    """A fault, and what comes of it, once or at every further request: `right`, an `error`, or `either`."""

    steps: Sequence[Fault]
    once: str
    always: str = ""  # not tried
    timeout: float = 10.0


def page(status: str) -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-type: text/html\r\ncontent-length: 16\r\n\r\n<html>Hi</html>\n".encode()


def body(text: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\ncontent-length: {len(text)}\r\n\r\n{text}".encode()


SHORT = 0.5  # seconds, where time has to run out
TOGETHER = 16  # trials under way at once
NOT_NOW = [(408, "request_timeout"), (429, "rate_limited"), (503, "server_busy")]
KINDS = {
    "dropped before": Kind(["drop before"], "right", "error"),
    "dropped after": Kind(["drop after"], "right", "error"),
    "delayed": Kind([lambda: time.sleep(0.02), "pass"], "right"),
    "never answered": Kind(["stall"], "either", "error", SHORT),
    "carried out, never answered": Kind(["forward", "stall"], "either", "error", SHORT),
    "carried out late": Kind(["stall", "forward"], "either", "error", SHORT),
    "cut": Kind(["cut"], "right", "error"),
    "truncated": Kind(["truncate"], "error"),
    "dripping": Kind(["drip"], "either", "error", SHORT),
    "endless": Kind(["endless"], "error"),
    **{f"{status}": Kind([answer(status, code)], "right") for status, code in NOT_NOW},
    **{f"{status}, in a moment": Kind([answer(status, code, Retry_After="0")], "right") for status, code in NOT_NOW},
    **{f"{status}, in an hour": Kind([answer(status, code, Retry_After="3600")], "error") for status, code in NOT_NOW},
    "always busy": Kind([answer(503, "server_busy")], "either", "error", SHORT),
    "unavailable": Kind([page("503 Unavailable")], "either", "error", SHORT),
    "in flight": Kind(["forward", answer(409, "idempotency_in_flight", Retry_After="0")], "right"),
    "500": Kind([answer(500, "internal")], "error"),
    "500, carried out": Kind(["forward", answer(500, "internal")], "error"),
    "committed": Kind(["forward", answer(500, "mutation_committed")], "either"),
    "HTML": Kind([page("200 OK")], "error"),
    "HTML, carried out": Kind(["forward", page("502 Bad Gateway")], "error"),
    "another object": Kind(["forward", body("{}")], "error"),
    "another type": Kind(["forward", body('{"added":[],"forgotten":3,"documents":3,"matches":3}')], "error"),
}


@dataclass(frozen=True)
class Operation:
    """A call through the proxy, and the states that a fresh reader may find after it."""

    call: Callable[[WarmConfig], Awaitable[Any]]
    result: Any
    done: Any
    failed: Sequence[Any]


def items(*texts: str) -> Any:
    return [{"role": "user", "content": text} for text in texts]


def texts(found: Any) -> tuple[str, ...]:
    return tuple(item["content"] for item in found)


def prefixes(whole: tuple[Any, ...], shortest: int = 0) -> list[tuple[Any, ...]]:
    return [whole[:end] for end in range(shortest, len(whole) + 1)]


def session(config: WarmConfig) -> WarmSession:
    return WarmSession("s", config, page_size=2, chunk_chars=25, searchable=True)  # two records for each item


OLD, NEW = ("apple", "bread", "cream", "dates"), ("eggs", "flour", "grapes", "honey", "ice")


async def session_before(config: WarmConfig) -> None:
    before = session(config)
    await before.add_items(items(*OLD[:2]))
    await before.add_items(items(*OLD[2:]))
    await before.set_metadata({"title": "old"})


async def session_state(config: WarmConfig) -> tuple[tuple[str, ...], str | None]:
    fresh = WarmSession("s", config)
    info = await fresh.info()
    return texts(await fresh.get_items()), info and info.metadata.get("title")


def on_session(
    call: Callable[[WarmSession], Awaitable[Any]],
    result: Any = None,
    done: tuple[str, ...] = OLD,
    failed: Sequence[tuple[str, ...]] = (OLD,),
) -> Operation:
    return Operation(lambda config: call(session(config)), result, (done, "old"), [(one, "old") for one in failed])


async def searched(session: WarmSession) -> tuple[str, ...]:
    return texts(hit.item for hit in await session.search("apple", 1))


async def listed(config: WarmConfig) -> list[tuple[str, Any]]:
    return [(info.id, info.metadata) for info in await WarmSession.list(config)]


async def titled(session: WarmSession) -> Any:
    info = await session.info()
    return info and info.metadata


SESSION = {
    "add_items": on_session(lambda s: s.add_items(items("eggs")), done=(*OLD, "eggs"), failed=[OLD, (*OLD, "eggs")]),
    "add_items in batches": on_session(
        lambda s: s.add_items(items(*NEW)), done=OLD + NEW, failed=[OLD + some for some in prefixes(NEW)]
    ),
    "get_items": on_session(lambda s: s.get_items(), items(*OLD)),
    "get_items of some": on_session(lambda s: s.get_items(3), items(*OLD[1:])),
    "pop_item": on_session(lambda s: s.pop_item(), items("dates")[0], OLD[:-1], [OLD, OLD[:-1]]),
    "clear_session": on_session(lambda s: s.clear_session(), None, (), prefixes(OLD)),
    "replace": on_session(lambda s: s._atomic_replace_items(items("sum")), True, ("sum",), [OLD, ("sum",)]),
    "search": on_session(searched, ("apple",)),
    "info": on_session(titled, {"title": "old"}),
    "set_metadata": Operation(
        lambda config: session(config).set_metadata({"title": "new"}), None, (OLD, "new"), [(OLD, "old"), (OLD, "new")]
    ),
    "delete": Operation(
        lambda config: session(config).delete(),
        None,
        ((), None),
        [(some, title) for some in prefixes(OLD) for title in ("old", None)],
    ),
    "list": Operation(listed, [("s", {"title": "old"})], (OLD, "old"), [(OLD, "old")]),
}

TEA, CAT = "She drinks tea in the morning.", "Her cat is called Miso."
KNOWN = frozenset({(CAT, ("pets",)), (TEA, ())})
WINE = ("He likes wine.", ("drinks",))


def user(config: WarmConfig) -> UserMemory:
    return UserMemory(AsyncWarmBackend(config), "alice")


async def memory_before(config: WarmConfig) -> None:
    times = {"created_at": "2026-01-01T00:00:00+00:00", "expires_at": None}
    memories = [{"text": text, "tags": tags, **times} for text, tags in KNOWN]
    memories += [{"text": text, "tags": [], **times, "expires_at": times["created_at"]} for text in ("Rain.", "Snow.")]
    await user(config).import_(json.dumps({"version": 1, "memories": memories}))


async def memory_state(config: WarmConfig) -> tuple[frozenset[Any], int]:
    """What is remembered, and how many that are no longer shown are still kept."""
    found = [(memory.text, tuple(memory.tags)) for memory in await user(config).list()]
    assert len(set(found)) == len(found)
    return frozenset(found), len(await AsyncWarmBackend(config).list()) - len(found)


def on_memory(
    call: Callable[[UserMemory], Awaitable[Any]],
    result: Any,
    done: frozenset[Any] = KNOWN,
    failed: Sequence[frozenset[Any]] = (KNOWN,),
) -> Operation:
    return Operation(lambda config: call(user(config)), result, (done, 2), [(one, 2) for one in failed])


async def remembered(memory: UserMemory, text: str, *tags: str) -> tuple[str, bool]:
    done = await memory.remember(text, tags)
    return done.memory.text, done.new


async def recalled(memory: UserMemory) -> list[str]:
    return [found.text for found in await memory.recall("What is her cat called?", 1)]


async def got(memory: UserMemory) -> str | None:
    found = await memory.get(memory_id(TEA))
    return found and found.text


async def listed_texts(memory: UserMemory) -> set[str]:
    return {found.text for found in await memory.list()}


def some(known: frozenset[Any]) -> list[frozenset[Any]]:
    return [frozenset(one for n, one in enumerate(known) if which >> n & 1) for which in range(1 << len(known))]


TAGGED = KNOWN - {(TEA, ())} | {(TEA, ("drinks",))}
MEMORY = {
    "remember": on_memory(
        lambda m: remembered(m, *WINE[:1], "drinks"),
        (WINE[0], True),
        KNOWN | {WINE},
        [
            KNOWN,
            KNOWN | {WINE},
        ],
    ),
    "remember again": on_memory(lambda m: remembered(m, TEA, "drinks"), (TEA, False), TAGGED, [KNOWN, TAGGED]),
    "recall": on_memory(recalled, [CAT]),
    "get": on_memory(got, TEA),
    "list": on_memory(listed_texts, {TEA, CAT}),
    "forget": on_memory(lambda m: m.forget(memory_id(TEA)), True, KNOWN - {(TEA, ())}, [KNOWN, KNOWN - {(TEA, ())}]),
    "forget_all": Operation(
        lambda config: user(config).forget_all(), 4, (frozenset(), 0), [(k, n) for k in some(KNOWN) for n in range(3)]
    ),
    "forget_expired": Operation(
        lambda config: user(config).forget_expired(), 2, (KNOWN, 0), [(KNOWN, n) for n in range(3)]
    ),
}

RECORDS = ("r0", "r1", "r2", "r3", "r4", "r5")
MORE = ("s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7")


async def backend_before(config: WarmConfig) -> None:
    await AsyncWarmBackend(config).remember([Record(f"text of {id}", {"kind": "old"}, id) for id in RECORDS])


async def backend_state(config: WarmConfig) -> tuple[str, ...]:
    found = await AsyncWarmBackend(config).list()
    assert all(record.text == f"text of {record.id}" for record in found)
    return tuple(record.id for record in found)


def on_backend(
    call: Callable[[AsyncWarmBackend], Awaitable[Any]],
    result: Any,
    done: tuple[str, ...] = RECORDS,
    failed: Sequence[tuple[str, ...]] = (RECORDS,),
) -> Operation:
    return Operation(lambda config: call(AsyncWarmBackend(config)), result, done, failed)


async def ids_of(found: Awaitable[Any]) -> list[str]:
    return [record.id for record in await found]


WITHOUT = [RECORDS[start:] for start in range(len(RECORDS) + 1)]
BACKEND = {
    "remember": on_backend(
        lambda b: b.remember([Record(f"text of {id}", {"kind": "new"}, id) for id in MORE]),
        list(MORE),
        RECORDS + MORE,
        [RECORDS + some for some in prefixes(MORE)],
    ),
    "recall": on_backend(lambda b: ids_of(b.recall("r3", 1, {"kind": "old"})), ["r3"]),
    "similar": on_backend(lambda b: ids_of(b.similar("text of r3", 1, {"kind": "old"})), ["r3"]),
    "get": on_backend(lambda b: ids_of(b.get(["r4", "none", "r1"])), ["r4", "r1"]),
    "list": on_backend(lambda b: ids_of(b.list({"kind": "old"})), list(RECORDS)),
    "forget": on_backend(lambda b: b.forget(RECORDS[:5]), list(RECORDS[:5]), ("r5",), WITHOUT[:6]),
    "forget_where": on_backend(lambda b: b.forget_where({"kind": "old"}), list(RECORDS), (), WITHOUT),
    "forget and purge": on_backend(
        lambda b: b.forget(RECORDS[:5], purge=True), list(RECORDS[:5]), ("r5",), WITHOUT[:6]
    ),
    "purge": on_backend(lambda b: b.forget([], purge=True), []),
}


async def told(config: WarmConfig, name: str, **arguments: Any) -> Any:
    """What a tool tells the model; an error of the store is the same as one that is raised."""
    [tool] = [tool for tool in memory_tools(config, user_id="alice") if tool.name == name]
    text = json.dumps(arguments)
    said = await tool.on_invoke_tool(ToolContext(None, tool_name=name, tool_call_id="1", tool_arguments=text), text)
    assert SECRET not in said
    found = json.loads(said)
    if "error" in found:
        code = re.fullmatch(
            r"The memory cannot be used right now \((\w+)\)\. Go on without it, and say so\.", found["error"]
        )
        assert code, said
        raise WarmError(code[1], "told", status=500)
    if "memories" in found:
        return [one["text"] for one in found["memories"]]
    return found.get("stored", found.get("forgotten"))


TOOLS = {
    "remember": replace(
        MEMORY["remember"], call=lambda c: told(c, "remember", text=WINE[0], tags=["drinks"]), result=True
    ),
    "recall": replace(MEMORY["recall"], call=lambda c: told(c, "recall", query="What is her cat called?", k=1)),
    "forget": replace(
        MEMORY["forget"], call=lambda c: told(c, "forget", memory_id=memory_id(TEA)), result=memory_id(TEA)
    ),
}

SUBJECTS = {
    "session": (SESSION, session_before, session_state),
    "memory": (MEMORY, memory_before, memory_state),
    "backend": (BACKEND, backend_before, backend_state),
    "tool": (TOOLS, memory_before, memory_state),
}


class Trial:
    """One operation, once with its requests counted and then with faults."""

    def __init__(self, server: LocalServer, subject: str, name: str) -> None:
        operations, self.before, self.state = SUBJECTS[subject]
        self.operation: Operation = operations[name]
        self.reads = list(self.operation.failed) == [self.operation.done]
        # a tenant each, since the server purges by the tenant
        self.config = WarmConfig(
            url=server.url, tenant_id=uuid.uuid4().hex, api_key=SECRET, retries=1, concurrency=TOGETHER
        )
        self.calls: list[str] = []

    async def prepare(self) -> None:
        if self.reads:
            await self.before(self.config)
        result, self.calls = await self.run([], 10)
        assert not isinstance(result, Exception)

    async def run(self, faults: Sequence[Sequence[Fault]], timeout: float) -> tuple[Any, list[str]]:
        """The result of the operation, or its error, and the requests it made."""
        config = self.config
        if not self.reads:
            config = config.model_copy(update={"collection": uuid.uuid4().hex})
            await self.before(config)
        async with Proxy(config.url) as proxy:
            proxy.faults = [list(steps) for steps in faults]
            try:
                through = config.model_copy(update={"url": proxy.url, "timeout": timeout})
                result = await self.operation.call(through)
            except Exception as error:
                result = error
        state = await self.state(config)
        if isinstance(result, Exception):
            check_error(result)
            assert state in self.operation.failed
        else:
            assert result == self.operation.result
            assert state == self.operation.done
        return result, proxy.calls

    async def suffer(self, fault: Kind, number: int, times: int, expected: str) -> None:
        """The operation with a fault from its request `number` on."""
        result, made = await self.run([*[["pass"]] * number, *[fault.steps] * times], fault.timeout)
        if len(made) <= number:  # time ran out before
            assert fault.timeout == SHORT
        elif self.operation is SESSION["replace"] and made[number] == "POST forget":
            assert result is True  # it stands once it is written, and hides what it replaced
        elif expected != "either":
            assert isinstance(result, Exception) == (expected == "error"), result


def check_error(error: Exception) -> None:
    assert isinstance(error, WarmError), repr(error)
    assert re.fullmatch(r"[a-z_]+", error.code)
    assert re.search(r"\)\. [A-Z].*\.$", str(error)), f"no next step: {error}"
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__
    assert SECRET not in "".join(traceback.format_exception(error)) + repr(vars(error))


OPERATIONS = [(subject, name) for subject, (operations, *_) in SUBJECTS.items() for name in operations]


@pytest.mark.parametrize(("subject", "name"), OPERATIONS, ids=[f"{s}: {n}" for s, n in OPERATIONS])
async def test_each_fault_at_each_request(
    server: LocalServer, subject: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    trial, slots = Trial(server, subject, name), asyncio.Semaphore(TOGETHER)
    await trial.prepare()

    async def failure(kind: str, number: int, times: int, expected: str) -> str:
        async with slots:
            try:
                await trial.suffer(KINDS[kind], number, times, expected)
            except Exception:
                return f"{kind} at request {number}, {trial.calls[number]}, {times} times: {traceback.format_exc()}"
        return ""

    cases = []
    for kind, fault in KINDS.items():
        cases += [(kind, number, 1, fault.once) for number in range(len(trial.calls))]
        cases += [(kind, number, 1000, fault.always) for number in range(len(trial.calls)) if fault.always]
    failures = list(filter(None, await asyncio.gather(*(failure(*case) for case in cases))))
    assert not failures, "\n".join(failures)
    assert SECRET not in caplog.text

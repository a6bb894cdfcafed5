"""No key reaches a log, a text or what an error reporter collects, whatever goes wrong on the way to warm-server."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import pickle
import socket
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import rich.console
import rich.traceback
import sentry_sdk
import trustme
from agents.tool_context import ToolContext
from proxy import Proxy, answer
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from local_server import LocalServer
from warm_integrations.core import (
    AsyncPagedLog,
    AsyncWarmBackend,
    HashingEmbedder,
    WarmBackend,
    WarmConfig,
    WarmError,
    user_memory,
)
from warm_integrations.core.connection import connect
from warm_integrations.openai_agents import WarmSession, memory_tools

# Globals, and never locals of a test, where a reporter would find them.
KEY, WRONG_KEY, MASK_KEY = "s3cret-of-the-server-0123456789abcdef", "s3cret-that-is-wrong", "s3cret-rotation"


def chain(error: BaseException | None) -> list[BaseException]:
    """The error with all its causes and contexts, shown or suppressed."""
    found: list[BaseException] = []
    todo = [error]
    while todo:
        one = todo.pop()
        if one is not None and one not in found:
            found.append(one)
            todo += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
    return found


def as_text(error: BaseException) -> str:
    """What the error says of itself, with the locals of all frames as `traceback` shows them."""
    said = [repr(error), str(error), repr(error.args), repr(vars(error))]
    frames = traceback.TracebackException(type(error), error, error.__traceback__, capture_locals=True, compact=True)
    return "\n".join([*said, *frames.format(chain=False)])


def as_rich(error: BaseException) -> str:
    """The locals that rich would print, without the boxes around them."""
    trace = rich.traceback.Traceback.extract(
        type(error),
        error,
        error.__traceback__,
        show_locals=True,
        locals_max_length=None,  # type: ignore[arg-type]
        locals_max_string=None,  # type: ignore[arg-type]
        locals_hide_dunder=False,
    )
    frames = [frame for stack in trace.stacks for frame in stack.frames]
    return "\n".join(f"{name} = {node}" for frame in frames for name, node in (frame.locals or {}).items())


class Kept(Transport):
    """Keeps in memory what Sentry would send."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Envelope] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.sent.append(envelope)


def as_sentry(error: BaseException) -> str:
    kept = Kept()
    client = sentry_sdk.Client("http://key@127.0.0.1:9/1", transport=kept, default_integrations=False)
    with sentry_sdk.isolation_scope() as scope:
        scope.set_client(client)
        scope.capture_exception(error)
    client.close()
    return json.dumps([envelope.get_event() for envelope in kept.sent])


def everything_shown(error: BaseException) -> str:
    return "\n".join(show(one) for one in chain(error) for show in (as_text, as_rich, as_sentry))


def deep() -> None:
    headers = [(b"authorization", b"Bearer " + KEY.encode())]
    nested = {"outer": {"inner": KEY}}
    try:
        raise ValueError(headers and nested and "inside")
    except ValueError:
        raise RuntimeError("outside") from None


@pytest.mark.parametrize("show", [as_text, as_rich, as_sentry])
def test_the_reporters_would_show_a_key(show: Callable[[BaseException], str]) -> None:
    with pytest.raises(RuntimeError) as caught:
        deep()
    outside, inside = chain(caught.value)
    assert KEY in show(outside)
    assert KEY in show(inside)
    assert KEY in everything_shown(caught.value)


class Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__(level=1)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += [record.getMessage(), repr(vars(record))]


@pytest.fixture
def log() -> Iterator[Log]:
    """All that any logger says, at its lowest level."""
    log = Log()
    loggers = [logging.getLogger(name) for name in (None, *logging.root.manager.loggerDict)]
    before = [(logger, logger.level, logger.propagate, logger.disabled) for logger in loggers]
    for logger in loggers:
        logger.setLevel(1)
        logger.propagate, logger.disabled = True, False
    logging.root.addHandler(log)
    yield log
    logging.root.removeHandler(log)
    for logger, level, propagate, disabled in before:
        logger.setLevel(level)
        logger.propagate, logger.disabled = propagate, disabled


@pytest.fixture(scope="module")
def server(warm_server_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """A server that asks for the key."""
    with LocalServer(tmp_path_factory.mktemp("server"), env={"WARM_API_KEY": KEY}) as running:
        yield running


@pytest.fixture
async def proxy(server: LocalServer, request: pytest.FixtureRequest) -> AsyncIterator[Proxy]:
    request.node.user_properties.append(("store", "warm-server"))
    async with Proxy(server.url) as running:
        yield running


def config(url: str, **changes: Any) -> WarmConfig:
    settings: dict[str, Any] = {"retries": 1, "timeout": 2, "zero_trust_key": MASK_KEY, "api_key": KEY}
    return WarmConfig(url=url, **{**settings, **changes})


Calls = dict[str, Callable[[WarmConfig], Awaitable[Any]]]
CALLS: Calls = {
    "read": lambda config: WarmSession("talk", config).get_items(),
    "add": lambda config: WarmSession("talk", config, searchable=True).add_items([{"role": "user", "content": "hi"}]),
    "recall": lambda config: user_memory(config, "alice").recall("tea"),
    "purge": lambda config: user_memory(config, "alice").forget("x", purge=True),
}


@pytest.fixture(params=CALLS)
def call(request: pytest.FixtureRequest) -> Callable[[WarmConfig], Awaitable[Any]]:
    return CALLS[request.param]


async def failure(work: Awaitable[Any]) -> BaseException:
    try:
        await work
    except (Exception, asyncio.CancelledError) as error:
        return error
    pytest.fail("it did not fail")


def assert_secret(shown: str) -> None:
    assert "s3cret" not in shown, shown[max(0, shown.index("s3cret") - 300) :][:600]


def assert_kept_secret(error: BaseException, log: Log) -> None:
    assert_secret(everything_shown(error))
    assert_secret("\n".join(log.lines))


FAULTS = {
    "dropped before": "drop before",
    "dropped after": "drop after",
    "500": answer(500, "internal"),
    "429": answer(429, "quota_exceeded"),
    "503": answer(503, "server_busy"),
    "403": answer(403, "forbidden"),
    "401": answer(401, "unauthorized"),
    "another page": b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 6\r\n\r\n<html>",
    "another shape": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]",
    "not JSON": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{",
    "cut off": b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n{",
    "not HTTP": b"220 mail.example.com ESMTP\r\n\r\n",
    "a head without end": b"HTTP/1.1 200 OK\r\nx: " + b"x" * 200_000,
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_faults_on_the_way(proxy: Proxy, call: Any, fault: Any, log: Log) -> None:
    proxy.faults = [[fault]] * 1000
    error = await failure(call(config(proxy.url, timeout=0.2)))
    assert isinstance(error, WarmError)
    assert_kept_secret(error, log)
    assert any("httpcore" in line for line in log.lines)


async def test_a_server_that_is_down(call: Any, log: Log) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert_kept_secret(await failure(call(config(url))), log)


async def test_a_key_that_is_refused(server: LocalServer, call: Any, log: Log) -> None:
    error = await failure(call(config(server.url, api_key=WRONG_KEY)))
    assert isinstance(error, WarmError)
    assert error.code == "unauthorized"
    assert_kept_secret(error, log)


async def test_an_authority_that_is_not_trusted(tmp_path: Path, warm_server_binary: str, call: Any, log: Log) -> None:
    certificate = trustme.CA().issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    flags = ["--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")]
    with LocalServer(tmp_path / "data", *flags, env={"WARM_API_KEY": KEY}) as server:
        error = await failure(call(config(server.url)))
        assert isinstance(error, WarmError)
        assert error.code == "untrusted"
        assert_kept_secret(error, log)


async def test_tls_to_a_server_without_it(server: LocalServer, call: Any, log: Log) -> None:
    assert_kept_secret(await failure(call(config(server.url.replace("http:", "https:")))), log)


@pytest.fixture
async def held(proxy: Proxy) -> AsyncIterator[asyncio.Event]:
    """The proxy holds every answer back; the event says that a request has come."""
    reached, go_on, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()

    def hold() -> None:
        loop.call_soon_threadsafe(reached.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()

    proxy.faults = [[hold, "drop before"] for _ in range(1000)]
    yield reached
    go_on.set()


async def test_a_call_that_is_cancelled(proxy: Proxy, held: asyncio.Event, call: Any, log: Log) -> None:
    task = asyncio.ensure_future(call(config(proxy.url)))
    await held.wait()
    task.cancel()
    error = await failure(task)
    assert_kept_secret(error, log)


async def test_a_call_that_takes_too_long_for_its_caller(
    proxy: Proxy, held: asyncio.Event, call: Any, log: Log
) -> None:
    error = await failure(asyncio.wait_for(call(config(proxy.url)), 0.3))
    assert isinstance(error, (asyncio.TimeoutError, WarmError))
    assert_kept_secret(error, log)


async def test_calls_that_wait_for_a_connection_in_vain(proxy: Proxy, held: asyncio.Event, call: Any, log: Log) -> None:
    crowded = config(proxy.url, concurrency=1, timeout=0.3)
    for error in await asyncio.gather(*(failure(call(crowded)) for _ in range(3))):
        assert isinstance(error, WarmError)
        assert_kept_secret(error, log)


async def test_a_server_that_does_not_take_what_is_sent(call: Any, log: Log) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        assert_kept_secret(await failure(call(config(url, timeout=0.2))), log)
        error = await failure(AsyncPagedLog("talk", config(url, timeout=0.2)).replace(["x" * 500_000] * 12))
        assert isinstance(error, WarmError)
        assert_kept_secret(error, log)


class Wrong(HashingEmbedder):
    """Gives what `shape` makes of its vectors."""

    shape: Any

    def embed_documents(self, texts: Any) -> Any:
        return self.shape(super().embed_documents(texts))

    def embed_query(self, text: str) -> Any:
        return self.shape([super().embed_query(text)])[0]


SHAPES: dict[str, Any] = {
    "ragged": lambda vectors: [[[0.5], 1.0] for _ in vectors],
    "flat": lambda vectors: [1.0 for _ in vectors],
    "text": lambda vectors: [["a", "b"] for _ in vectors],
    "too short": lambda vectors: [vector[:10] for vector in vectors],
    "not numbers": lambda vectors: [vector * float("nan") for vector in vectors],
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("name", ["add", "recall"])
async def test_an_embedder_that_does_not_give_vectors(server: LocalServer, name: str, shape: Any, log: Log) -> None:
    embedder = Wrong()
    object.__setattr__(embedder, "shape", shape)
    error = await failure(CALLS[name](config(server.url, embedder=embedder)))
    assert_kept_secret(error, log)


async def test_a_store_that_cannot_be_opened(call: Any, log: Log, tmp_path: Path) -> None:
    assert_kept_secret(await failure(call(config(f"sqlite:///{tmp_path}/none/warm.db"))), log)


async def test_a_task_whose_failure_nobody_looked_at(log: Log) -> None:
    loop, reports = asyncio.get_running_loop(), []
    loop.set_debug(True)
    loop.set_exception_handler(lambda loop, context: reports.append(context))
    task = asyncio.create_task(CALLS["read"](config("http://127.0.0.1:9", retries=0)))  # type: ignore[arg-type]
    await asyncio.wait([task])
    del task
    [report] = reports
    assert_secret(repr(report))
    assert_kept_secret(report["exception"], log)


WRONG: dict[str, Callable[[], dict[str, Any]]] = {
    "two that exclude each other": lambda: {"api_key": KEY, "zero_trust_key": MASK_KEY, "text_queries": True},
    "a key with a line break": lambda: {"api_key": KEY + "\n"},
    "a key with a blank": lambda: {"api_key": f"{KEY} {KEY}"},
    "a key that is not ASCII": lambda: {"api_key": KEY + "\u00e9"},
    "a key of bytes": lambda: {"api_key": KEY.encode() + b"\xff"},
    "a key in a list": lambda: {"api_key": [KEY]},
    "another value": lambda: {"api_key": KEY, "timeout": -1},
    "a misspelt name": lambda: {"api_kee": KEY},
    "a key in the url": lambda: {"url": f"https://user:{KEY}@host"},
    "a key in the query": lambda: {"url": f"https://host?key={KEY}"},
}


def configure(name: str) -> None:
    WarmConfig(**{"url": "https://host", **WRONG[name]()})


@pytest.mark.parametrize("name", WRONG)
def test_a_configuration_that_is_refused(name: str, log: Log) -> None:
    with pytest.raises(ValueError, match="WarmConfig") as caught:
        configure(name)
    assert_kept_secret(caught.value, log)


def test_keys_of_the_environment(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    monkeypatch.setenv("WARM_API_KEY", KEY)
    monkeypatch.setenv("WARM_ZERO_TRUST_KEY", MASK_KEY)
    monkeypatch.setenv("WARM_TIMEOUT", "soon")
    with pytest.raises(ValueError, match="timeout") as caught:
        WarmConfig()
    assert_kept_secret(caught.value, log)


@pytest.mark.parametrize("url", ["http://h", "sqlite://"])
def test_objects_do_not_show_keys(url: str) -> None:
    made = config(url)
    session = WarmSession("talk", made)
    objects = [made, session, AsyncPagedLog("talk", made), AsyncWarmBackend(made), WarmBackend(made)]
    objects += [user_memory(made, "alice"), *memory_tools(made, user_id="alice"), connect(made), made.model_dump()]
    console = rich.console.Console(file=io.StringIO(), width=10_000)
    console.print(*objects)
    shown = f"{objects} {[str(one) for one in objects]} {console.file.getvalue()}"  # type: ignore[attr-defined]
    assert_secret(shown + made.model_dump_json(exclude={"embedder"}) + repr(hash(made)))


def test_keys_are_part_of_what_a_configuration_is() -> None:
    made = config("http://h")
    assert made == config("http://h")
    assert hash(made) == hash(config("http://h"))
    for changes in ({"api_key": WRONG_KEY}, {"zero_trust_key": WRONG_KEY}):
        assert made != config("http://h", **changes)


def test_a_pickle_holds_the_keys_as_promised() -> None:
    """Whoever gets it is meant to go on with the same store; an error's pickle holds none."""
    made = config("http://h")
    for kept in (made, AsyncPagedLog("talk", made), WarmSession("talk", made)):
        assert KEY.encode() in pickle.dumps(kept)
        assert MASK_KEY.encode() in pickle.dumps(kept)
    assert b"s3cret" not in pickle.dumps(WarmError("unauthorized", "no"))


async def test_a_failed_tool_tells_the_model_and_the_log_no_key(proxy: Proxy, log: Log) -> None:
    given = {
        "remember": {"text": "tea", "tags": None},
        "recall": {"query": "tea", "k": 1},
        "forget": {"memory_id": "x"},
    }
    for fault in FAULTS.values():
        for tool in memory_tools(config(proxy.url, timeout=0.1, retries=0), user_id="alice"):
            proxy.faults = [[fault]] * 100
            arguments = json.dumps(given[tool.name])
            context = ToolContext(context=None, tool_name=tool.name, tool_call_id="1", tool_arguments=arguments)
            told = await tool.on_invoke_tool(context, arguments)
            assert list(json.loads(told)) == ["error"]
            assert_secret(told)
    assert_secret("\n".join(log.lines))


def test_the_server_does_not_log_keys(server: LocalServer) -> None:
    asyncio.run(AsyncPagedLog("talk", config(server.url)).append(["one"]))
    with pytest.raises(WarmError):
        asyncio.run(AsyncPagedLog("talk", config(server.url, api_key=WRONG_KEY)).append(["two"]))
    assert_secret(server.log.read_text())

"""warm-server over HTTP: requests counted, answers lost, servers that are down, wrong or guarded."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import socket
import subprocess
import time
import uuid
from collections.abc import AsyncIterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import trustme
from proxy import Proxy, answer

from local_server import LocalServer
from warm_integrations.core import AsyncPagedLog, HashingEmbedder, WarmConfig, WarmError, user_memory
from warm_integrations.core.connection import connect
from warm_integrations.core.memory import memory_id
from warm_integrations.core.stores.interface import (
    Document,
    Nearest,
    Put,
    Scan,
    Transaction,
    single,
)


@pytest.fixture(autouse=True)
def _counted(request: pytest.FixtureRequest) -> None:
    request.node.user_properties.append(("store", "warm-server"))


@pytest.fixture
async def proxy(warm_server: LocalServer) -> AsyncIterator[Proxy]:
    async with Proxy(warm_server.url) as running:
        yield running


@pytest.fixture
def log(proxy: Proxy) -> AsyncPagedLog:
    return AsyncPagedLog("talk", WarmConfig(url=proxy.url, tenant_id=f"http-{uuid.uuid4().hex}", timeout=30))


def again(log: AsyncPagedLog, **changes: Any) -> AsyncPagedLog:
    """Another object for the same log, which has read nothing yet."""
    return AsyncPagedLog(log.name, log.config.model_copy(update=changes), page_size=log.page_size)


async def test_requests_of_each_operation(proxy: Proxy, log: AsyncPagedLog, capsys: pytest.CaptureFixture[str]) -> None:
    table = []

    async def count(what: str, expected: int, call: Any, at_most: bool = False) -> Any:
        proxy.reset()
        result = await call
        made = len(proxy.requests)
        table.append(f"{what:36} {made} requests {proxy.bytes_read:9} bytes read")
        assert made <= expected if at_most else made == expected, (what, proxy.calls)
        return result

    await count("first append of an object", 2, log.append(["one"]))
    await count("append", 1, log.append(["two", "three"]))
    await count("first append of another object", 2, again(log).append(["four"]))
    reader = again(log)
    await count("newest 4", 1, reader.newest(4))
    await count("append after a read", 1, reader.append(["five"]))
    empty = AsyncPagedLog("empty", log.config)
    await count("read of an empty log", 1, empty.newest())
    await count("append after it", 1, empty.append(["one"]))
    await count("pop", 2, log.pop())
    await count("pop of an object that read nothing", 2, again(log).pop())
    await count("clear of 3 records", 2, log.clear())
    await count("append after clear", 1, log.append([str(i) for i in range(998)]))
    for limit, requests in ((1, 1), (49, 1), (50, 1), (51, 2), (250, 2), (251, 3), (998, 3), (None, 3)):
        got = await count(f"newest {limit} of 998", requests, again(log).newest(limit), at_most=True)
        assert got == [str(i) for i in range(998)][-(limit or 998) :]
    await count("clear of 998 records", 2, log.clear())
    await log.append([str(i) for i in range(4000)])
    await count("read of 4000 records", 7, log.newest(), at_most=True)
    await count("clear of 4000 records", 8, log.clear(), at_most=True)
    await count("nothing to append", 0, log.append([]))
    await count("newest 0", 0, log.newest(0))
    await count("newest -1", 0, log.newest(-1))
    with capsys.disabled():
        print("\nrequests over HTTP:", *table, sep="\n  ")


@pytest.mark.parametrize("seconds", [-3600, -3, 3, 3600])
async def test_only_a_writer_without_the_time_of_the_server_looks_before_it_appends(
    proxy: Proxy, log: AsyncPagedLog, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    other, right = again(log, timeout=29), time.time_ns
    for each in (log, other):
        await each.newest()
    counts = []
    for number in range(12):
        proxy.reset()
        if number % 2:
            with monkeypatch.context() as wrong:
                wrong.setattr("time.time_ns", lambda: right() + seconds * 10**9)
                await other.append([str(number)])
        else:
            await log.append([str(number)])
        counts.append(len(proxy.requests))
    assert counts == [1, 2] * 6
    proxy.reset()
    await other.append(["12"])  # its clock was put right
    assert len(proxy.requests) == 1
    assert await log.newest() == [str(number) for number in range(13)]


async def test_an_object_whose_clock_is_an_hour_ahead_from_the_first_append_on_is_in_order(
    proxy: Proxy, log: AsyncPagedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = again(log, timeout=29)
    await other.newest()
    with monkeypatch.context() as wrong:
        right = time.time_ns
        wrong.setattr("time.time_ns", lambda: right() + 3600 * 10**9)
        await log.append(["one"])
    await other.append(["two"])
    assert await other.newest() == ["one", "two"]
    listed = await log.info()
    assert listed is not None
    assert listed.updated < datetime.now(timezone.utc) + timedelta(minutes=1)


@pytest.mark.parametrize("date", [b"", b"date: yesterday\r\n", b"date: Mon, 99 Foo 2026 25:00:00 GMT\r\n"])
async def test_where_no_reply_tells_the_time_each_append_looks(
    proxy: Proxy, log: AsyncPagedLog, monkeypatch: pytest.MonkeyPatch, date: bytes
) -> None:
    forward = proxy._forward

    async def without_date(message: bytes) -> bytes:
        return re.sub(rb"(?i)\r\ndate:[^\r]*\r\n", b"\r\n" + date, await forward(message), count=1)

    monkeypatch.setattr(proxy, "_forward", without_date)
    other, right = again(log), time.time_ns
    for each in (log, other):
        await each.newest()
    proxy.reset()
    for number in range(6):
        with monkeypatch.context() as wrong:
            wrong.setattr("time.time_ns", lambda: right() - number % 2 * 3600 * 10**9)  # noqa: B023
            await (other if number % 2 else log).append([str(number)])
    assert len(proxy.requests) == 12
    assert await log.newest() == [str(number) for number in range(6)]


async def test_a_small_log_reads_few_bytes_of_its_neighbours(proxy: Proxy, log: AsyncPagedLog) -> None:
    for i in range(30):  # wherever the log's id falls among these
        await AsyncPagedLog(f"neighbour {i}", log.config).append(["x" * 1000] * 100)
    await log.append(["one", "two"])
    proxy.reset()
    assert await again(log).newest() == ["one", "two"]
    assert len(proxy.requests) == 1
    assert proxy.bytes_read < 60_000


async def test_a_write_whose_answer_was_lost_stands_once(proxy: Proxy, log: AsyncPagedLog) -> None:
    await log.append(["one"])
    proxy.reset()
    proxy.faults = [["drop after"], ["drop before"]]
    await log.append(["two"])
    assert await log.newest() == ["one", "two"]
    keys = [request.headers["idempotency-key"] for request in proxy.requests[:3]]
    assert len(set(keys)) == 1


async def test_a_write_retried_after_somebody_removed_it_does_not_bring_it_back(
    proxy: Proxy, log: AsyncPagedLog, warm_server: LocalServer
) -> None:
    await log.append(["one"])
    other = again(log, url=warm_server.url)
    proxy.faults = [["forward", lambda: asyncio.run(other.pop()), "drop before"]]
    await log.append(["two"])
    assert await log.newest() == ["one"]


async def test_a_pop_whose_answer_was_lost_gives_that_item(proxy: Proxy, log: AsyncPagedLog) -> None:
    await log.append(["one", "two", "three"])
    proxy.faults = [["pass"], ["drop after"]]
    assert await log.pop() == "three"
    assert await log.newest() == ["one", "two"]


async def test_a_pop_that_a_restart_leaves_open_raises_and_takes_nothing_else(
    warm_server_binary: str, tmp_path: Path
) -> None:
    with LocalServer(tmp_path) as server:
        async with Proxy(server.url) as proxy:
            log = AsyncPagedLog("talk", WarmConfig(url=proxy.url))
            await log.append(["one", "two", "three"])

            def restart() -> None:
                server.kill()
                server.start()

            proxy.faults = [["pass"], ["forward", restart, "drop before"]]
            with pytest.raises(WarmError) as caught:
                await log.pop()
            assert caught.value.code == "no_answer"
            assert await log.newest() == ["one", "two"]


@pytest.mark.parametrize("status", [408, 429, 503])
@pytest.mark.parametrize("headers", [{}, {"Retry_After": "0"}, {"Retry_After": "soon"}])
async def test_a_server_that_says_not_now_is_asked_again(
    proxy: Proxy, log: AsyncPagedLog, status: int, headers: dict[str, str]
) -> None:
    proxy.faults = [[answer(status, "server_busy", **headers)]] * 3
    await log.append(["one"])
    assert await log.newest() == ["one"]


async def test_a_write_in_flight_is_asked_again(proxy: Proxy, log: AsyncPagedLog) -> None:
    proxy.faults = [["pass"], [answer(409, "idempotency_in_flight", Retry_After="0")]]
    await log.append(["one"])
    assert await log.newest() == ["one"]


async def test_a_server_that_stays_busy_is_given_up_after_the_timeout(proxy: Proxy, log: AsyncPagedLog) -> None:
    proxy.faults = [[answer(503, "server_busy")]] * 1000
    with pytest.raises(WarmError) as caught:
        await again(log, timeout=2).newest()
    assert (caught.value.code, caught.value.status) == ("server_busy", 503)
    assert 1 < len(proxy.requests) < 100


async def test_busy_answers_use_up_no_retries(proxy: Proxy, log: AsyncPagedLog) -> None:
    proxy.faults = [["pass"], *[[answer(503, "server_busy", Retry_After="0")]] * 3, ["drop after"]]
    await again(log, retries=1).append(["one"])
    assert await log.newest() == ["one"]


async def test_a_write_still_under_way_after_its_timeout_is_waited_for(proxy: Proxy, log: AsyncPagedLog) -> None:
    in_flight = answer(409, "idempotency_in_flight")
    proxy.faults = [["pass"], ["forward", "stall"], ["stall"], [in_flight]]  # asked again after at most 0.4 s
    await again(log, timeout=4).append(["one"])
    assert not proxy.faults
    assert await log.newest() == ["one"]


async def test_a_wait_past_the_timeout_is_not_begun(proxy: Proxy, log: AsyncPagedLog) -> None:
    proxy.faults = [[answer(429, "rate_limited", Retry_After="3600")]]
    with pytest.raises(WarmError, match="Try again later") as caught:
        await log.newest()
    assert caught.value.code == "rate_limited"
    assert len(proxy.requests) == 1


@pytest.mark.parametrize("fault", ["drip", "endless"])
async def test_an_answer_without_end_is_left(proxy: Proxy, log: AsyncPagedLog, fault: str) -> None:
    proxy.faults = [[fault]]
    with pytest.raises(WarmError) as caught:
        await again(log, timeout=0.5 if fault == "drip" else 60, retries=0).newest()
    assert caught.value.code == ("no_answer" if fault == "drip" else "not_warm_server")


async def test_a_committed_write_is_not_repeated(proxy: Proxy, log: AsyncPagedLog) -> None:
    await log.append(["one"])
    proxy.reset()
    proxy.faults = [["forward", answer(500, "mutation_committed")]]
    await log.append(["two"])
    assert proxy.calls == ["POST batch"]
    assert await log.newest() == ["one", "two"]
    proxy.faults = [["pass"], ["forward", answer(500, "mutation_committed")]]
    assert await log.pop() == "two"
    assert await log.newest() == ["one"]


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (answer(500, "internal"), "internal"),
        (answer(429, "quota_exceeded", Retry_After="60"), "quota_exceeded"),
        (b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 6\r\n\r\n<html>", "not_warm_server"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>", "not_warm_server"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]", "not_warm_server"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnull", "not_warm_server"),
        (b'HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n{"documents":[1]', "not_warm_server"),
        (b"HTTP/1.1 302 Found\r\nlocation: /login\r\ncontent-length: 0\r\n\r\n", "not_warm_server"),
    ],
)
async def test_what_will_not_change_is_said_at_once(proxy: Proxy, log: AsyncPagedLog, fault: bytes, code: str) -> None:
    await log.append(["one"])
    proxy.reset()
    proxy.faults = [[fault]]
    with pytest.raises(WarmError) as caught:
        await log.newest()
    assert caught.value.code == code
    assert len(proxy.requests) == 1
    assert await log.newest() == ["one"]


async def test_a_truncated_answer_is_asked_for_again(proxy: Proxy, log: AsyncPagedLog) -> None:
    await log.append(["one"])
    proxy.faults = [[b'HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n{"documents":[']]
    assert await log.newest() == ["one"]


async def test_a_server_that_is_down_is_reported_with_the_next_step_and_nothing_is_lost(
    warm_server_binary: str, tmp_path: Path
) -> None:
    with LocalServer(tmp_path) as server:
        log = AsyncPagedLog("talk", WarmConfig(url=server.url, retries=1))
        await log.append(["one"])
        server.stop()
        with pytest.raises(WarmError, match=rf"{server.url}.*docs/SERVER.md") as caught:
            await log.append(["two"])
        assert caught.value.code == "unreachable"
        server.start()
        await log.append(["three"])
        assert await log.newest() == ["one", "three"]


async def test_a_server_that_restarts_is_waited_for(warm_server_binary: str, tmp_path: Path) -> None:
    with LocalServer(tmp_path) as server:
        log = AsyncPagedLog("talk", WarmConfig(url=server.url, retries=20))
        await log.append(["one"])
        server.kill()
        append = asyncio.create_task(log.append(["two"]))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(server.start)
        await append
        assert await log.newest() == ["one", "two"]


async def test_a_name_that_leads_nowhere() -> None:
    with pytest.raises(WarmError, match="WARM_URL") as caught:
        await AsyncPagedLog("talk", WarmConfig(url="http://warm.invalid", retries=0)).newest()
    assert caught.value.code == "unreachable"


async def test_another_service_at_the_url() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 9\r\nconnection: close\r\n\r\nnot here!")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(WarmError, match="WARM_URL") as caught:
            await AsyncPagedLog("talk", WarmConfig(url=f"http://127.0.0.1:{port}")).newest()
        assert caught.value.code == "not_warm_server"


async def test_another_dimension_is_reported_with_both_numbers(warm_server: LocalServer) -> None:
    config = WarmConfig(url=warm_server.url, tenant_id="dimension", embedder=HashingEmbedder(100))
    with pytest.raises(WarmError, match=r"384.*100.*--input-dim") as caught:
        await AsyncPagedLog("talk", config).append(["one"])
    assert caught.value.code == "invalid_request"


async def test_keys_scopes_and_tenants(warm_server_binary: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"

    def key(name: str, tenants: str, scopes: str, **changes: object) -> str:
        command = [warm_server_binary, "keygen", "--id", name, "--tenants", tenants, "--scopes", scopes]
        done = subprocess.run([*command, "--keys-file", str(keys)], capture_output=True, text=True, check=True)
        content = json.loads(keys.read_text())
        content["keys"][-1] |= changes
        keys.write_text(json.dumps(content))
        return done.stdout.strip()

    full, reader, writer = (
        key(name, "acme", scopes) for name, scopes in (("f", "read,write"), ("r", "read"), ("w", "write"))
    )
    expired, early = key("expired", "acme", "read,write", expires_at=1), key("early", "*", "read", not_before=2**32)
    disabled, foreign = key("disabled", "*", "read,write", disabled=True), key("foreign", "other", "read,write")
    with LocalServer(tmp_path / "data", "--keys-file", str(keys)) as server:

        def config(api_key: str | None, tenant: str | None = None) -> WarmConfig:
            return WarmConfig(url=server.url, api_key=api_key, tenant_id=tenant)

        def reading(config: WarmConfig) -> list[Any]:
            log, memory = AsyncPagedLog("talk", config), user_memory(config, "alice")
            return [log.newest(), log.info(), memory.list(), memory.recall("tea"), memory.get(memory_id("Tea."))]

        def changing(config: WarmConfig) -> list[Any]:
            log, memory = AsyncPagedLog("talk", config), user_memory(config, "alice")
            logged = [log.append(["two"]), log.replace(["two"]), log.pop(), log.clear(), log.delete()]
            return [*logged, memory.remember("Coffee."), memory.forget_all()]

        def writing(config: WarmConfig) -> list[Any]:
            forget = user_memory(config, "alice").forget(memory_id("Tea."))
            return [forget, AsyncPagedLog("talk", config).set_metadata({"two": 2})]

        async def content() -> list[Any]:
            return await asyncio.gather(*reading(config(full)))

        await AsyncPagedLog("talk", config(full)).append(["one"])
        await user_memory(config(full), "alice").remember("Tea.")
        before = await content()
        assert before[0] == ["one"]
        assert await asyncio.gather(*reading(config(reader, "acme"))) == before
        every = [reading, changing, writing]
        refused = [
            ("unauthorized", "WARM_API_KEY", [None, "wrong", expired, early, disabled], None, every),
            ("forbidden", "'read' and 'write'", [reader], None, [changing, writing]),
            ("forbidden", "'read' and 'write'", [writer], None, [reading, changing]),
            ("tenant_forbidden", "tenant_id", [full], "other", every),
            ("tenant_forbidden", "tenant_id", [foreign], "acme", every),
        ]
        for code, step, tokens, tenant, kinds in refused:
            for call in [call for kind in kinds for token in tokens for call in kind(config(token, tenant))]:
                with pytest.raises(WarmError, match=step) as caught:
                    await call
                assert caught.value.code == code
        assert await content() == before
        assert await asyncio.gather(*reading(config(foreign))) == [[], None, [], [], None]


async def test_unix_socket(warm_server_binary: str, tmp_path: Path) -> None:
    path = tmp_path / "warm socket"
    with LocalServer(tmp_path / "data", "--unix-socket", str(path)):
        log = AsyncPagedLog("talk", WarmConfig(url=f"unix://{path}"))
        await log.append(["one"])
        assert await log.newest() == ["one"]


def issued(authority: trustme.CA, folder: Path, *names: str, days: tuple[int, int] = (-1, 1)) -> list[str]:
    """The flags with which a server uses a new certificate for these names, valid between two days from now."""
    begin, end = (datetime.now(timezone.utc) + timedelta(days=day) for day in days)
    made = authority.issue_cert(*names, not_before=begin, not_after=end)
    made.private_key_pem.write_to_path(folder / "key.pem")
    made.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    return ["--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem")]


async def test_a_renewed_authority_is_trusted_by_connections_that_were_open(
    warm_server_binary: str, tmp_path: Path
) -> None:
    trusted, log, port = tmp_path / "authority.pem", None, "127.0.0.1:0"
    for number in range(3):
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(tmp_path / "new.pem"))
        os.replace(tmp_path / "new.pem", trusted)
        with LocalServer(tmp_path / "data", "--bind", port, *issued(authority, tmp_path, "127.0.0.1")) as server:
            port = server.url.removeprefix("https://")
            log = log or AsyncPagedLog("talk", WarmConfig(url=server.url, ca_file=trusted))
            await asyncio.gather(*(log.newest() for _ in range(4)))
            await log.append([str(number)])
            assert await log.newest() == [str(n) for n in range(number + 1)]


async def test_a_certificate_that_does_not_fit_is_refused_with_its_reason(
    warm_server_binary: str, tmp_path: Path
) -> None:
    authority = trustme.CA()
    trusted = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(trusted))
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "another.pem"))
    (tmp_path / "no-certificate.pem").write_text("-----BEGIN CERTIFICATE-----")

    async def refused(log: AsyncPagedLog, reason: str) -> None:
        for call in (log.append(["two"]), log.newest(), log.pop(), log.clear()):
            with pytest.raises(WarmError, match=f"{reason}.*WARM_CA_FILE.*renew") as caught:
                await call
            assert caught.value.code == "untrusted"

    with LocalServer(tmp_path / "data", *issued(authority, tmp_path, "127.0.0.1")) as server:
        log = AsyncPagedLog("talk", WarmConfig(url=server.url, ca_file=trusted))
        await log.append(["one"])
        assert await log.newest() == ["one"]
        await refused(again(log, ca_file=None), "issuer")
        await refused(again(log, ca_file=tmp_path / "another.pem"), "issuer")
        await refused(again(log, ca_file=tmp_path / "no-certificate.pem"), "no-certificate.pem cannot be read")
        await refused(again(log, ca_file=tmp_path / "gone.pem"), "gone.pem cannot be read")
    for days, names, reason in (
        ((-9, -1), ["127.0.0.1"], "has expired"),
        ((1, 9), ["127.0.0.1"], "not yet valid"),
        ((-1, 1), ["127.0.0.2", "warm.example"], "not valid for '127.0.0.1'"),
    ):
        with LocalServer(tmp_path / "data", *issued(authority, tmp_path, *names, days=days)) as server:
            await refused(again(log, url=server.url), reason)
    with LocalServer(tmp_path / "data", *issued(authority, tmp_path, "127.0.0.1")) as server:
        assert await again(log, url=server.url).newest() == ["one"]


async def test_a_scheme_that_the_server_does_not_speak(warm_server: LocalServer, tmp_path: Path) -> None:
    secure = AsyncPagedLog("talk", WarmConfig(url=warm_server.url.replace("http:", "https:"), retries=0))
    with pytest.raises(WarmError, match="WARM_URL") as caught:
        await secure.append(["one"])
    assert caught.value.code == "unreachable"
    flags = issued(trustme.CA(), tmp_path, "127.0.0.1")
    with LocalServer(tmp_path / "data", *flags) as server:
        plain = AsyncPagedLog("talk", WarmConfig(url=server.url.replace("https:", "http:"), retries=0))
        with pytest.raises(WarmError, match="RemoteProtocolError"):
            await plain.append(["one"])


async def test_sixty_four_writers_of_one_process_are_all_served(warm_server: LocalServer) -> None:
    config = WarmConfig(url=warm_server.url, tenant_id="crowd")
    logs = [AsyncPagedLog(f"talk {i}", config) for i in range(64)]
    await asyncio.gather(*(log.append([f"{i}"]) for i, log in enumerate(logs) for _ in range(3)))
    assert [await log.newest() for log in logs] == [[str(i)] * 3 for i in range(64)]


def open_sockets() -> int:
    gc.collect()
    links = (
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{fd}")
    )
    return sum(link.startswith("socket") for link in links)


def test_an_event_loop_that_ends_takes_its_connections_along(warm_server: LocalServer) -> None:
    config = WarmConfig(url=warm_server.url, tenant_id="loops")
    asyncio.run(AsyncPagedLog("talk", config).append(["one"]))
    before = open_sockets()
    for _ in range(20):
        assert asyncio.run(AsyncPagedLog("talk", config).newest()) == ["one"]
    assert open_sockets() == before


def test_a_loop_that_was_only_closed_is_let_go_at_the_next_use(warm_server: LocalServer) -> None:
    log = AsyncPagedLog("talk", WarmConfig(url=warm_server.url, tenant_id="closed-loops"))
    before = open_sockets()
    for _ in range(10):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(log.append(["one"]))
        loop.close()
        del loop
    asyncio.run(log.newest())
    assert open_sockets() <= before + 3


async def test_a_cancelled_write_is_settled_before_the_cancellation_goes_on(proxy: Proxy, log: AsyncPagedLog) -> None:
    await log.append(["one"])
    reached, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold() -> None:
        loop.call_soon_threadsafe(reached.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()

    proxy.faults = [[hold, "pass"]]
    append = asyncio.create_task(log.append(["two"]))
    await reached.wait()
    append.cancel()
    await asyncio.sleep(0.05)
    assert not append.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await append
    assert await log.newest() == ["one", "two"]
    await log.append(["three"])
    assert await log.newest() == ["one", "two", "three"]


async def test_documents_may_be_put_in_any_number_of_plans_at_once(warm_server: LocalServer) -> None:
    store = connect(WarmConfig(url=warm_server.url, tenant_id="plans"))

    def rename() -> Transaction[str]:
        rows = yield Scan("", 1)
        yield Put([Document("b", rows[0].payload, {"k": 1})])
        hits = yield Nearest([1.0] + [0.0] * 383, 1, {"k": 1})
        return str(hits[0].payload)

    await store.write(single(Put([Document("a", "hello")])))
    assert await asyncio.gather(*(store.write(rename()) for _ in range(5))) == ["hello"] * 5


def test_a_port_where_nobody_listens_is_not_waited_for_long() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(WarmError, match="unreachable"):
        asyncio.run(AsyncPagedLog("talk", WarmConfig(url=url, retries=0)).newest())

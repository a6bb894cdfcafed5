"""The paged log: races of clear and replace, clocks that disagree, crashes between two calls."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from observed import one_by_one  # tests/observed.py
from warm_integrations.core import AsyncPagedLog, WarmConfig, WarmError
from warm_integrations.core.batching import split_batches
from warm_integrations.core.connection import connect
from warm_integrations.core.log.items import Item, item_documents
from warm_integrations.core.log.writing import replace_items
from warm_integrations.core.stores.interface import (
    Command,
    Delete,
    Document,
    Put,
    Scan,
    Transaction,
    single,
)

HOUR = 3_600_000_000


def log_of(config: WarmConfig, name: str = "talk", **limits: Any) -> AsyncPagedLog:
    return AsyncPagedLog(name, config, **limits)


def shift_clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    real = time.time_ns
    monkeypatch.setattr("time.time_ns", lambda: real() + int(seconds * 1e9))


async def stored(log: AsyncPagedLog) -> list[str]:
    return [row.id for row in await connect(log.config).read(single(Scan(log._log.prefix, 1000)))]


async def test_append_read_pop_clear(config: WarmConfig) -> None:
    log = log_of(config)
    assert await log.newest() == []
    assert await log.pop() is None
    await log.append(["one", "two"])
    await log.append([""])
    assert await log.newest() == ["one", "two", ""]
    assert await log.pop() == ""
    assert await log.newest(1) == ["two"]
    await log.clear()
    assert await log.newest() == []
    await log.append(["three"])
    assert await log_of(config).newest() == ["three"]


@pytest.mark.parametrize("count", [49, 50, 51, 100, 101, 230])
async def test_sizes_around_a_page(config: WarmConfig, count: int) -> None:
    log = log_of(config)
    texts = [f"{i}" for i in range(count)]
    await log.append(texts)
    assert await log.newest() == texts
    for limit in (1, 49, 50, 51, 100, 229, 230, 500):
        assert await log.newest(limit) == texts[-limit:]


async def test_texts_of_many_parts(config: WarmConfig) -> None:
    log = log_of(config, chunk_chars=4, max_parts=100)
    texts = ["x" * n for n in (0, 1, 3, 4, 5, 8, 399, 400)] + ['é\U0001f600\n"\\' * 30]
    await log.append(texts)
    assert await log.newest() == texts
    for limit in range(1, len(texts)):
        assert await log.newest(limit) == texts[-limit:]
    for text in reversed(texts):
        assert await log.pop() == text
    assert len(await stored(log)) == 1  # the header


async def test_a_text_too_large_is_refused_before_anything_is_written(config: WarmConfig) -> None:
    log = log_of(config, chunk_chars=4, max_parts=10)
    with pytest.raises(ValueError, match="41 characters"):
        await log.append(["fits", "x" * 41])
    assert await stored(log) == []


async def test_a_text_that_exceeds_a_batch_is_refused_before_anything_is_written(config: WarmConfig) -> None:
    wide = config.model_copy(update={"max_fetch": 1000})
    log = log_of(wide, max_parts=1000)
    with pytest.raises(ValueError, match="does not fit one batch"):
        await log.append(["fits", "\U0001f600" * 8000 * 300])
    assert await stored(log) == []


@pytest.mark.parametrize(
    "limits",
    [
        {"page_size": 0},
        {"page_size": 101},
        {"page_size": True},
        {"page_size": 1.0},
        {"chunk_chars": 0},
        {"chunk_chars": 8001},
        {"max_parts": 0},
        {"max_parts": 101},
    ],
)
def test_limits_are_checked(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        log_of(WarmConfig(url="sqlite://"), **limits)


def test_the_page_size_follows_max_fetch() -> None:
    assert log_of(WarmConfig(url="sqlite://")).page_size == 50
    assert log_of(WarmConfig(url="sqlite://", max_fetch=20), max_parts=20).page_size == 20


@pytest.mark.parametrize("name", ["", None, 7, b"talk"])
def test_a_name_is_text(name: Any) -> None:
    with pytest.raises(ValueError, match="name"):
        log_of(WarmConfig(url="sqlite://"), name)


@pytest.mark.parametrize("text", [7, None, b"bytes", "\ud800"])
async def test_only_text_that_can_be_stored_is_taken(config: WarmConfig, text: Any) -> None:
    log = log_of(config)
    with pytest.raises(ValueError, match=r"text"):
        await log.append(["good", text])
    assert await stored(log) == []


async def test_a_very_long_append_is_written_oldest_first_in_whole_texts(config: WarmConfig) -> None:
    log = log_of(config, chunk_chars=10)
    texts = [f"{i:04}" * 5 for i in range(1500)]  # two records each
    await log.append(texts)
    assert await log.newest() == texts
    packed = split_batches([[Document(f"{i}.{part}") for part in range(2)] for i in range(1500)], 384)
    seen = [[document.id for document in batch] for batch in packed]
    assert all(batch[0].endswith(".0") and batch[-1].endswith(".1") for batch in seen)
    assert [id for batch in seen for id in batch] == [f"{i}.{part}" for i in range(1500) for part in range(2)]


async def test_writers_with_other_clocks_sort_after_what_they_have_read(
    config: WarmConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead, behind = log_of(config), log_of(config)
    shift_clock(monkeypatch, 3600)
    await ahead.append(["one"])
    shift_clock(monkeypatch, -3605)
    await behind.append(["two"])
    assert await behind.newest() == ["one", "two"]
    await ahead.newest()
    await ahead.append(["three"])
    await behind.newest()
    await behind.append(["four"])
    assert await ahead.newest() == ["one", "two", "three", "four"]


@pytest.mark.parametrize("seconds", [-5, 0, 3600], ids=["5 s behind", "same clock", "an hour ahead"])
@pytest.mark.parametrize("operation", ["clear", "replace"])
async def test_an_append_begun_after_clear_or_replace_returned_is_visible(
    config: WarmConfig, monkeypatch: pytest.MonkeyPatch, seconds: int, operation: str
) -> None:
    writer, other = log_of(config), log_of(config)
    with monkeypatch.context() as clock:
        shift_clock(clock, seconds)
        await writer.append(["old"])  # knows the log now, and will not read before it writes over HTTP
    await other.append(["old too"])
    await (other.clear() if operation == "clear" else other.replace(["new"]))
    with monkeypatch.context() as clock:
        shift_clock(clock, seconds)
        await writer.append(["after"])
    assert sorted(await log_of(config).newest()) == (["after"] if operation == "clear" else ["after", "new"])


async def interleaved(log: AsyncPagedLog, between: Callable[[int], Any], transaction: Transaction[Any]) -> Any:
    """Runs a transaction with something else in between: `between(n)` is awaited before its n-th write."""
    writes = count()

    async def before(command: Command) -> None:
        if isinstance(command, (Put, Delete)):
            await between(next(writes))

    return await one_by_one(connect(log.config), transaction, before)


@pytest.mark.parametrize("seconds", [-5, 0, 3600], ids=["5 s behind", "same clock", "an hour ahead"])
@pytest.mark.parametrize("when", [0, 1], ids=["before the new items", "before the deletion"])
async def test_an_append_during_a_replace_in_two_calls_stays(
    config: WarmConfig, monkeypatch: pytest.MonkeyPatch, seconds: int, when: int
) -> None:
    replacing, writer = log_of(config), log_of(config)
    await replacing.append(["old 1", "old 2"])
    await writer.newest()

    async def between(write: int) -> None:
        if write == when:
            with monkeypatch.context() as clock:
                shift_clock(clock, seconds)
                await writer.append(["meanwhile"])
            seen = await log_of(config).newest()
            assert "meanwhile" in seen  # visible at once, and never with both old and new
            assert ("old 1" in seen) == (when == 0)
            assert ("new" in seen) == (when == 1)

    replacing._log.atomic = False  # as over HTTP, on either store
    assert await interleaved(replacing, between, replace_items(replacing._log, [Item("new")])) is True
    assert sorted(await log_of(config).newest()) == ["meanwhile", "new"]
    assert not [id for id in await stored(writer) if "#" in id]


@pytest.mark.parametrize("finisher", ["append", "clear", "replace", "set_metadata"])
async def test_a_crash_between_the_two_calls_of_a_replace(config: WarmConfig, finisher: str) -> None:
    crashed = log_of(config)
    await crashed.append(["old 1"])
    await crashed.append(["old 2"])
    writer = log_of(config)
    await writer.newest()

    class Crash(Exception):
        pass

    async def between(write: int) -> None:
        if write == 1:
            raise Crash

    crashed._log.atomic = False
    with pytest.raises(Crash):
        await interleaved(crashed, between, replace_items(crashed._log, [Item("new 1"), Item("new 2")]))

    assert await log_of(config).newest() == ["new 1", "new 2"]
    assert await log_of(config).newest(1) == ["new 2"]
    await writer.append(["late"])  # may not know of the boundary
    assert sorted(await log_of(config).newest()) == ["late", "new 1", "new 2"]

    last = log_of(config)
    await {
        "append": lambda: last.append(["more"]),
        "clear": last.clear,
        "replace": lambda: last.replace(["more"]),
        "set_metadata": lambda: last.set_metadata({}),
    }[finisher]()
    kept = {"clear": 0, "replace": 1, "append": 4, "set_metadata": 3}[finisher]
    assert len(await last.newest()) == kept
    assert len(await stored(last)) == kept + 1


async def test_pop_goes_past_what_a_boundary_hides(config: WarmConfig) -> None:
    log = log_of(config)
    await log.append(["old"])

    async def between(write: int) -> None:
        if write == 1:
            assert await log_of(config).pop() == "new"
            assert await log_of(config).pop() is None

    log._log.atomic = False
    await interleaved(log, between, replace_items(log._log, [Item("new")]))
    assert await log.newest() == []


async def test_replace(config: WarmConfig) -> None:
    log = log_of(config, chunk_chars=10)
    assert await log.replace(["first"]) is True
    await log.append([f"{i} of some length" for i in range(300)])
    assert await log.replace(["summary", "and more of it"]) is True
    assert await log_of(config).newest() == ["summary", "and more of it"]
    assert await log.replace([]) is True
    assert await log.newest() == []


async def test_a_replace_that_does_not_fit_one_batch(config: WarmConfig) -> None:
    log = log_of(config)
    await log.append(["old"])
    texts = [str(i) for i in range(1200)]
    if log._log.atomic:
        assert await log.replace(texts) is True
        assert await log.newest() == texts
    else:
        assert await log.replace(texts) is False
        assert await log.newest() == ["old"]


async def test_a_replace_of_many_appends_names_them_all(config: WarmConfig) -> None:
    log = log_of(config)
    keys = [log._log.next_append() for _ in range(2000)]
    documents = [d for key in keys for d in item_documents(log._log.prefix, key, 0, Item("old"), 8000)]
    for start in range(0, 2000, 1000):
        await connect(config).write(single(Put(documents[start : start + 1000])))
    log._log.atomic = False

    async def between(write: int) -> None:
        if write == 1:
            assert await log_of(config).newest() == ["new"]

    assert await interleaved(log, between, replace_items(log._log, [Item("new")])) is True
    assert len(await stored(log)) == 2


async def test_a_replace_whose_deletion_failed_stands_and_is_finished_later(
    config: WarmConfig, caplog: pytest.LogCaptureFixture
) -> None:
    log = log_of(config)
    await log.append(["old"])

    async def between(write: int) -> None:
        if write == 1:
            raise WarmError("unreachable", "no connection")

    log._log.atomic = False
    assert await interleaved(log, between, replace_items(log._log, [Item("new")])) is True
    assert "still to be deleted" in caplog.text
    assert await log.newest() == ["new"]
    await log.append(["more"])
    assert await log.newest() == ["new", "more"]
    assert len(await stored(log)) == 3


async def test_two_pops_take_two_texts(config: WarmConfig) -> None:
    logs = [log_of(config) for _ in range(8)]
    await logs[0].append([str(i) for i in range(40)])
    popped = [text for _ in range(5) for text in await asyncio.gather(*(log.pop() for log in logs))]
    assert sorted(popped, key=int) == [str(i) for i in range(40)]
    assert await logs[0].newest() == []


async def test_damaged_records_are_passed_over_and_counted(
    config: WarmConfig, caplog: pytest.LogCaptureFixture
) -> None:
    log = log_of(config, chunk_chars=4)
    for text in ("one", "a long text", "two", "another long text", "three"):
        await log.append([text])
    ids = await stored(log)
    heads = [id for id in ids if "/000." in id]
    second_part, first_part = heads[1][:-7] + "001.005", heads[3]
    await connect(config).write(single(Delete([second_part, first_part])))
    await connect(config).write(single(Put([Document(log._log.prefix + "zzz", "garbage")])))
    fresh = log_of(config, chunk_chars=4)
    with caplog.at_level(logging.WARNING):
        assert await fresh.newest() == ["one", "two", "three"]
    assert fresh.skipped == 3
    assert "damaged" in caplog.text
    assert "long" not in caplog.text
    assert [await fresh.pop() for _ in range(4)] == ["three", "two", "one", None]


async def test_logs_do_not_see_each_other(config: WarmConfig) -> None:
    names = ["a", "a/", "a/b", "b", "A", "a ", "é", "e\u0301", "a\ud800", "x" * 10_000, "%", "_", "*", "'", '"', "\0"]
    logs = [log_of(config, name) for name in names]
    logs += [AsyncPagedLog("a", config.model_copy(update={"collection": c})) for c in ("other", "a", "default ")]
    for number, log in enumerate(logs):
        await log.append([str(number)])
    for number, log in enumerate(logs):
        assert await log.newest() == [str(number)]
        assert await log.pop() == str(number)
    assert [await log.newest() for log in logs] == [[]] * len(logs)


async def test_two_writers_who_begin_a_log_at_once_agree_on_its_creation(config: WarmConfig) -> None:
    first, second = log_of(config), log_of(config)
    assert await first.newest() == await second.newest() == []
    await first.append(["one"])
    created = (await first.info()).created  # type: ignore[union-attr]
    await second.append(["two"])
    assert (await log_of(config).info()).created == created  # type: ignore[union-attr]
    await first.append(["three"])
    assert await log_of(config).newest() == ["one", "two", "three"]
    await second.delete()
    assert await stored(first) == []
    assert await connect(config).read(single(Scan("", 10))) == []

"""The embedded store as a file: what it refuses, what it survives, how it is shared."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from warm_integrations.core import AsyncPagedLog, HashingEmbedder, WarmConfig, WarmError, drop_memory
from warm_integrations.core.connection import connect
from warm_integrations.core.stores.interface import Document, Put, Scan, single


@pytest.fixture(autouse=True)
def _counted(request: pytest.FixtureRequest) -> None:
    request.node.user_properties.append(("store", "embedded"))


def log_in(path: Path, name: str = "talk", **settings: object) -> AsyncPagedLog:
    return AsyncPagedLog(name, WarmConfig(url=f"sqlite:///{path}", **settings))


async def refusal(log: AsyncPagedLog, code: str) -> str:
    for call in (log.newest(), log.append(["one"])):
        with pytest.raises(WarmError) as caught:
            await call
        assert caught.value.code == code
    return str(caught.value)


async def test_a_file_of_another_program_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE precious (thing)")
    before = path.read_bytes()
    assert "another program" in await refusal(log_in(path), "not_a_store")
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "letter.db"
    path.write_text("Dear reader, " * 1000)
    assert "left as it is" in await refusal(log_in(path), "not_a_store")
    assert path.read_text() == "Dear reader, " * 1000


@pytest.mark.parametrize(("schema", "code", "step"), [(99, "newer_store", "newer"), (1, "older_store", "another path")])
async def test_a_file_of_another_version_is_left_as_it_is(tmp_path: Path, schema: int, code: str, step: str) -> None:
    path = tmp_path / "warm.db"
    await log_in(path).append(["one"])
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("VACUUM INTO ?", (str(other),))
    with closing(sqlite3.connect(other)) as db:
        db.execute(f"PRAGMA user_version = {schema}")
    before = other.read_bytes()
    assert step in await refusal(log_in(other), code)
    assert other.read_bytes() == before


async def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    assert "directory exists" in await refusal(log_in(tmp_path / "no" / "warm.db"), "cannot_open")


async def test_a_directory_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "warm.db").mkdir()
    assert "it is a directory" in await refusal(log_in(tmp_path / "warm.db"), "cannot_open")
    assert list((tmp_path / "warm.db").iterdir()) == []


TEXTS = [f"{number} " + "x" * 900 for number in range(150)]
BY = 5  # texts in one append


async def copies_of_a_store(tmp_path: Path) -> tuple[Path, Path]:
    """One in a single file, and one of which a third is still in the write-ahead log, as a killed process leaves it."""
    path, single_file, in_two = tmp_path / "warm.db", tmp_path / "single.db", tmp_path / "two.db"
    log = log_in(path)
    for start in range(0, len(TEXTS), BY):
        if start == 100:
            with closing(sqlite3.connect(path)) as db:
                assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        await log.append(TEXTS[start : start + BY])
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{in_two}{suffix}")
    with closing(sqlite3.connect(path)) as db:
        db.execute("VACUUM INTO ?", (str(single_file),))
    assert Path(f"{in_two}-wal").stat().st_size > 100_000
    return single_file, in_two


async def outcome(path: Path) -> tuple[list[str] | None, bool]:
    """What is read, if anything, and whether an append was taken, each with no other error than a clear one."""
    log, read, taken = log_in(path), None, False
    with contextlib.suppress(WarmError):
        read = await log.newest()
    with contextlib.suppress(WarmError):
        await log.append(["new"])
        taken = True
    return read, taken


async def test_a_truncated_file_is_reported_and_left_as_it_is(tmp_path: Path) -> None:
    whole, _ = await copies_of_a_store(tmp_path)
    content, path = whole.read_bytes(), tmp_path / "cut.db"
    for size in [100, *range(4096, len(content), 4096)]:
        path.write_bytes(content[:size])
        assert "backup" in await refusal(log_in(path), "damaged"), size
        assert path.read_bytes() == content[:size]
        path.unlink()
    for size in range(len(content) - 4000, len(content), 100):  # SQLite reads the rest of a page as zeros
        path = tmp_path / f"cut-{size}.db"
        path.write_bytes(content[:size])
        read, _ = await outcome(path)
        assert read in (TEXTS, None), size


async def test_a_truncated_file_with_its_log_gives_all_or_an_error(tmp_path: Path) -> None:
    _, in_two = await copies_of_a_store(tmp_path)
    content, log = in_two.read_bytes(), Path(f"{in_two}-wal").read_bytes()
    for size in range(4096, len(content), 4096):
        path = tmp_path / f"cut-{size}.db"
        path.write_bytes(content[:size])
        Path(f"{path}-wal").write_bytes(log)
        read, _ = await outcome(path)
        assert read in (TEXTS, None), size
        assert path.read_bytes()[:size] == content[:size]


async def test_a_truncated_log_gives_the_appends_before(tmp_path: Path) -> None:
    _, in_two = await copies_of_a_store(tmp_path)
    content, log = in_two.read_bytes(), Path(f"{in_two}-wal").read_bytes()
    counts = set()
    for size in [*range(0, len(log), 4096), len(log)]:
        path = tmp_path / f"cut-{size}.db"
        path.write_bytes(content)
        Path(f"{path}-wal").write_bytes(log[:size])
        read, taken = await outcome(path)
        assert read is not None, size
        assert (read, taken) == (TEXTS[: len(read)], True), size
        assert await log_in(path).newest() == [*read, "new"]
        counts.add(len(read))
    assert counts == set(range(100, 151, BY))


@pytest.mark.parametrize("left", [None, b""], ids=["missing", "empty"])
async def test_a_log_whose_file_is_lost_is_left_as_it_is(tmp_path: Path, left: bytes | None) -> None:
    _, in_two = await copies_of_a_store(tmp_path)
    content, log = in_two.read_bytes(), Path(f"{in_two}-wal")
    before = log.read_bytes()
    in_two.unlink() if left is None else in_two.write_bytes(left)
    assert "delete that file, too" in await refusal(log_in(in_two), "lost_file")
    assert log.read_bytes() == before
    assert in_two.exists() == (left is not None)
    in_two.write_bytes(content)
    assert await log_in(in_two).newest() == TEXTS


AS_STRANGER = """
import asyncio, os, sys
from warm_integrations.core import AsyncPagedLog, WarmConfig, WarmError
import warm_integrations.core.stores.sqlite.store  # before this user can no longer read it
if os.getuid() == 0:
    os.setgid(65534), os.setuid(65534)
log = AsyncPagedLog("talk", WarmConfig(url="sqlite:///" + sys.argv[1]))
for call in (log.newest, lambda: log.append(["two"])):
    try:
        asyncio.run(call())
    except WarmError as error:
        print(error.code, "|", error)
"""


@pytest.mark.parametrize("what", ["file", "directory"])
async def test_what_this_user_may_not_open(tmp_path: Path, what: str) -> None:
    for parent in [tmp_path, *tmp_path.parents][:4]:
        parent.chmod(0o755)
    path = tmp_path / "warm.db"
    if what == "file":
        await log_in(path).append(["one"])
        path.chmod(0)
    else:
        tmp_path.chmod(0o555)
    done = subprocess.run([sys.executable, "-c", AS_STRANGER, str(path)], capture_output=True, text=True)
    tmp_path.chmod(0o755)
    said = done.stdout.splitlines()
    assert len(said) == 2, done.stderr
    assert all(line.startswith("cannot_open |") and "this user may write" in line for line in said)
    if what == "file":
        path.chmod(0o644)
        assert await log_in(path).newest() == ["one"]
    else:
        assert not path.exists()


async def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "warm.db"
    await log_in(path).append([f"{i} " + "x" * 500 for i in range(200)])
    whole = tmp_path / "whole.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("VACUUM INTO ?", (str(whole),))
    content = bytearray(whole.read_bytes())
    content[8192:65536] = b"\xff" * (65536 - 8192)
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(content)
    with pytest.raises(WarmError, match="backup") as caught:
        await log_in(damaged).newest()
    assert caught.value.code == "damaged"
    assert damaged.read_bytes()[8192:65536] == content[8192:65536]


AS_READER = """
import asyncio, os, sys
import warm_integrations.core.stores.sqlite.store  # before this user can no longer read it
from warm_integrations.core import AsyncPagedLog, WarmConfig, WarmError
if os.getuid() == 0:
    os.setgid(65534), os.setuid(65534)
log = AsyncPagedLog("talk", WarmConfig(url="sqlite:///" + sys.argv[1]))
assert asyncio.run(log.newest()) == ["one"], "cannot read"
try:
    asyncio.run(log.append(["two"]))
except WarmError as error:
    print(error.code, "|", error)
"""


async def test_a_file_that_this_user_may_only_read_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "warm.db"
    await log_in(path).append(["one"])
    for parent in [tmp_path, *tmp_path.parents][:4]:
        parent.chmod(0o755)
    for file in tmp_path.iterdir():
        file.chmod(0o444)
    done = subprocess.run([sys.executable, "-c", AS_READER, str(path)], capture_output=True, text=True)
    assert done.stdout.startswith("read_only |"), done.stderr
    assert "write access" in done.stdout
    for file in tmp_path.iterdir():
        file.chmod(0o644)
    assert await log_in(path).newest() == ["one"]


async def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "warm.db"
    log = log_in(path)
    await log.append(["one"])

    def limit(db: sqlite3.Connection) -> None:
        db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")

    from warm_integrations.core.stores.sqlite.connections import submit

    await asyncio.wrap_future(submit(connect(log.config).database_key, limit))  # type: ignore[attr-defined]
    with pytest.raises(WarmError, match="Free some space") as caught:
        await log.append(["two " + "x" * 7000] * 50)
    assert caught.value.code == "disk_full"
    assert await log.newest() == ["one"]

    def lift(db: sqlite3.Connection) -> None:
        db.execute("PRAGMA max_page_count = 1000000")

    await asyncio.wrap_future(submit(connect(log.config).database_key, lift))  # type: ignore[attr-defined]
    await log.append(["three"])
    assert await log.newest() == ["one", "three"]


AT_FILE_LIMIT = """
import asyncio, resource, sys
from warm_integrations.core import AsyncPagedLog, WarmConfig, WarmError
log = AsyncPagedLog("talk", WarmConfig(url="sqlite:///" + sys.argv[1]))
async def main():
    await log.append(["one"])
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    try:
        await log.append(["x" * 7000] * 200)
    except WarmError as error:
        print(error.code, "|", error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await log.append(["two"])
    assert await log.newest() == ["one", "two"]
asyncio.run(main())
"""


def test_a_limit_on_file_sizes_loses_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", AT_FILE_LIMIT, str(tmp_path / "warm.db")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("disk_error |", "disk_full |"))


LOCK = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1], isolation_level=None) as db:
    db.executescript(sys.argv[2])
    print("locked", flush=True)
    sys.stdin.readline()
db.close()
"""


@contextlib.contextmanager
def held_by_another_process(path: Path, statements: str) -> Iterator[Callable[[], object]]:
    """A process that has run the statements, until it is let go."""
    command = [sys.executable, "-c", LOCK, str(path), statements]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield lambda: process.communicate("\n")
        process.kill()


async def test_a_locked_database_is_waited_for_and_then_reported(tmp_path: Path) -> None:
    path = tmp_path / "warm.db"
    log = log_in(path, timeout=0.2)
    await log.append(["one"])
    with held_by_another_process(path, "BEGIN IMMEDIATE") as let_go:
        with pytest.raises(WarmError, match="Another process") as caught:
            await log.append(["two"])
        assert caught.value.code == "locked"
        assert await log.newest() == ["one"]  # readers do not wait for a writer
        append = asyncio.create_task(log_in(path, timeout=30).append(["three"]))
        await asyncio.sleep(0.3)
        assert not append.done()
        let_go()
        await append
    assert await log.newest() == ["one", "three"]


@pytest.mark.parametrize("there", [True, False])
async def test_a_database_that_is_locked_for_readers_too(tmp_path: Path, there: bool) -> None:
    path = tmp_path / "warm.db"
    if there:
        await log_in(tmp_path / "first.db").append(["one"])
        with closing(sqlite3.connect(tmp_path / "first.db")) as db:
            db.execute("VACUUM INTO ?", (str(path),))
    with held_by_another_process(path, "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE") as let_go:
        await refusal(log_in(path, timeout=0.2), "locked")
        read = asyncio.create_task(log_in(path, timeout=30).newest())
        await asyncio.sleep(0.3)
        assert not read.done()
        let_go()
        assert await read == (["one"] if there else [])


async def test_a_file_that_was_deleted_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "warm.db"
    log = log_in(path)
    await log.append(["one"])
    for file in tmp_path.iterdir():
        file.unlink()
    await log.append(["two"])
    assert await log.newest() == ["two"]
    assert path.exists()


async def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    mine, other = tmp_path / "warm.db", tmp_path / "other.db"
    await log_in(other).append(["from the backup"])
    with closing(sqlite3.connect(other)) as db:
        db.execute("VACUUM INTO ?", (str(tmp_path / "backup.db"),))
    log = log_in(mine)
    await log.append(["one"])
    for suffix in ("-wal", "-shm"):
        Path(str(mine) + suffix).unlink(missing_ok=True)
    shutil.move(tmp_path / "backup.db", mine)
    assert await log.newest() == ["from the backup"]


async def test_many_databases_do_not_use_up_the_open_files(tmp_path: Path) -> None:
    logs = [log_in(tmp_path / f"{i}.db") for i in range(60)]
    for log in logs:
        await log.append(["one"])
    of_this_test = [
        fd
        for fd in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{fd}") and str(tmp_path) in os.readlink(f"/proc/self/fd/{fd}")
    ]
    assert len(of_this_test) <= 3 * 33
    for log in logs:
        assert await log.newest() == ["one"]


async def test_memory_is_one_for_the_process_and_lasts() -> None:
    config = WarmConfig(url="sqlite://", collection="memory test")
    await AsyncPagedLog("talk", config).append(["one"])
    found = await asyncio.to_thread(lambda: asyncio.run(AsyncPagedLog("talk", config).newest()))
    assert found == ["one"]


async def test_relative_paths_and_paths_with_blanks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = AsyncPagedLog("talk", WarmConfig(url="sqlite:///my%20notes.db"))
    await log.append(["one"])
    monkeypatch.chdir("/")
    await log.append(["two"])
    assert (tmp_path / "my notes.db").exists()
    assert await log_in(tmp_path / "my%20notes.db").newest() == ["one", "two"]


async def test_a_relative_path_means_the_directory_of_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    logs = []
    for folder in folders:
        folder.mkdir()
        monkeypatch.chdir(folder)
        logs.append(AsyncPagedLog("talk", WarmConfig(url="sqlite:///warm.db")))
        assert await logs[-1].newest() == []
        await logs[-1].append([folder.name])
    copied: AsyncPagedLog = pickle.loads(pickle.dumps(logs[0]))
    for log in (logs[0], copied, copy.copy(logs[0]), AsyncPagedLog("talk", logs[0].config)):
        assert await log.newest() == ["a"]
    assert [os.listdir(folder).count("warm.db") for folder in folders] == [1, 1]


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///warm.db",
        "sqlite:///./w%61rm.db",
        "sqlite:////{}/x/../warm.db",
        "sqlite:////{}/warm.db?synchronous=normal",
    ],
)
async def test_a_file_is_one_store_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    await log_in(tmp_path / "warm.db").append(["one"])
    log = AsyncPagedLog("talk", WarmConfig(url=url.format(tmp_path)))
    await log.append(["two"])
    assert await log_in(tmp_path / "warm.db").newest() == await log.newest() == ["one", "two"]


async def test_memory_has_a_store_for_each_name_until_it_is_dropped() -> None:
    configs = [WarmConfig(url=f"sqlite://?name=dropped {name}") for name in range(100)]
    for config in configs:
        await AsyncPagedLog("talk", config).append([config.url])
    for config in configs:
        later = WarmConfig(url=config.url + "&synchronous=normal", timeout=1)  # how it is opened makes no other store
        assert await AsyncPagedLog("talk", later).newest() == [config.url]
    used, threads = AsyncPagedLog("talk", configs[0]), [t.name for t in threading.enumerate()]
    assert len([name for name in threads if name.startswith("warm-sqlite")]) <= 32
    await used.newest()
    for config in configs:
        drop_memory(config)
        drop_memory(config)
    assert await used.newest() == []
    await used.append(["anew"])
    assert await AsyncPagedLog("talk", configs[0]).newest() == ["anew"]
    drop_memory(configs[0])


@pytest.mark.parametrize("url", ["sqlite:///warm.db", "http://127.0.0.1:9"])
def test_only_memory_can_be_dropped(url: str) -> None:
    with pytest.raises(ValueError, match="not in memory"):
        drop_memory(WarmConfig(url=url))


PURGE = """
import asyncio, sqlite3, subprocess
from pathlib import Path
from warm_integrations.core import AsyncWarmBackend, Record, WarmConfig

async def main():
    backend = AsyncWarmBackend(WarmConfig(url="sqlite:////mnt/warm.db", timeout=0.2))
    texts = [f"secret {n} " + "word " * 2000 for n in range(400)]
    ids = await backend.remember([Record(text, vector=[1.0] * 384) for text in texts])
    BEFORE
    try:
        print(len(await backend.forget(ids[:200], purge=True)))
    except Exception as error:
        print(error.code, error)
    print(len(await backend.list()))
    print(sum(Path(f"/mnt/warm.db{end}").read_bytes().count(b"secret 1 ") for end in ("", "-wal")))

asyncio.run(main())
"""


def test_a_purge_needs_no_folder_for_temporary_files(
    without_temporary_folder: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = without_temporary_folder("-c", PURGE.replace("BEFORE", ""))
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["200", "200", "0"], "")


@pytest.mark.parametrize(
    ("before", "cause"),
    [
        (
            "reader = sqlite3.connect('/mnt/warm.db'); reader.execute('BEGIN');"
            " reader.execute('SELECT * FROM tenants').fetchone()",
            "locked",
        ),
        ("subprocess.run('mount -t tmpfs -o size=1m none /tmp'.split(), check=True)", "full"),
    ],
    ids=["a reader holds it", "no space"],
)
def test_a_purge_that_fails_says_that_the_deletion_stands(
    without_temporary_folder: Callable[..., subprocess.CompletedProcess[str]], before: str, cause: str
) -> None:
    done = without_temporary_folder("-c", PURGE.replace("BEFORE", before))
    said, left, *_ = done.stdout.splitlines()
    assert left == "200", done
    assert said.startswith("not_purged /mnt/warm.db: deleted, but not yet purged: ")
    assert cause in said
    assert "then purge again" in said


@pytest.mark.parametrize(("option", "level"), [("", 2), ("?synchronous=full", 2), ("?synchronous=normal", 1)])
async def test_the_durability_that_was_asked_for_is_set(tmp_path: Path, option: str, level: int) -> None:
    from warm_integrations.core.stores.sqlite.connections import submit

    config = WarmConfig(url=f"sqlite:///{tmp_path}/warm.db{option}")
    future = submit(connect(config).database_key, lambda db: db.execute("PRAGMA synchronous").fetchone()[0])  # type: ignore[attr-defined]
    assert await asyncio.wrap_future(future) == level


async def test_vectors_of_two_dimensions_do_not_mix(tmp_path: Path) -> None:
    small, large = (
        connect(WarmConfig(url=f"sqlite:///{tmp_path}/warm.db", embedder=HashingEmbedder(dim))) for dim in (16, 384)
    )
    await small.write(single(Put([Document("a", vector=[1.0] * 16)])))
    with pytest.raises(WarmError, match=r"16.*384"):
        await large.write(single(Put([Document("b", vector=[1.0] * 384)])))
    await large.write(single(Put([Document("c", "no vector, so no dimension")])))
    assert [row.id for row in await small.read(single(Scan("", 9)))] == ["a", "c"]


def test_the_interpreter_ends_quietly(tmp_path: Path) -> None:
    code = (
        "import asyncio\nfrom warm_integrations.core import AsyncPagedLog, WarmConfig\n"
        f"log = AsyncPagedLog('talk', WarmConfig(url='sqlite:///{tmp_path}/warm.db'))\n"
        "asyncio.run(log.append(['one']))\n"
    )
    done = subprocess.run([sys.executable, "-X", "dev", "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")

"""`python -m warm_integrations.openai_agents copy`, from the SDK's own file to both stores."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from agents.memory import SQLiteSession

from warm_integrations.core import WarmConfig, WarmError
from warm_integrations.openai_agents import WarmSession
from warm_integrations.openai_agents.__main__ import main, read_history, write_history

HOSTILE = {"role": "user", "content": "naïve \ud800 \0 日本", "n": [1, 1.0, 2**70, -0.0, None, {"z": 1, "a": 2}]}


def said(number: int) -> dict[str, Any]:
    return {"role": "user" if number % 2 == 0 else "assistant", "content": f"message {number}"}


async def filled(file: Path, **sessions: list[Any]) -> Path:
    for session_id, items in sessions.items():
        session = SQLiteSession(session_id, file)
        await session.add_items(items)
        session.close()
    return file


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def run(config: WarmConfig, *arguments: object, module: str = "warm_integrations") -> subprocess.CompletedProcess[str]:
    """The command as a user gives it, in a process of its own."""
    command = [sys.executable, "-W", "error", "-m", f"{module}.openai_agents", "copy", "--from", "sqlite-session"]
    env = {"WARM_URL": config.url, "WARM_TENANT_ID": str(config.tenant_id)}
    return subprocess.run([*command, *map(str, arguments)], env=os.environ | env, capture_output=True, text=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """For the SDK's file alone, so that what is left beside it is seen."""
    path = tmp_path / "sdk files"
    path.mkdir()
    return path


@pytest.mark.parametrize("module", ["warm_integrations", "writerslogic_warm_integrations"])
async def test_copies_all_and_leaves_the_file_as_it_is(config, folder, module):
    items = [HOSTILE, *map(said, range(1200)), {"type": "function_call_output", "output": "x" * 20_000}]
    file = await filled(folder / "what? #1.db", talk=items, other=[said(1)])
    before = state(folder)
    done = run(config, file, "--session", "talk", module=module)
    assert (done.returncode, state(folder)) == (0, before), done.stderr
    assert done.stdout.startswith(f"{len(items)} items copied, and equal on both sides: WarmSession('talk'")
    assert f"] {len(items)} of {len(items)} items" in done.stderr
    kept = await WarmSession("talk", config).get_items()
    assert list(map(json.dumps, kept)) == list(map(json.dumps, items))
    assert await WarmSession("other", config).get_items() == []


async def test_under_another_id_and_searchable(config, folder):
    file = await filled(folder / "sdk.db", talk=[{"role": "user", "content": "Book a hotel in Lisbon."}, said(1)])
    done = run(config, file, "--session", "talk", "--to-session", "moved", "--searchable")
    assert done.returncode == 0, done.stderr
    moved = WarmSession("moved", config, searchable=True)
    assert (await moved.search("a hotel in Lisbon", 1))[0].item["content"] == "Book a hotel in Lisbon."
    assert await WarmSession("talk", config).get_items() == []


async def test_a_session_that_is_not_empty_is_refused(config, folder):
    file = await filled(folder / "sdk.db", talk=[said(0), said(1)])
    await WarmSession("talk", config).add_items([said(7)])
    done = run(config, file, "--session", "talk")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the session 'talk' is not empty; name another with --to-session" in done.stderr
    assert await WarmSession("talk", config).get_items() == [said(7)]


@pytest.mark.parametrize(
    "wrong", [{"content": float("nan")}, ["no object"], {"content": "x" * 800_000}], ids=["nan", "list", "large"]
)
async def test_an_item_that_cannot_be_kept_leaves_nothing_behind(config, folder, wrong):
    file = await filled(folder / "sdk.db", talk=[*map(said, range(600)), wrong])
    done = run(config, file, "--session", "talk")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("item 601")
    assert "nothing was copied" in done.stderr
    assert await WarmSession("talk", config).info() is None


async def test_rows_that_the_sdk_does_not_read_are_counted(config, folder):
    file = await filled(folder / "sdk.db", talk=[said(0), said(1), said(2)])
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE agent_messages SET message_data = '{' WHERE id = 2")
    done = run(config, file, "--session", "talk")
    assert done.returncode == 0
    assert "1 damaged rows" in done.stderr
    assert await WarmSession("talk", config).get_items() == [said(0), said(2)]


async def test_a_file_that_is_written_meanwhile(folder):
    file = await filled(folder / "sdk.db", talk=[said(0)])
    writer = SQLiteSession("talk", file)
    await writer.add_items([said(1)])  # in the write-ahead log, and not yet in the file
    before = file.read_bytes()
    assert await read_history(file, "talk") == ([said(0), said(1)], 0)
    await writer.add_items([said(2)])
    assert file.read_bytes() == before
    writer.close()


async def test_names_the_sessions_that_are_there(folder):
    file = await filled(folder / "sdk.db", **{f"talk-{number:02}": [said(0)] for number in range(22)})
    with pytest.raises(ValueError, match=r"no session 'talk'; it has: 'talk-00', .*'talk-19' and 2 more$"):
        await read_history(file, "talk")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "there is no file"),
        (b"", "holds no sessions of the Agents SDK"),
        (b"not a database, but a text of some length" * 100, "cannot be read as an SQLite database"),
        (b"SQLite format 3\0" + b"\xff" * 4096, "cannot be read as an SQLite database"),
    ],
    ids=["missing", "empty", "text", "damaged"],
)
def test_what_is_no_file_of_sessions(tmp_path, folder, capsys, content, complaint):
    file = folder / "sdk.db"
    if content is not None:
        file.write_bytes(content)
    before = state(folder)
    arguments = ["copy", "--from", "sqlite-session", str(file), "--session", "talk"]
    assert main([*arguments, "--url", f"sqlite:///{tmp_path}/warm.db"]) == 2
    assert complaint in capsys.readouterr().err
    assert state(folder) == before


async def test_a_write_that_changed_meanwhile_is_told(config):
    class Busy(WarmSession):
        async def add_items(self, items):
            await super().add_items([*items, said(9)])

    assert await write_history([said(0)], Busy("talk", config), lambda done, total: None) is False
    assert await write_history([said(0)], WarmSession("fresh", config), lambda done, total: None) is True


def test_wrong_arguments(tmp_path, folder, capsys):
    for arguments in (["--from", "json", "x.db", "--session", "a"], ["--from", "sqlite-session", "x.db"]):
        with pytest.raises(SystemExit) as ended:
            main(["copy", *arguments])
        assert ended.value.code == 2
    assert main(["copy", "--from", "sqlite-session", "x.db", "--session", "a", "--url", "ftp://x"]) == 2
    assert "sqlite:///file.db" in capsys.readouterr().err


async def test_a_store_that_does_not_answer(folder, capsys, monkeypatch):
    file = await filled(folder / "sdk.db", talk=[said(0)])

    async def unreachable(self, limit=None):
        raise WarmError("unreachable", "no answer from http://127.0.0.1:9")

    monkeypatch.setattr(WarmSession, "get_items", unreachable)
    arguments = ["copy", "--from", "sqlite-session", str(file), "--session", "talk", "--url", "http://127.0.0.1:9"]
    assert await asyncio.to_thread(main, arguments) == 1
    assert "unreachable" in capsys.readouterr().err


@pytest.mark.parametrize("writable", [True, False], ids=["beside the file", "nowhere"])
async def test_without_a_folder_for_temporary_files(tmp_path, folder, without_temporary_folder, writable):
    file = await filled(folder / "talk.db", talk=[said(1)])
    before = state(folder)
    command = ["-m", "warm_integrations.openai_agents", "copy", "--session", "talk", "--from", "sqlite-session"]
    if writable:
        done = without_temporary_folder(*command, f"/mnt/{folder.name}/talk.db", WARM_URL="sqlite:////mnt/warm.db")
        assert (done.returncode, done.stdout[:15]) == (0, "1 items copied,"), done
        kept = WarmSession("talk", WarmConfig(url=f"sqlite:///{tmp_path}/warm.db"))
        assert await kept.get_items() == [said(1)]
    else:
        program = (
            "import runpy, subprocess, sys; subprocess.run(['mount', '-o', 'remount,bind,ro', '/mnt'], check=True)\n"
        )
        program += f"sys.argv = {[*command[1:], '/mnt/' + folder.name + '/talk.db']}\n"
        program += "runpy.run_module(sys.argv[0], run_name='__main__')"
        done = without_temporary_folder("-c", program, WARM_URL="sqlite:////mnt/warm.db")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            "there is no folder for a temporary copy of the file; set TMPDIR to one that can be written to\n"
        )
    assert state(folder) == before
    assert file.exists()

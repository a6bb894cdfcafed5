"""A pytest plugin for the OpenAI Agents SDK's own tests: WarmSession takes the place of two of their sessions.

It has to be loaded before the tests import these classes (`-p sdk_plugin`). A case that made a session reports it.
"""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import agents.memory
import pytest
from tests.utils import simple_session  # in the SDK's source tree

from warm_integrations.core import WarmConfig
from warm_integrations.openai_agents import WarmSession

T = TypeVar("T")
made: list[WarmSession] = []


def new_memory() -> WarmConfig:
    return WarmConfig(url="sqlite://", collection=uuid.uuid4().hex)


def wait(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, for callers that are not async; their own loop may be running."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


class CountedSession(WarmSession):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        made.append(self)
        super().__init__(*arguments, **options)


class SQLiteSession(CountedSession):
    """Made like the SDK's class of this name: each file is a store, and memory is never shared."""

    def __init__(self, session_id, db_path=":memory:", *tables, session_settings=None) -> None:
        config = new_memory() if str(db_path) == ":memory:" else WarmConfig(url=f"sqlite:///{db_path}")
        super().__init__(session_id, config, session_settings=session_settings)
        self.db_path = db_path


class SimpleListSession(CountedSession):
    """Made like the class of this name in the SDK's tests, which may begin with some items."""

    def __init__(self, session_id="test", history=None) -> None:
        super().__init__(session_id, new_memory())
        self._ignore_ids_for_matching = False
        wait(WarmSession.add_items(self, history or []))

    @property
    def saved_items(self):
        return wait(WarmSession.get_items(self))

    _items = saved_items


agents.SQLiteSession = agents.memory.SQLiteSession = SQLiteSession
simple_session.SimpleListSession = SimpleListSession
for derived in simple_session.CountingSession, simple_session.IdStrippingSession:
    exec(inspect.getsource(derived), vars(simple_session))  # once more, now on top of a WarmSession


@pytest.fixture(autouse=True)
def count_sessions(record_property) -> Iterator[None]:
    made.clear()
    yield
    if made:
        record_property("sessions", len(made))

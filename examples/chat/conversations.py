"""The conversations of each user: listed, renamed, searched, exported and deleted."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from problem import Problem
from transcript import Message, beginning, places, read, text_of, to_markdown
from warm_integrations.core import WarmConfig
from warm_integrations.openai_agents import WarmSession

PREFIX = "chat:"
GONE = "This conversation is gone, perhaps deleted in another window: choose another one, or start a new chat."
_KEPT_FIGURES = 200  # of the newest answers; metadata is small


@dataclass(frozen=True)
class Conversation:
    """A line in the list of conversations.

    `notes` is kept with it in the store: "figures" of its answers, and "reasons" for what was remembered.
    """

    id: str
    title: str
    updated: datetime
    notes: Mapping[str, Any]

    def figures(self, number: int) -> Mapping[str, Any]:
        """What the answer at this place took: seconds, and tokens read and written."""
        found: Mapping[str, Any] = self.notes.get("figures", {}).get(str(number), {})
        return found


@dataclass(frozen=True)
class Hit:
    """A message that a search found, by its place in the conversation."""

    number: int
    role: str
    text: str


class Conversations:
    """All conversations in a store. The user of one is kept in its metadata."""

    def __init__(self, config: WarmConfig) -> None:
        self._config = config
        self._noting = asyncio.Lock()

    def session(self, id: str, newest: int | None = None) -> WarmSession:
        """A conversation as the Agents SDK takes it, which then reads only the `newest` items."""
        return WarmSession(id, self._config, session_settings={"limit": newest}, searchable=True)

    async def list(self, user: str) -> list[Conversation]:
        """The conversations of a user, the last used first."""
        infos = await WarmSession.list(self._config, {"user": user})
        return [
            Conversation(info.id, str(info.metadata.get("title") or "Untitled"), info.updated, info.metadata)
            for info in infos
            if info.id.startswith(PREFIX)  # other programs may keep sessions here too
        ]

    async def create(self, user: str, text: str) -> str:
        """A new conversation, which begins with this text. Returns its id."""
        id = f"{PREFIX}{uuid.uuid4()}"
        await self.session(id).set_metadata({"user": user, "title": beginning(text, 50)})
        return id

    async def check(self, user: str, id: str) -> Mapping[str, Any]:
        """The notes of a conversation, which must be this user's."""
        info = await self.session(id).info()
        if info is None or info.metadata.get("user") != user:
            raise Problem(GONE)
        return info.metadata

    async def note(self, id: str, change: Callable[[dict[str, Any]], None]) -> None:
        """Change what is noted of a conversation, if it is still there."""
        async with self._noting:  # a change is a read and a write
            info = await self.session(id).info()
            if info is not None:
                notes = dict(info.metadata)
                change(notes)
                if notes != info.metadata:
                    await self.session(id).set_metadata(notes)

    async def note_figures(self, id: str, number: int, figures: Mapping[str, Any]) -> None:
        """Keep what the answer at this place took."""

        def change(notes: dict[str, Any]) -> None:
            kept = {**notes.get("figures", {}), str(number): figures}
            notes["figures"] = dict(sorted(kept.items(), key=lambda each: int(each[0]))[-_KEPT_FIGURES:])

        await self.note(id, change)

    async def messages(self, id: str) -> list[Message]:
        """What has been said in a conversation."""
        return read(await self.session(id).get_items())

    async def rename(self, user: str, id: str, title: str) -> None:
        """Give a conversation another title."""
        await self.check(user, id)
        await self.note(id, lambda notes: notes.update(title=title))

    async def delete(self, user: str, id: str) -> None:
        """Remove a conversation with all that was said in it."""
        await self.check(user, id)
        async with self._noting:  # a note that is being written would bring it back
            await self.session(id).delete()

    async def search(self, user: str, id: str, query: str) -> list[Hit]:
        """The messages whose words and meaning are nearest to `query`, best first."""
        await self.check(user, id)
        session = self.session(id)
        found = [hit.item for hit in await session.search(query, 20) if hit.score > 0.1 and "role" in hit.item]
        groups = places(await session.get_items())
        hits: dict[int, Hit] = {}
        for item in found:
            # Equal items are told apart by nothing, so any of them will do.
            number = next((number for number, (_, items) in enumerate(groups) if item in items), None)
            if number is not None and number not in hits:
                hits[number] = Hit(number, groups[number][0].role, text_of(item))
        return list(hits.values())[:8]

    async def export_json(self, user: str, id: str) -> str:
        """A conversation with everything the Agents SDK kept of it."""
        notes = await self.check(user, id)
        content = {"version": 1, "id": id, "title": notes.get("title"), "items": await self.session(id).get_items()}
        return json.dumps(content, ensure_ascii=False, indent=1)

    async def export_markdown(self, user: str, id: str) -> str:
        """A conversation to be read."""
        notes = await self.check(user, id)
        return to_markdown(str(notes.get("title")), await self.messages(id))

"""What the assistant knows of each user, and why: shown, edited, exported and erased by that user.

The memory itself is `user_memory`. Why something was remembered is noted with the conversation it comes from.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agents import RunContextWrapper, Tool, function_tool

from conversations import Conversation, Conversations
from problem import Problem
from warm_integrations.core import WarmConfig
from warm_integrations.core.memory import memory_id
from warm_integrations.openai_agents import memory_tools, user_memory

FORGOTTEN = "This is forgotten already, perhaps in another window: what the list shows now is what is known."
_LISTED = 200  # memories that the assistant is told at once
_KEPT_REASONS, _KEPT_WORDS = 100, 100  # of one conversation, whose metadata is small


@dataclass(frozen=True)
class Reason:
    """What the person had said when something was remembered, and where: a message of a conversation."""

    conversation: str
    message: int
    words: str


@dataclass(frozen=True)
class Known:
    """Something that is known of a user. `reason` is `None` where its conversation is gone."""

    id: str
    text: str
    tags: Sequence[str]
    since: datetime
    reason: Reason | None = None


class Memories:
    """What is known of all users of a store."""

    def __init__(self, config: WarmConfig, conversations: Conversations) -> None:
        self._config = config
        self._conversations = conversations

    def tools(self, user: str) -> Sequence[Tool]:
        """What the assistant may do: remember, recall and forget, and list everything."""

        @function_tool(failure_error_function=_unavailable)
        async def list_memories() -> str:
            """List all that is remembered about the user. For questions about one thing, recall is better."""
            known = await user_memory(self._config, user).list(limit=_LISTED)
            return json.dumps({"memories": [{"memory_id": each.id, "text": each.text} for each in known]})

        return [*memory_tools(self._config, user_id=user), list_memories]

    async def list(self, user: str, conversations: Iterable[Conversation]) -> list[Known]:
        """What is known of a user, the newest first, with the reasons that these conversations give."""
        reasons = _reasons(conversations)
        known = [
            Known(memory.id, memory.text, memory.tags, memory.created_at, reasons.get(memory.id))
            for memory in await user_memory(self._config, user).list()
        ]
        return sorted(known, key=lambda each: each.since, reverse=True)

    async def because(self, id: str, reason: Reason) -> None:
        """Note why something was remembered."""
        words = " ".join(reason.words.split())
        words = words if len(words) <= _KEPT_WORDS else words[: _KEPT_WORDS - 1] + "…"

        def change(notes: dict[str, Any]) -> None:
            kept = {key: value for key, value in notes.get("reasons", {}).items() if key != id}
            kept[id] = {"message": reason.message, "words": words, "at": time.time()}
            notes["reasons"] = dict(list(kept.items())[-_KEPT_REASONS:])

        await self._conversations.note(reason.conversation, change)

    async def edit(self, user: str, id: str, text: str, tags: Sequence[str]) -> None:
        """Put another text in the place of a memory: the old one is forgotten."""
        try:
            await self._edit(user, id, text, tags)
        except ValueError as error:  # such as a text that is too long
            raise Problem(f"Not saved: {error}. Change it and save again.") from error

    async def _edit(self, user: str, id: str, text: str, tags: Sequence[str]) -> None:
        memory = user_memory(self._config, user)
        old = await memory.get(id)
        if old is None:
            raise Problem(FORGOTTEN)
        reason = _reasons(await self._conversations.list(user)).get(id)
        if memory_id(text) == id:
            await memory.remember(text, tags)  # refuses what cannot be kept, while the old one is still there
            await memory.forget(id)  # or else remembering it would keep its old tags
            await memory.remember(text, tags)
            return
        new = (await memory.remember(text, tags)).memory.id  # first, so that nothing is lost in between
        await self._drop_reasons(user, [id])
        if reason is not None:
            await self.because(new, reason)
        await memory.forget(id, purge=True)

    async def forget(self, user: str, id: str) -> None:
        """Forget one thing for good: it is erased from the store's files, too."""
        await self._drop_reasons(user, [id])  # first, so that the purge takes them along
        if not await user_memory(self._config, user).forget(id, purge=True):
            raise Problem(FORGOTTEN)

    async def forget_all(self, user: str) -> int:
        """Forget all of a user for good, and say how much that was."""
        await self._drop_reasons(user, None)
        return await user_memory(self._config, user).forget_all(purge=True)

    async def export(self, user: str) -> str:
        """All that is known of a user as JSON, which `user_memory(...).import_` reads."""
        return await user_memory(self._config, user).export()

    async def _drop_reasons(self, user: str, ids: Collection[str] | None) -> None:
        """Take back why these were remembered, or all: the notes repeat what was said."""

        def change(notes: dict[str, Any]) -> None:
            kept = {} if ids is None else {id: why for id, why in notes["reasons"].items() if id not in ids}
            notes["reasons"] = kept

        for conversation in await self._conversations.list(user):
            noted = conversation.notes.get("reasons", {})
            if noted and (ids is None or any(id in noted for id in ids)):
                await self._conversations.note(conversation.id, change)


def _unavailable(context: RunContextWrapper[Any], error: Exception) -> str:
    """What the assistant is told where the store fails, as by the other tools."""
    return '{"error": "The memory cannot be used right now. Go on without it, and say so."}'


def _reasons(conversations: Iterable[Conversation]) -> dict[str, Reason]:
    """Why each memory was made; the newest reason, for what was forgotten and remembered again."""
    found: dict[str, tuple[float, Reason]] = {}
    for conversation in conversations:
        for id, why in conversation.notes.get("reasons", {}).items():
            if id not in found or why["at"] > found[id][0]:
                found[id] = why["at"], Reason(conversation.id, why["message"], why["words"])
    return {id: reason for id, (_, reason) in found.items()}

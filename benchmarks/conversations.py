"""Conversations to measure with: items as the Responses API gives them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from agents.memory import Session

Make = Callable[[], Awaitable[Session]]  # a new session of one kind, empty


def turn(number: int) -> list[Any]:
    """A question and an answer, of some 40 and 400 characters."""
    answer = f"Answer {number}: " + "the quick brown fox jumps over the lazy dog; " * 8
    return [
        {"role": "user", "content": f"What is the answer to question {number}?"},
        {
            "id": f"msg_{number:024x}",
            "content": [{"annotations": [], "text": answer, "type": "output_text", "logprobs": []}],
            "role": "assistant",
            "status": "completed",
            "type": "message",
        },
    ]


def history(count: int) -> list[Any]:
    """So many items, half of them questions."""
    return [item for number in range(count // 2) for item in turn(number)]


async def filled(make: Make, count: int) -> Session:
    """A new session with so many items."""
    session = await make()
    items = history(count)
    for first in range(0, count, 1000):
        await session.add_items(items[first : first + 1000])
    return session

"""The chat without its page: conversations, and the answers that are being written.

A web page comes and goes, and Streamlit runs its script anew for each click. So what lasts longer lives here, in one
event loop on a thread of its own: a page starts an answer, then follows it, leaves, or comes back to it.
"""

from __future__ import annotations

import asyncio
import logging
import textwrap
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agents import Agent, Model, RunConfig, Runner
from agents.models.fake_id import FAKE_RESPONSES_ID
from models import explain

from warm_integrations.core import WarmConfig, WarmError
from warm_integrations.openai_agents import WarmSession

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Problem(Exception):
    """Something did not work. Its text is one plain sentence that ends with what to do next."""


@dataclass(frozen=True)
class Conversation:
    """A line of the list."""

    id: str
    title: str


@dataclass(frozen=True)
class Message:
    """What one side said. `complete` is false for an answer that was stopped or broke off."""

    role: str
    text: str
    complete: bool = True


@dataclass
class Turn:
    """An answer that is being written, or has failed. Pages only read it."""

    prompt: str
    before: Sequence[Message]
    text: str = ""
    running: bool = True
    stopped: bool = False
    error: str | None = None
    task: asyncio.Task[None] | None = field(default=None, repr=False)
    cancel: Callable[[], None] = field(default=lambda: None, repr=False)

    def follow(self) -> Iterator[str]:
        """The text so far, again and again until the answer ends."""
        while self.running:
            yield self.text
            time.sleep(0.05)
        yield self.text

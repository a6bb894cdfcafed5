"""The chat without its page: conversations, and the answers that are being written.

A page comes and goes: Streamlit runs its script anew for every click, and a refresh is a new visitor. What lasts
longer lives here, on one event loop in a thread of its own: a page starts an answer, and any page can follow it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import uuid
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agents import Agent, Model, RunConfig, Runner, RunResultStreaming
from agents.models.fake_id import FAKE_RESPONSES_ID

from models import explain
from warm_integrations.core import WarmConfig, WarmError
from warm_integrations.openai_agents import WarmSession

T = TypeVar("T")
_log = logging.getLogger(__name__)

PREFIX = "chat:"
INSTRUCTIONS = "You are a helpful assistant in a chat. Answer briefly, in Markdown."
BUSY = "An answer is under way in this conversation: wait until it is complete, or stop it."
GONE = "This conversation is gone, perhaps deleted in another window: choose another one, or start a new chat."
ANSWERED = "The last answer is complete: send a message to go on."


class Problem(Exception):
    """Something did not work. Its text is a plain sentence that ends with what to do next."""


@dataclass(frozen=True)
class Conversation:
    """A line in the list of conversations."""

    id: str
    title: str


@dataclass(frozen=True)
class Message:
    """What one side said. `complete` is false for an answer that was cut short."""

    role: str
    text: str
    complete: bool = True


@dataclass
class Turn:
    """A message of the user's and its answer, while that is being written, or after it has failed.

    The engine's thread writes it; pages only read.
    """

    prompt: str = ""
    before: Sequence[Message] = ()  # what had been said when it began
    answer: str = ""
    error: str = ""
    stopped: bool = False
    run: RunResultStreaming | None = field(default=None, repr=False)
    task: asyncio.Task[None] | None = field(default=None, repr=False)  # the loop itself would forget it
    ended: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @property
    def running(self) -> bool:
        return not self.ended.is_set()

    def follow(self) -> Iterator[str]:
        """The answer so far, again and again until it ends."""
        while self.running:
            yield self.answer
            time.sleep(0.1)
        yield self.answer

    def stop(self) -> None:
        self.stopped = True
        if self.run is not None:
            self.run.cancel()


class Engine:
    """Conversations of any number of users in one store, each with at most one answer under way.

    Its coroutines belong to its own event loop, so other threads run them through `call`.
    """

    def __init__(self, config: WarmConfig, model: Model) -> None:
        self.config = config
        self._model = model
        self._agent = Agent(name="assistant", instructions=INSTRUCTIONS, model=model)
        self._turns: dict[str, Turn] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chat", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of one of the coroutines below, for any thread. What fails raises `Problem`."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except Problem:
            raise
        except Exception as error:
            raise Problem(_sentence(error)) from error

    def turn(self, id: str) -> Turn | None:
        """The answer that is being written in a conversation, or the last one if it failed."""
        return self._turns.get(id)

    async def conversations(self, user: str) -> list[Conversation]:
        """The conversations of a user, the last used first."""
        infos = await WarmSession.list(self.config, {"user": user})
        mine = [info for info in infos if info.id.startswith(PREFIX)]  # others may keep sessions here too
        return [Conversation(info.id, str(info.metadata.get("title") or "Untitled")) for info in mine]

    async def messages(self, id: str) -> list[Message]:
        """What has been said in a conversation."""
        return [message for item in await self._session(id).get_items() if (message := _message(item))]

    async def send(self, user: str, id: str | None, text: str) -> str:
        """Say something in a conversation, or in a new one, and return its id. The answer is its `turn`."""
        if id is None:
            id = f"{PREFIX}{uuid.uuid4()}"
            await self._session(id).set_metadata({"user": user, "title": _title(text)})
        else:
            await self._metadata(user, id)
        await self._begin(id, text)
        return id

    async def retry(self, user: str, id: str) -> None:
        """Take back the last message, with what there is of its answer, and send it again."""
        await self._metadata(user, id)
        await self._begin(id, None)

    async def stop(self, id: str) -> None:
        """End the answer that is being written. What there is of it is kept."""
        turn = self._turns.get(id)
        if turn is not None and turn.running:
            turn.stop()
            await turn.ended.wait()

    async def rename(self, user: str, id: str, title: str) -> None:
        """Give a conversation another title."""
        metadata = await self._metadata(user, id)
        await self._session(id).set_metadata({**metadata, "title": title})

    async def delete(self, user: str, id: str) -> None:
        """Remove a conversation with all that was said in it."""
        await self._metadata(user, id)
        await self.stop(id)
        self._turns.pop(id, None)
        await self._session(id).delete()

    def close(self) -> None:
        """Stop all answers and end the thread."""
        self.call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        for id in list(self._turns):
            await self.stop(id)
        await self._model.close()
        await self._loop.shutdown_asyncgens()

    def _session(self, id: str) -> WarmSession:
        return WarmSession(id, self.config)

    async def _metadata(self, user: str, id: str) -> Mapping[str, Any]:
        """What is noted of a conversation, which must be this user's."""
        info = await self._session(id).info()
        if info is None or info.metadata.get("user") != user:
            raise Problem(GONE)
        return info.metadata

    async def _begin(self, id: str, prompt: str | None) -> None:
        """Start the answer to `prompt`, or anew the one to the last message."""
        last = self._turns.get(id)
        if last is not None and last.running:
            raise Problem(BUSY)
        turn = self._turns[id] = Turn(prompt or "")  # from here on the conversation is taken
        try:
            if prompt is None:
                turn.prompt = await self._take_back(id, last)
            turn.before = await self.messages(id)
        except BaseException:
            del self._turns[id]
            if last is not None:
                self._turns[id] = last
            turn.ended.set()
            raise
        turn.task = asyncio.create_task(self._answer(id, turn))

    async def _take_back(self, id: str, last: Turn | None) -> str:
        """Remove the last message of the user's, with all that follows it, and return its text."""
        said = await self.messages(id)
        if last is not None and last.before == said:  # it failed before the store had anything of it
            return last.prompt
        if not said or (said[-1].role == "assistant" and said[-1].complete):
            raise Problem(ANSWERED)
        while item := await self._session(id).pop_item():
            message = _message(item)
            if message is not None and message.role == "user":
                return message.text
        raise Problem(GONE)

    async def _answer(self, id: str, turn: Turn) -> None:
        session = self._session(id)
        try:
            try:
                await self._run(session, turn)
            except Exception as error:
                turn.error = _sentence(error)
            if turn.stopped or turn.error:
                await self._keep(session, turn)
        except Exception as error:
            turn.error = turn.error or _sentence(error)
        if not turn.error:
            del self._turns[id]  # all of it is in the store
        turn.ended.set()

    async def _run(self, session: WarmSession, turn: Turn) -> None:
        no_traces = RunConfig(tracing_disabled=True)  # they would go to OpenAI, whoever the model is
        turn.run = Runner.run_streamed(self._agent, turn.prompt, session=session, run_config=no_traces)
        if turn.stopped:
            turn.run.cancel()
        async for event in turn.run.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                turn.answer += event.data.delta

    async def _keep(self, session: WarmSession, turn: Turn) -> None:
        """Store what was said of an answer that was cut short; the SDK stores complete ones only."""
        stored = (await self.messages(session.session_id))[len(turn.before) :]
        items: list[Any] = []
        if not stored:
            items.append({"role": "user", "content": turn.prompt})
        if turn.answer and all(message.role == "user" for message in stored):
            content = [{"type": "output_text", "text": turn.answer, "annotations": []}]
            message = {"type": "message", "role": "assistant", "status": "incomplete", "content": content}
            items.append({"id": FAKE_RESPONSES_ID, **message})
        await session.add_items(items)


def _title(text: str) -> str:
    """The beginning of a message."""
    line = " ".join(text.split())
    return line if len(line) <= 50 else line[:49].rstrip() + "…"


def _message(item: Mapping[str, Any]) -> Message | None:
    """An item of a session as a message; `None` for what is not shown, such as a model's reasoning."""
    if item.get("role") not in ("user", "assistant"):
        return None
    content = item["content"]
    if not isinstance(content, str):
        content = "".join(part.get("text") or part.get("refusal") or "" for part in content)
    return Message(item["role"], content, item.get("status", "completed") == "completed")


def _sentence(error: Exception) -> str:
    """What the page says of a failure."""
    if isinstance(error, WarmError):
        return f"The store could not do this: {error}"
    if sentence := explain(error):
        return sentence
    _log.error("unexpected failure", exc_info=error)
    return f"Something unexpected went wrong ({type(error).__name__}): see the terminal, then try again."

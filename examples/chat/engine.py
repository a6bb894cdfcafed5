"""The chat without its page: answers that are being written, and all that a page may ask for.

A page comes and goes: Streamlit runs its script anew for every click, and a refresh is a new visitor. What lasts
longer lives here, on one event loop in a thread of its own: a page starts an answer, and any page can follow it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from agents import Agent, Model, ModelSettings, RunConfig, Runner, RunResultStreaming
from agents.run import CallModelData, ModelInputData

from conversations import Conversations
from memories import Memories, Reason
from models import explain
from problem import Problem
from transcript import Call, Message, Part, json_object, text_of, to_items
from warm_integrations.core import WarmConfig, WarmError
from warm_integrations.openai_agents import WarmSession

T = TypeVar("T")
_log = logging.getLogger(__name__)

SENT_ITEMS = 100  # the newest of a conversation: as many reach the model
INSTRUCTIONS = (
    "You are a helpful assistant in a chat. Answer briefly, in Markdown. When the person tells you something about"
    " themselves that will matter later, remember it; when it is no longer so, forget it. Before you answer a question"
    " about them, recall. They can edit and delete what you remember: what recall no longer returns, do not bring"
    " back from earlier in the conversation."
)
BUSY = "An answer is under way in this conversation: wait until it is complete, or stop it."
ANSWERED = "The last answer is complete: send a message to go on."
NOTHING_LEFT = "There is no message to be answered: send one."


@dataclass
class Turn:
    """A message of the user's and its answer, while that is being written, or after it has failed.

    The engine's thread writes it; pages only read.
    """

    user: str
    prompt: str = ""
    before: Sequence[Message] = ()  # what had been said when it began
    parts: Sequence[Part] = ()  # the answer so far, with the tools that it used
    error: str = ""
    memory_changes: int = 0  # how often a tool has changed what is known of the user
    stopped: bool = False
    run: RunResultStreaming | None = field(default=None, repr=False)
    task: asyncio.Task[None] | None = field(default=None, repr=False)  # the loop itself would forget it
    ended: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @property
    def running(self) -> bool:
        return not self.ended.is_set()

    @property
    def messages(self) -> list[Message]:
        """The conversation as it is now."""
        answer = [Message("assistant", self.parts, complete=False)] if self.parts else []
        return [*self.before, Message("user", (self.prompt,)), *answer]

    def follow(self) -> Iterator[Sequence[Part]]:
        """The answer so far, again and again until it ends."""
        while self.running:
            yield self.parts
            time.sleep(0.03)
        yield self.parts

    def stop(self) -> None:
        self.stopped = True
        if self.run is not None:
            self.run.cancel()


class Engine:
    """Conversations and memories of any number of users in one store, each conversation with at most one answer
    under way.

    Its coroutines, and those of its `conversations` and `memories`, belong to its own event loop: other threads run
    them through `call`.
    """

    def __init__(self, config: WarmConfig, model: Model) -> None:
        self.config = config
        self.conversations = Conversations(config)
        self.memories = Memories(config, self.conversations)
        self._model = model
        self._turns: dict[str, Turn] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chat", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, for any thread. What fails raises `Problem`."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except Problem:
            raise
        except Exception as error:
            raise Problem(_sentence(error)) from error

    def turn(self, id: str) -> Turn | None:
        """The answer that is being written in a conversation, or the last one if it failed."""
        return self._turns.get(id)

    async def send(self, user: str, id: str | None, text: str) -> str:
        """Say something in a conversation, or in a new one, and return its id. The answer is its `turn`."""
        if id is None:
            id = await self.conversations.create(user, text)
        else:
            await self.conversations.check(user, id)
        await self._begin(user, id, text)
        return id

    async def retry(self, user: str, id: str) -> None:
        """Take back the last message, with what there is of its answer, and send it again."""
        await self.conversations.check(user, id)
        await self._begin(user, id, None)

    async def stop(self, id: str) -> None:
        """End the answer that is being written. What there is of it is kept."""
        turn = self._turns.get(id)
        if turn is not None and turn.running:
            turn.stop()
            await turn.ended.wait()

    async def delete(self, user: str, id: str) -> None:
        """Remove a conversation with all that was said in it."""
        await self.conversations.check(user, id)
        await self.stop(id)
        self._turns.pop(id, None)
        await self.conversations.delete(user, id)

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

    async def _begin(self, user: str, id: str, prompt: str | None) -> None:
        """Start the answer to `prompt`, or anew the one to the last message."""
        last = self._turns.get(id)
        if last is not None and last.running:
            raise Problem(BUSY)
        turn = self._turns[id] = Turn(user, prompt or "")  # from here on the conversation is taken
        try:
            if prompt is None:
                turn.prompt = await self._take_back(id, last)
            turn.before = await self.conversations.messages(id)
        except BaseException:
            del self._turns[id]
            if last is not None:
                self._turns[id] = last
            turn.ended.set()
            raise
        turn.task = asyncio.create_task(self._answer(id, turn))

    async def _take_back(self, id: str, last: Turn | None) -> str:
        """Remove the last message of the user's, with all that follows it, and return its text."""
        said = await self.conversations.messages(id)
        if last is not None and last.before == said:  # it failed before the store had anything of it
            return last.prompt
        if not said or (said[-1].role == "assistant" and said[-1].complete):
            raise Problem(ANSWERED)
        while item := await self.conversations.session(id).pop_item():
            if item.get("role") == "user":
                return text_of(item)
        raise Problem(NOTHING_LEFT)

    async def _answer(self, id: str, turn: Turn) -> None:
        session = self.conversations.session(id, newest=SENT_ITEMS)
        began = time.monotonic()
        try:
            try:
                await self._run(session, turn)
            except Exception as error:
                turn.error = _sentence(error)
            if turn.stopped or turn.error:
                await self._keep(id, turn)
            if turn.run is not None and turn.parts:
                usage = turn.run.context_wrapper.usage
                figures = {"seconds": round(time.monotonic() - began, 1)}
                figures |= {"read": usage.input_tokens, "written": usage.output_tokens}
                await self.conversations.note_figures(id, len(turn.before) + 1, figures)
        except Exception as error:
            turn.error = turn.error or _sentence(error)
        if not turn.error:
            del self._turns[id]  # all of it is in the store
        turn.ended.set()

    async def _run(self, session: WarmSession, turn: Turn) -> None:
        agent = Agent(
            name="assistant",
            instructions=INSTRUCTIONS,
            model=self._model,
            model_settings=ModelSettings(include_usage=True),  # or else many servers do not count what is streamed
            tools=[*self.memories.tools(turn.user)],
        )
        # Traces would go to OpenAI, whoever the model is.
        run_config = RunConfig(tracing_disabled=True, call_model_input_filter=without_earlier_tools)
        turn.run = Runner.run_streamed(agent, turn.prompt, session=session, run_config=run_config)
        if turn.stopped:
            turn.run.cancel()
        async for event in turn.run.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                said = turn.parts[-1] if turn.parts and isinstance(turn.parts[-1], str) else None
                turn.parts = (*turn.parts[:-1], said + event.data.delta) if said else (*turn.parts, event.data.delta)
            elif event.type == "run_item_stream_event" and event.name == "tool_called":
                raw = event.item.raw_item
                turn.parts = (*turn.parts, Call(raw.call_id, raw.name, raw.arguments))
            elif event.type == "run_item_stream_event" and event.name == "tool_output":
                await self._tool_answered(session.session_id, turn, event.item.raw_item)

    async def _tool_answered(self, id: str, turn: Turn, item: Any) -> None:
        """Show what a tool answered, and note why something was remembered."""
        output = str(item["output"])
        turn.parts = tuple(
            replace(part, output=output) if isinstance(part, Call) and part.id == item["call_id"] else part
            for part in turn.parts
        )
        answer = json_object(output)
        if answer.get("stored"):
            reason = Reason(id, len(turn.before), turn.prompt)
            await self.memories.because(answer["memory_id"], reason)
        if answer.get("stored") or answer.get("forgotten"):
            turn.memory_changes += 1

    async def _keep(self, id: str, turn: Turn) -> None:
        """Store what there is of an answer that was cut short; the SDK stores complete steps only."""
        stored = (await self.conversations.messages(id))[len(turn.before) :]
        items: list[Any] = [] if stored else [{"role": "user", "content": turn.prompt}]
        kept = stored[1].parts if len(stored) > 1 else ()
        items += to_items(turn.parts[len(kept) :])
        if items:
            await self.conversations.session(id).add_items(items)


def without_earlier_tools(call: CallModelData[Any]) -> ModelInputData:
    """What the model is sent: earlier messages as plain text, and the tools of this turn only.

    What a tool found earlier may have been deleted since. This also lets a conversation go on with another model,
    and be cut anywhere.
    """
    items: list[Any] = call.model_data.input
    last = max(number for number, item in enumerate(items) if item.get("role") == "user")
    earlier = [
        {"role": item["role"], "content": text_of(item)}
        for item in items[:last]
        if item.get("role") in ("user", "assistant") and text_of(item)
    ]
    return ModelInputData([*earlier, *items[last:]], call.model_data.instructions)


def _sentence(error: Exception) -> str:
    """What the page says of a failure."""
    if isinstance(error, WarmError):
        return f"The store could not do this: {error}"
    if sentence := explain(error):
        return sentence
    _log.error("unexpected failure", exc_info=error)
    return f"Something unexpected went wrong ({type(error).__name__}): see the terminal, then try again."

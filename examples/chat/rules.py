"""A few rules in place of a model: no key, no network, no understanding, but real tool calls and real streaming."""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents import Model, ModelResponse, Usage
from agents.items import TResponseStreamEvent
from agents.models.fake_id import FAKE_RESPONSES_ID
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
    ResponseUsage,
)
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

from transcript import json_object, text_of

OFFLINE = "offline rules"
HELP = (
    "I am only a few rules, so that this page works without a key. Say **remember that** something is so, **forget**"
    " it, or ask me **What do you know about me?** in this conversation or any other, even after a restart. Set"
    " OPENAI_API_KEY or OPENAI_BASE_URL to talk to a real model."
)
UNAVAILABLE = "My memory cannot be used right now, so nothing has changed: try again in a moment."
NOT_KNOWN = "I know nothing of that. Tell me with **remember that** …"


@dataclass(frozen=True)
class Command:
    """A tool to be called."""

    tool: str
    arguments: Mapping[str, Any]


def next_step(items: Sequence[Mapping[str, Any]]) -> Command | str:
    """The rules: the tool to call next or, once that is done, the answer to the last thing the person said."""
    said = [text_of(item) for item in items if item.get("role") == "user"]
    *earlier, last = said
    done = _calls_since_last_message(items)
    if any("error" in output for _, _, output in done):
        return UNAVAILABLE
    if found := re.match(r"\W*(?:please )?(?:remember|note|keep in mind)\b(?: that)?[\s:,]+(.+)", last, _FLAGS):
        return _remember(found[1], done)
    if found := re.match(r"\W*(?:please )?forget\b(?: about| that)?[\s:,]+(.+)", last, _FLAGS):
        return _forget(found[1], done)
    if re.search(r"\bknow (?:about|of) me\b|\bdo you remember\W*$", last, _FLAGS):
        return _tell_all(done)
    if re.search(r"\bwhat\b.*\bI\b.*\b(say|said|told|asked?|wrote)\b", last, _FLAGS):
        return _repeat(earlier)
    if found := re.search(r"\bcount to (\d{1,4})\b", last, _FLAGS):
        return " ".join(str(number) for number in range(1, int(found[1]) + 1))
    if last.rstrip().endswith("?") or re.match(r"\W*(what|who|where|when|which|how|why|do|is|am|are)\b", last, _FLAGS):
        return _look_up(last, done)
    if not earlier:
        return f"Hello! {HELP}"
    return f"Noted; that was message {len(said)} of our conversation. {HELP}"


_FLAGS = re.IGNORECASE | re.DOTALL
_Done = Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any]]]  # tool, arguments, output


def _remember(text: str, done: _Done) -> Command | str:
    tags = re.findall(r"#(\w+)", text)
    fact = " ".join(re.sub(r"#\w+", "", text).split())
    if not done:
        return Command("remember", {"text": fact, "tags": tags})
    output = done[-1][2]
    answer = f"I will remember: **{fact}**" if output["stored"] else f"I knew that already: **{fact}**"
    if similar := output.get("similar"):
        answer += (
            f"\n\nIt is near to what I know already: {_quoted(similar)}. Tell me to **forget** what is no longer so."
        )
    return answer


def _forget(what: str, done: _Done) -> Command | str:
    if not done:
        return Command("recall", {"query": what, "k": 10})
    wanted = _words(what)
    found = [memory for memory in done[0][2]["memories"] if wanted and wanted <= _words(memory["text"])]
    if found and len(done) == 1:
        return Command("forget", {"memory_id": found[0]["memory_id"]})
    if found:
        return f"Forgotten: **{found[0]['text']}**"
    return "I know nothing that says so. Ask me **What do you know about me?** and use words that are in it."


def _tell_all(done: _Done) -> Command | str:
    if not done:
        return Command("list_memories", {})
    memories = done[-1][2]["memories"]
    if not memories:
        return "Nothing yet. Tell me something with **remember that** …"
    return "This is what I know:\n\n" + "\n".join(f"- {memory['text']}" for memory in memories)


def _look_up(question: str, done: _Done) -> Command | str:
    if not done:
        return Command("recall", {"query": question, "k": 5})
    wanted = _words(question)
    memories = [memory for memory in done[-1][2]["memories"] if wanted & _words(memory["text"])]
    return f"You told me: {_quoted(memories[:3])}." if memories else NOT_KNOWN


def _repeat(earlier: Sequence[str]) -> str:
    if not earlier:
        return "Nothing yet: this is the first message of our conversation."
    return "You said:\n\n" + "\n".join(f"- “{' '.join(text.split())}”" for text in earlier[-20:])


_COMMON = re.compile(
    r"a|about|am|an|and|are|at|be|can|did|do|does|for|from|ha[ds]|have|how|i|in|is|it|know|me|my|of|on|or|our"
    r"|remember|tell|that|the|there|this|to|was|we|were|what|when|where|which|who|why|with|you|your"
)


def _words(text: str) -> set[str]:
    """The words that carry the meaning, without a plural's s."""
    return {word.removesuffix("s") for word in re.findall(r"\w+", text.casefold()) if not _COMMON.fullmatch(word)}


def _quoted(memories: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"“{memory['text']}”" for memory in memories)


def _calls_since_last_message(items: Sequence[Mapping[str, Any]]) -> _Done:
    """Each tool that was called for the last message: its name, what it was given, what it answered."""
    start = max(number for number, item in enumerate(items) if item.get("role") == "user")
    outputs = {item["call_id"]: item["output"] for item in items[start:] if item.get("type") == "function_call_output"}
    return [
        (item["name"], json_object(item["arguments"]), json_object(outputs[item["call_id"]]))
        for item in items[start:]
        if item.get("type") == "function_call" and item["call_id"] in outputs
    ]


class RuleModel(Model):
    """The rules as a `Model` like any other: the history reaches it, and its answers are streamed.

    It counts a word as a token.

    Args:
        pause: seconds between two words.
    """

    def __init__(self, pause: float = 0.03) -> None:
        self.pause = pause

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        return ModelResponse([_output(next_step(_as_items(input)))], Usage(), None)

    async def stream_response(
        self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any
    ) -> AsyncIterator[TResponseStreamEvent]:
        items = _as_items(input)
        step = next_step(items)
        words = re.findall(r"\s*\S+", step) if isinstance(step, str) else []
        for number, word in enumerate(words):
            await asyncio.sleep(self.pause)
            yield ResponseTextDeltaEvent(
                type="response.output_text.delta",
                delta=word,
                item_id=FAKE_RESPONSES_ID,
                content_index=0,
                output_index=0,
                sequence_number=number,
                logprobs=[],
            )
        read, written = sum(len(str(item).split()) for item in items), len(words) or 1
        response = Response(
            id=FAKE_RESPONSES_ID,
            created_at=time.time(),
            model=OFFLINE,
            object="response",
            output=[_output(step)],
            parallel_tool_calls=False,
            tool_choice="auto",
            tools=[],
            usage=ResponseUsage(
                input_tokens=read,
                input_tokens_details=InputTokensDetails(cached_tokens=0, cache_write_tokens=0),
                output_tokens=written,
                output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
                total_tokens=read + written,
            ),
        )
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=len(words))


def _as_items(input: Any) -> Sequence[Mapping[str, Any]]:
    return [{"role": "user", "content": input}] if isinstance(input, str) else input


def _output(step: Command | str) -> ResponseOutputMessage | ResponseFunctionToolCall:
    if isinstance(step, Command):
        return ResponseFunctionToolCall(
            type="function_call",
            call_id=f"call_{uuid.uuid4().hex}",
            name=step.tool,
            arguments=json.dumps(step.arguments, ensure_ascii=False),
        )
    # The SDK takes this id away before it sends the history to OpenAI, which would not know it.
    return ResponseOutputMessage(
        id=FAKE_RESPONSES_ID,
        type="message",
        role="assistant",
        status="completed",
        content=[ResponseOutputText(type="output_text", text=step, annotations=[])],
    )

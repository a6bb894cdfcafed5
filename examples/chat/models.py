"""Which model answers: a real one where the environment names one, else a few rules that need no network."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import openai
from agents import (
    MaxTurnsExceeded,
    Model,
    ModelBehaviorError,
    ModelResponse,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Usage,
)
from agents.items import TResponseStreamEvent
from agents.models import get_default_model
from agents.models.fake_id import FAKE_RESPONSES_ID
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

OFFLINE = "offline rules"


def choose_model() -> tuple[Model, str]:
    """The model that the environment asks for, and its name for the page.

    `OPENAI_API_KEY` alone means OpenAI. `OPENAI_BASE_URL` means any server that speaks the same
    protocol, such as Ollama, vLLM or llama.cpp, with or without a key. `OPENAI_MODEL` names the model.
    """
    key, url = os.environ.get("OPENAI_API_KEY"), os.environ.get("OPENAI_BASE_URL")
    if not key and not url:
        return RuleModel(), OFFLINE
    name = os.environ.get("OPENAI_MODEL") or get_default_model()
    client = openai.AsyncOpenAI(api_key=key or "none", base_url=url or None)
    # Few servers besides OpenAI's own know the newer Responses API.
    model = OpenAIChatCompletionsModel(name, client) if url else OpenAIResponsesModel(name, client)
    model.close = client.close  # a client given to a model is left open by it
    return model, name


def explain(error: BaseException) -> str | None:
    """What a failure of a model means and what to do, as one sentence; `None` for other failures.

    The server's own words are left out: they may repeat the key.
    """
    match error:
        case openai.AuthenticationError() | openai.PermissionDeniedError():
            return "The model's server refused the key: set OPENAI_API_KEY to a valid one and start the app again."
        case openai.RateLimitError():
            return "The model is busy, or the quota of this key is used up: wait a minute, then try again."
        case openai.NotFoundError():
            return "The model's server does not know the model: set OPENAI_MODEL to one it has and start the app again."
        case openai.BadRequestError() | openai.UnprocessableEntityError():
            return "The model did not accept this conversation, perhaps for its length: go on in a new chat."
        case openai.APIStatusError():
            return f"The model's server failed with status {error.status_code}: try again in a moment."
        case openai.APITimeoutError() | openai.APIConnectionError():
            return "The model's server cannot be reached: check OPENAI_BASE_URL and the network, then try again."
        case httpx.TransportError() | openai.APIError():
            return "The connection to the model broke before the answer was complete: try again."
        case ModelBehaviorError() | MaxTurnsExceeded():
            return "The model's answer made no sense to the program: try again, or choose another OPENAI_MODEL."
    return None


class RuleModel(Model):
    """A few rules in place of a model: no key, no network, no understanding.

    It is a `Model` like any other, so the history reaches it, and its answers are streamed, as a real one's.

    Args:
        pause: seconds between two words.
    """

    def __init__(self, pause: float = 0.03) -> None:
        self.pause = pause

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        return ModelResponse([_message(answer(user_texts(input)))], Usage(), None)

    async def stream_response(
        self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any
    ) -> AsyncIterator[TResponseStreamEvent]:
        text = answer(user_texts(input))
        number = 0
        for number, word in enumerate(re.findall(r"\s*\S+", text), 1):
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
        response = Response(
            id=FAKE_RESPONSES_ID,
            created_at=time.time(),
            model=OFFLINE,
            object="response",
            output=[_message(text)],
            parallel_tool_calls=False,
            tool_choice="none",
            tools=[],
        )
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=number + 1)


def _message(text: str) -> ResponseOutputMessage:
    # The SDK takes this id away before it sends the history to OpenAI, which would not know it.
    return ResponseOutputMessage(
        id=FAKE_RESPONSES_ID,
        type="message",
        role="assistant",
        status="completed",
        content=[ResponseOutputText(type="output_text", text=text, annotations=[])],
    )


def user_texts(input: str | Sequence[Any]) -> list[str]:
    """What the user has said so far, the newest last."""
    if isinstance(input, str):
        return [input]
    return [item["content"] for item in input if item.get("role") == "user" and isinstance(item["content"], str)]


def answer(said: Sequence[str]) -> str:
    """The rules: an answer to the last of these messages."""
    *earlier, last = said
    if re.search(r"\bwhat\b.*\bI\b.*\b(say|said|tell|told|asked?|wrote)\b|\bdo you remember\b", last, re.IGNORECASE):
        if not earlier:
            return "Nothing yet: this is the first message of our conversation."
        return "You said:\n\n" + "\n".join(f"- “{' '.join(text.split())}”" for text in earlier[-20:])
    if count := re.search(r"\bcount to (\d{1,4})\b", last, re.IGNORECASE):
        return " ".join(str(number) for number in range(1, int(count[1]) + 1))
    if not earlier:
        return (
            "Noted. I am only a few rules, so that this page works without a key. Ask me **What did I say?** and I"
            " look it up in our conversation, even after a restart. **Count to 100** takes a while, so it shows"
            " streaming and the stop button. Set OPENAI_API_KEY or OPENAI_BASE_URL to talk to a real model."
        )
    return f"Noted; that was message {len(said)} of our conversation. Ask me **What did I say?** to see them all."

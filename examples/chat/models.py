"""Which model answers: a real one where the environment names one, else a few rules that need no network."""

from __future__ import annotations

import os

import httpx
import openai
from agents import (
    MaxTurnsExceeded,
    Model,
    ModelBehaviorError,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
)
from agents.models import get_default_model

from rules import OFFLINE, RuleModel


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
        case openai.RateLimitError(code="insufficient_quota"):
            return "The quota of this key is used up: add credit, or start the app again with another OPENAI_API_KEY."
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

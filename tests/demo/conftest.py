"""What the tests of the chat share: engines that are closed again, and a server in place of OpenAI's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from agents import Model

from demo.openai_server import OpenAIServer
from engine import Engine
from rules import RuleModel
from warm_integrations.core import WarmConfig


@pytest.fixture
def make_engine(config: WarmConfig) -> Iterator[Callable[..., Engine]]:
    """Makes engines over one store, as if each were an app that was started anew."""
    engines: list[Engine] = []

    def make(model: Model | None = None) -> Engine:
        engines.append(Engine(config, model or RuleModel(pause=0)))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture
def openai_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    """A model over HTTP, which the environment names."""
    with OpenAIServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
        monkeypatch.setenv("OPENAI_MODEL", "tiny")
        yield server

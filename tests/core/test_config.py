"""WarmConfig: the knobs, where they come from, and what is refused."""

from __future__ import annotations

import copy
import inspect
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from warm_integrations.core import (
    AsyncPagedLog,
    AsyncWarmBackend,
    HashingEmbedder,
    WarmBackend,
    WarmConfig,
    connect,
    drop_memory,
    ping,
    reembed,
    user_memory,
)
from warm_integrations.openai_agents import WarmSession, memory_tools


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in WarmConfig.model_fields:
        monkeypatch.delenv(f"WARM_{name.upper()}", raising=False)


def test_the_defaults_of_the_spec() -> None:
    config = WarmConfig()
    assert config.url == "sqlite:///warm.db"
    assert (config.api_key, config.tenant_id, config.zero_trust_key) == (None, None, None)
    assert config.embedder == HashingEmbedder(384)
    assert (config.max_fetch, config.text_queries, config.concurrency) == (100, False, 4)


def test_every_knob_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    values = {
        "url": "https://warm.example:8443",
        "api_key": "k",
        "tenant_id": "acme",
        "collection": "chats",
        "text_queries": "false",
        "zero_trust_key": "z",
        "max_fetch": "50",
        "overfetch": "2",
        "ca_file": str(tmp_path / "ca.pem"),
        "timeout": "1.5",
        "retries": "0",
        "concurrency": "8",
    }
    assert set(values) == set(WarmConfig.model_fields) - {"embedder"}
    for name, value in values.items():
        monkeypatch.setenv(f"WARM_{name.upper()}", value)
    config = WarmConfig()
    assert config.api_key is not None
    assert config.api_key.get_secret_value() == "k"
    assert (config.url, config.max_fetch, config.timeout) == ("https://warm.example:8443", 50, 1.5)
    assert WarmConfig(url="sqlite://", max_fetch=7).max_fetch == 7  # what is passed comes first


def test_an_empty_variable_is_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARM_URL", "")
    monkeypatch.setenv("WARM_API_KEY", "")
    assert WarmConfig() == WarmConfig(url="sqlite:///warm.db")


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite://?name=any",
        "sqlite:///a.db",
        "sqlite:////tmp/a.db?synchronous=normal",
        "http://localhost:8080",
        "https://warm.example",
        "http://[::1]:8080",
        "https://example.com/behind/a/proxy",
        "unix:///run/warm.sock",
    ],
)
def test_urls_that_name_a_store(url: str) -> None:
    assert WarmConfig(url=url).url == url


BAD = {
    "url": ["", "warm.db", "postgres://x", "http://", "http://u:s3cret@h", "http://h:99999", "sqlite://host/a.db"],
    "url ": [
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///a.db?mode=ro",
        "sqlite:///a.db?name=x",
        "sqlite://?name=",
        "unix://",
        "http://h?x=1",
        "http://h#x",
    ],
    "tenant_id": ["", "a b", "ü", "x" * 65, 7],
    "collection": ["", 7],
    "max_fetch": [0, 1001, -1, "many", 1.5],
    "overfetch": [0, 101],
    "timeout": [0, -1, "soon", 3601],
    "retries": [-1, 101],
    "concurrency": [0, 257],
    "embedder": [None, "minilm", object()],
    "ca_file": ["/does/not/exist.pem"],
    "text_queries": ["perhaps"],
}


@pytest.mark.parametrize(("name", "value"), [(name.strip(), value) for name in BAD for value in BAD[name]])
def test_a_wrong_value_is_refused_by_name_and_not_shown(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name) as caught:
        WarmConfig(**{name: value})
    assert "s3cret" not in str(caught.value)


def test_a_misspelt_knob_is_refused() -> None:
    with pytest.raises(ValueError, match="colection"):
        WarmConfig(colection="x")  # type: ignore[call-arg]


def test_knobs_that_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="zero_trust_key"):
        WarmConfig(url="http://h", text_queries=True, zero_trust_key="k")
    with pytest.raises(ValueError, match="local models"):
        WarmConfig(url="sqlite://", text_queries=True)


def test_secrets_are_not_shown() -> None:
    config = WarmConfig(url="http://h", api_key="s3cret-a", zero_trust_key="s3cret-z")
    shown = f"{config!r} {config} {config.model_dump()} {config.model_dump_json(exclude={'embedder'})}"
    assert "s3cret" not in shown


def test_secrets_travel_with_a_copy_and_with_a_pickle() -> None:
    config = WarmConfig(url="http://h", api_key="s3cret-a", zero_trust_key="s3cret-z")
    pickled = pickle.dumps(config)
    assert b"s3cret-a" in pickled  # which the docstring says
    for same in (copy.copy(config), copy.deepcopy(config), config.model_copy(), pickle.loads(pickled)):
        assert same.api_key is not None
        assert same.api_key.get_secret_value() == "s3cret-a"
        assert same.zero_trust_key == config.zero_trust_key
        assert "s3cret" not in f"{same!r} {same} {same.model_dump()}"


def test_it_is_a_value() -> None:
    config = WarmConfig(url="http://h", api_key="k", tenant_id="acme")
    for same in (copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert same == config
        assert hash(same) == hash(config)
    with pytest.raises(ValueError, match="frozen"):
        config.url = "sqlite://"  # type: ignore[misc]
    assert config != config.model_copy(update={"api_key": None})


def test_a_relative_path_is_part_of_what_a_configuration_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ca.pem").write_text("")
    config = WarmConfig(url="sqlite:///a%20b.db", ca_file="ca.pem")
    monkeypatch.chdir("/")
    assert config.path == pickle.loads(pickle.dumps(config)).path == copy.copy(config).path == str(tmp_path / "a b.db")
    assert config.model_copy(update={"url": "sqlite:///c.db"}).path == str(tmp_path / "c.db")
    assert config.ca_file == tmp_path / "ca.pem"
    later = WarmConfig(url="sqlite:///a%20b.db", ca_file=tmp_path / "ca.pem")
    assert (later.path, later == config) == ("/a b.db", False)
    assert WarmConfig(url="sqlite:////a%20b.db").path == "/a b.db"
    for url in ("sqlite://", "sqlite://?name=any", "http://localhost", "unix:///run/warm.sock"):
        assert WarmConfig(url=url).path is None


async def call(function: Callable[[Any], Any], argument: Any) -> Any:
    result = function(argument)
    return await result if inspect.isawaitable(result) else result


TAKES_A_CONFIG: dict[str, Callable[[Any], Any]] = {
    "WarmSession": lambda wrong: WarmSession("a", wrong),
    "WarmSession.list": WarmSession.list,
    "AsyncPagedLog": lambda wrong: AsyncPagedLog("a", wrong),
    "AsyncWarmBackend": AsyncWarmBackend,
    "WarmBackend": WarmBackend,
    "user_memory": lambda wrong: user_memory(wrong, "ada"),
    "memory_tools": lambda wrong: memory_tools(wrong, user_id="ada"),
    "reembed": reembed,
    "connect": connect,
    "ping": ping,
    "drop_memory": drop_memory,
}


@pytest.mark.parametrize("wrong", ["sqlite:///x.db", "", "https://user:s3cret@host", {"api_key": "s3cret"}, WarmConfig])
@pytest.mark.parametrize("name", TAKES_A_CONFIG)
async def test_what_is_no_configuration_is_named_with_what_to_write(name: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match="config must be a WarmConfig") as caught:
        await call(TAKES_A_CONFIG[name], wrong)
    url = wrong if wrong == "sqlite:///x.db" else "sqlite:///file.db"
    assert f'write WarmConfig(url="{url}"), or WarmSession.from_url(session_id, url="{url}")' in str(caught.value)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_a_configuration_of_a_subclass_is_one() -> None:
    class Own(WarmConfig):
        team: str = "any"

    assert WarmSession("a", Own(url="sqlite://")).config == Own(url="sqlite://")


def test_no_configuration_is_the_default_one_only_where_one_may_be_left_out() -> None:
    assert WarmSession("a").config == AsyncWarmBackend(None).config == WarmConfig()
    with pytest.raises(TypeError, match="not NoneType"):
        AsyncPagedLog("a", None)  # type: ignore[arg-type]

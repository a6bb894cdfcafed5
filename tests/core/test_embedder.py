"""The lexical embedder and masking: the same numbers everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata

import numpy as np
import pytest

from warm_integrations.core import HashingEmbedder
from warm_integrations.core.embedder import Embedder, embedder_name
from warm_integrations.core.masking import mask, mask_matrix

GOLDEN = {  # places and values of the four largest numbers of a vector
    "Alice repairs old clocks": {57: -0.200783994, 69: -0.200783994, 97: 0.200783994, 159: -0.287532594},
    "日本語": {74: 0.168787771, 76: -0.168787771, 149: -0.337575542, 237: -0.333472784},
    "": {91: 0.5, 100: -0.5, 325: -0.5, 377: 0.5},
}


@pytest.mark.parametrize("text", GOLDEN)
def test_vectors_are_the_same_on_every_machine(text: str) -> None:
    vector = HashingEmbedder().embed_query(text)
    assert {place: vector[place] for place in GOLDEN[text]} == pytest.approx(GOLDEN[text], abs=1e-9)


def test_the_same_text_gives_the_same_vector_in_every_process() -> None:
    import_it = "from warm_integrations.core import HashingEmbedder"
    code = f"{import_it}; print(HashingEmbedder().embed_query('old clocks').tobytes().hex())"
    shown = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert shown == {HashingEmbedder().embed_query("old clocks").tobytes().hex()}


@pytest.mark.parametrize("text", ["", " ", "…", "\0", "a", "日本語", "\ud800", "x" * 100_000, "the the the"])
@pytest.mark.parametrize("dim", [8, 384, 1000])
def test_every_text_has_a_vector_of_length_one(text: str, dim: int) -> None:
    vector = HashingEmbedder(dim).embed_query(text)
    assert vector.shape == (dim,)
    assert np.linalg.norm(vector) == pytest.approx(1)


def test_writing_alike_is_embedded_alike() -> None:
    embedder = HashingEmbedder()
    for a, b in (("Café", unicodedata.normalize("NFD", "CAFÉ")), ("ﬁne", "fine"), ("Straße", "STRASSE")):
        assert embedder.embed_query(a) @ embedder.embed_query(b) == pytest.approx(1)


def test_shared_words_are_near() -> None:
    question, near, far = HashingEmbedder().embed_documents(
        ["where is the hotel in Lisbon", "Book a hotel in Lisbon", "My cat likes tuna"]
    )
    assert question @ near > 0.3 > abs(question @ far) + 0.1


def test_no_texts_give_no_vectors() -> None:
    assert HashingEmbedder().embed_documents([]).shape == (0, 384)


def test_too_few_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 8"):
        HashingEmbedder(7)


def test_embedders_are_named() -> None:
    assert isinstance(HashingEmbedder(), Embedder)
    assert embedder_name(HashingEmbedder(16)) == "hashing/3/16"


@pytest.mark.parametrize("dim", [8, 9, 384])
def test_a_mask_keeps_cosines(dim: int) -> None:
    vectors = np.random.default_rng(1).normal(size=(20, dim))
    assert np.allclose(mask(vectors, "key") @ mask(vectors, "key").T, vectors @ vectors.T, atol=1e-9)
    assert np.allclose(mask_matrix("key", dim) @ mask_matrix("key", dim).T, np.eye(dim), atol=1e-12)
    assert not np.allclose(mask(vectors, "key"), mask(vectors, "another"), atol=0.1)


def test_a_mask_is_the_same_on_every_machine() -> None:
    rotation = mask_matrix("key", 8)
    assert rotation[0, :3] == pytest.approx([-0.167060791243, 0.103724182878, -0.28723851833], abs=1e-9)

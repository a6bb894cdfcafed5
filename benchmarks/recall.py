"""How well questions find what was stored, for each embedder, ranking and store.

    python benchmarks/recall.py DATA.json [--json RESULTS.json]

DATA is a list of {"user", "kind", "memories": [text, ...], "queries": [{"query", "relevant": [index, ...]}]}; a
question is asked among the memories of its own entry. Prints, for each kind, the mean share of the relevant memories
among the first 1, 5 and 10 hits, the mean reciprocal rank of the first relevant one (0 past the tenth), the
milliseconds of a question without its embedding, and how often the first hit is that of the embedded store.
The stores are a temporary SQLite file and, where its binary is found, a warm-server.

The rankings: "cosine" and "words" (BM25) alone; "words and meaning", the sum of both as the store makes it;
"re-rank of 100", the 100 nearest vectors, ordered here by BM25 among them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from local_server import LocalServer, find_warm_server
from warm_integrations.core import HashingEmbedder, WarmConfig
from warm_integrations.core.connection import connect
from warm_integrations.core.models import MiniLMEmbedder
from warm_integrations.core.stores.interface import (
    Command,
    Document,
    Hit,
    Nearest,
    Put,
    Recall,
    Store,
    single,
)
from warm_integrations.core.words import question_words, stem, words

K = 10
BATCH = 500
EMBEDDERS = {"hashing": HashingEmbedder(), "minilm": MiniLMEmbedder()}
RANKINGS = [
    (name, ranking)
    for name in EMBEDDERS
    for ranking in ("cosine", "words", "words and meaning", "re-rank of 100")
    if ranking != "words" or name == "hashing"  # which are the same for every embedder
]


def step(ranking: str, query: str, vector: list[float], filter: dict[str, str]) -> Command:
    if ranking == "cosine":
        return Nearest(vector, K, filter)
    if ranking == "re-rank of 100":
        return Nearest(vector, 100, filter)
    return Recall(query, K, filter, vector if ranking == "words and meaning" else None)


def reranked(query: str, hits: list[Hit], texts: dict[str, str]) -> list[Hit]:
    """The best K of `hits` by BM25 (k1 1.2, b 0.75) among them; those without a word of the question come last."""
    counts = [Counter(map(stem, words(texts[hit.id]))) for hit in hits]
    lengths = [count.total() for count in counts]
    average = sum(lengths) / max(1, len(lengths))
    scores = [0.0] * len(hits)
    for term in set(map(stem, question_words(query))):
        having = sum(term in count for count in counts)
        rarity = math.log(1 + (len(hits) - having + 0.5) / (having + 0.5))
        for n, (count, length) in enumerate(zip(counts, lengths, strict=True)):
            scores[n] += rarity * count[term] * 2.2 / (count[term] + 1.2 * (0.25 + 0.75 * length / average))
    order = sorted(range(len(hits)), key=lambda n: -scores[n])
    return [hits[n] for n in order[:K]]


def key(entry: dict[str, Any]) -> str:
    return f"{entry['kind']}/{entry['user']}"


def document_id(entry: dict[str, Any], number: int) -> str:
    return f"{key(entry)}/{number:06}"


@contextlib.contextmanager
def stores() -> Iterator[dict[str, str]]:
    """The name and the url of each store."""
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        urls = {"embedded": f"sqlite:///{directory}/warm.db?synchronous=normal"}
        try:
            find_warm_server()
        except FileNotFoundError as error:
            print(error, file=sys.stderr)
        else:
            urls["warm-server"] = stack.enter_context(LocalServer(f"{directory}/server")).url
        yield urls


async def fill(store: Store, data: list[dict[str, Any]], vectors: dict[str, list[list[float]]]) -> None:
    documents = [
        Document(document_id(entry, number), text=text, metadata={"scope": key(entry)}, vector=vector)
        for entry in data
        for number, (text, vector) in enumerate(zip(entry["memories"], vectors[key(entry)], strict=True))
    ]
    for first in range(0, len(documents), BATCH):
        await store.write(single(Put(documents[first : first + BATCH])))


async def measure(
    store: Store, entry: dict[str, Any], ranking: str, vectors: list[list[float]]
) -> list[tuple[list[int], float]]:
    """The numbers of the memories found, and the seconds, for each question."""
    found = []
    texts = {document_id(entry, number): text for number, text in enumerate(entry["memories"])}
    for asked, vector in zip(entry["queries"], vectors, strict=True):
        wanted = step(ranking, asked["query"], vector, {"scope": key(entry)})
        start = time.perf_counter()
        hits: list[Hit] = await store.read(single(wanted))
        if ranking == "re-rank of 100":
            hits = reranked(asked["query"], hits, texts)
        found.append(([int(hit.id.rsplit("/", 1)[1]) for hit in hits], time.perf_counter() - start))
    return found


def report(
    label: str, relevant: list[set[int]], found: list[tuple[list[int], float]], first: list[list[int]]
) -> dict[str, float]:
    def mean(values: Iterator[float]) -> float:
        return sum(values) / len(relevant)

    lists = [hits for hits, _ in found]
    columns = [
        mean(len(wanted.intersection(hits[:k])) / len(wanted) for wanted, hits in zip(relevant, lists, strict=True))
        for k in (1, 5, 10)
    ]
    ranks = (
        (n for n, hit in enumerate(hits, 1) if hit in wanted) for wanted, hits in zip(relevant, lists, strict=True)
    )
    columns.append(mean(1 / next(rank, float("inf")) for rank in ranks))
    same = mean(float(hits[:1] == others[:1]) for hits, others in zip(lists, first, strict=True))
    took = mean(seconds for _, seconds in found) * 1000
    print(f"{label:50}", *(f"{column:5.3f}" for column in columns), f"{took:5.1f} {same:6.1%}", flush=True)
    return dict(zip(("@1", "@5", "@10", "MRR", "ms", "same"), (*columns, took, same), strict=True))


async def run(data: list[dict[str, Any]], urls: dict[str, str]) -> list[dict[str, Any]]:
    results = []
    open_stores: dict[tuple[str, str], Store] = {}
    questions: dict[str, dict[str, list[list[float]]]] = {}
    for name, embedder in EMBEDDERS.items():
        start = time.perf_counter()
        texts = {key(entry): embedder.embed_documents(entry["memories"]).tolist() for entry in data}
        rate = sum(map(len, texts.values())) / (time.perf_counter() - start)
        questions[name] = {
            key(entry): [embedder.embed_query(asked["query"]).tolist() for asked in entry["queries"]] for entry in data
        }
        print(f"{name}: {rate:.0f} texts a second")
        for place, url in urls.items():
            store = open_stores[place, name] = connect(WarmConfig(url=url, tenant_id=name, embedder=embedder))
            await fill(store, data, texts)

    for kind in dict.fromkeys(entry["kind"] for entry in data):
        entries = [entry for entry in data if entry["kind"] == kind and entry["queries"]]
        relevant = [set(asked["relevant"]) for entry in entries for asked in entry["queries"]]
        print(f"\n{f'{kind}, {len(relevant)} questions':50}    @1    @5   @10   MRR    ms   same")
        for name, ranking in RANKINGS:
            first: list[list[int]] = []
            for place in urls:
                found = []
                for entry in entries:
                    found += await measure(open_stores[place, name], entry, ranking, questions[name][key(entry)])
                first = first or [hits for hits, _ in found]
                embedder_used = "" if ranking == "words" else name
                figures = report(f"{embedder_used:8} {ranking:18} {place}", relevant, found, first)
                row = {"kind": kind, "embedder": embedder_used, "ranking": ranking, "store": place}
                results.append({**row, **{name: round(value, 4) for name, value in figures.items()}})
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", metavar="DATA.json")
    parser.add_argument("--json", type=Path, metavar="RESULTS.json", help="write the figures there, too")
    options = parser.parse_args()
    data = json.loads(Path(options.data).read_text("utf-8"))
    with stores() as urls:
        results = asyncio.run(run(data, urls))
    if options.json:
        lines = ",\n".join(json.dumps(row) for row in results)
        options.json.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()

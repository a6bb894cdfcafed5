"""Sequences of calls, from several objects, against a plain list: whatever the order, the answers are the same."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import pickle
import time
from itertools import count

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from warm_integrations.core import paged
from warm_integrations.core.connection import connect
from warm_integrations.core.embedding import Embedding
from warm_integrations.core.stores.interface import Scan, single
from warm_integrations.openai_agents import ItemError, WarmSession
from warm_integrations.openai_agents.items import item_words

SEQUENCES = 2000

TEXTS = [
    *("", "\0", "a\0b", "\x01\x1f\x7f\x85", "\u2028\ufeff\uffff", "\r\n\t"),
    *("\ud800", "a\udfff", "\udc00\ud800", "abc\u202edef\u2066", "مرحبا", "e\u0301", "é", "水", "😀", "\U0010ffff"),
    *('{"a": 1}', "\\u0041\\", '"', "NaN", "null", "hms:x", "' OR 1=1 --", "%_*"),
]
NUMBERS = [0, 1, -1, 2**53 + 1, 2**63, 2**64, -(2**70), 10**400, 0.0, -0.0, 1.0, 0.1 + 0.2, 1e308, 5e-324, True, False]
KEYS = ["role", "content", "id", "type", "__proto__", "_warm_payload", "_warm_log", "", "\0", "\ud800", "😀"]


def nested(levels):
    value = 1
    for level in range(levels):
        value = {"a": value} if level % 2 else [value, None]
    return {"deep": value}


texts = st.sampled_from(TEXTS) | st.text(max_size=6)
leaves = st.none() | texts | st.sampled_from(NUMBERS)
values = leaves | st.lists(leaves, max_size=3) | st.dictionaries(st.sampled_from(KEYS), leaves, max_size=3)
items = (
    st.fixed_dictionaries({"role": st.just("user"), "content": texts})
    | st.dictionaries(st.sampled_from(KEYS) | texts, values, max_size=3)
    | st.builds(lambda text, times: {"content": f"{text} " * times}, texts, st.integers(2, 60))
    | st.sampled_from([nested(97), {"content": "x" * 9000}, {"content": "😀" * 9000}])
)
some_items = st.lists(items, min_size=1, max_size=4) | st.just([])
metadata = st.dictionaries(st.sampled_from(["title", "user", "__proto__", "\0", "\ud800"]), values, max_size=3)
which = st.integers(0, 1)


def characters(item):
    """How long the JSON of an item is, as a user would count."""
    text = json.dumps(item, ensure_ascii=False, separators=(",", ":"))
    return len(text) + 5 * sum("\ud800" <= c <= "\udfff" for c in text)


class Sessions(RuleBasedStateMachine):
    """Two objects of one session, and what a reader of it must see."""

    config = loop = names = None  # set by the test

    @initialize(
        chunk_chars=st.sampled_from([16, 400, 8000]),
        page_size=st.sampled_from([1, 3, None]),
        searchable=st.booleans(),
    )
    def begin(self, chunk_chars, page_size, searchable):
        self.options = {"chunk_chars": chunk_chars, "page_size": page_size, "searchable": searchable}
        self.most = 100 * chunk_chars
        self.name = f"session {next(self.names)}"
        self.writers = [self.new(), self.new()]
        self.items, self.metadata, self.exists, self.created = [], {}, False, None
        self.clock_is_right = True

    def new(self):
        return WarmSession(self.name, self.config, **self.options)

    def run(self, call):
        return self.loop.run_until_complete(call)

    def fits(self, items):
        return all(characters(item) <= self.most for item in items)

    def writer(self, number):
        """A writer whose clock goes after others' has to read before it writes, to be sure of its place."""
        if not self.clock_is_right:
            self.run(self.writers[number].get_items(1))
        return self.writers[number]

    @invariant()
    def a_reader_sees_the_same(self):
        assert repr(self.run(WarmSession(self.name, self.config).get_items())) == repr(self.items)
        assert [writer.skipped for writer in self.writers] == [0, 0]

    @rule(what=st.tuples(which, some_items))  # one argument, since Hypothesis takes such rules most often
    def append(self, what):
        number, items = what
        if not self.fits(items):
            with pytest.raises(ValueError, match="max_parts"):
                self.run(self.writers[number].add_items(items))
            return
        self.run(self.writer(number).add_items(items))
        self.items += items
        self.exists = self.exists or bool(items)

    @rule(number=which, items=some_items, wrong=st.sampled_from([float("nan"), b"x", {1: 2}, nested(101), {"set"}]))
    def append_what_is_refused(self, number, items, wrong):
        with pytest.raises(ItemError):
            self.run(self.writers[number].add_items([*items, {"content": wrong}]))

    @rule(number=which, limit=st.integers(-1, 9) | st.none())
    def newest(self, number, limit):
        expected = self.items if limit is None else self.items[-limit:] if limit > 0 else []
        assert repr(self.run(self.writers[number].get_items(limit))) == repr(expected)

    @rule(number=which)
    def pop(self, number):
        expected = self.items.pop() if self.items else None
        assert repr(self.run(self.writers[number].pop_item())) == repr(expected)

    @rule(number=which, items=some_items)
    def replace(self, number, items):
        if not self.fits(items):
            with pytest.raises(ValueError, match="max_parts"):
                self.run(self.writers[number]._atomic_replace_items(items))
            return
        assert self.run(self.writers[number]._atomic_replace_items(items))
        self.items, self.exists = list(items), True  # of its own, since it is added to

    @precondition(lambda self: self.options["searchable"])
    @rule(
        number=which, query=st.sampled_from(["a", "hms:x", "é", "😀 x"]) | texts.filter(str.strip), k=st.integers(1, 6)
    )
    def search(self, number, query, k):
        hits = self.run(self.writers[number].search(query, k))
        embedding, found = Embedding(self.config), {}
        question = embedding.embed_query(query)
        for item in self.items:
            if words := item_words(item):
                [vector] = embedding.embed_documents([words])
                found.setdefault(repr(item), []).append(float(question @ vector))
        scores = sorted((score for same in found.values() for score in same), reverse=True)
        assert [hit.score for hit in hits] == pytest.approx(scores[:k], abs=1e-5)
        for hit in hits:
            assert hit.score == pytest.approx(found[repr(hit.item)].pop(), abs=1e-5)

    @rule(number=which, how=st.sampled_from(["new", "pickle", "copy", "deepcopy", "fork"]))
    def reopen(self, number, how):
        old = self.writers[number]
        if how == "fork":  # what the clock of an object sees then: the number of another process
            old._log._log.clock._process = os.getppid()
            return
        self.writers[number] = {
            "new": self.new,
            "pickle": lambda: pickle.loads(pickle.dumps(old)),
            "copy": lambda: copy.copy(old),
            "deepcopy": lambda: copy.deepcopy(old),
        }[how]()
        self.run(old.close())

    @rule(number=which, hours=st.sampled_from([-5, 1]))
    def change_the_clock(self, number, hours):
        self.clock_is_right = False
        paged.time.offset = hours * 3600 * 10**9

    @rule(number=which, metadata=metadata)
    def set_metadata(self, number, metadata):
        self.run(self.writers[number].set_metadata(metadata))
        self.metadata, self.exists = metadata, True

    @rule(number=which)
    def info(self, number):
        info = self.run(self.writers[number].info())
        listed = self.run(WarmSession.list(self.config))
        assert listed == ([info] if self.exists else [])
        if not self.exists:
            assert info is None
            return
        assert info.id == self.name
        assert repr(info.metadata) == repr(self.metadata)
        if self.clock_is_right:
            assert info.created == (self.created or info.created) <= info.updated
            self.created = info.created

    @rule(number=which, entirely=st.booleans())
    def remove(self, number, entirely):
        self.items = []
        if entirely:
            self.run(self.writers[number].delete())
            self.metadata, self.exists, self.created = {}, False, None
        else:
            self.run(self.writers[number].clear_session())

    def teardown(self):
        paged.time.offset = 0
        self.run(WarmSession(self.name, self.config).delete())


class Clock:
    """The clock on the wall, as far wrong as a test says."""

    offset = 0

    def time_ns(self):
        return time.time_ns() + self.offset


def test_sequences_of_calls_against_a_plain_list(config, monkeypatch):
    monkeypatch.setattr(paged, "time", Clock())
    loop = asyncio.new_event_loop()
    members = {"config": config, "loop": loop, "names": count()}
    machine = type("Sessions", (Sessions,), members)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=SEQUENCES,
            stateful_step_count=10,
            deadline=None,
            database=None,
            derandomize=bool(os.environ.get("CI")),
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    left = loop.run_until_complete(connect(config).read(single(Scan("", 1000))))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    assert left == [], "what was deleted has left something"

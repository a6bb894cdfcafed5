"""A store that tells of each command before it is executed, given in place of the one it wraps: `store=`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from warm_integrations.core import WarmError
from warm_integrations.core.stores.interface import Command, Store, Transaction, single


async def one_by_one(
    store: Store, transaction: Transaction[Any], before: Callable[[Command], Awaitable[None] | None]
) -> Any:
    """Run a transaction with each command by itself, as over HTTP. `before` gets each, and may be asynchronous."""
    try:
        command = next(transaction)
        while True:
            try:
                if inspect.isawaitable(told := before(command)):
                    await told
                answer = await store.write(single(command))
            except WarmError as error:
                command = transaction.throw(error)
            else:
                command = transaction.send(answer)
    except StopIteration as finished:
        return finished.value


class ObservedStore:
    """`before` gets each command, and may raise a `WarmError` in its place.

    On a store without transactions it may be asynchronous, so that something can happen between two commands.
    """

    def __init__(self, store: Store, before: Callable[[Command], Awaitable[None] | None]) -> None:
        self._store, self._before = store, before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, transaction: Transaction[Any], *, inline: bool = False) -> Any:
        return await self._run(transaction, self._store.read, inline)

    async def write(self, transaction: Transaction[Any], *, inline: bool = False) -> Any:
        return await self._run(transaction, self._store.write, inline)

    async def _run(self, transaction: Transaction[Any], execute: Callable[..., Awaitable[Any]], inline: bool) -> Any:
        if self._store.atomic:
            return await execute(self._observed(transaction), inline=inline)
        return await one_by_one(self._store, transaction, self._before)

    def _observed(self, transaction: Transaction[Any]) -> Transaction[Any]:
        try:
            command = next(transaction)
            while True:
                try:
                    self._before(command)
                    answer = yield command
                except WarmError as error:
                    command = transaction.throw(error)
                else:
                    command = transaction.send(answer)
        except StopIteration as finished:
            return finished.value

"""A store that tells of each command before it is executed, given in place of the one it wraps: `store=`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from warm_integrations.core import WarmError
from warm_integrations.core.stores.interface import Command, Store, Transaction, single


class ObservedStore:
    """`before` gets each command, and may raise a `WarmError` in its place.

    On a store without transactions it may be asynchronous, so that something can happen between two commands.
    """

    def __init__(self, store: Store, before: Callable[[Command], Awaitable[None] | None]) -> None:
        self._store, self._before = store, before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, transaction: Transaction[Any], *, inline: bool = False) -> Any:
        return await self._run(self._store.read, transaction, inline)

    async def write(self, transaction: Transaction[Any], *, inline: bool = False) -> Any:
        return await self._run(self._store.write, transaction, inline)

    async def _run(self, execute: Callable[..., Awaitable[Any]], transaction: Transaction[Any], inline: bool) -> Any:
        if self._store.atomic:
            return await execute(self._observed(transaction), inline=inline)
        try:
            command = next(transaction)
            while True:
                try:
                    if inspect.isawaitable(told := self._before(command)):
                        await told
                    answer = await execute(single(command))
                except WarmError as error:
                    command = transaction.throw(error)
                else:
                    command = transaction.send(answer)
        except StopIteration as finished:
            return finished.value

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

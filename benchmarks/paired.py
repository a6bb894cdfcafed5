"""Timing several ways to do one thing, in turns, so that a busy moment of the machine meets all of them."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Work = Callable[[], Awaitable[Any]]


async def paired(contenders: Mapping[str, Work], rounds: int, warm_up: int = 3) -> dict[str, list[float]]:
    """Milliseconds of each call: `rounds` rounds, in each of which every contender has one turn, in random order."""
    order, numbers = list(contenders), random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(-warm_up, rounds):
        numbers.shuffle(order)
        for name in order:
            gc.collect(0)
            start = time.perf_counter()
            await contenders[name]()
            took = time.perf_counter() - start
            if turn >= 0:
                times[name].append(took * 1000)
    return times


def summary(times: list[float]) -> dict[str, float]:
    """Median, and the quartiles around it."""
    low, middle, high = statistics.quantiles(times, n=4)
    return {"median": round(middle, 4), "low": round(low, 4), "high": round(high, 4)}

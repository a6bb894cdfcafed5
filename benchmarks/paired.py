"""Timing several ways to do one thing, in turns, so that a busy moment of the machine meets all of them."""

from __future__ import annotations

import argparse
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


async def compared(title: str, contenders: Mapping[str, Work], rounds: int) -> dict[str, Any]:
    """Time all, print it, and return it with the ratios of the first one's median to each other's."""
    figures = {name: summary(times) for name, times in (await paired(contenders, rounds)).items()}
    first, *others = figures
    ratios = {name: round(figures[first]["median"] / figures[name]["median"], 3) for name in others}
    print(title)
    for name, figure in figures.items():
        ratio = f"   ratio {ratios[name]:.2f}" if name in ratios else ""
        print(f"  {name:20} {figure['median']:8.3f} ms  ({figure['low']:.3f} to {figure['high']:.3f}){ratio}")
    return {"title": title, "times": figures, "ratios": ratios}


def command_line(doc: str | None) -> argparse.Namespace:
    """The options that all benchmarks take."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300, help="how often each is timed")
    return parser.parse_args()

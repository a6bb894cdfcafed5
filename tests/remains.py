"""What is left of a text in the files of a store, embedded or warm-server's."""

from __future__ import annotations

import random
from pathlib import Path

PIECE = 8


def new_marker() -> str:
    """A word that nothing else resembles: of letters that are no hexadecimal digits."""
    return "".join(random.choices("ghijklmnopqrstuvwxyz", k=40))


def files_holding(directory: Path, marker: str) -> list[str]:
    """The files in which any piece of a marker lies, in any case.

    In pieces, since warm-server compresses: where a few letters stood before, it writes a reference to them.
    """
    delete_batches = [marker[at : at + PIECE].encode() for at in range(len(marker) - PIECE + 1)]
    found = []
    for path in directory.rglob("*"):
        if path.is_file():
            content = path.read_bytes().lower()
            if any(piece in content for piece in delete_batches):
                found.append(str(path))
    return found

"""Write README.md from nbs/index.ipynb: what a reader of the notebook sees, outputs included.

python docs/nb2md.py            write it
python docs/nb2md.py --check    only compare, and exit 1 when it differs

nbdev's own command for this needs Quarto; this uses the same processors and needs nothing more.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

from fastcore.nbio import NbCell, concat_streams, join_out, preferred_msg_out
from nbdev.process import NBProcessor
from nbdev.processors import (
    clean_magics,
    filter_stream_,
    hide_,
    hide_line,
    rm_export,
    rm_header_dash,
    strip_ansi,
)

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "nbs" / "index.ipynb"
README = ROOT / "README.md"
NOTICE = f"<!-- Made by `make readme` from {NOTEBOOK.relative_to(ROOT)}: edit the notebook. -->"
PROCESSORS = [
    strip_ansi,
    hide_line,
    filter_stream_,
    rm_header_dash,
    rm_export,
    hide_,
    clean_magics,
]


def fenced(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any that the text holds."""
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def relinked(markdown: str, source: Path, target: Path) -> str:
    """The text of `source` with its relative links made right for the folder of `target`."""

    def fix(match: re.Match[str]) -> str:
        link = match[1]
        if re.match(r"[a-z]+:|#|/", link):
            return match[0]
        path = os.path.normpath(source.parent / link)
        return f"]({os.path.relpath(path, target.parent)})"

    return re.sub(r"\]\(([^)\s]+)\)", fix, markdown)


def rendered(output: dict[str, object]) -> str:
    """One output of a cell: Markdown as it is, anything else as its text."""
    kind, text = preferred_msg_out(output, html1st=False)
    text = join_out(text)
    return text if kind in ("text/markdown", "text/html") else fenced(text)


def cell_blocks(cell: NbCell) -> list[str]:
    """A code cell's source and outputs, as far as its directives show them."""
    hidden = {name for name, value in cell.directives_.items() if value == "false"}
    if "include" in hidden:
        return []
    blocks = [] if "echo" in hidden or not cell.source else [fenced(cell.source, "python")]
    if "output" not in hidden:
        blocks += [rendered(output) for output in concat_streams(cell.outputs)]
    return blocks


def to_markdown(notebook: Path, target: Path) -> str:
    """The notebook as Markdown for the file `target`."""
    processor = NBProcessor(notebook, procs=PROCESSORS, process=True)
    blocks = []
    for cell in processor.nb.cells:
        if cell.cell_type == "markdown":
            blocks.append(relinked(cell.source, notebook, target))
        elif cell.cell_type == "code":
            blocks += cell_blocks(cell)
    return "\n\n".join(block.strip("\n") for block in blocks if block.strip()) + "\n"


def main() -> str | None:
    """Write or compare, and return what is wrong."""
    parser = argparse.ArgumentParser(description="Write README.md from nbs/index.ipynb.")
    parser.add_argument("--check", action="store_true", help="only compare")
    check = parser.parse_args().check

    text = f"{NOTICE}\n\n{to_markdown(NOTEBOOK, README)}"
    if not check:
        README.write_text(text, encoding="utf-8")
    elif not README.exists() or README.read_text(encoding="utf-8") != text:
        return "README.md is not what nbs/index.ipynb gives: run `make readme`"
    return None


if __name__ == "__main__":
    sys.exit(main())

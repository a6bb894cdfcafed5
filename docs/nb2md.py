"""Write README.md from nbs/index.ipynb, and the pages of the documentation from all notebooks and guides.

python docs/nb2md.py               write README.md
python docs/nb2md.py --check       only compare, and exit 1 when it differs
python docs/nb2md.py --site DIR    write the pages for Sphinx into DIR

A page shows what a reader of the notebook sees, outputs included. nbdev's own commands for this need Quarto;
this uses the same processors and needs nothing more.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from fastcore.nbio import NbCell, concat_streams, join_out, preferred_msg_out
from nbdev.process import NBProcessor
from nbdev.processors import (
    clean_magics,
    filter_stream_,
    hide_,
    hide_line,
    rm_header_dash,
    strip_ansi,
)

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "nbs" / "index.ipynb"
README = ROOT / "README.md"
NOTICE = f"<!-- Made by `make readme` from {NOTEBOOK.relative_to(ROOT)}: edit the notebook. -->"
REPOSITORY = "https://github.com/writerslogic/warm-integrations"
LONG = 80  # lines of a module's code that a page shows folded
PROCESSORS = [strip_ansi, hide_line, filter_stream_, rm_header_dash, hide_, clean_magics]


def fenced(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any that the text holds."""
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def relinked(markdown: str, target: Callable[[str], str]) -> str:
    """The text with each relative link, as far as its `#`, put through `target`; code stays as it is."""

    def fix(match: re.Match[str]) -> str:
        link, sharp, fragment = (match["link"] or "").partition("#")
        return match[0] if not link or re.match(r"[a-z]+:|/", link) else f"]({target(link)}{sharp}{fragment})"

    pattern = r"^(?P<fence>`{3,}).*?^(?P=fence)$|`[^`\n]+`|\]\((?P<link>[^)\s]+)\)"
    return re.sub(pattern, fix, markdown, flags=re.MULTILINE | re.DOTALL)


def rendered(output: NbCell, alt: str, figures: Path) -> str:
    """One output of a cell: a picture, which becomes a file, Markdown as it is, anything else as its text."""
    if svg := output.get("data", {}).get("image/svg+xml"):
        svg = "".join(svg)
        path = figures / f"{hashlib.sha256(svg.encode()).hexdigest()[:16]}.svg"
        path.write_text(svg, encoding="utf-8")
        return f"![{alt}]({path.name})"
    kind, text = preferred_msg_out(output, html1st=False)
    text = join_out(text)
    return text if kind in ("text/markdown", "text/html") else fenced(text)


def folded(summary: str, blocks: list[str]) -> list[str]:
    """Blocks that a reader opens with a click on the summary."""
    return [f"<details><summary>{summary}</summary>", *blocks, "</details>"]


def cell_blocks(cell: NbCell, figures: Path) -> list[str]:
    """A code cell's source and outputs, as far as its directives show them."""
    hidden = {name for name, value in cell.directives_.items() if value == "false"}
    if "include" in hidden:
        return []
    source = re.sub(r"^#\|.*\n?", "", cell.source, flags=re.MULTILINE)
    blocks = [] if "echo" in hidden or not source.strip() else [fenced(source, "python")]
    if source.startswith("from __future__"):  # a module's imports, before anything was said
        blocks = folded("Imports", blocks)
    elif "export" in cell.directives_ and source.count("\n") >= LONG:  # the examples below it say what it does
        names = re.findall(r"^(?:class|(?:async )?def) ([a-zA-Z]\w*)", source, re.MULTILINE)
        blocks = folded(f"The code of <code>{'</code>, <code>'.join(names)}</code>", blocks)
    if "output" not in hidden:
        alt = cell.directives_.get("fig-alt", "")
        blocks += [rendered(output, alt, figures) for output in concat_streams(cell.outputs)]
    return blocks


def to_markdown(notebook: Path, target: Callable[[str], str], figures: Path) -> str:
    """The notebook as Markdown for a page in the folder `figures`."""
    processor = NBProcessor(notebook, procs=PROCESSORS, process=True)
    blocks = []
    for cell in processor.nb.cells:
        if cell.cell_type == "markdown":
            blocks.append(relinked(cell.source, target))
        elif cell.cell_type == "code":
            blocks += cell_blocks(cell, figures)
    return "\n\n".join(block.strip("\n") for block in blocks if block.strip()) + "\n"


def readme() -> str:
    """The text of README.md."""
    return f"{NOTICE}\n\n{to_markdown(NOTEBOOK, lambda link: os.path.relpath(NOTEBOOK.parent / link, ROOT), ROOT)}"


def site_pages() -> dict[Path, str]:
    """Where each notebook and each guide lies in the documentation."""
    pages = {ROOT / name: name.lower() for name in ("CONTRIBUTING.md", "CHANGELOG.md")}
    pages |= {path: path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("*/*.md")}
    pages |= {ROOT / "docs" / name: f"guides/{name.lower()}" for name in ("CHAT.md", "SERVER.md")}
    for path in (ROOT / "nbs").rglob("[!.]*.ipynb"):
        name = path.relative_to(ROOT / "nbs").with_suffix(".md").as_posix()
        pages[path] = name if path == NOTEBOOK or name.startswith("tutorials/") else f"modules/{name}"
    return pages


def write_site(site: Path) -> None:
    """Write the pages, with links among them where there are pages, and else to the repository."""
    shutil.rmtree(site, ignore_errors=True)
    pages = site_pages()
    for source, name in pages.items():
        page = site / name
        page.parent.mkdir(parents=True, exist_ok=True)

        def target(link: str, source: Path = source, page: Path = page) -> str:
            path = Path(os.path.normpath(source.parent / link))
            if path in pages:
                return os.path.relpath(site / pages[path], page.parent)
            if path.suffix in (".png", ".svg"):
                shutil.copy(path, site)
                return os.path.relpath(site / path.name, page.parent)
            return f"{REPOSITORY}/{'tree' if path.is_dir() else 'blob'}/main/{path.relative_to(ROOT).as_posix()}"

        if source.suffix == ".ipynb":
            text = to_markdown(source, target, page.parent)
        else:
            text = relinked(source.read_text(encoding="utf-8"), target)
        if source == NOTEBOOK:
            text += "\n" + (ROOT / "docs" / "contents.md").read_text(encoding="utf-8")
        page.write_text(text, encoding="utf-8")


def main() -> str | None:
    """Write or compare, and return what is wrong."""
    parser = argparse.ArgumentParser(description="Write README.md, or the pages of the documentation.")
    parser.add_argument("--check", action="store_true", help="only compare README.md")
    parser.add_argument("--site", type=Path, metavar="DIR", help="write the pages for Sphinx into DIR")
    options = parser.parse_args()

    if options.site:
        write_site(options.site)
    elif not options.check:
        README.write_text(readme(), encoding="utf-8")
    elif not README.exists() or README.read_text(encoding="utf-8") != readme():
        return "README.md is not what nbs/index.ipynb gives: run `make readme`"
    return None


if __name__ == "__main__":
    sys.exit(main())

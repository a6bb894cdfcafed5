"""The documentation: its pages build without a warning, their links lead somewhere, and their code runs."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from local_server import LocalServer
from warm_integrations.core.errors import NEXT_STEP

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Links(HTMLParser):
    """Where a page leads, and which places in it can be led to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = {""}
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.append(value)
            if name == "id" and value:
                self.places.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    for command in (
        [sys.executable, "docs/nb2md.py", "--site", folder / "pages"],
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", "docs", folder / "pages", folder / "html"],
    ):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return folder / "html"


def test_every_internal_link_leads_somewhere(site):
    pages = {path: Links(path) for path in site.rglob("*.html")}
    wrong, seen = [], 0
    for page, found in pages.items():
        for link in found.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            seen += 1
            path = Path(os.path.normpath(page.parent / unquote(parts.path))) if parts.path else page
            there = path.is_file() and (path not in pages or unquote(parts.fragment) in pages[path].places)
            if not there:
                wrong.append(f"{page.relative_to(site)}: {link}")
    assert not wrong
    assert seen > 1000


def test_links_to_the_repository_name_files_that_are_there(site):
    links = {link for page in site.rglob("*.html") for link in Links(page).links}
    named = [re.sub(r".*?/(blob|tree)/main/", "", link) for link in links if "/warm-integrations/" in link]
    assert named
    assert [name for name in named if not (ROOT / name.partition("#")[0]).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_of_the_source_lead_somewhere(page):
    text = BLOCK.sub("", (ROOT / page).read_text())
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:|#", link)]
    assert [link for link in links if not ((ROOT / page).parent / link.partition("#")[0]).exists()] == []


@pytest.mark.parametrize("module", ["core", "openai_agents"])
def test_api_reference_names_all_that_is_public(site, module):
    package = importlib.import_module(f"warm_integrations.{module}")
    text = "".join(path.read_text() for path in (site / "api").glob("*.html"))
    assert [name for name in package.__all__ if not re.search(rf'id="[\w.]+\.{name}"', text)] == []


def test_the_page_of_layers_has_every_module():
    page = (ROOT / "docs/guides/layers.md").read_text()
    modules = {
        path.relative_to(ROOT).as_posix()
        for area in ("core", "openai_agents")
        for path in (ROOT / "nbs" / area).rglob("*.ipynb")
    }
    assert {name for name in modules if ".ipynb_checkpoints" not in name and f"(../../{name})" not in page} == set()


def test_troubleshooting_has_every_code_and_its_next_step():
    text = (ROOT / "docs" / "guides" / "troubleshooting.md").read_text()
    sections = dict(re.findall(r"^### (\w+)\n\n> (.+)$", text, re.MULTILINE))
    assert sections == NEXT_STEP


# What a reader does on a machine of her own, rather than in a test.
NOT_RUN = re.compile(
    r"^\s*(make|cargo|git|pip|\.venv/bin/\S+|bash \.ci|python examples/|kill"
    r"|(export \w+=.*\n)?warm-server( healthcheck| --|$)|curl .*(cacert|KEY))",
    re.MULTILINE,
)


def blocks(page: str, *languages: str) -> list[tuple[str, str]]:
    return [(kind, code) for kind, code in BLOCK.findall((ROOT / page).read_text()) if kind in languages]


RUN = """
import subprocess, sys
from pathlib import Path

namespace = {"__name__": "__main__"}
for line in sys.stdin.read().split("\\0")[:-1]:
    kind, _, code = line.partition("\\n")
    print(">>>", code, flush=True)
    if kind == "python":
        exec(compile(code, "<block>", "exec"), namespace)
    else:  # what one block defines, the next ones may use
        shell = f"set -a; [ ! -f .state ] || . ./.state\\n{code}\\n(declare -f; export -p) > .state"
        subprocess.run(["bash", "-euo", "pipefail", "-c", shell], check=True)
"""


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python", "sh")])
def test_code_of_a_page_runs_in_its_order(page, tmp_path, request):
    todo = [(kind, code) for kind, code in blocks(page, "python", "sh") if kind == "python" or not NOT_RUN.search(code)]
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "ADMIN_KEY": "none"}
    if page == "docs/SERVER.md":
        binary = Path(request.getfixturevalue("warm_server_binary"))
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "warm-server").symlink_to(binary)
        env["PATH"] = f"{tmp_path / 'bin'}:{env['PATH']}"
        todo.insert(0, ("python", "from warm_integrations.core import WarmConfig"))
        with LocalServer(tmp_path / "data") as server:
            run_blocks(todo, tmp_path, env, server.url)
    else:
        run_blocks(todo, tmp_path, env)


def run_blocks(todo: list[tuple[str, str]], folder: Path, env: dict[str, str], url: str = "") -> None:
    steps = "".join(f"{kind}\n{code}\0" for kind, code in todo)
    if url:
        steps = steps.replace("http://127.0.0.1:8080", url)
    done = subprocess.run([sys.executable, "-c", RUN], input=steps, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def commands() -> list[tuple[str, list[str]]]:
    """Every command of every page, in words."""
    found = []
    for page in PAGES:
        for _, code in blocks(page, "sh"):
            for line in code.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                found += [(page, words)] if words else []
    return found


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = "".join((ROOT / page).read_text() for page in PAGES)
    named = {words[1] for _, words in commands() if words[0] == "make"} | set(re.findall(r"`make ([a-z-]+)", text))
    assert "docs" in named
    assert named - targets == set()


def test_extras_exist():
    extras = importlib.metadata.metadata("writerslogic-warm-integrations").get_all("Provides-Extra")
    named = {name for page in PAGES for name in re.findall(r"integrations\[([\w,-]+)\]", (ROOT / page).read_text())}
    assert named <= set(extras or ())


def test_scripts_exist():
    scripts = {word for _, words in commands() for word in words if re.match(r"(examples|benchmarks|docs|\.ci)/", word)}
    assert scripts
    assert [script for script in scripts if not (ROOT / script).exists()] == []


def test_flags_of_warm_server_exist(warm_server_binary):
    used = defaultdict(set)
    for _, words in commands():
        if words[0] == "warm-server" or (words[0] == "python" and "warm-server" in words):
            after = words[words.index("warm-server") + 1 :]
            command = after[0] if after and not after[0].startswith("-") else ""
            used[command] |= {word for word in after if word.startswith("--")}
    for page in PAGES:
        used[""] |= set(re.findall(r"`(--[a-z-]+)", "".join((ROOT / page).read_text()))) & set(
            re.findall(r"^\| `(--[a-z-]+)", (ROOT / page).read_text(), re.MULTILINE)
        )
    assert used[""]
    for command, flags in used.items():
        usage = subprocess.run([warm_server_binary, *command.split(), "--help"], capture_output=True, text=True).stdout
        assert flags - set(re.findall(r"--[a-z-]+", usage)) == set(), command


def test_addresses_of_warm_server_exist(warm_server_binary):
    answer = subprocess.run([warm_server_binary, "openapi"], capture_output=True, text=True, check=True)
    known = {re.sub(r"\{\w+\}", "ID", path) for path in json.loads(answer.stdout)["paths"]}
    text = "".join((ROOT / page).read_text() for page in PAGES)
    named = {path.replace("$ID", "ID") for path in re.findall(r"(?:8080|\$WARM_URL)(/[\w/$]+)", text)}
    assert len(named) > 5
    assert named - known == set()

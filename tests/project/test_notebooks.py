"""Each notebook is a test: its cells hold assertions beside the explanations."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import statistics
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "nbs").rglob("*.ipynb")
    if not path.parent.name.startswith(".")  # .ipynb_checkpoints
)


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_runs(notebook, request):
    if "local_server" in (ROOT / notebook).read_text():
        request.getfixturevalue("warm_server_binary")
    # In a process of its own, as nbdev does it, so that no notebook leaves anything behind here.
    command = [Path(sys.executable).with_name("nbdev-test"), notebook]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Success." in done.stdout, "nbdev-test found nothing to run"


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_no_merge_markers(notebook):
    # nbdev-merge puts conflicts into Markdown cells, so the file stays a valid notebook.
    assert not re.search(r'^\s*"?(<{7}|>{7}) ', (ROOT / notebook).read_text(), re.MULTILINE)


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_begins_with_a_title_and_a_subtitle(notebook):
    first = json.loads((ROOT / notebook).read_text())["cells"][0]
    assert re.fullmatch(r"# .+\n\n> .+", "".join(first["source"]).strip())


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_figures_say_what_one_sees(notebook):
    cells = json.loads((ROOT / notebook).read_text())["cells"]
    shown = [(cell, kind) for cell in cells for output in cell.get("outputs", []) for kind in output.get("data", {})]
    drawn = ["".join(cell["source"]) for cell, kind in shown if kind.startswith("image/")]
    assert [source for source in drawn if not re.search(r"^#\| fig-alt: \w.+", source, re.MULTILINE)] == []


def code_of(notebook):
    cells = json.loads((ROOT / notebook).read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def module_of(notebook):
    names = re.findall(r"^#\| default_exp (\S+)$", "\n".join(code_of(notebook)), re.MULTILINE)
    return importlib.import_module(f"warm_integrations.{names[0]}") if names else None


def public(module):
    """The functions and classes of a module, and the methods and properties of these, each with a dot before it.

    Constants and type aliases explain themselves where they stand.
    """
    for name in module.__all__:
        value = inspect.unwrap(getattr(module, name))
        if getattr(value, "__module__", None) == module.__name__ and (
            inspect.isclass(value) or inspect.isroutine(value)
        ):
            yield name
            for member, kind in vars(value).items() if inspect.isclass(value) else ():
                if not member.startswith("_") and (inspect.isroutine(kind) or isinstance(kind, property)):
                    yield f".{member}"


@pytest.mark.parametrize("notebook", [name for name in NOTEBOOKS if module_of(name)])
def test_every_public_name_has_an_example_that_asserts(notebook):
    used = set()
    for source in code_of(notebook):
        no_example = re.search(r"^#\| (export|hide|eval: false)", source, re.MULTILINE)
        if not no_example and re.search(r"\bassert\b|\bAssertionError\b|\btest_fail\(", source):
            nodes = list(ast.walk(ast.parse(source)))
            used |= {node.id for node in nodes if isinstance(node, ast.Name)}
            used |= {f".{node.attr}" for node in nodes if isinstance(node, ast.Attribute)}
    names = list(public(module_of(notebook)))
    assert names
    assert [name for name in names if name not in used] == []


# From the lowest to the highest; a module belongs to the longest name that it begins with.
LAYERS = [
    {f"core.{name}" for name in ("errors", "json_text", "digests", "filters", "cancellation", "gc_pause", "words")}
    | {f"core.{name}" for name in ("embedder", "models", "config", "masking", "embedding")}
    | {"core.stores.interface", "core.limits"},  # what callers of a store and stores agree on
    {"core.stores"},
    {"core.connection"},
    {"core"},
    {"openai_agents"},
]


def layer(module):
    names = [module.rsplit(".", cut)[0] for cut in range(module.count(".") + 1)]
    return next(number for name in names for number, layer in enumerate(LAYERS) if name in layer)


def imports_of(module, source, is_package=False):
    """The modules of the package that a module imports, also inside functions and for type checkers, with the names."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *filter(None, [node.module])])
            if node.level:
                origin = f"warm_integrations.{origin}".rstrip(".")
            found = [(origin, alias.name) for alias in node.names]
        else:
            continue
        for origin, name in found:
            if origin.split(".")[0] == "warm_integrations":
                inner = origin.removeprefix("warm_integrations").removeprefix(".")
                yield (f"{inner}.{name}".strip("."), None) if f"{inner}.{name}".strip(".") in SOURCES else (inner, name)


SOURCES = {
    ".".join(path.relative_to(ROOT / "warm_integrations").with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "warm_integrations").rglob("*.py"))
    if path.parent.name != "warm_integrations"  # but what the modules are made of
}
IMPORTS = {
    module: set(imports_of(module, path.read_text(), path.name == "__init__.py")) for module, path in SOURCES.items()
}


def test_imports_are_recognised():
    source = """
from . import limits
from ..core.stores.interface import Scan as S, _hidden
import warm_integrations.core.words, json
if TYPE_CHECKING:
    def late():
        from warm_integrations.core import config
"""
    found = set(imports_of("core.paged", source))
    assert {module for module, _ in found} == {
        "core.limits",
        "core.stores.interface",
        "core.words",
        "core.config",
    }
    assert ("core.stores.interface", "_hidden") in found
    assert set(imports_of("core", "from .limits import MAX_K", is_package=True)) == {("core.limits", "MAX_K")}
    assert [layer(name) for name in ("core.words", "core.stores.http.wire", "core.log.ids", "core.paged")] == [
        0,
        1,
        3,
        3,
    ]


def test_no_modules_import_each_other():
    graph = {module: {other for other, _ in found if other in SOURCES} for module, found in IMPORTS.items()}
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))
    assert len(order) == len(SOURCES) > 40


def test_private_names_stay_in_their_module():
    found = [(module, other, name) for module, names in IMPORTS.items() for other, name in names]
    assert [one for one in found if one[2] and re.match("_(?!_)", one[2])] == []


def test_layers_import_only_downwards():
    # A package is imported with each of its modules, so what a package re-exports is of its own layer.
    assert [
        f"{module} imports {other}"
        for module, found in IMPORTS.items()
        for other, _ in sorted(found, key=str)
        if other in SOURCES and layer(other) > layer(module)
    ] == []


# Their methods only say what they take, and hand it on.
LONG_CLASSES = {
    ("core.backend", "AsyncWarmBackend"),
    ("core.blocking", "WarmBackend"),
    ("core.config", "WarmConfig"),
    ("core.memory", "UserMemory"),
    ("core.paged", "AsyncPagedLog"),
    ("openai_agents.session", "WarmSession"),
}


def exported_cells():
    """The module, the classes and the number of lines of each exported cell that does not only import."""
    for notebook in NOTEBOOKS:
        sources = code_of(notebook)
        modules = re.findall(r"^#\| default_exp (\S+)$", "\n".join(sources), re.MULTILINE)
        for source in sources:
            if modules and re.match(r"#\| ?export", source):
                code = re.sub(r"^#\|.*\n", "", source, flags=re.MULTILINE).strip()
                body = ast.parse(code).body
                if not all(isinstance(node, (ast.Import, ast.ImportFrom)) or guards_imports(node) for node in body):
                    classes = [node.name for node in body if isinstance(node, ast.ClassDef)]
                    yield modules[0], classes, len(code.splitlines())


def guards_imports(node):
    return isinstance(node, ast.If) and all(isinstance(inner, (ast.Import, ast.ImportFrom)) for inner in node.body)


def test_cells_are_read_in_one_look():
    lines = [count for _, _, count in exported_cells()]
    assert len(lines) > 150
    assert statistics.median(lines) <= 10
    assert statistics.quantiles(lines, n=10)[-1] <= 30


def statements(function):
    """How many statements a function has, nested ones too, without its docstring."""
    return sum(isinstance(node, ast.stmt) for node in ast.walk(function)) - 1 - bool(ast.get_docstring(function))


def test_only_classes_that_hand_on_are_long():
    long = {(module, *classes) for module, classes, count in exported_cells() if count > 60}
    assert sorted(long - LONG_CLASSES) == []
    for module, name in sorted(long & LONG_CLASSES):
        nodes = ast.parse(SOURCES[module].read_text()).body
        [found] = [node for node in nodes if isinstance(node, ast.ClassDef) and node.name == name]
        methods = [node for node in found.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        too_long = {f"{name}.{method.name}": statements(method) for method in methods if statements(method) > 8}
        assert too_long == {}

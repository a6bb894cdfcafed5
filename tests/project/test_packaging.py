"""What users install: the wheel, the source tree, the extras, and both import names."""

from __future__ import annotations

import configparser
import importlib
import pkgutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from nbdev.config import get_config

import warm_integrations
from running import run

ROOT = Path(__file__).parents[2]
PACKAGES = ("warm_integrations", "writerslogic_warm_integrations")
MODULES = [
    module.name
    for module in pkgutil.walk_packages(warm_integrations.__path__, "warm_integrations.")
    if module.name != "warm_integrations._modidx"  # nbdev's index
]

# The Session section of the guide, with a file in place of the server and a script in place of
# the model, as there is no network in a test.
SESSION = """
import asyncio
from agents import Agent, Runner
from agents.testing import ScriptedModel, assistant_message
from writerslogic_warm_integrations.core import WarmConfig
from writerslogic_warm_integrations.core.paged import AsyncPagedLog
from writerslogic_warm_integrations.openai_agents import WarmSession

async def main():
    model = ScriptedModel([[assistant_message("hi")], [assistant_message("again")]])
    for prompt in "hello", "still there?":
        config = WarmConfig(url="sqlite:///session.db", tenant_id="acme")
        session = WarmSession("conversation-42", config)
        result = await Runner.run(Agent(name="a", model=model), prompt, session=session)
    assert result.final_output == "again"
    texts = [item.get("content") for item in await session.get_items()]
    assert len(texts) == 4 and texts[0] == "hello", texts

asyncio.run(main())
"""

# Without the extra: the core works, and the rest says what is missing.
CORE_ONLY = """
import importlib.util
import warm_integrations.core, writerslogic_warm_integrations.core.paged
assert importlib.util.find_spec("agents") is None
for name in "warm_integrations", "writerslogic_warm_integrations":
    try:
        importlib.import_module(name + ".openai_agents")
    except ImportError as error:
        assert "writerslogic-warm-integrations[openai-agents]" in str(error), error
    else:
        raise AssertionError(name)
"""


def test_settings_ini_mirrors_pyproject():
    mirror = configparser.ConfigParser()
    mirror.read(ROOT / "settings.ini")
    config = get_config(ROOT)
    expected = {key: getattr(config, key) for key in ("lib_name", "version", "min_python", "user")}
    assert dict(mirror["DEFAULT"]) == expected | {"lib_path": config.lib_path.name}


def test_wheel_holds_every_module(wheel, tree):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for package in PACKAGES:
        files = {path.relative_to(tree).as_posix() for path in (tree / package).rglob("*.py")}
        assert f"{package}/core/__init__.py" in files
        assert files | {f"{package}/py.typed"} <= names
    assert "warm_integrations/core/bert-base-uncased-vocab.txt" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)


@pytest.mark.parametrize(("extra", "program"), [("", CORE_ONLY), ("[openai-agents]", SESSION)], ids=["core", "agents"])
@pytest.mark.parametrize("source", ["wheel", "tree"])
def test_installs_into_an_empty_environment(source, extra, program, request, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    path = request.getfixturevalue(source)
    run(python, "-m", "pip", "install", "--quiet", f"{path}{extra}", cwd=tmp_path)
    run(python, "-W", "error", "-c", program, cwd=tmp_path)


@pytest.mark.parametrize("module", MODULES)
def test_alias_hands_on_the_same_objects(module):
    original = importlib.import_module(module)
    alias = importlib.import_module(f"writerslogic_{module}")
    for name in getattr(original, "__all__", ()):  # a folder has none
        assert getattr(alias, name) is getattr(original, name)


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize(("module", "command"), [("core", "reembed"), ("openai_agents", "copy")])
def test_commands_run_under_both_names(package, module, command):
    done = subprocess.run([sys.executable, "-m", f"{package}.{module}", "--help"], capture_output=True, text=True)
    assert (done.returncode, command in done.stdout) == (0, True), done.stderr

"""The OpenAI Agents SDK's own session tests, run on WarmSession."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "warm-integrations"
AT_LEAST = 742  # what a plain JSON session was seen to pass; with fewer, WarmSession did not take their place


def ids(name: str) -> list[str]:
    return [line for line in (HERE / name).read_text().splitlines() if line and not line.startswith("#")]


def source_distribution(version: str) -> Path:
    """The SDK's source distribution, which has its tests; downloaded once per machine."""
    sdist = CACHE / f"openai_agents-{version}.tar.gz"
    if not sdist.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            command += ["--no-binary=openai-agents", f"--dest={folder}", f"openai-agents=={version}"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                missing = f"cannot download the source of openai-agents {version}, which has the SDK's tests"
                if os.environ.get("CI"):
                    pytest.fail(f"{missing}\n{done.stderr}", pytrace=False)
                pytest.skip(missing)
            (Path(folder) / sdist.name).replace(sdist)
    return sdist


def run_suite(tree: Path, scratch: Path) -> int:
    """Run the suite in the SDK's source tree; how many cases passed in which a WarmSession was made."""
    report = scratch / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-n2", "--timeout=100", f"--basetemp={scratch / 'tmp'}"]
    command += ["-p", "sdk_plugin", "-p", "no:cacheprovider", f"--junitxml={report}"]
    command += [*ids("selected.txt"), *(f"--deselect={id}" for id in ids("excluded.txt"))]
    # Without the settings of this run and of its caller; they switch off tracing too, which the suite needs.
    env = {name: os.environ[name] for name in os.environ if not name.startswith(("OPENAI_", "PYTEST_", "WARM_"))}
    env["OPENAI_API_KEY"] = "test"
    # From the tree come its tests, and the same release's code, as some tests look for the place of a source file.
    env["PYTHONPATH"] = os.pathsep.join(map(str, (HERE, tree, tree / "src")))
    done = subprocess.run(
        command, cwd=tree, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=480
    )
    if done.returncode:
        pytest.fail(done.stdout, pytrace=False)
    cases = ET.parse(report).iter("testcase")
    made = "properties/property[@name='sessions']"
    return sum(case.find(made) is not None and case.find("skipped") is None for case in cases)


def test_the_sdks_session_tests_pass_on_warm_session(tmp_path, record_property):
    version = importlib.metadata.version("openai-agents")
    sdist = source_distribution(version)
    with tempfile.TemporaryDirectory() as folder:  # of 30 MB, which pytest would keep
        shutil.unpack_archive(sdist, folder, filter="data")
        passed = run_suite(Path(folder) / f"openai_agents-{version}", tmp_path)
    record_property("summary", f"openai-agents {version} session tests on WarmSession: {passed} passed")
    assert passed >= AT_LEAST

"""What every test shares: the two stores, a clean environment, and a count of tests per store."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local_server import LocalServer, find_warm_server  # examples/local_server.py

if TYPE_CHECKING:
    from warm_integrations.core import WarmConfig

STORES = ("embedded", "warm-server")
IN_CI = bool(os.environ.get("CI"))


def pytest_configure(config: pytest.Config) -> None:
    """Keep the caller's settings and keys out of the tests, before any module is imported."""
    for name in list(os.environ):
        # WARM_SERVER stays: it names the binary to test against, and is no setting of a client.
        if name.startswith(("WARM_", "OPENAI_")) and name != "WARM_SERVER":
            del os.environ[name]
    os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"  # traces go to the network


@pytest.fixture(scope="session")
def warm_server_binary() -> str:
    """Path of the warm-server binary, for tests that start servers of their own."""
    try:
        return find_warm_server()
    except FileNotFoundError as error:
        missing = str(error)
    if IN_CI:  # a skip would hide that half of the suite did not run
        pytest.fail(missing, pytrace=False)
    pytest.skip(missing)


@pytest.fixture(scope="session")
def warm_server(warm_server_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """A running warm-server that all tests of a process share: never stop it in a test."""
    # Each test has a tenant of its own, far more than the 64 open ones that the default allows.
    many_tenants = ("--max-tenants", "10000", "--tenant-idle-seconds", "10")
    with LocalServer(tmp_path_factory.mktemp("warm-server"), *many_tenants) as server:
        yield server


@pytest.fixture(params=STORES)
def store_kind(request: pytest.FixtureRequest) -> str:
    """Each of the two stores in turn."""
    kind: str = request.param
    request.node.user_properties.append(("store", kind))  # counted below
    return kind


@pytest.fixture
def config(store_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> WarmConfig:
    """A configuration for each of the two stores, on data that no other test sees."""
    from warm_integrations.core import WarmConfig

    if store_kind == "embedded":
        url = f"sqlite:///{tmp_path / 'warm.db'}"
    else:
        url = request.getfixturevalue("warm_server").url
    return WarmConfig(url=url, tenant_id=f"test-{uuid.uuid4().hex}")


_READ_ONLY = """
mount --bind "$1" /mnt && cd / && shift
for folder in /tmp /var/tmp /usr/tmp; do
  test ! -d $folder || { mount --bind $folder $folder && mount -o remount,ro,bind $folder; } || exit
done
cd /proc && exec "$@"
"""


@pytest.fixture
def without_temporary_folder(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Python where `/mnt`, which is `tmp_path`, can be written to, and no folder for temporary files."""
    env = {name: value for name, value in os.environ.items() if name not in ("TMPDIR", "TEMP", "TMP", "SQLITE_TMPDIR")}
    enter = ["unshare", "-m" if os.geteuid() == 0 else "-rm", "sh", "-c", _READ_ONLY, "sh", str(tmp_path)]

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [*enter, sys.executable, "-W", "error", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=env | variables)

    if shutil.which("unshare") and run("-c", "").returncode == 0:
        return run
    if IN_CI:
        pytest.fail("unshare and mount have to work", pytrace=False)
    pytest.skip("folders can be made read-only for one process by root alone (unshare -m)")


def _passed_per_store(config: pytest.Config) -> Counter[object]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    passed = reporter.stats.get("passed", []) if reporter else []
    return Counter(dict(report.user_properties).get("store") for report in passed)


def _skipped_warm_server(config: pytest.Config) -> bool:
    """In CI, a run that never reached warm-server is no pass."""
    passed = _passed_per_store(config)
    whole_suite = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return IN_CI and not passed["warm-server"] and bool(passed["embedded"] or whole_suite)


def pytest_sessionfinish(session: pytest.Session) -> None:
    is_worker = hasattr(session.config, "workerinput")  # which sees only a part of the run
    if not is_worker and _skipped_warm_server(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was skipped, each reason once, and how much ran on which store."""
    skipped = Counter(report.longrepr[2] for report in terminalreporter.stats.get("skipped", []))
    for reason, count in skipped.items():
        terminalreporter.write_line(f"{count} skipped: {reason.removeprefix('Skipped: ')}")
    passed = _passed_per_store(config)
    terminalreporter.write_line(", ".join(f"store {kind}: {passed[kind]} passed" for kind in STORES))
    for report in terminalreporter.stats.get("passed", []):
        if line := dict(report.user_properties).get("summary"):
            terminalreporter.write_line(line)
    if _skipped_warm_server(config):
        terminalreporter.write_line("failed: in CI, tests have to run on warm-server", red=True)

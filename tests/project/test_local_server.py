"""examples/local_server.py, which the other tests and `make demo-server` stand on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from local_server import LocalServer, find_warm_server

SCRIPT = Path(__file__).parents[2] / "examples" / "local_server.py"

pytestmark = pytest.mark.usefixtures("warm_server_binary")


def ready(server: LocalServer, **transport: str) -> bool:
    base_url = "http://localhost" if server.url.startswith("unix:") else server.url
    with httpx.Client(transport=httpx.HTTPTransport(**transport), base_url=base_url) as client:
        return client.get("/readyz").status_code == 200


def test_serves_and_comes_back_at_the_same_address(tmp_path):
    with LocalServer(tmp_path) as server:
        url = server.url
        assert ready(server)
        server.restart()
        assert (server.url, ready(server)) == (url, True)
        server.kill()
        assert server.process is None
        server.start()
        assert (server.url, ready(server)) == (url, True)
    assert server.process is None
    server.stop()  # once more does nothing


def test_unix_socket(tmp_path):
    path = str(tmp_path / "warm.sock")
    with LocalServer(tmp_path, "--unix-socket", path) as server:
        assert server.url == f"unix://{path}"
        assert ready(server, uds=path)


def test_api_key(tmp_path):
    with LocalServer(tmp_path, env={"WARM_API_KEY": "secret"}) as server:
        stats = server.url + "/api/v1/stats"
        assert httpx.get(stats).status_code == 401
        assert httpx.get(stats, headers={"Authorization": "Bearer secret"}).status_code == 200


def test_a_server_that_does_not_start_says_why(tmp_path):
    server = LocalServer(tmp_path, "--no-such-flag")
    with pytest.raises(RuntimeError, match=r"exit code 2(?s:.*)--no-such-flag"):
        server.start()
    assert server.process is None


def test_missing_binary(monkeypatch):
    monkeypatch.setenv("WARM_SERVER", "/nowhere/warm-server")
    with pytest.raises(FileNotFoundError, match="/nowhere/warm-server: run `make server`"):
        find_warm_server()


def test_command_line(tmp_path):
    """The command finds the server through WARM_URL, and both are gone afterwards."""
    program = "import os, httpx; print(os.environ['WARM_URL']); exit(7)"
    # Settings for the client are not meant for the server: this key would lock the command out.
    done = subprocess.run(
        [sys.executable, SCRIPT, "--data-dir", tmp_path, "--", sys.executable, "-c", program],
        env=os.environ | {"WARM_API_KEY": "the client's"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 7, done.stderr
    with pytest.raises(httpx.ConnectError):
        httpx.get(done.stdout.strip())

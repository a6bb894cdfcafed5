"""The app in a process of its own, and a browser to look at it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

APP = Path(__file__).parents[2] / "examples" / "chat" / "app.py"
NO_BROWSER = "no chromium: apt-get install --no-install-recommends chromium fonts-dejavu-core fonts-noto-color-emoji"


class App:
    """The app's process, which may be stopped and started again at one address."""

    def __init__(self, directory: Path, env: Mapping[str, str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://localhost:{self.port}"
        self.log = directory / "app.log"
        self.directory = directory
        # A home without Streamlit's credentials, as on the first day.
        self.env = os.environ | {"HOME": str(directory), **env}
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "streamlit", "run", str(APP), f"--server.port={self.port}"]
        flags = ["--server.headless=true", "--server.fileWatcherType=none"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command + flags, cwd=self.directory, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + 60
        while not self._healthy():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=5) as response:
                return response.status == 200
        except OSError:
            return False

    def terminate(self) -> None:
        self.process.terminate()
        self.process.wait(60)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window. `FileNotFoundError` where this machine has none."""
    path = shutil.which("chromium")
    if path is None:
        raise FileNotFoundError(NO_BROWSER)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()

"""A warm-server of your own, on this machine, for as long as you need it.

In a program or a test:

    with LocalServer("warm-data") as server:
        config = WarmConfig(url=server.url)

From a shell, around any command, which finds the server through WARM_URL:

    python examples/local_server.py --data-dir warm-data -- python my_agent.py

Needs the warm-server binary: `make server` builds it; docs/SERVER.md has more.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

VERSION = "0.6.5"


def find_warm_server() -> str:
    """Path of the binary: $WARM_SERVER, else the one on PATH, else the one `make server` built."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    built = cache / "warm-integrations" / f"warm-server-{VERSION}" / "bin" / "warm-server"
    wanted = os.environ.get("WARM_SERVER") or shutil.which("warm-server") or str(built)
    found = shutil.which(wanted)  # None unless it is there and executable
    if found is None:
        raise FileNotFoundError(f"no warm-server at {wanted}: run `make server`, or set WARM_SERVER to the binary")
    return found


class LocalServer:
    """One warm-server process over one data directory.

    Without flags it serves on a free loopback port, to anyone on this machine. Flags go to
    warm-server as they are, each name and value on its own ("--unix-socket", "w.sock"), and the
    defaults make room for them: no --bind beside --unix-socket, no --no-auth beside keys.

    Attributes:
        url: Where clients find it, the same after a restart.
        process: The running process, or None.
        log: The file that its output goes to, inside the data directory.
    """

    def __init__(self, data_dir: str | Path, *flags: str, env: Mapping[str, str] | None = None) -> None:
        self.data_dir = Path(data_dir).absolute()
        self.flags = flags
        self.env = dict(env or {})
        self.log = self.data_dir / "warm-server.log"
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None
        self._address = "127.0.0.1:0"  # the system picks a port; later starts ask for the same

    def start(self, timeout: float = 30) -> LocalServer:
        """Start the server and return once it listens."""
        if self.process is not None:
            raise RuntimeError(f"already running at {self.url}")
        command = [find_warm_server(), *self.flags, "--data-dir", str(self.data_dir)]
        if "--keys-file" not in self.flags and "WARM_API_KEY" not in self.env:
            command.append("--no-auth")
        if "--unix-socket" not in self.flags and "--bind" not in self.flags:
            command += ["--bind", self._address]
        # The server reads WARM_* too, and the client's WARM_API_KEY would switch on its keys.
        env = {k: v for k, v in os.environ.items() if not k.startswith("WARM_")} | self.env

        self.data_dir.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            begin = output.tell()
            # Its own session: Ctrl-C is for the program, which then stops the server in order.
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=env, start_new_session=True)
        try:
            address = self._wait_for_address(begin, timeout)
        except BaseException:
            self.kill()
            raise
        if address.startswith("unix:"):
            self.url = "unix://" + address.removeprefix("unix:")
        else:
            self._address = address
            self.url = ("https://" if "--tls-cert" in self.flags else "http://") + address
        return self

    def _wait_for_address(self, begin: int, timeout: float) -> str:
        assert self.process is not None
        deadline = time.monotonic() + timeout
        while True:
            ended = self.process.poll() is not None
            with self.log.open("rb") as output:
                output.seek(begin)
                said = output.read().decode(errors="replace")
            for line in said.splitlines(keepends=True):
                if line.startswith("warm-server listening on ") and line.endswith("\n"):
                    return line.split()[-1]
            if ended or time.monotonic() > deadline:
                why = f"ended with exit code {self.process.returncode}" if ended else "is silent"
                raise RuntimeError(f"warm-server {why}; {self.log} ends with:\n{said[-2000:]}")
            time.sleep(0.02)

    def stop(self, timeout: float = 60) -> None:
        """End the server in order, everything written to disk; again does nothing."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self.process = None
        if code != 0:
            raise RuntimeError(f"warm-server ended with exit code {code}; see {self.log}")

    def kill(self) -> None:
        """End the server at once, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self) -> None:
        """Stop it and start it again, on the same data and at the same address."""
        self.stop()
        self.start()

    def __enter__(self) -> LocalServer:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()


@contextlib.contextmanager
def _directory(path: str | None) -> Iterator[str]:
    """The given directory, or a temporary one."""
    if path is not None:
        yield path
    else:
        try:
            made = tempfile.TemporaryDirectory(prefix="warm-server-")
        except OSError as error:
            raise RuntimeError(f"{error}: name a directory with --data-dir, or in TMPDIR") from None
        with made as temporary:
            yield temporary


def main() -> int:
    """Run a command against a server of its own, and end both together."""
    parser = argparse.ArgumentParser(
        usage="%(prog)s [--data-dir DIR] -- COMMAND...",
        description="Run COMMAND with WARM_URL set to a local warm-server that ends with it.",
    )
    parser.add_argument("--data-dir", metavar="DIR", help="keep the data here (default: forget it)")
    parser.add_argument("command", nargs="+", metavar="COMMAND")
    options = parser.parse_args()

    # A plain SIGTERM or a closed terminal would end Python without leaving the `with` blocks.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    try:
        with _directory(options.data_dir) as data_dir, LocalServer(data_dir) as server:
            print(f"warm-server at {server.url}, data in {server.data_dir}", file=sys.stderr)
            env = os.environ | {"WARM_URL": server.url}
            with subprocess.Popen(options.command, env=env) as command:
                try:
                    return command.wait()
                finally:
                    command.terminate()
    except KeyboardInterrupt:
        return 130
    except (OSError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())

"""A MariaDB server as a process of the test session, from Debian's package, on a Unix socket in a folder of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pymysql

from tests.servers.processes import Program, hand_over, unprivileged

_PLACES = ("/usr/sbin/mariadbd", "/usr/libexec/mariadbd")
_names = count(1)


def find_server() -> Path | None:
    """The server's program, or None when it, or its installer, is not there."""
    on_path = shutil.which("mariadbd")
    for place in (*_PLACES, *((on_path,) if on_path else ())):
        if Path(place).exists() and shutil.which("mariadb-install-db"):
            return Path(place)
    return None


@dataclass(slots=True, kw_only=True)
class MariaServer:
    """One server, `root` without a password, reachable through its socket only."""

    options: tuple[str, ...] = ()
    folder: Path = field(init=False)
    program: Program = field(init=False)

    def __post_init__(self) -> None:
        """Make the data folder; RuntimeError when MariaDB is not installed, or could not make it.

        It may not write to the caller's ``TMPDIR``, which can be root's alone, so it is given a place of its own.
        """
        server = find_server()
        if server is None:
            raise RuntimeError("the Debian package mariadb-server is not installed")
        self.folder = Path(tempfile.mkdtemp(prefix="pf-my-", dir="/tmp"))
        hand_over(self.folder)
        made = subprocess.run(  # type: ignore[call-overload]
            [
                *("mariadb-install-db", "--no-defaults", f"--datadir={self.folder / 'data'}"),
                *(f"--tmpdir={self.folder}", "--auth-root-authentication-method=normal", "--skip-test-db"),
            ],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**os.environ, "TMPDIR": str(self.folder)},
            **unprivileged(),
        )
        if made.returncode:
            raise RuntimeError(f"mariadb-install-db ended with {made.returncode}: {made.stdout}{made.stderr}")
        self.program = Program(
            name="mariadb",
            argv=[
                *(server, "--no-defaults", f"--datadir={self.folder / 'data'}", f"--socket={self.folder / 's'}"),
                *(
                    f"--pid-file={self.folder / 'pid'}",
                    f"--tmpdir={self.folder}",
                    "--skip-networking",
                    "--innodb-flush-log-at-trx-commit=0",
                ),
                *("--innodb-buffer-pool-size=64M", "--default-time-zone=+00:00", "--max-connections=200"),
                *("--character-set-server=utf8mb4", *self.options),
            ],
            log_path=self.folder / "log",
            cwd=self.folder,
            stop_signal=signal.SIGTERM,
            account=unprivileged(),
        )

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.program.start()
        self.program.wait_until(self.answers, seconds=60)

    def stop(self) -> None:
        """Stop it and remove its folder."""
        self.program.stop(seconds=30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def restart(self, *, crash: bool = False) -> None:
        """Stop it, by SIGKILL when ``crash``, and start it on the same data."""
        if crash:
            self.program.kill_all()
        else:
            self.program.stop(seconds=30)
        self.start()

    def url(self, database: str) -> str:
        """The SQLAlchemy URL of a database."""
        return f"mysql+pymysql://root@localhost/{database}?unix_socket={self.folder / 's'}&charset=utf8mb4"

    def create_database(self) -> str:
        """A fresh, empty database's name."""
        name = f"t{os.getpid()}_{next(_names)}"
        self._admin(f"CREATE DATABASE {name}")
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database."""
        self._admin(f"DROP DATABASE IF EXISTS {name}")

    def answers(self) -> bool:
        """Whether a connection can be made now."""
        try:
            self._admin("SELECT 1")
        except pymysql.err.OperationalError:
            return False
        return True

    def _admin(self, statement: str) -> None:
        connection = pymysql.connect(unix_socket=str(self.folder / "s"), user="root", connect_timeout=5)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
        finally:
            connection.close()

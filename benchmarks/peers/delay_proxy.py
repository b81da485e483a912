"""A TCP proxy that makes a database on this machine look one network away: ``delay_proxy.py LISTEN TO --ms 1.0``.

Half of the delay is added each way; with what sleeping costs on top, ``--ms 1.0`` is a round trip of about 1.4 ms.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import threading
import time


def pump(source: socket.socket, target: socket.socket, seconds: float) -> None:
    """Carry bytes one way, late, until either side closes."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            time.sleep(seconds)
            target.sendall(data)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("listen", type=int)
    parser.add_argument("to", type=int)
    parser.add_argument("--ms", type=float, default=1.0)
    options = parser.parse_args()
    server = socket.create_server(("127.0.0.1", options.listen), backlog=64)
    while True:
        client, _ = server.accept()
        upstream = socket.create_connection(("127.0.0.1", options.to))
        for one in (client, upstream):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for ends in ((client, upstream), (upstream, client)):
            threading.Thread(target=pump, args=(*ends, options.ms / 2000), daemon=True).start()


if __name__ == "__main__":
    main()

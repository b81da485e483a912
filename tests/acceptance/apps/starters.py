"""Many processes that start a run under one id at the same moment; each prints what it got, as a line of JSON."""

from __future__ import annotations

import json
import os
import sys
import time

from pikkuflow import RunExists
from tests.acceptance.apps.steps import echo, pikku


def _start(number: int, run_id: str, at: float) -> None:
    rt = pikku.runtime
    rt.store.check_schema()
    time.sleep(max(0.0, at - time.time()))
    try:
        said = {"run": echo.start(number % 2, run_id=run_id).id, "input": number % 2}
    except RunExists as error:
        said = {"refused": error.code, "input": number % 2}
    os.write(1, (json.dumps(said) + "\n").encode())
    rt.store.close()


def main(run_id: str, processes: int) -> None:
    """Fork that many processes, which start at one instant; half of them with another input."""
    at = time.time() + 2.0
    children = []
    for number in range(processes):
        child = os.fork()
        if child == 0:
            try:
                _start(number, run_id, at)
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

"""The peers' own virtual environments, made from PyPI when they are not there yet."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).resolve().parent / ".venvs"
_PACKAGES: Final = {
    "dbos": ("dbos==3.4.0", "psycopg[binary]>=3.3,<4"),
    "absurd": ("absurd-sdk==0.5.1", "absurdctl==0.5.1", "psycopg[binary]>=3.3,<4"),
    "celery": ("celery[redis]==5.7.0", "hiredis>=3.5,<4"),
}
"""The peers' releases are named: a ratio is with these."""


def python_of(peer: str) -> Path:
    """The interpreter of a peer's environment; pikkuflow is measured in the one that runs the harness."""
    if peer == "pikkuflow":
        return Path(sys.executable)
    folder = _FOLDER / peer
    python, stamp = folder / "bin" / "python", folder / ".installed"
    wanted = "\n".join(_PACKAGES[peer])
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing {', '.join(_PACKAGES[peer])}", flush=True)
        if not python.exists():
            venv.create(folder, with_pip=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *_PACKAGES[peer]]
        subprocess.run(pip, check=True)
        stamp.write_text(wanted)
    return python

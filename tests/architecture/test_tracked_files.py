"""The repository says nothing about the machine it was written on."""

from __future__ import annotations

import re

from tests.architecture.source import short, tracked_files

# Put together here, so that this file does not hold what it looks for.
_HOSTS = ("pypi" + ".org", "files.python" + "hosted", "registry." + "npmjs", "deb." + "debian", "proxy." + "golang")
_FOLDERS = ("/" + "work/", "/" + "root/", "/" + "home/")
FORBIDDEN = re.compile("|".join((*map(re.escape, _HOSTS), *(rf"(?<![\w.}}]){re.escape(f)}" for f in _FOLDERS))))


def test_no_registry_host_and_no_machine_path_is_tracked() -> None:
    """Clients know their registry, and a path of one machine is wrong on the next."""
    found = [
        f"{short(path)}:{number} {match.group()}"
        for path in tracked_files()
        for number, line in enumerate(path.read_bytes().decode("utf-8", "replace").splitlines(), 1)
        if (match := FORBIDDEN.search(line))
    ]
    assert found == []

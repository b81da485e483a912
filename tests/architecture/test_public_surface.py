"""What a user may import is a list, and the list is a promise (style 5.10)."""

from __future__ import annotations

import importlib
from pathlib import Path

import pikkuflow
from pikkuflow import errors

PINNED = Path(__file__).with_name("public_names.txt")


def _public() -> list[str]:
    return list(pikkuflow.__all__)


def test_every_public_name_is_there() -> None:
    """A hand-kept list is checked against the module."""
    assert [name for name in _public() if not hasattr(pikkuflow, name)] == []


def test_the_list_of_public_names_is_the_pinned_one() -> None:
    """Adding a name is a decision, taking one away breaks users: both show up in a diff of public_names.txt."""
    names = _public()
    assert len(set(names)) == len(names)
    assert sorted(names) == PINNED.read_text(encoding="utf-8").split()


def test_every_error_can_be_imported_from_the_top() -> None:
    """A user catches errors without knowing our modules."""
    assert set(errors.__all__) <= set(_public())


def test_a_star_import_gives_the_list_and_nothing_else() -> None:
    """Whatever is not listed is private."""
    namespace: dict[str, object] = {}
    exec("from pikkuflow import *", namespace)  # noqa: S102 - there is no other way to ask this
    assert set(namespace) - {"__builtins__"} == set(_public())


def test_the_package_says_that_it_is_typed() -> None:
    """Without py.typed no type checker looks at the annotations."""
    assert (Path(str(importlib.import_module("pikkuflow").__file__)).parent / "py.typed").exists()

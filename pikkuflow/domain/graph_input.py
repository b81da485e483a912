"""What a node is called with: literal values, references to what was given elsewhere, and templates (spec 3.1).

References and templates are plain JSON, ``{"$ref": "a", "path": "lines.0"}`` and ``{"$template": "Dear $0", "refs": [...]}``, so that a
file can hold them. ``plain_input`` brings templates into the one form that is stored: parts of text, and the expressions between them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = [
    "ABSENT",
    "CALL",
    "FAILURE",
    "ITEM",
    "TRIGGER",
    "UNKNOWN",
    "Ref",
    "plain_input",
    "ref",
    "ref_of",
    "refs_in",
    "resolved",
    "template",
]

TRIGGER: Final = "trigger"
"""What the run was started with."""

ITEM: Final = "$item"
"""The item that a member of a ``for_each`` is worked for."""

FAILURE: Final = "$failure"
"""The failure that a node was begun for: ``id`` (the failed step's), ``step``, ``node``, ``task``, ``type``, ``error``, ``traceback``."""

CALL: Final = "$call"
"""``{"$call": {"first": [...], "args": ..., "kwargs": ...}}``: positional arguments, more of them (a list), and keyword arguments."""

_CALL_KEYS: Final = frozenset({"first", "args", "kwargs"})

UNKNOWN: Final = "unknown"
"""What a template refers to when its list of references is too short (T13.15)."""

_REF: Final = "$ref"
_TEMPLATE: Final = "$template"
_PLACEHOLDER: Final = re.compile(r"\$(\d+)")


class _Absent:
    """Nothing is there."""

    def __repr__(self) -> str:
        return "<absent>"


ABSENT: Final = _Absent()
"""What a path that leads nowhere gives: an argument with it is left out, a text has nothing in its place (spec 2.1)."""


@dataclass(frozen=True, slots=True)
class Ref:
    """What ``node`` gave (or ``trigger``, ``$item``), or what is found there by ``path``."""

    node: str
    path: str | None = None

    def fields(self) -> dict[str, str]:
        """As JSON; a path that was not given is left out."""
        return {_REF: self.node} | ({} if self.path is None else {"path": self.path})

    def read(self, value: Any) -> Any:
        """Follow the path: keys of mappings, indexes of lists. ``ABSENT`` when it leads nowhere."""
        for part in [] if self.path is None else self.path.split("."):
            value = _part(value, part)
            if value is ABSENT:
                return ABSENT
        return value


def ref(node: str, path: str | None = None) -> dict[str, Any]:
    """A reference, for a node's ``input`` or ``for_each``: ``ref("order", "lines.0.sku")``.

    Args:
        node: the id of a node, ``"trigger"`` for what the run was started with, or ``"$item"`` in a node with ``for_each``.
        path: keys and indexes with dots between them; None is the whole value.
    """
    return Ref(node, path).fields()


def template(text: str, refs: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """A text with references in it: ``template("Dear $0", [ref("trigger", "name")])``.

    ``$0``, ``$1`` … stand for the references in their order. What is absent or null is an empty text. A number past the last reference
    refers to ``unknown``, which no graph has: the definition is refused.
    """
    return _compiled(text, [ref_of(one).fields() for one in refs])


def ref_of(value: Any) -> Ref:
    """Read a reference; a text is the id of a node. Raises ``ValueError`` for anything else."""
    if isinstance(value, str):
        return Ref(value)
    if not isinstance(value, Mapping) or not isinstance(value.get(_REF), str) or set(value) - {_REF, "path"}:
        raise ValueError(f"has the reference {value!r}, which is none")
    path = value.get("path")
    if path is not None and (not isinstance(path, str) or not path):
        raise ValueError(f"has the path {path!r} in a reference, which is no text")
    return Ref(value[_REF], path)


def plain_input(value: Any) -> Any:
    """The same with every reference and template in the form that is stored. Raises ``ValueError`` for one that cannot be read."""
    if isinstance(value, Mapping):
        if _REF in value:
            return ref_of(value).fields()
        if _TEMPLATE in value:
            return _plain_template(value)
        if CALL in value:
            return {CALL: _plain_call(value)}
        return {str(key): plain_input(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain_input(each) for each in value]
    return value


def refs_in(value: Any) -> Iterator[Ref]:
    """Every reference of a stored input."""
    if isinstance(value, Mapping):
        if _REF in value:
            yield ref_of(value)
        elif _TEMPLATE in value:
            yield from map(ref_of, value[_TEMPLATE]["expressions"])
        else:
            for each in value.values():
                yield from refs_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from refs_in(each)


def resolved(value: Any, read: Callable[[Ref], Any]) -> Any:
    """A stored input with what its references give; ``read`` may give ``ABSENT``. Keys whose value is absent are left out."""
    if isinstance(value, Mapping):
        if _REF in value:
            return read(ref_of(value))
        if _TEMPLATE in value:
            return _rendered(value[_TEMPLATE], read)
        found = {key: resolved(each, read) for key, each in value.items()}
        return {key: each for key, each in found.items() if each is not ABSENT}
    if isinstance(value, list):
        return [None if each is ABSENT else each for each in (resolved(each, read) for each in value)]
    return value


def _rendered(made: Mapping[str, Any], read: Callable[[Ref], Any]) -> str:
    texts = [str(part) for part in made["parts"]]
    between = [_text_of(read(ref_of(one))) for one in made["expressions"]]
    return texts[0] + "".join(value + text for value, text in zip(between, texts[1:], strict=True))


def _text_of(value: Any) -> str:
    if value is ABSENT or value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, bool | list | dict) else str(value)


def _plain_template(value: Mapping[str, Any]) -> dict[str, Any]:
    text, refs = value[_TEMPLATE], value.get("refs", [])
    if isinstance(text, Mapping):
        return _checked(text)
    if isinstance(text, str) and isinstance(refs, list | tuple) and not set(value) - {_TEMPLATE, "refs"}:
        return _compiled(text, [ref_of(one).fields() for one in refs])
    raise ValueError(f"has the template {dict(value)!r}, which is none")


def _plain_call(value: Mapping[str, Any]) -> dict[str, Any]:
    said = value[CALL]
    if set(value) != {CALL} or not isinstance(said, Mapping) or set(said) - _CALL_KEYS:
        raise ValueError(f"has the call {dict(value)!r}, which is none")
    return {str(key): plain_input(each) for key, each in said.items()}


def _checked(made: Mapping[str, Any]) -> dict[str, Any]:
    """A template in the form that is stored."""
    parts, expressions = made.get("parts"), made.get("expressions")
    if not isinstance(parts, list) or not isinstance(expressions, list) or len(parts) != len(expressions) + 1:
        raise ValueError(f"has the template {dict(made)!r}, whose parts and expressions do not alternate")
    return {_TEMPLATE: {"parts": list(map(str, parts)), "expressions": [ref_of(one).fields() for one in expressions]}}


def _compiled(text: str, refs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    pieces = _PLACEHOLDER.split(text)
    numbers = [int(piece) for piece in pieces[1::2]]
    expressions = [dict(refs[number]) if number < len(refs) else Ref(UNKNOWN).fields() for number in numbers]
    return {_TEMPLATE: {"parts": pieces[::2], "expressions": expressions}}


def _part(value: Any, part: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(part, ABSENT)
    if isinstance(value, list | tuple) and part.isdecimal() and int(part) < len(value):
        return value[int(part)]
    return ABSENT

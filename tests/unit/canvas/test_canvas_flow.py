"""How arguments flow, shape by shape: the table of recipes 3, each row in every place."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from celery import chain, chord, group

from tests.unit.canvas.stage import Stage

A, B, C = ["a", 1], ["b", 2], ["c"]


class Row(NamedTuple):
    """A canvas, and what its run gives. The calls are those that are not to be seen in what it gives."""

    build: Callable[[Any], Any]
    value: Any
    hidden: tuple[list[Any], ...] = ()


def _chunked(s: Any) -> Any:
    return s.a.chunks([(1, 2), (3, 4), (5, 6)], 2)


ROWS: dict[str, Row] = {
    "one task": Row(lambda s: s.a.s(1), A),
    "a | b | c": Row(lambda s: s.a.s(1) | s.b.s(2) | s.c.s(), ["c", ["b", A, 2]]),
    "keyword arguments": Row(lambda s: s.a.s(1) | s.b.s(x=2), ["b", A, {"x": 2}]),
    "immutable inside": Row(lambda s: s.a.s(1) | s.b.si(2) | s.c.s(), ["c", B], (A,)),
    "chain of one": Row(lambda s: chain(s.a.s(1)), A),
    "chain in chain": Row(lambda s: chain(s.a.s(1), chain(s.b.s(2), s.c.s())), ["c", ["b", A, 2]]),
    "group": Row(lambda s: group(s.a.s(1), s.b.s(2)), [A, B]),
    "group of one task": Row(lambda s: group(s.a.s(i) for i in range(3)), [["a", 0], ["a", 1], ["a", 2]]),
    "group in group": Row(lambda s: group(group(s.a.s(1), s.b.s(2)), s.c.s()), [A, B, C]),
    "a | group": Row(lambda s: s.a.s(1) | group(s.b.s(2), s.c.s()), [["b", A, 2], ["c", A]]),
    "a | group of one task": Row(lambda s: s.a.s(1) | group(s.b.s(2), s.b.s(3)), [["b", A, 2], ["b", A, 3]]),
    "a | group | d": Row(lambda s: s.a.s(1) | group(s.b.s(2), s.c.s()) | s.d.s(), ["d", [["b", A, 2], ["c", A]]]),
    "chain(group(b), d) is unrolled": Row(lambda s: chain(group(s.b.s(2)), s.d.s()), ["d", B]),
    "a | group(b) | d is unrolled": Row(lambda s: s.a.s(1) | group(s.b.s(2)) | s.d.s(), ["d", ["b", A, 2]]),
    "group(b) | d is not": Row(lambda s: group(s.b.s(2)) | s.d.s(), ["d", [B]]),
    "chord([b], d)": Row(lambda s: chord([s.b.s(2)], s.d.s()), ["d", [B]]),
    "chain(group(), d)": Row(lambda s: chain(group(), s.d.s()), ["d"]),
    "a | group() | d": Row(lambda s: s.a.s(1) | group() | s.d.s(), ["d", A]),
    "chord([], d)": Row(lambda s: chord([], s.d.s()), ["d", []]),
    "group | group | d": Row(
        lambda s: group(s.a.s(1), s.b.s(2)) | group(s.c.s(), s.e.s()) | s.d.s(),
        ["d", [["c", [A, B]], ["e", [A, B]]]],
    ),
    "group | group, each of one task": Row(
        lambda s: group(s.a.s(1), s.a.s(1)) | group(s.c.s(), s.c.s()) | s.d.s(),
        ["d", [["c", [A, A]], ["c", [A, A]]]],
    ),
    "chord": Row(lambda s: chord([s.a.s(1), s.b.s(2)], s.c.s(9)), ["c", [A, B], 9]),
    "chord with a body that takes nothing": Row(lambda s: chord([s.a.s(1), s.b.s(2)], s.c.si()), C, (A, B)),
    "a | chord | d": Row(
        lambda s: s.a.s(1) | chord([s.b.s(2), s.c.s()], s.e.s()) | s.d.s(), ["d", ["e", [["b", A, 2], ["c", A]]]]
    ),
    "chord with a group in its header": Row(
        lambda s: chord([group(s.a.s(1), s.b.s(2)), s.c.s()], s.d.s()), ["d", [A, B, C]]
    ),
    "chord with a chain that ends in a group": Row(
        lambda s: chord([chain(s.a.s(1), group(s.b.s(2), s.c.s())), s.e.s()], s.d.s()),
        ["d", [[["b", A, 2], ["c", A]], ["e"]]],
    ),
    "chord in chord": Row(
        lambda s: chord([chord([s.a.s(1), s.b.s(2)], s.c.s()), s.a.s(1)], s.d.s()), ["d", [["c", [A, B]], A]]
    ),
    "fan-out in fan-out in fan-out": Row(
        lambda s: chord(
            [chain(s.a.s(1), chord([chain(s.b.s(2), group(s.c.s(), s.c.s()) | s.e.s()), s.e.s()], s.c.s())), s.e.s()],
            s.d.s(),
        ),
        [
            "d",
            [
                ["c", [["e", [["c", ["b", A, 2]], ["c", ["b", A, 2]]]], ["e", A]]],
                ["e"],
            ],
        ],
    ),
    "map": Row(lambda s: s.a.map([1, 2]), [["a", 1], ["a", 2]]),
    "map of nothing": Row(lambda s: s.a.map([]), []),
    "starmap": Row(lambda s: s.a.starmap([(1, 2), (3, 4)]), [["a", 1, 2], ["a", 3, 4]]),
    "a | map | d": Row(lambda s: s.a.s(1) | s.b.map([1, 2]) | s.d.s(), ["d", [["b", 1], ["b", 2]]], (A,)),
    "map of a generator": Row(lambda s: s.a.map(i for i in range(2)), [["a", 0], ["a", 1]]),
    "chunks": Row(_chunked, [[["a", 1, 2], ["a", 3, 4]], [["a", 5, 6]]]),
    "chunks of nothing": Row(lambda s: s.a.chunks([], 2), []),
    "b | chunks | d": Row(
        lambda s: s.b.s(2) | _chunked(s) | s.d.s(), ["d", [[["a", 1, 2], ["a", 3, 4]], [["a", 5, 6]]]], (B,)
    ),
    "chunks as a group": Row(lambda s: _chunked(s).group(), [[["a", 1, 2], ["a", 3, 4]], [["a", 5, 6]]]),
    "a chain that takes nothing": Row(lambda s: chain(s.a.s(1), _immutable(s.b.s(2) | s.c.s())), ["c", ["b", A, 2]]),
    "as JSON has it": Row(
        lambda s: _as_json(s.a.s(1) | group(s.b.s(2), s.c.s()) | s.d.s()), ["d", [["b", A, 2], ["c", A]]]
    ),
    "a mapping that looks like a reference": Row(lambda s: s.a.s({"$ref": "b"}) | s.c.s(), ["c", ["a", {"$ref": "b"}]]),
}


def _as_json(canvas: Any) -> Any:
    return json.loads(json.dumps(canvas))


def _immutable(canvas: Any) -> Any:
    canvas.set_immutable(True)
    return canvas


@pytest.mark.parametrize("row", ROWS)
def test_arguments_flow_as_in_the_table(stage: Stage, row: str) -> None:
    """Issue E, Build 3; recipes 3: the value of the run, and the calls that made it, each once.

    Pains 5 and 8 among them: fan-outs in fan-outs join, and those of one and none behave like any other.
    """
    made = ROWS[row]
    run = stage.play(made.build(stage))
    assert run.result(timeout=0) == made.value
    for call in [*_calls_in(made.value), *made.hidden]:
        assert call in stage.calls
    assert len(stage.calls) == _size(made.build(stage))


def _calls_in(value: Any) -> list[list[Any]]:
    if not isinstance(value, list):
        return []
    own = [value] if value and isinstance(value[0], str) else []
    return own + [call for each in value for call in _calls_in(each)]


def _size(canvas: Any) -> int:
    """How many calls it is."""
    kwargs = canvas["kwargs"]
    match canvas["task"]:
        case "celery.map" | "celery.starmap" | "celery.chunks":
            return len(list(kwargs["it"]))
        case "celery.chain" | "celery.group":
            return sum(map(_size, kwargs["tasks"]))
        case "celery.chord":
            return sum(map(_size, kwargs["header"])) + _size(kwargs["body"])
        case _:
            return 1

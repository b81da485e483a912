"""Workflows as they are defined: the function, its name and the version of its code."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from hashlib import sha256
from types import CodeType
from typing import Any, Final

from pikkuflow.domain.graph import Graph
from pikkuflow.domain.status import Dispatch
from pikkuflow.errors import WorkflowDefinitionError, WorkflowNotFound

__all__ = ["Registry", "WorkflowDefinition", "code_version", "dispatch_of", "plan_of"]

_FILLING: Final = frozenset({"NOP", "CACHE", "EXTENDED_ARG"})
"""Instructions that say nothing of what code does; some of them only keep a line number alive."""

_LONGEST_VERSION: Final = 200
"""Characters: it is a key in every database."""

_ABOUT_SOURCE: Final = frozenset({"__doc__", "__firstlineno__"})
"""Names that the body of a class stores about its own text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowDefinition:
    """A workflow function under its name.

    ``body`` is called as ``body(wf, *args, **kwargs)``. ``version`` is ``code_version(body)`` unless its author gave one (D17).
    ``queue`` and ``dispatch`` of None leave the choice to routes and settings. ``planned_steps`` and ``deterministic`` are shown with
    the run (spec 1.3, D16). ``quick``: outcomes of its steps may be kept for a moment and written together (issue C). ``timeout_seconds``:
    how long a run of it may take, unless its start says otherwise. A workflow with a ``graph`` is walked instead of called; its ``body``
    only says what it is started with.

    Raises ``WorkflowDefinitionError`` when the function cannot be a workflow (it is a generator or a coroutine, or takes no ``wf``), the
    version is no text that can be stored, or the plan is none: empty, with a name twice, or promised (``deterministic``) and not there.
    """

    name: str
    body: Callable[..., Any]
    version: str
    queue: str | None = None
    dispatch: Dispatch | None = None
    planned_steps: tuple[str, ...] | None = None
    deterministic: bool = False
    quick: bool = False
    timeout_seconds: float | None = None
    graph: Graph | None = None

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_body(self.name, self.body)
        _check_version(self.name, self.version)
        _check_plan(self.name, self.planned_steps, deterministic=self.deterministic)

    @property
    def source(self) -> str:
        """Module and qualified name of the function, or the graph, for messages."""
        if self.graph is not None:
            return f"graph {self.graph.version}"
        function = _plain(self.body)
        return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(function))}"


def dispatch_of(text: str | None) -> Dispatch | None:
    """Read ``dispatch=``; None leaves it to the setting. Raises ``WorkflowDefinitionError``."""
    if text is None:
        return None
    try:
        return Dispatch(text)
    except ValueError:
        raise WorkflowDefinitionError(
            f"dispatch={text!r} is none of auto, queue, inline.", hint='Leave it out for "auto".'
        ) from None


def plan_of(steps: Sequence[str]) -> tuple[str, ...]:
    """Read ``planned_steps=``. Raises ``WorkflowDefinitionError`` for one text, whose letters would be the names."""
    if isinstance(steps, str):
        raise WorkflowDefinitionError(
            f"planned_steps={steps!r} is a text, not a list of names.", hint=f"Write planned_steps=[{steps!r}]."
        )
    return tuple(steps)


class Registry:
    """The workflows that this process knows, by name."""

    def __init__(self, built_in: Iterable[WorkflowDefinition] = ()) -> None:
        """``built_in`` are found and not listed: every process has them."""
        self._definitions: dict[str, WorkflowDefinition] = {one.name: one for one in built_in}
        self._built_in = frozenset(self._definitions)

    def add(self, definition: WorkflowDefinition) -> None:
        """Register a workflow. The same function may be registered again (a module loaded twice); the newer one stays.

        Raises ``WorkflowDefinitionError`` when another function has the name.
        """
        known = self._definitions.get(definition.name)
        if known is not None and known.source != definition.source:
            raise WorkflowDefinitionError(
                f"Two workflows are named {definition.name!r}: {known.source} and {definition.source}.",
                hint="Give one of them another name=.",
            )
        self._definitions[definition.name] = definition

    def get(self, name: str) -> WorkflowDefinition:
        """The workflow of that name. Raises ``WorkflowNotFound``, with the nearest name as a hint."""
        definition = self._definitions.get(name)
        if definition is None:
            near = get_close_matches(name, self.names(), n=1)
            hint = f"Did you mean {near[0]!r}?" if near else "Import the module that defines it where the app is made."
            raise WorkflowNotFound(f"No workflow is named {name!r} here.", name, hint=hint)
        return definition

    def find(self, name: str) -> WorkflowDefinition | None:
        """The workflow of that name, or None."""
        return self._definitions.get(name)

    def names(self) -> tuple[str, ...]:
        """The names of the application's own, sorted."""
        return tuple(sorted(self._definitions.keys() - self._built_in))


def code_version(function: Callable[..., Any]) -> str:
    """Twelve hexadecimal digits that change when the code of a function changes (D17).

    They cover names, constants and instructions of the function and of functions nested in it, but not line numbers, comments and
    docstrings. The same source under another minor version of Python may have another version.
    """
    plain = _plain(function)
    code = getattr(plain, "__code__", None)
    lines = (
        _describe(code) if isinstance(code, CodeType) else iter((repr(getattr(plain, "__qualname__", type(plain))),))
    )
    digest = sha256()
    for line in lines:
        digest.update(line.encode("utf-8", "surrogatepass"))
        digest.update(b"\n")
    return digest.hexdigest()[:12]


def _plain(function: Callable[..., Any]) -> Any:
    """The function under wrappers, partials, bound methods and callable objects."""
    inner: Any = inspect.unwrap(function)
    while isinstance(inner, partial):
        inner = inspect.unwrap(inner.func)
    inner = getattr(inner, "__func__", inner)
    is_object = not hasattr(inner, "__code__") and not inspect.isbuiltin(inner) and not isinstance(inner, type)
    if is_object and callable(inner):
        inner = type(inner).__call__
    return inner


def _describe(code: CodeType) -> Iterator[str]:
    yield repr((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_varnames, code.co_freevars))
    kept = [step for step in dis.get_instructions(code) if step.opname not in _FILLING]
    places = _places(code, kept)
    for step, after in zip(kept, [*kept[1:], None], strict=True):
        if _tells_of_source(step) or (after is not None and _tells_of_source(after)):
            continue
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            yield f"{step.opname} {places.get(step.argval, -1)}"
        else:
            yield f"{step.opname} {_constant(step.argval)}"
    yield from _handlers(code, places)


def _tells_of_source(step: dis.Instruction) -> bool:
    return step.opname == "STORE_NAME" and step.argval in _ABOUT_SOURCE


def _places(code: CodeType, kept: list[dis.Instruction]) -> dict[int, int]:
    """Each offset as the number of the next kept instruction, so that filling moves nothing."""
    places: dict[int, int] = {}
    number = 0
    for offset in range(0, len(code.co_code) + 2, 2):
        while number < len(kept) and kept[number].offset < offset:
            number += 1
        places[offset] = number
    return places


def _handlers(code: CodeType, places: dict[int, int]) -> Iterator[str]:
    """The exception table: which instructions a ``try`` covers is not among the instructions."""
    for entry in getattr(dis.Bytecode(code), "exception_entries", ()):
        yield f"try {places.get(entry.start)} {places.get(entry.end)} {places.get(entry.target)} {entry.depth}"


def _constant(value: Any) -> str:
    if isinstance(value, CodeType):
        return "code(" + "; ".join(_describe(value)) + ")"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_constant, value)) + ")"
    if isinstance(value, frozenset):
        # Its own order changes from process to process.
        return "{" + ", ".join(sorted(map(_constant, value))) + "}"
    return repr(value)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise WorkflowDefinitionError(
            f"A workflow's name is text, not {name!r}.", hint='Write @pikku.workflow(name="shop.order").'
        )


def _check_version(name: str, version: object) -> None:
    if not isinstance(version, str) or not 0 < len(version) <= _LONGEST_VERSION:
        raise WorkflowDefinitionError(
            f"Workflow {name!r} has version {version!r}, which is no text of 1 to {_LONGEST_VERSION} characters.",
            hint='Write version="2", or leave it out: it is a hash of the code then.',
        )


def _check_plan(name: str, plan: tuple[Any, ...] | None, *, deterministic: bool) -> None:
    if plan is None:
        if deterministic:
            raise WorkflowDefinitionError(
                f"Workflow {name!r} is deterministic and plans nothing.",
                hint='Write planned_steps=["reserve", "charge"] beside it.',
            )
        return
    if not plan or any(not isinstance(step, str) or not step for step in plan):
        raise WorkflowDefinitionError(
            f"Workflow {name!r} plans {list(plan)!r}: a plan is a list of steps' names, and not empty.",
            hint="Leave planned_steps out when the steps are not known before.",
        )
    twice = sorted({step for step in plan if plan.count(step) > 1})
    if twice:
        raise WorkflowDefinitionError(
            f"Workflow {name!r} plans step {twice[0]!r} twice.",
            hint=f"A step that comes again has a name of its own: {twice[0] + '#1'!r}.",
        )


def _check_body(name: str, body: Callable[..., Any]) -> None:
    if not callable(body):
        raise WorkflowDefinitionError(f"Workflow {name!r} is no function but {type(body).__name__}.")
    plain = _plain(body)
    if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
        raise WorkflowDefinitionError(
            f"Workflow {name!r} is a coroutine.", hint="Write it with def instead of async def."
        )
    if inspect.isgeneratorfunction(plain):
        raise WorkflowDefinitionError(
            f"Workflow {name!r} is a generator.", hint="Take out its yield: wf.do and wf.sleep wait by themselves."
        )
    if not _takes_a_positional(body):
        raise WorkflowDefinitionError(
            f"Workflow {name!r} takes no argument.", hint="Its first parameter is the workflow: def order(wf, ...)."
        )


def _takes_a_positional(body: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(body).parameters.values()
    except (TypeError, ValueError):
        return True
    kinds = {
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    }
    return any(parameter.kind in kinds for parameter in parameters)

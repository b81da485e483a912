"""Checks a step's arguments before it has a row, as ``apply_async`` checks them before it sends, and a little more (design 1).

Celery checks the number and names of arguments at the caller, but a pydantic model only on the worker, where every attempt would fail the
same way. Here both are checked by the pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from celery import Task

__all__ = ["checked_arguments"]


def checked_arguments(
    task: Task[Any, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as they travel: pydantic models that the caller gave are dumped.

    Raises ``TypeError`` when they do not fit the task's signature (``typing=False`` switches that off), and pydantic's
    ``ValidationError`` when a ``pydantic=True`` task would refuse them.
    """
    header = getattr(task, "__header__", None)
    if task.typing and header is not None:
        header(*args, **kwargs)
    dump = task._dump_pydantic_arguments  # type: ignore[attr-defined]  # noqa: SLF001 - what apply_async does
    if dump is None:
        return args, dict(kwargs)
    dumped_args, dumped_kwargs = dump(args, dict(kwargs))
    _validate(task, dump, dumped_args, dumped_kwargs)
    return tuple(dumped_args), dict(dumped_kwargs)


def _validate(task: Task[Any, Any], dump: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Ask the validators that Celery's wrapper closes over; where a later Celery keeps them elsewhere, the worker's check remains."""
    model_of = _closed_over(dump, "get_argument_model")
    validate = _closed_over(dump, "validate_argument")
    function = getattr(task, "_decorated_fun", None)
    if model_of is None or validate is None or function is None:
        return
    bound = dump.keywords.get("bound", False)
    arguments = inspect.signature(function).bind(*([task] if bound else []), *args, **kwargs).arguments
    for name, value in arguments.items():
        model = model_of(name, value)
        if model is not None:
            validate(model, value)


def _closed_over(dump: Any, name: str) -> Callable[..., Any] | None:
    outer = inspect.getclosurevars(dump.func).nonlocals
    inner = outer.get("dump_argument")
    found = outer.get(name) or (inspect.getclosurevars(inner).nonlocals.get(name) if inner is not None else None)
    return found if callable(found) else None

"""Every error survives the way between processes; one that does not takes a worker with it (style 5.7)."""

from __future__ import annotations

import inspect
import pickle

import pytest
from celery.utils.serialization import get_pickleable_exception

from pikkuflow import errors
from pikkuflow.errors import PikkuFlowError

_SAMPLES: dict[str, object] = {"str": "some text", "int": 7, "float": 1.5, "bool": True}
ERRORS = [getattr(errors, name) for name in errors.__all__]


def _sample(kind: type[PikkuFlowError]) -> PikkuFlowError:
    arguments: list[object] = []
    named: dict[str, object] = {}
    for parameter in list(inspect.signature(kind.__init__).parameters.values())[1:]:
        value = _SAMPLES.get(str(parameter.annotation).split(" ", 1)[0], "other")
        if parameter.kind is parameter.KEYWORD_ONLY:
            named[parameter.name] = value
        elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            arguments.append(value)
    return kind(*arguments, **named)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_pickles_with_its_fields(kind: type[PikkuFlowError]) -> None:
    """Type, message, hint and every named field come back, through pickle and through what Celery makes of it."""
    error = _sample(kind)
    for copy in (
        pickle.loads(pickle.dumps(error)),  # noqa: S301 - our own bytes
        pickle.loads(pickle.dumps(get_pickleable_exception(error))),  # noqa: S301 - our own bytes
    ):
        assert type(copy) is kind
        assert copy.args == error.args
        assert vars(copy) == vars(error)
        assert (str(copy), copy.public_message) == (str(error), error.public_message)


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_has_its_own_code(kind: type[PikkuFlowError]) -> None:
    """Programs tell errors apart by ``code``, and ``status`` is an HTTP number or None (spec 10.6)."""
    assert kind.code.isupper()
    assert [other for other in ERRORS if other.code == kind.code] == [kind]
    assert kind.status is None or kind.status in range(400, 600)


def test_every_error_of_the_module_is_listed() -> None:
    """``errors.__all__`` is kept by hand."""
    defined = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, PikkuFlowError) and not name.startswith("_")
    }
    assert defined == set(errors.__all__)

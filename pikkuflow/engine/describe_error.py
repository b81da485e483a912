"""An exception as data: what is stored of it (spec 9.2, 16.7)."""

from __future__ import annotations

import re
import traceback
from typing import Final

from pikkuflow.domain.failure import Failure
from pikkuflow.errors import PikkuFlowError

__all__ = ["failure_of", "without_secrets"]

_PASSWORD: Final = re.compile(r"(\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/@:'\"]*):[^\s/'\"]+@")
"""A password in a URL: what stands between the colon and the last ``@`` before the path."""
_PARAMETER: Final = re.compile(r"(?i)\b((?:password|passwd|pwd)=)('[^']*'|\"[^\"]*\"|[^\s&;,'\")\]]+)")
"""A password as a connection string or a query has it."""


def without_secrets(text: str) -> str:
    """The text with the passwords of URLs and connection strings hidden: errors are stored, listed and logged."""
    return _PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1:***@", text))


def failure_of(error: BaseException) -> Failure:
    """The exception's type by qualified name, its text and its trace, without passwords. An error of ours has a code, and no trace."""
    if isinstance(error, PikkuFlowError):
        return Failure(type=_name_of(type(error)), message=without_secrets(str(error)), code=error.code)
    return Failure(
        type=_name_of(type(error)),
        message=without_secrets(_text_of(error)),
        traceback=without_secrets(_trace_of(error)),
    )


def _name_of(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a user's __str__ may do anything, and the failure must be stored all the same
        return "<the error has no text: its __str__ raised>"


def _trace_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - as above: formatting calls __str__ of the whole chain
        return "".join(traceback.format_tb(error.__traceback__))

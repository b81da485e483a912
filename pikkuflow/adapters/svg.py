"""Drawing DOT text as SVG with Graphviz: its program ``dot``, found by the small package of the extra ``pikkuflow[graphviz]``."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from pikkuflow.errors import SettingError

__all__ = ["svg_of_dot"]

_HINT: Final = (
    'pip install "pikkuflow[graphviz]", and install Graphviz itself (its program dot) with your system\'s packages. '
    "The formats mermaid, dot and text need neither."
)


def svg_of_dot(text: str) -> str:
    """The SVG document that Graphviz draws of a graph in DOT.

    Raises ``SettingError`` when the package or the program is missing, or the program fails.
    """
    try:
        graphviz: Any = import_module("graphviz")
    except ImportError:
        raise SettingError("An SVG needs Graphviz, and its Python package is missing.", hint=_HINT) from None
    try:
        return str(graphviz.Source(text).pipe(format="svg", encoding="utf-8"))
    except graphviz.ExecutableNotFound:
        raise SettingError("An SVG needs Graphviz, and its program dot is missing.", hint=_HINT) from None
    except graphviz.CalledProcessError as error:
        raise SettingError(f"Graphviz could not draw it: {error}", hint=_HINT) from None

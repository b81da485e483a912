"""What an app's configuration names: its broker, and the hook for what is stored."""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.utils.imports import symbol_by_name

from pikkuflow.errors import SettingError

__all__ = ["broker_url", "codec_hook"]


def broker_url(app: Celery) -> str | None:
    """The broker that messages are published to; None when neither configuration nor environment names one (Celery would try localhost)."""
    url: Any = app.conf.broker_write_url
    return ";".join(url) if isinstance(url, list | tuple) else url


def codec_hook(codec: Any) -> Any:
    """The codec hook that the setting names or is; None without one. Raises ``SettingError``."""
    if codec is None:
        return None
    try:
        found = symbol_by_name(codec)
    except (ImportError, AttributeError) as error:
        raise SettingError(
            f"pikkuflow_codec cannot be imported: {error}.", hint="Give a dotted name, or an object."
        ) from error
    return found() if isinstance(found, type) else found

"""Broker URLs as redis-py reads them."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

__all__ = ["redis_url_of"]

_SCHEMES: Final = {
    "redis": "redis",
    "valkey": "redis",
    "rediss": "rediss",
    "valkeys": "rediss",
    "unix": "unix",
    "redis+socket": "unix",
    "socket": "unix",
}

_CERTIFICATES: Final = {"CERT_NONE": "none", "CERT_OPTIONAL": "optional", "CERT_REQUIRED": "required"}


def redis_url_of(url: str) -> str | None:
    """The redis-py URL of a lease URL or of a Celery broker URL.

    Kombu writes a socket as ``redis+socket:///path?virtual_host=1`` and the check of certificates as ``ssl_cert_reqs=CERT_NONE``.
    Of a list of brokers (``a;b``) the first one is meant.

    Returns:
        The URL for ``RedisLeases`` and ``RedisHints``, or None when it names no single Redis or Valkey server (RabbitMQ, Sentinel).
    """
    parts = urlsplit(url.split(";", 1)[0].strip())
    scheme = _SCHEMES.get(parts.scheme.lower())
    if scheme is None:
        return None
    asked = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    if (database := asked.pop("virtual_host", None)) is not None:
        asked.setdefault("db", database.strip("/") or "0")
    if (certificates := asked.get("ssl_cert_reqs")) is not None:
        asked["ssl_cert_reqs"] = _CERTIFICATES.get(certificates, certificates)
    query = urlencode(asked)
    if scheme == "unix":
        # By hand: urlunsplit would write an empty host as one slash, and redis-py wants three.
        return f"unix://{parts.netloc}{parts.path}{'?' if query else ''}{query}"
    return urlunsplit((scheme, parts.netloc, parts.path, query, ""))

"""Leases and hints on a Redis or Valkey server."""

from pikkuflow.adapters.redis.hints import RedisHints
from pikkuflow.adapters.redis.leases import RedisLeases
from pikkuflow.adapters.redis.url import redis_url_of

__all__ = ["RedisHints", "RedisLeases", "redis_url_of"]

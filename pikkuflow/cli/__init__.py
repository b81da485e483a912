"""The management command: ``celery -A proj flow …``, and the same group as the ``pikkuflow`` script."""

"""A shop on plain Celery. It never heard of pikkuflow."""

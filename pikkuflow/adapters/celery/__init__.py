"""Celery: a user's tasks as steps, workflows as tasks, messages, and the worker's side (design 7)."""

"""Celery applications that the acceptance tests run on real workers, and load as a client would."""

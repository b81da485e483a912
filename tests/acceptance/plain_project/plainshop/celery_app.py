"""The shop's Celery application: two routed queues, and settings a real project has."""

from celery import Celery

app = Celery("plainshop", include=["plainshop.tasks"])
app.conf.update(
    broker_connection_retry_on_startup=True,
    task_default_queue="shop",
    task_routes={"plainshop.tasks.print_*": {"queue": "printers"}},
    task_time_limit=300,
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    task_annotations={"plainshop.tasks.notify": {"rate_limit": "100/s"}},
)

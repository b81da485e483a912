"""The deployment that README, demo and acceptance tests use: every recommended setting with its reason.

Use it with ``app.config_from_object("celeryconfig")``, or copy from it. Broker and database come from the environment
(``CELERY_BROKER_URL``, ``PIKKUFLOW_DATABASE_URL``); ``celery -A proj flow dev`` sets both for the embedded servers.

pikkuflow needs none of these for its results to be right: claims in the database decide, and sweeps bring back what was lost. They decide
how long an outage is felt, and how many messages are worked in vain.
"""

from __future__ import annotations

import os
from typing import Any

broker_url = os.environ.get("CELERY_BROKER_URL", "redis://localhost:6379/0")
_on_redis = broker_url.startswith(("redis", "rediss"))
_on_rabbitmq = broker_url.startswith(("amqp", "pyamqp"))

# --- pikkuflow ---------------------------------------------------------------------------------------------------------

# Embedded default: one SQLite file, for one host. In production a PostgreSQL URL, postgresql+psycopg://…
pikkuflow_database_url = os.environ.get("PIKKUFLOW_DATABASE_URL", "sqlite:///.pikkuflow/pikkuflow.db")

# Leases and hints: pikkuflow_lease_url is not set, so they live in the broker when that is Redis, else in the database. An evicted lease is
# a step that runs twice (its second outcome is refused), so that server runs with maxmemory-policy noeviction and appendonly yes.

# Queues: out of the box everything goes to the app's default queue, because a queue that nobody consumes is a silent stall. A larger
# deployment gives the passes a queue of their own (pikkuflow_queue) and routes pikkuflow.sweep to a small worker of its own, so that
# repair does not wait behind the backlog that it has to repair.

# --- Acknowledging -----------------------------------------------------------------------------------------------------

# Not set here: task_acks_late and task_reject_on_worker_lost. pikkuflow's own messages are acknowledged early: the broker is a hint, the
# claim in the database decides. Messages that start a workflow set both for themselves. Your other tasks keep Celery's default.

# False would drop the message of a failed task, or work it again for ever.
task_acks_on_failure = True
task_acks_on_timeout = True

# Attempts are counted in the database; Celery must not add uncounted ones.
task_retry_on_worker_lost = False

# --- Worker ------------------------------------------------------------------------------------------------------------

# What a worker holds in memory is what the others cannot take: hold as little as possible.
worker_prefetch_multiplier = 1
worker_disable_prefetch = _on_redis

# Python gives little memory back; a child that is replaced now and then does.
worker_max_tasks_per_child = 1000

# RabbitMQ redelivers at once what a lost connection held, so the work in hand may as well end. On Redis only the visibility timeout would
# redeliver it: the work would be lost for an hour.
worker_cancel_long_running_tasks_on_connection_loss = _on_rabbitmq

# Not set here: task_time_limit (a step's deadline is the database's; a limit of a task's own is honoured) and soft shutdown or
# REMAP_SIGTERM (a plain warm SIGTERM ends a pass after the step in hand; give it 30 s of grace, and on systemd KillMode=mixed).

# --- Broker ------------------------------------------------------------------------------------------------------------

# A worker or beat that starts before the broker waits for it, however long.
broker_connection_retry_on_startup = True
broker_connection_max_retries = None

# RabbitMQ closes the channel of a message that is unacknowledged for longer than its consumer_timeout: survive that.
broker_channel_error_retry = _on_rabbitmq

broker_transport_options: dict[str, Any] = {}
if _on_redis:
    # The same for workers, producers and beat: each may restore messages by its own figure. On a shared server add global_keyprefix.
    broker_transport_options = {
        "visibility_timeout": 3600,  # at least twice your longest late-acknowledged task, or it is worked beside itself
        "unacked_restore_interval": 10,  # look for what dead workers held
        "unacked_restore_throttle": 1,
        "socket_timeout": 30,  # a peer that vanished is noticed
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        "health_check_interval": 25,
    }
elif _on_rabbitmq:
    # A publish that returns has reached the queue. Give the server a delivery-limit policy, and a consumer_timeout above your longest task.
    broker_transport_options = {"confirm_publish": True}
    # Quorum queues survive the loss of a node; with a topic exchange a countdown waits in the broker and not in a worker's memory. Existing
    # classic queues keep their type: change it with new names, or publishers get PRECONDITION_FAILED.
    task_default_queue_type = "quorum"
    task_default_exchange_type = "topic"

# --- Messages and beat -------------------------------------------------------------------------------------------------

# pikkuflow's messages carry ids only; whoever may publish must not be able to run code.
task_serializer = "json"
accept_content = ["json"]

# Exactly one beat (or redbeat with redbeat_lock_timeout 30, whose default of 1500 s is the length of the gap after a crash). Sweeps
# are idempotent, so a second beat costs work and not results. It looks at its schedule at least this often, in seconds.
beat_max_loop_interval = 5

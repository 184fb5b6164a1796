"""The blocking producer, on pika.

A job is in the broker, on disk, when `enqueue_*` returns: persistent, with a publisher confirm, mandatory. Nothing is ever
declared here: queues belong to the daemon, and a job for one that is missing raises `QueueMissing`.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from . import jobs
from .errors import PublishFailed, QueueMissing
from .job import Job
from .layout import LAYOUT_KEY, READ_TIMEOUT, Layout, parse_layout, read_status
from .settings import Settings

P = ParamSpec("P")
Method = TypeVar("Method", bound=Callable[..., Any])
log = logging.getLogger("shardvisor")


def _enqueues(build: Callable[P, Job]) -> Callable[Concatenate[Producer, P], str]:
    """Make the method that enqueues what `build` builds and returns the job's id."""

    def method(self: Producer, /, *args: P.args, **kwargs: P.kwargs) -> str:
        return self.enqueue(build(*args, **kwargs))

    return signed(method, build)


def signed(method: Method, build: Callable[..., Job]) -> Method:
    """Give a method the name and the signature that help() shows."""
    signature = inspect.signature(build)
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    shown = signature.replace(parameters=[itself, *signature.parameters.values()], return_annotation="str")
    for attribute, value in (
        ("__name__", f"enqueue_{build.__name__}"),
        ("__qualname__", f"enqueue_{build.__name__}"),
        ("__module__", __name__),
        ("__doc__", build.__doc__),
        ("__signature__", shown),
    ):
        setattr(method, attribute, value)
    return method


class Producer:
    """Enqueues jobs and waits for the broker's confirm. Safe to use from several threads, one job at a time.

    The connection is opened at the first job, and again when it was lost: a job whose confirm was lost with it is published
    once more under the same id, which the daemon answers without doing it twice.
    """

    def __init__(
        self,
        url: str,
        *,
        shard_count: int | None = None,
        registry_url: str | None = None,
        status_url: str | None = None,
        check_layout: bool = True,
        layout_max_age: float = 5.0,
        blocked_timeout: float = 30.0,
    ) -> None:
        """Take the broker's `amqp:` or `amqps:` URL; nothing is connected yet.

        Without `shard_count`, `SHARD_COUNT` or `WHATSAPP_SHARD_COUNT` of the environment count. The layout is compared with the
        one in Redis (`registry_url`) or at a daemon's `/status` (`status_url`), unless `check_layout` is false.
        """
        self._settings = Settings.of(shard_count, registry_url, status_url, check_layout)
        self._check = self._settings.check(layout_max_age)
        self._url = url
        self._blocked_timeout = blocked_timeout
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._connection: Any = None
        self._channel: Any = None
        self._redis: Any = None

    @property
    def shard_count(self) -> int:
        """How many shards this producer counts."""
        return self._settings.shard_count

    def queue_for(self, job: Job) -> str:
        """Return the queue in which a job belongs."""
        return self._settings.queue(job)

    def enqueue(self, job: Job) -> str:
        """Put a job into its queue, durably; return its id."""
        queue = self.queue_for(job)
        with self._lock:
            self._forget_after_fork()
            self._compare_layout()
            self._publish(queue, job)
        return job.id

    def check_layout(self) -> None:
        """Compare the layouts now, if there is one to compare with; raises `LayoutMismatch` or `LayoutUnavailable`."""
        with self._lock:
            self._forget_after_fork()
            self._compare_layout(at_once=True)

    def close(self) -> None:
        """Close the connections. A later job opens new ones."""
        with self._lock:
            self._forget_after_fork()
            self._drop_connection()
            if self._redis is not None:
                self._redis.close()
                self._redis = None

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _publish(self, queue: str, job: Job) -> None:
        import pika
        from pika.exceptions import AMQPError, NackError, UnroutableError

        fresh = self._connection is None
        while True:
            try:
                if self._connection is None:
                    self._connect(pika)
                self._channel.basic_publish(
                    exchange="",
                    routing_key=queue,
                    body=job.body,
                    mandatory=True,
                    properties=pika.BasicProperties(
                        content_type="application/json", delivery_mode=2, message_id=job.id, type=job.name
                    ),
                )
                return
            except UnroutableError as error:
                raise QueueMissing(queue) from error
            except NackError as error:
                raise PublishFailed(queue, "refused by the broker") from error
            except (AMQPError, OSError) as error:
                self._drop_connection()
                if fresh:
                    raise PublishFailed(queue, f"{type(error).__name__}: {error}") from error
                # The connection may have died long before this job, unnoticed: nobody reads it between two jobs.
                log.info("the connection to the broker was lost (%s): opening a new one", type(error).__name__)
                fresh = True

    def _connect(self, pika: Any) -> None:
        parameters = pika.URLParameters(self._url)
        if parameters.blocked_connection_timeout is None:
            parameters.blocked_connection_timeout = self._blocked_timeout
        self._connection = pika.BlockingConnection(parameters)
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()

    def _drop_connection(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def _forget_after_fork(self) -> None:
        # The sockets are the parent's: speaking on them from here would garble its stream.
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._connection = self._channel = self._redis = None

    def _compare_layout(self, *, at_once: bool = False) -> None:
        if self._check is None or not (at_once or self._check.due()):
            return
        try:
            layout = self._read_layout()
        except ImportError:
            raise
        except Exception as error:
            self._check.failed(error)
        else:
            self._check.read(layout)

    def _read_layout(self) -> Layout | None:
        if self._settings.status_url is not None:
            return read_status(self._settings.status_url)
        if self._redis is None:
            import redis

            self._redis = redis.Redis.from_url(
                self._settings.registry_url or "", socket_timeout=READ_TIMEOUT, socket_connect_timeout=READ_TIMEOUT
            )
        value = self._redis.get(LAYOUT_KEY)
        return None if value is None else parse_layout(value)

    enqueue_connect = _enqueues(jobs.connect)
    enqueue_disconnect = _enqueues(jobs.disconnect)
    enqueue_send = _enqueues(jobs.send)
    enqueue_send_media = _enqueues(jobs.send_media)
    enqueue_send_location = _enqueues(jobs.send_location)
    enqueue_send_reaction = _enqueues(jobs.send_reaction)
    enqueue_mark_read = _enqueues(jobs.mark_read)
    enqueue_revoke = _enqueues(jobs.revoke)
    enqueue_resync_history = _enqueues(jobs.resync_history)
    enqueue_group_create = _enqueues(jobs.group_create)
    enqueue_group_update_subject = _enqueues(jobs.group_update_subject)
    enqueue_group_update_description = _enqueues(jobs.group_update_description)
    enqueue_group_add_participants = _enqueues(jobs.group_add_participants)
    enqueue_group_remove_participants = _enqueues(jobs.group_remove_participants)
    enqueue_group_promote = _enqueues(jobs.group_promote)
    enqueue_group_demote = _enqueues(jobs.group_demote)
    enqueue_group_leave = _enqueues(jobs.group_leave)
    enqueue_group_invite_link = _enqueues(jobs.group_invite_link)
    enqueue_group_fetch = _enqueues(jobs.group_fetch)
    enqueue_download_media = _enqueues(jobs.download_media)
    enqueue_fetch_avatar = _enqueues(jobs.fetch_avatar)

"""The asyncio producer, on aio-pika: the same jobs and the same promises as `Producer`, many at a time.

Confirms are awaited side by side: `await asyncio.gather(...)` over many jobs is as fast as the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Concatenate, ParamSpec

from . import jobs
from .errors import PublishFailed, QueueMissing
from .job import Job
from .layout import LAYOUT_KEY, READ_TIMEOUT, Layout, parse_layout, read_status
from .producer import signed
from .settings import Settings

P = ParamSpec("P")
log = logging.getLogger("shardvisor")


def _enqueues(build: Callable[P, Job]) -> Callable[Concatenate[AsyncProducer, P], Awaitable[str]]:
    """Make the method that enqueues what `build` builds and returns the job's id."""

    async def method(self: AsyncProducer, /, *args: P.args, **kwargs: P.kwargs) -> str:
        return await self.enqueue(build(*args, **kwargs))

    return signed(method, build)


class AsyncProducer:
    """Enqueues jobs and awaits the broker's confirm. Belongs to one event loop; any number of tasks may use it.

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
        timeout: float = 30.0,
    ) -> None:
        """Take the broker's `amqp:` or `amqps:` URL; nothing is connected yet. `timeout` bounds the wait for each confirm.

        Without `shard_count`, `SHARD_COUNT` or `WHATSAPP_SHARD_COUNT` of the environment count. The layout is compared with the
        one in Redis (`registry_url`) or at a daemon's `/status` (`status_url`), unless `check_layout` is false.
        """
        self._settings = Settings.of(shard_count, registry_url, status_url, check_layout)
        self._check = self._settings.check(layout_max_age)
        self._url = url
        self._timeout = timeout
        self._opening = asyncio.Lock()
        self._checking = asyncio.Lock()
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

    async def enqueue(self, job: Job) -> str:
        """Put a job into its queue, durably; return its id."""
        await self._compare_layout()
        await self._publish(self.queue_for(job), job)
        return job.id

    async def check_layout(self) -> None:
        """Compare the layouts now, if there is one to compare with; raises `LayoutMismatch` or `LayoutUnavailable`."""
        await self._compare_layout(at_once=True)

    async def close(self) -> None:
        """Close the connections. A later job opens new ones."""
        async with self._opening:
            await self._drop_connection()
        if self._redis is not None:
            client, self._redis = self._redis, None
            await client.aclose()

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        await self.close()

    async def _publish(self, queue: str, job: Job) -> None:
        import aio_pika
        from aio_pika.exceptions import AMQPError, DeliveryError, PublishError

        message = aio_pika.Message(
            job.body,
            content_type="application/json",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            message_id=job.id,
            type=job.name,
        )
        again = True
        while True:
            channel = None
            fresh = True
            try:
                channel, fresh = await self._open(aio_pika)
                await channel.default_exchange.publish(message, queue, mandatory=True, timeout=self._timeout)
                return
            except PublishError as error:
                raise QueueMissing(queue) from error
            except DeliveryError as error:
                raise PublishFailed(queue, "refused by the broker") from error
            except asyncio.TimeoutError as error:
                raise PublishFailed(queue, f"no confirm in {self._timeout} s") from error
            except (AMQPError, OSError, RuntimeError) as error:
                await self._forget(channel)
                if fresh or not again:
                    raise PublishFailed(queue, f"{type(error).__name__}: {error}") from error
                log.info("the connection to the broker was lost (%s): opening a new one", type(error).__name__)
                again = False

    async def _open(self, aio_pika: Any) -> tuple[Any, bool]:
        """Return the channel, and whether it was opened for this call."""
        async with self._opening:
            if self._channel is not None and not self._channel.is_closed:
                return self._channel, False
            await self._drop_connection()
            self._connection = await aio_pika.connect(self._url, timeout=self._timeout)
            self._channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
            return self._channel, True

    async def _forget(self, channel: Any) -> None:
        async with self._opening:
            if channel is self._channel:
                await self._drop_connection()

    async def _drop_connection(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(Exception):
                await connection.close()

    async def _compare_layout(self, *, at_once: bool = False) -> None:
        if self._check is None or not (at_once or self._check.due()):
            return
        async with self._checking:
            if not (at_once or self._check.due()):
                return
            try:
                layout = await self._read_layout()
            except ImportError:
                raise
            except Exception as error:
                self._check.failed(error)
            else:
                self._check.read(layout)

    async def _read_layout(self) -> Layout | None:
        if self._settings.status_url is not None:
            return await asyncio.to_thread(read_status, self._settings.status_url)
        if self._redis is None:
            from redis import asyncio as redis

            self._redis = redis.Redis.from_url(
                self._settings.registry_url or "", socket_timeout=READ_TIMEOUT, socket_connect_timeout=READ_TIMEOUT
            )
        value = await self._redis.get(LAYOUT_KEY)
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

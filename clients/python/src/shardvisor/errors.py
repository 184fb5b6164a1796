"""What a producer can be told. Every error is a `ShardvisorError`; those about a value are a `ValueError` as well."""

from __future__ import annotations


class ShardvisorError(Exception):
    """The base of all errors of this package."""


class ChannelIdError(ShardvisorError, ValueError):
    """A value that is no channel id."""

    def __init__(self, value: object) -> None:
        shown = value[:64] if isinstance(value, str) else value
        super().__init__(f"{shown!r} is not a channel id: expected a UUID of 32 hexadecimal digits, plain or dashed 8-4-4-4-12")
        self.value = value


class UnknownBase(ShardvisorError, ValueError):
    """A queue base that is none of the three."""

    def __init__(self, base: object) -> None:
        super().__init__(f"{base!r} is no queue base: expected whatsapp, whatsapp_media or whatsapp_avatars")


class ShardCountError(ShardvisorError, ValueError):
    """A shard count that is refused."""


class JobError(ShardvisorError, ValueError):
    """A job that the daemon would refuse; the message names the field."""


class LayoutMismatch(ShardvisorError):
    """This producer and the fleet count their shards differently: its jobs would wait where nobody owns the channel."""

    def __init__(self, own: int, fleet: int, epoch: int) -> None:
        super().__init__(
            f"this producer counts {own} shard(s), the fleet has {fleet} (epoch {epoch}): "
            f"give both the same SHARD_COUNT, or turn the check off with check_layout=False"
        )
        self.own = own
        self.fleet = fleet
        self.epoch = epoch


class LayoutUnavailable(ShardvisorError):
    """The count in force could not be read, and no earlier answer of it is known. Try again later."""


class QueueMissing(ShardvisorError):
    """The broker has no such queue, so that the job went nowhere. No shardvisor has run with this layout yet."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"the broker has no queue {queue!r}: the job was returned (queues are declared by the daemon)")
        self.queue = queue


class PublishFailed(ShardvisorError):
    """The broker did not confirm the job. It may have it or not: enqueue again under the same job id."""

    def __init__(self, queue: str, cause: object) -> None:
        super().__init__(f"the broker did not confirm the job for {queue!r}: {cause}")
        self.queue = queue

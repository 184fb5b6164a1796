"""The producer's side of shardvisor: where a channel's jobs belong, and how they get there.

Importing this needs the standard library alone; pika, aio-pika and redis are loaded at first use.
"""

from . import jobs
from .aio import AsyncProducer
from .count import MAX_SHARD_COUNT, parse_shard_count, shard_count_from_env
from .errors import (
    ChannelIdError,
    JobError,
    LayoutMismatch,
    LayoutUnavailable,
    PublishFailed,
    QueueMissing,
    ShardCountError,
    ShardvisorError,
    UnknownBase,
)
from .identity import BASES, Base, parse_channel_id, queue_for_channel, queue_name, shard_for
from .job import Job
from .layout import LAYOUT_KEY, Layout
from .producer import Producer

__all__ = [
    "BASES",
    "LAYOUT_KEY",
    "MAX_SHARD_COUNT",
    "AsyncProducer",
    "Base",
    "ChannelIdError",
    "Job",
    "JobError",
    "Layout",
    "LayoutMismatch",
    "LayoutUnavailable",
    "Producer",
    "PublishFailed",
    "QueueMissing",
    "ShardCountError",
    "ShardvisorError",
    "UnknownBase",
    "jobs",
    "parse_channel_id",
    "parse_shard_count",
    "queue_for_channel",
    "queue_name",
    "shard_count_from_env",
    "shard_for",
]

"""The shard rule: which shard owns a channel, and what its queues are called.

The daemon and the other clients compute the same, bit for bit; `tests/fixtures/shard_parity.json` holds them to it.
A channel id is parsed to 128 bits first. `uuid.UUID` alone will not do: it also takes braces, `urn:` and stray dashes.
"""

from __future__ import annotations

import re
from typing import Final, Literal, get_args
from uuid import UUID

from .errors import ChannelIdError, UnknownBase

Base = Literal["whatsapp", "whatsapp_media", "whatsapp_avatars"]
"""The three kinds of work queues: sends and control, inbound media, profile pictures."""

BASES: Final[tuple[Base, ...]] = get_args(Base)

_SPELLING: Final = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def parse_channel_id(channel_id: str | UUID) -> UUID:
    """Read a channel id: 36 characters with dashes or 32 without, any letter case. Anything else is a `ValueError`."""
    if isinstance(channel_id, UUID):
        return channel_id
    if not isinstance(channel_id, str) or _SPELLING.fullmatch(channel_id) is None:
        raise ChannelIdError(channel_id)
    return UUID(int=int(channel_id.replace("-", ""), 16))


def shard_for(channel_id: str | UUID, shard_count: int) -> int:
    """Return the index of the shard that owns a channel: its first 32 bits, big-endian, modulo the count."""
    _whole(shard_count)
    prefix = parse_channel_id(channel_id).int >> 96
    return prefix % shard_count if shard_count > 1 else 0


def queue_name(base: Base, index: int, shard_count: int) -> str:
    """Return the queue of a base for one shard: the base alone with one shard, `<base>-<index>` with more."""
    if base not in BASES:
        raise UnknownBase(base)
    return f"{base}-{index}" if shard_count > 1 else base


def queue_for_channel(base: Base, channel_id: str | UUID, shard_count: int) -> str:
    """Return the queue in which a channel's jobs of a base belong."""
    return queue_name(base, shard_for(channel_id, shard_count), shard_count)


def _whole(shard_count: int) -> None:
    if not isinstance(shard_count, int) or isinstance(shard_count, bool):
        raise TypeError(f"shard_count must be an int, not {type(shard_count).__name__}")

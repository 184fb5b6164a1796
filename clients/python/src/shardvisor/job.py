"""A job as it travels: its envelope, and the few checks that spare it the way to the dead-letter queue."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final
from uuid import UUID

from .errors import JobError
from .identity import Base, parse_channel_id

MAX_JOB_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Job:
    """One unit of work for one channel. Make it with the functions of `shardvisor.jobs`."""

    name: str
    """What is to be done."""
    id: str
    """The idempotency key: a job that is enqueued again under the same id is done once."""
    channel_id: UUID
    """Whose work it is."""
    base: Base
    """The queue base it belongs on."""
    body: bytes
    """The JSON that is published."""


def make_job(
    name: str,
    base: Base,
    channel_id: str | UUID,
    data: Mapping[str, Any],
    *,
    job_id: str | None,
    expires_at: datetime | None,
) -> Job:
    """Put a job together. Entries of `data` that are `None` are left out."""
    channel = parse_channel_id(channel_id)
    key = str(uuid.uuid4()) if job_id is None else job_id
    if not isinstance(key, str) or not 1 <= len(key) <= 128:
        raise JobError("field `id`: expected a string of 1 to 128 characters")
    envelope: dict[str, Any] = {
        "name": name,
        "id": key,
        "channel_id": str(channel),
        "data": {field: value for field, value in data.items() if value is not None},
        "enqueued_at": instant(datetime.now(timezone.utc)),
    }
    if expires_at is not None:
        if expires_at.tzinfo is None:
            raise JobError("field `expires_at`: expected a time with a time zone")
        envelope["expires_at"] = instant(expires_at)
    try:
        body = json.dumps(envelope, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise JobError(f"field `data`: not JSON: {error}") from error
    if len(body) > MAX_JOB_BYTES:
        raise JobError(f"{len(body)} bytes are over the limit of {MAX_JOB_BYTES}")
    return Job(name, key, channel, base, body)


def instant(moment: datetime) -> str:
    """Write a time as RFC 3339 in UTC, to the millisecond."""
    return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def needed(field: str, value: object) -> str:
    """Return a text that must not be empty. Numbers are taken too: Telegram's chat ids are some."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value:
        raise JobError(f"field `data.{field}`: expected a text that is not empty")
    return value


def optional(field: str, value: object) -> str | None:
    """Return a text that may be absent, but not empty."""
    return None if value is None else needed(field, value)


def plain(field: str, value: object) -> str:
    """Return a text that may be empty."""
    if not isinstance(value, str):
        raise JobError(f"field `data.{field}`: expected a text")
    return value


def listed(field: str, values: object, *, empty: bool = False) -> list[str]:
    """Return a list of texts. A single text is refused: Python would take it apart into letters."""
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise JobError(f"field `data.{field}`: expected a list of texts")
    texts = [needed(field, value) for value in values]
    if not texts and not empty:
        raise JobError(f"field `data.{field}`: must not be empty")
    return texts


def degrees(field: str, value: float, limit: int) -> float:
    """Return a coordinate within its bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -limit <= value <= limit:
        raise JobError(f"field `data.{field}`: expected -{limit} to {limit}")
    return value

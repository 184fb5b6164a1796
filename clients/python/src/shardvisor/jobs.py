"""The vocabulary of work, one function for each kind of job. `shardvisor schema` prints the same as a JSON Schema.

Every function takes the channel first. `job_id` is the idempotency key (a new UUID when absent; give your own to be able to
enqueue again safely), `expires_at` the time from which on the job shall no longer be done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from .errors import JobError
from .group_jobs import (
    group_add_participants,
    group_create,
    group_demote,
    group_fetch,
    group_invite_link,
    group_leave,
    group_promote,
    group_remove_participants,
    group_update_description,
    group_update_subject,
)
from .job import Job, degrees, listed, make_job, needed, optional, plain

__all__ = [
    "connect",
    "disconnect",
    "download_media",
    "fetch_avatar",
    "group_add_participants",
    "group_create",
    "group_demote",
    "group_fetch",
    "group_invite_link",
    "group_leave",
    "group_promote",
    "group_remove_participants",
    "group_update_description",
    "group_update_subject",
    "mark_read",
    "resync_history",
    "revoke",
    "send",
    "send_location",
    "send_media",
    "send_reaction",
]

Channel = str | UUID
Chat = str | int
MediaKind = Literal["image", "video", "audio", "voice", "document", "sticker"]
ParseMode = Literal["MarkdownV2", "HTML"]
OnUncertain = Literal["resend", "dead_letter"]
"""What to do when an earlier attempt may have reached the platform: send again, or give up into the dead-letter queue."""


def connect(channel_id: Channel, *, job_id: str | None = None, expires_at: datetime | None = None) -> Job:
    """Start the channel, and keep it started."""
    return make_job("connect", "whatsapp", channel_id, {}, job_id=job_id, expires_at=expires_at)


def disconnect(
    channel_id: Channel, *, logout: bool = False, job_id: str | None = None, expires_at: datetime | None = None
) -> Job:
    """Stop the channel, and keep it stopped; with `logout`, give up the login too (WhatsApp: unlink the device)."""
    data = {"logout": logout or None}
    return make_job("disconnect", "whatsapp", channel_id, data, job_id=job_id, expires_at=expires_at)


def send(
    channel_id: Channel,
    chat_id: Chat,
    text: str,
    *,
    reply_to: str | int | None = None,
    edit_message_id: str | int | None = None,
    thread_id: str | int | None = None,
    mentions: Iterable[str] | None = None,
    parse_mode: ParseMode | None = None,
    blocks: Iterable[Mapping[str, Any]] | None = None,
    on_uncertain: OnUncertain | None = None,
    job_id: str | None = None,
    expires_at: datetime | None = None,
) -> Job:
    """Send a text message, or with `edit_message_id` give an own one a new text. `blocks` are Slack's Block Kit blocks."""
    data = {
        "chat_id": needed("chat_id", chat_id),
        "text": needed("text", text),
        "reply_to": optional("reply_to", reply_to),
        "edit_message_id": optional("edit_message_id", edit_message_id),
        "thread_id": optional("thread_id", thread_id),
        "mentions": None if mentions is None else listed("mentions", mentions, empty=True) or None,
        "parse_mode": parse_mode,
        "blocks": [dict(block) for block in blocks or ()] or None,
        "on_uncertain": on_uncertain,
    }
    return make_job("send", "whatsapp", channel_id, data, job_id=job_id, expires_at=expires_at)


def send_media(
    channel_id: Channel,
    chat_id: Chat,
    kind: MediaKind,
    url: str,
    *,
    caption: str | None = None,
    file_name: str | None = None,
    mime_type: str | None = None,
    reply_to: str | int | None = None,
    thread_id: str | int | None = None,
    on_uncertain: OnUncertain | None = None,
    job_id: str | None = None,
    expires_at: datetime | None = None,
) -> Job:
    """Send the file behind an `http:` or `https:` URL, or a stored one: `file://` and the path that `download_media` told."""
    if not isinstance(url, str) or not url.startswith(("http://", "https://", "file:///")):
        raise JobError("field `data.url`: expected an http: or https: URL, or file:// and the path of a stored file")
    data = {
        "chat_id": needed("chat_id", chat_id),
        "kind": kind,
        "url": url,
        "caption": caption,
        "file_name": file_name,
        "mime_type": mime_type,
        "reply_to": optional("reply_to", reply_to),
        "thread_id": optional("thread_id", thread_id),
        "on_uncertain": on_uncertain,
    }
    return make_job("send_media", "whatsapp", channel_id, data, job_id=job_id, expires_at=expires_at)


def send_location(
    channel_id: Channel,
    chat_id: Chat,
    latitude: float,
    longitude: float,
    *,
    title: str | None = None,
    address: str | None = None,
    reply_to: str | int | None = None,
    thread_id: str | int | None = None,
    on_uncertain: OnUncertain | None = None,
    job_id: str | None = None,
    expires_at: datetime | None = None,
) -> Job:
    """Send a place; with `title` and `address` it is shown as a venue."""
    data = {
        "chat_id": needed("chat_id", chat_id),
        "latitude": degrees("latitude", latitude, 90),
        "longitude": degrees("longitude", longitude, 180),
        "title": title,
        "address": address,
        "reply_to": optional("reply_to", reply_to),
        "thread_id": optional("thread_id", thread_id),
        "on_uncertain": on_uncertain,
    }
    return make_job("send_location", "whatsapp", channel_id, data, job_id=job_id, expires_at=expires_at)


def send_reaction(
    channel_id: Channel,
    chat_id: Chat,
    message_id: str | int,
    emoji: str,
    *,
    participant: str | None = None,
    from_me: bool = False,
    job_id: str | None = None,
    expires_at: datetime | None = None,
) -> Job:
    """React to a message; an empty `emoji` takes the reaction back."""
    data = {
        "chat_id": needed("chat_id", chat_id),
        "message_id": needed("message_id", message_id),
        "emoji": plain("emoji", emoji),
        "participant": participant,
        "from_me": from_me or None,
    }
    return make_job("send_reaction", "whatsapp", channel_id, data, job_id=job_id, expires_at=expires_at)


def mark_read(
    channel_id: Channel,
    chat_id: Chat,
    message_ids: Iterable[str | int],
    *,
    participant: str | None = None,
    job_id: str | None = None,
    expires_at: datetime | None = None,
) -> Job:
    """Tell the peer that messages were read."""
    data = {
        "chat_id": needed("chat_id", chat_id),
        "message_ids": listed("message_ids", message_ids),
        "participant": participant,
    }
    return make_job("mark_read", "whatsapp", channel_id, data, job_id=job_id, expires_at=expires_at)


def revoke(
    channel_id: Channel,
    chat_id: Chat,
    message_id: str | int,
    *,
    participant: str | None = None,
    job_id: str | None = None,
    expires_at: datetime | None = None,
) -> Job:
    """Delete a message for everyone."""
    data = {
        "chat_id": needed("chat_id", chat_id),
        "message_id": needed("message_id", message_id),
        "participant": participant,
    }
    return make_job("revoke", "whatsapp", channel_id, data, job_id=job_id, expires_at=expires_at)


def resync_history(
    channel_id: Channel,
    *,
    chat_id: Chat | None = None,
    count: int | None = None,
    job_id: str | None = None,
    expires_at: datetime | None = None,
) -> Job:
    """Fetch the channel's history again: all of it, one conversation, or so many messages."""
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 1 << 32):
        raise JobError("field `data.count`: expected a whole number")
    data = {"chat_id": None if chat_id is None else needed("chat_id", chat_id), "count": count}
    return make_job("resync_history", "whatsapp", channel_id, data, job_id=job_id, expires_at=expires_at)


def download_media(
    channel_id: Channel,
    chat_id: Chat,
    message_id: str | int,
    media: Mapping[str, Any],
    *,
    job_id: str | None = None,
    expires_at: datetime | None = None,
) -> Job:
    """Fetch a received file into the store; `media` is that object of the event which announced it, as it was."""
    data = {
        "chat_id": needed("chat_id", chat_id),
        "message_id": needed("message_id", message_id),
        "media": dict(media),
    }
    return make_job("download_media", "whatsapp_media", channel_id, data, job_id=job_id, expires_at=expires_at)


def fetch_avatar(
    channel_id: Channel,
    chat_id: Chat,
    *,
    preview: bool = False,
    job_id: str | None = None,
    expires_at: datetime | None = None,
) -> Job:
    """Fetch a profile picture into the store, the full one or with `preview` the small one."""
    data = {"chat_id": needed("chat_id", chat_id), "preview": preview or None}
    return make_job("fetch_avatar", "whatsapp_avatars", channel_id, data, job_id=job_id, expires_at=expires_at)

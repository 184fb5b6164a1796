"""The jobs about groups. They belong to the group's conversation and run in order with its messages."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from .job import Job, listed, make_job, needed, plain


def group_create(
    channel_id: str | UUID,
    subject: str,
    participants: Iterable[str],
    *,
    job_id: str | None = None,
    expires_at: datetime | None = None,
) -> Job:
    """Create a group with these people in it."""
    data = {"subject": needed("subject", subject), "participants": listed("participants", participants, empty=True)}
    return make_job("group_create", "whatsapp", channel_id, data, job_id=job_id, expires_at=expires_at)


def group_update_subject(
    channel_id: str | UUID,
    group_id: str | int,
    subject: str,
    *,
    job_id: str | None = None,
    expires_at: datetime | None = None,
) -> Job:
    """Change a group's name."""
    data = {"group_id": needed("group_id", group_id), "subject": needed("subject", subject)}
    return make_job("group_update_subject", "whatsapp", channel_id, data, job_id=job_id, expires_at=expires_at)


def group_update_description(
    channel_id: str | UUID,
    group_id: str | int,
    description: str,
    *,
    job_id: str | None = None,
    expires_at: datetime | None = None,
) -> Job:
    """Change a group's description; an empty one removes it."""
    data = {"group_id": needed("group_id", group_id), "description": plain("description", description)}
    return make_job("group_update_description", "whatsapp", channel_id, data, job_id=job_id, expires_at=expires_at)


def group_add_participants(
    channel_id: str | UUID,
    group_id: str | int,
    participants: Iterable[str],
    *,
    job_id: str | None = None,
    expires_at: datetime | None = None,
) -> Job:
    """Add people to a group."""
    return _participants("group_add_participants", channel_id, group_id, participants, job_id, expires_at)


def group_remove_participants(
    channel_id: str | UUID,
    group_id: str | int,
    participants: Iterable[str],
    *,
    job_id: str | None = None,
    expires_at: datetime | None = None,
) -> Job:
    """Remove people from a group."""
    return _participants("group_remove_participants", channel_id, group_id, participants, job_id, expires_at)


def group_promote(
    channel_id: str | UUID,
    group_id: str | int,
    participants: Iterable[str],
    *,
    job_id: str | None = None,
    expires_at: datetime | None = None,
) -> Job:
    """Make participants admins."""
    return _participants("group_promote", channel_id, group_id, participants, job_id, expires_at)


def group_demote(
    channel_id: str | UUID,
    group_id: str | int,
    participants: Iterable[str],
    *,
    job_id: str | None = None,
    expires_at: datetime | None = None,
) -> Job:
    """Make admins participants."""
    return _participants("group_demote", channel_id, group_id, participants, job_id, expires_at)


def group_leave(
    channel_id: str | UUID,
    group_id: str | int,
    *,
    job_id: str | None = None,
    expires_at: datetime | None = None,
) -> Job:
    """Leave a group."""
    data = {"group_id": needed("group_id", group_id)}
    return make_job("group_leave", "whatsapp", channel_id, data, job_id=job_id, expires_at=expires_at)


def group_invite_link(
    channel_id: str | UUID,
    group_id: str | int,
    *,
    reset: bool = False,
    job_id: str | None = None,
    expires_at: datetime | None = None,
) -> Job:
    """Get a group's invite link; with `reset`, make the old one invalid first."""
    data = {"group_id": needed("group_id", group_id), "reset": reset or None}
    return make_job("group_invite_link", "whatsapp", channel_id, data, job_id=job_id, expires_at=expires_at)


def group_fetch(
    channel_id: str | UUID,
    group_id: str | int,
    *,
    job_id: str | None = None,
    expires_at: datetime | None = None,
) -> Job:
    """Read a group's metadata."""
    data = {"group_id": needed("group_id", group_id)}
    return make_job("group_fetch", "whatsapp", channel_id, data, job_id=job_id, expires_at=expires_at)


def _participants(
    name: str,
    channel_id: str | UUID,
    group_id: str | int,
    participants: Iterable[str],
    job_id: str | None,
    expires_at: datetime | None,
) -> Job:
    data = {"group_id": needed("group_id", group_id), "participants": listed("participants", participants)}
    return make_job(name, "whatsapp", channel_id, data, job_id=job_id, expires_at=expires_at)

"""What both producers have in common: their settings, checked once, and the one line they log about themselves."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from .count import checked_shard_count, shard_count_from_env
from .identity import BASES, queue_for_channel, queue_name
from .job import Job
from .layout import LayoutCheck, status_address

log = logging.getLogger("shardvisor")

_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a producer. URLs may hold passwords: they are never shown."""

    shard_count: int
    registry_url: str | None
    status_url: str | None

    @classmethod
    def of(cls, shard_count: int | None, registry_url: str | None, status_url: str | None, check_layout: bool) -> Settings:
        """Check the settings and log the count and the queue names."""
        count = shard_count_from_env() if shard_count is None else checked_shard_count(shard_count)
        if registry_url is not None and status_url is not None:
            raise ValueError("give registry_url or status_url, not both: they tell the same")
        if status_url is not None:
            status_address(status_url)
        if not check_layout:
            registry_url = status_url = None
        log.info("producer: shard_count=%d queues=%s", count, ", ".join(_names(count)))
        return cls(count, registry_url, status_url)

    def check(self, max_age: float) -> LayoutCheck | None:
        """Return the layout check, or `None` when there is nothing to read it from."""
        if self.registry_url is None and self.status_url is None:
            return None
        return LayoutCheck(self.shard_count, max_age)

    def queue(self, job: Job) -> str:
        """Return where a job belongs."""
        return queue_for_channel(job.base, job.channel_id, self.shard_count)


def _names(count: int) -> list[str]:
    names = []
    for base in BASES:
        if count <= _SHOWN:
            names += [queue_name(base, index, count) for index in range(count)]
        else:
            names.append(f"{queue_name(base, 0, count)} to {queue_name(base, count - 1, count)}")
    return names

"""The layout check: a producer that counts other shards than the fleet must not enqueue.

The count in force is published in the registry (`shardvisor:layout`) and at `/status`. It is read before the first job
and again when the last answer is older than `max_age`. What decides is `LayoutCheck`, which reads nothing itself.
"""

from __future__ import annotations

import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from .errors import LayoutMismatch, LayoutUnavailable

LAYOUT_KEY: Final = "shardvisor:layout"
READ_TIMEOUT: Final = 5.0
_MAX_STATUS_BYTES: Final = 1 << 20

log = logging.getLogger("shardvisor")


@dataclass(frozen=True, slots=True)
class Layout:
    """The count in force, and how often it has changed."""

    shard_count: int
    epoch: int


def parse_layout(text: str | bytes) -> Layout:
    """Read `{"shard_count": 2, "epoch": 7}`, whatever else is in it."""
    try:
        value: Any = json.loads(text)
        count, epoch = value["shard_count"], value["epoch"]
    except (ValueError, TypeError, KeyError) as error:
        raise LayoutUnavailable(f"the published layout can't be read: {error!r}") from error
    for number in (count, epoch):
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise LayoutUnavailable(f"the published layout can't be right: {number!r}")
    return Layout(count, epoch)


class LayoutCheck:
    """Whether a job may be enqueued, given what was last read and when."""

    def __init__(self, shard_count: int, max_age: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._own = shard_count
        self._max_age = max_age
        self._clock = clock
        self._read_at: float | None = None
        self._mismatch: LayoutMismatch | None = None
        self._silent = False

    def due(self) -> bool:
        """Whether the layout must be read before the next job."""
        return self._mismatch is not None or self._read_at is None or self._clock() - self._read_at >= self._max_age

    def read(self, layout: Layout | None) -> None:
        """Take an answer in; `None` when no daemon has published a layout yet. Raises `LayoutMismatch`."""
        self._read_at = self._clock()
        self._mismatch = None
        self._silent = False
        if layout is None:
            log.warning("no layout is published yet: nothing to compare this producer's shard count with")
        elif layout.shard_count != self._own:
            self._mismatch = LayoutMismatch(self._own, layout.shard_count, layout.epoch)
            raise self._mismatch

    def failed(self, cause: Exception) -> None:
        """Take a failure in: what was known to agree goes on agreeing, a first read that fails is an error."""
        if self._read_at is None or self._mismatch is not None:
            if isinstance(cause, LayoutUnavailable):
                raise cause
            raise LayoutUnavailable(f"the layout in force can't be read: {type(cause).__name__}: {cause}") from cause
        self._read_at = self._clock()
        if not self._silent:
            self._silent = True
            log.warning("the layout in force can't be read just now (%s): going on with the one read before", cause)


def status_address(url: str) -> str:
    """Complete an address without a path to that of `/status`."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError("status_url must be an http: or https: URL")
    return urlunsplit(parts._replace(path="/status")) if parts.path in ("", "/") else url


def read_status(url: str) -> Layout:
    """Read the layout from a daemon's `/status`."""
    with urllib.request.urlopen(status_address(url), timeout=READ_TIMEOUT) as answer:
        return parse_layout(answer.read(_MAX_STATUS_BYTES))

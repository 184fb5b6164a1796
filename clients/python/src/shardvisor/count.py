"""The shard count as text: one strict grammar, the same in the daemon and in every client.

`int()` would take `2_0`, ` 2`, `+2` and `٢`; another language's parser takes others. Who accepts half of it disagrees
with the daemon about where jobs belong.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from .errors import ShardCountError

MAX_SHARD_COUNT: Final = 1024
VARIABLES: Final = ("SHARD_COUNT", "WHATSAPP_SHARD_COUNT")

_PLAIN: Final = re.compile(r"[1-9][0-9]{0,3}")


def parse_shard_count(value: str, variable: str = "SHARD_COUNT") -> int:
    """Read a count of 1 to 1,024 in plain ASCII digits: no sign, no blank, no leading zero."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and int(value) <= MAX_SHARD_COUNT:
        return int(value)
    raise ShardCountError(
        f"{variable}={value!r} is refused: expected a whole number from 1 to {MAX_SHARD_COUNT}, in plain digits"
    )


def checked_shard_count(count: int) -> int:
    """Return a count given as a number, or raise what a text would have raised."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_SHARD_COUNT:
        raise ShardCountError(f"shard_count={count!r} is refused: expected a whole number from 1 to {MAX_SHARD_COUNT}")
    return count


def shard_count_from_env(environ: Mapping[str, str] = os.environ) -> int:
    """Read `SHARD_COUNT` or its alias `WHATSAPP_SHARD_COUNT`; 1 when neither is set. Both set and different is an error."""
    found = {name: environ[name] for name in VARIABLES if name in environ}
    counts = {name: parse_shard_count(value, name) for name, value in found.items()}
    if len(set(counts.values())) > 1:
        both = " and ".join(f"{name}={value!r}" for name, value in found.items())
        raise ShardCountError(f"{both} contradict each other: they are the same setting, set one of them")
    return next(iter(counts.values()), 1)

"""The ring as its documentation has it. Reads `workers<TAB>keys` lines; writes the MD5 of each line's owners."""

import sys
from bisect import bisect_left
from hashlib import md5


def place(text: str) -> int:
    return int(md5(text.encode()).hexdigest(), 16)


for line in sys.stdin:
    workers, keys = (part.split(",") for part in line.rstrip("\n").split("\t"))
    points = {place(f"{worker}:{i}"): worker for worker in workers for i in range(100)}
    ring = sorted(points)
    owners = []
    for key in keys:
        at = bisect_left(ring, place(key))
        owners.append(points[ring[at if at < len(ring) else 0]])
    print(md5(",".join(owners).encode()).hexdigest())

"""The signature of docs/events.md, checked as it tells to."""

import hashlib
import hmac
import time


def verify(secret: str, header: str, body: bytes, tolerance: float = 300) -> bool:
    """Whether a request with this `Shardvisor-Signature` header and body was signed with `secret`, and lately."""
    entries = [entry.split("=", 1) for entry in header.split(",") if "=" in entry]
    times = [value for key, value in entries if key == "t"]
    if len(times) != 1 or not times[0].isascii() or not times[0].isdigit():
        return False
    if abs(time.time() - int(times[0])) > tolerance:
        return False
    signed = times[0].encode() + b"." + body
    expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return any(hmac.compare_digest(expected.encode(), value.encode()) for key, value in entries if key == "v1")

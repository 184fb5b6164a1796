"""An endpoint for everything, as docs/events.md tells to write one: verifies signatures, knows an event by its id.

Prints its port, then one line of JSON for each request: whether its signature holds, whether the id is new, and the event.
"""

import hashlib
import hmac
import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

SECRET = os.environ["SECRET"]
known: set[str] = set()
lock = Lock()


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


class Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        event = json.loads(body)
        with lock:
            line = {
                "signed": verify(SECRET, self.headers.get("Shardvisor-Signature", ""), body),
                "new": event["id"] not in known,
                "event": event,
            }
            known.add(event["id"])
            print(json.dumps(line), flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
print(server.server_address[1], flush=True)
server.serve_forever()

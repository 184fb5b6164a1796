"""An endpoint for everything, as docs/events.md tells to write one: verifies signatures, knows an event by its id.

Prints its port, then one line of JSON for each request: whether its signature holds, whether the id is new, and the event.
"""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

from signature import verify

SECRET = os.environ["SECRET"]
known: set[str] = set()
lock = Lock()


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

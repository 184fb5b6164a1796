"""An agent, as docs/agents.md tells to write one: says what was said to it, and more or nothing where it is asked to.

Prints its port, then one line for each question that was signed as it should be. Refuses any other.
"""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from signature import verify

SECRET = os.environ["SECRET"]


class Agent(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not verify(SECRET, self.headers.get("Shardvisor-Signature", ""), body):
            self.answer(401, b"")
            return
        event = json.loads(body)
        text = event["data"]["text"]
        print(event["id"], flush=True)
        if text == "nothing":
            self.answer(204, b"")
        elif text == "more":
            self.answer(200, json.dumps({"replies": [{"text": f"{n} of 3"} for n in (1, 2, 3)]}).encode())
        else:
            self.answer(200, json.dumps({"reply": f"you said {text}"}).encode())

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Agent)
print(server.server_address[1], flush=True)
server.serve_forever()

"""Private servers for the suites: one RabbitMQ and one Redis for the whole run, gone when the run is."""

import functools
import os
import subprocess
import tempfile
from typing import Any

import pika
import redis

from .fixtures import ROOT


class Server:
    """One server, started by its script."""

    def __init__(self, script: str) -> None:
        self.script = str(ROOT / "tests" / "support" / script)
        self.directory = os.path.join(tempfile.gettempdir(), f"shardvisor-python-{script}-{os.getpid()}")
        self.up()

    def up(self) -> None:
        """Start it, or find it running."""
        command = [self.script, "up", self.directory, "--while", str(os.getpid())]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        self.url = dict(line.split("=", 1) for line in done.stdout.splitlines())["URL"]

    def run(self, *arguments: str) -> str:
        """Run another action of the script."""
        action, *rest = arguments
        done = subprocess.run([self.script, action, self.directory, *rest], capture_output=True, text=True, check=True)
        return done.stdout


@functools.cache
def rabbit() -> Server:
    """Return the broker of this run."""
    return Server("start-rabbit")


@functools.cache
def redis_server() -> Server:
    """Return the Redis of this run."""
    return Server("start-redis")


class Broker:
    """The daemon's side: declares queues and reads what arrived."""

    def __init__(self) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(rabbit().url))
        self.channel = self.connection.channel()

    def declare(self, *queues: str, **arguments: Any) -> None:
        """Declare queues anew."""
        for queue in queues:
            self.channel.queue_delete(queue)
            self.channel.queue_declare(queue, durable=True, arguments=arguments or {"x-queue-type": "quorum"})

    def delete(self, *queues: str) -> None:
        """Delete queues."""
        for queue in queues:
            self.channel.queue_delete(queue)

    def exists(self, queue: str) -> bool:
        """Whether somebody has declared it."""
        channel = self.connection.channel()
        try:
            channel.queue_declare(queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker as error:
            if error.reply_code == 404:
                return False
            raise
        channel.close()
        return True

    def take(self, queue: str, count: int) -> list[tuple[Any, bytes]]:
        """Take so many messages out of a queue."""
        taken = []
        for _, properties, body in self.channel.consume(queue, auto_ack=True, inactivity_timeout=10):
            if body is None:
                break
            taken.append((properties, body))
            if len(taken) == count:
                break
        self.channel.cancel()
        return taken

    def close(self) -> None:
        """Close the connection."""
        if self.connection.is_open:
            self.connection.close()


def registry() -> Any:
    """Return a client of this run's Redis, emptied."""
    client = redis.Redis.from_url(redis_server().url)
    client.flushall()
    return client

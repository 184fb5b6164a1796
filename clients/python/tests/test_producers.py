"""Both producers against a real RabbitMQ and a real Redis."""

import asyncio
import http.server
import json
import os
import threading
import unittest
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from shardvisor import (
    LAYOUT_KEY,
    AsyncProducer,
    LayoutMismatch,
    LayoutUnavailable,
    Producer,
    PublishFailed,
    QueueMissing,
)

from .servers import Broker, rabbit, redis_server, registry

CHANNEL = "6f9619ff-8b86-4011-b42d-00c04fc964ff"
OTHER = "6f9619fe-8b86-4011-b42d-00c04fc964ff"
QUEUES = ("whatsapp-0", "whatsapp-1", "whatsapp_media-1", "whatsapp_avatars-1")


class Blocking:
    """Calls an `AsyncProducer` as if it were a `Producer`, so that one suite holds both to the same."""

    def __init__(self, url: str, **settings: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._producer = self._run(self._make(url, settings))

    @staticmethod
    async def _make(url: str, settings: dict[str, Any]) -> AsyncProducer:
        return AsyncProducer(url, **settings)

    def _run(self, coroutine: Any) -> Any:
        return self._loop.run_until_complete(coroutine)

    def close(self) -> None:
        self._run(self._producer.close())
        self._loop.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Awaitable[Any]] = getattr(self._producer, name)
        return lambda *args, **kwargs: self._run(method(*args, **kwargs))


@contextmanager
def status_page(answer: dict[str, Any]) -> Iterator[str]:
    """Serve an answer at /status."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/status" else 404)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class Both:
    """What both producers promise."""

    kind: ClassVar[Any]

    def setUp(self) -> None:
        self.broker = Broker()
        self.broker.declare(*QUEUES)
        self.addCleanup(self.broker.close)  # type: ignore[attr-defined]

    def producer(self, **settings: Any) -> Any:
        made = self.kind(rabbit().url, **{"shard_count": 2, **settings})
        self.addCleanup(made.close)  # type: ignore[attr-defined]
        return made

    def test_a_job_lies_in_the_queue_of_its_shard_durably(self) -> None:
        """Contract: Q2, I2."""
        producer = self.producer()
        made = producer.enqueue_send(CHANNEL.upper(), 7, "grüß Gott", job_id="j1")
        assert made == "j1"
        producer.enqueue_send(OTHER, "7", "other")
        producer.enqueue_download_media(CHANNEL, "7", "9", {"file_id": "f"})
        producer.enqueue_fetch_avatar(CHANNEL, "7")
        [(properties, body)] = self.broker.take("whatsapp-1", 1)
        assert (properties.delivery_mode, properties.message_id) == (2, "j1")
        assert (properties.content_type, properties.type) == ("application/json", "send")
        assert json.loads(body)["channel_id"] == CHANNEL
        assert json.loads(body)["data"] == {"chat_id": "7", "text": "grüß Gott"}
        for queue, name in (
            ("whatsapp-0", "send"),
            ("whatsapp_media-1", "download_media"),
            ("whatsapp_avatars-1", "fetch_avatar"),
        ):
            [(_, body)] = self.broker.take(queue, 1)
            assert json.loads(body)["name"] == name

    def test_a_job_for_a_queue_that_is_missing_raises_and_declares_nothing(self) -> None:
        """Contract: I2."""
        self.broker.delete("whatsapp-1")
        producer = self.producer()
        with self.assertRaises(QueueMissing) as caught:  # type: ignore[attr-defined]
            producer.enqueue_connect(CHANNEL)
        assert caught.exception.queue == "whatsapp-1"
        assert not self.broker.exists("whatsapp-1")
        producer.enqueue_connect(OTHER, job_id="after")
        [(properties, _)] = self.broker.take("whatsapp-0", 1)
        assert properties.message_id == "after"

    def test_a_refused_job_is_an_error(self) -> None:
        """Contract: Q2."""
        self.broker.declare("whatsapp-1", **{"x-max-length": 1, "x-overflow": "reject-publish"})
        producer = self.producer()
        producer.enqueue_connect(CHANNEL)
        with self.assertRaises(PublishFailed):  # type: ignore[attr-defined]
            producer.enqueue_connect(CHANNEL)

    def test_a_lost_connection_is_opened_again(self) -> None:
        """Field report R25."""
        producer = self.producer()
        producer.enqueue_connect(CHANNEL, job_id="before")
        self.broker.close()
        rabbit().run("ctl", "close_all_connections", "test")
        producer.enqueue_connect(CHANNEL, job_id="after")
        self.broker = Broker()
        taken = [properties.message_id for properties, _ in self.broker.take("whatsapp-1", 2)]
        assert taken == ["before", "after"], taken
        self.addCleanup(self.broker.close)  # type: ignore[attr-defined]

    def test_a_broker_that_is_away_is_an_error(self) -> None:
        producer = self.kind("amqp://guest:hush@127.0.0.1:1/?connection_attempts=1", shard_count=2)
        self.addCleanup(producer.close)  # type: ignore[attr-defined]
        with self.assertRaises(PublishFailed) as caught:  # type: ignore[attr-defined]
            producer.enqueue_connect(CHANNEL)
        assert "hush" not in str(caught.exception)

    def test_another_count_than_the_registry_tells_is_refused(self) -> None:
        """Contract: I3b."""
        store = registry()
        store.set(LAYOUT_KEY, '{"shard_count":3,"epoch":7}')
        producer = self.producer(registry_url=redis_server().url)
        with self.assertRaises(LayoutMismatch) as caught:  # type: ignore[attr-defined]
            producer.enqueue_connect(CHANNEL)
        assert (caught.exception.own, caught.exception.fleet, caught.exception.epoch) == (2, 3, 7)
        self.producer(registry_url=redis_server().url, check_layout=False).enqueue_connect(CHANNEL, job_id="unchecked")
        store.set(LAYOUT_KEY, '{"shard_count":2,"epoch":8}')
        producer.enqueue_connect(CHANNEL, job_id="agreed")
        taken = [properties.message_id for properties, _ in self.broker.take("whatsapp-1", 2)]
        assert taken == ["unchecked", "agreed"], taken

    def test_another_count_than_the_status_tells_is_refused(self) -> None:
        """Contract: I3b."""
        answer = {"shard_count": 3, "epoch": 7, "shards": []}
        with status_page(answer) as url:
            producer = self.producer(status_url=url, layout_max_age=0)
            with self.assertRaises(LayoutMismatch):  # type: ignore[attr-defined]
                producer.enqueue_connect(CHANNEL)
            answer["shard_count"] = 2
            producer.enqueue_connect(CHANNEL)
        # The page is gone, and it agreed when it was last read.
        producer.enqueue_connect(CHANNEL)
        with self.assertRaises(LayoutUnavailable):  # type: ignore[attr-defined]
            self.producer(status_url=url).enqueue_connect(CHANNEL)
        assert len(self.broker.take("whatsapp-1", 2)) == 2

    def test_a_layout_that_is_nonsense_is_no_layout(self) -> None:
        """Contract: I3b."""
        registry().set(LAYOUT_KEY, "two")
        with self.assertRaises(LayoutUnavailable):  # type: ignore[attr-defined]
            self.producer(registry_url=redis_server().url).check_layout()


class Sync(Both, unittest.TestCase):
    kind = Producer

    def test_threads_and_forked_children_share_a_producer(self) -> None:
        producer = self.producer()
        threads = [threading.Thread(target=lambda: [producer.enqueue_connect(CHANNEL) for _ in range(20)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        child = os.fork()
        if child == 0:
            producer.enqueue_connect(CHANNEL)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        self.assertEqual(status, 0)
        producer.enqueue_connect(CHANNEL)
        self.assertEqual(len(self.broker.take("whatsapp-1", 82)), 82)


class Async(Both, unittest.TestCase):
    kind = Blocking

    def test_many_jobs_are_confirmed_side_by_side(self) -> None:
        """Contract: Q2."""

        async def many() -> list[str]:
            async with AsyncProducer(rabbit().url, shard_count=2) as producer:
                return await asyncio.gather(
                    *(producer.enqueue_send(CHANNEL, "7", str(number), job_id=f"j{number}") for number in range(1000))
                )

        made = asyncio.run(many())
        taken = [properties.message_id for properties, _ in self.broker.take("whatsapp-1", 1000)]
        self.assertEqual(sorted(taken), sorted(made))


if __name__ == "__main__":
    unittest.main()

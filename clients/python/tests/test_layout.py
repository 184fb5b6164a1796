"""The layout check decides from what was read and when; here it is told both."""

import unittest

from shardvisor import Layout, LayoutMismatch, LayoutUnavailable, Producer
from shardvisor.layout import LayoutCheck, parse_layout, status_address


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Check(unittest.TestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.check = LayoutCheck(2, 5.0, self.clock)

    def test_an_answer_holds_for_its_time(self) -> None:
        """Contract: I3b."""
        self.assertTrue(self.check.due())
        self.check.read(Layout(2, 1))
        self.assertFalse(self.check.due())
        self.clock.now += 5
        self.assertTrue(self.check.due())

    def test_a_mismatch_names_both_and_is_read_again_each_time(self) -> None:
        """Contract: I3b."""
        self.check.read(Layout(2, 1))
        with self.assertRaises(LayoutMismatch) as caught:
            self.check.read(Layout(3, 2))
        self.assertEqual((caught.exception.own, caught.exception.fleet, caught.exception.epoch), (2, 3, 2))
        self.assertRegex(str(caught.exception), r"2 shard.* 3 \(epoch 2\)")
        self.assertTrue(self.check.due())
        with self.assertRaises(LayoutUnavailable):
            self.check.failed(OSError("away"))
        self.check.read(Layout(2, 3))
        self.assertFalse(self.check.due())

    def test_an_outage_does_not_stop_a_producer_that_was_right(self) -> None:
        with self.assertRaises(LayoutUnavailable):
            self.check.failed(OSError("away"))
        self.assertTrue(self.check.due())
        self.check.read(Layout(2, 1))
        self.clock.now += 6
        with self.assertLogs("shardvisor", "WARNING") as logs:
            self.check.failed(OSError("away"))
            self.assertFalse(self.check.due())
            self.clock.now += 6
            self.check.failed(OSError("away"))
        self.assertEqual(len(logs.output), 1)

    def test_no_layout_yet_is_no_mismatch(self) -> None:
        with self.assertLogs("shardvisor", "WARNING"):
            self.check.read(None)

    def test_nonsense_is_no_layout(self) -> None:
        self.assertEqual(parse_layout(b'{"shard_count":2,"epoch":7,"more":[]}'), Layout(2, 7))
        for nonsense in (
            "",
            "null",
            "[]",
            "{}",
            '{"shard_count":"2","epoch":7}',
            '{"shard_count":2}',
            '{"shard_count":-1,"epoch":0}',
        ):
            with self.assertRaises(LayoutUnavailable):
                parse_layout(nonsense)

    def test_an_address_is_completed(self) -> None:
        self.assertEqual(status_address("http://127.0.0.1:8080"), "http://127.0.0.1:8080/status")
        self.assertEqual(status_address("https://box/"), "https://box/status")
        self.assertEqual(status_address("https://box/shardvisor/status"), "https://box/shardvisor/status")
        with self.assertRaises(ValueError):
            status_address("file:///status")


class Creation(unittest.TestCase):
    def test_a_producer_logs_its_count_and_queues_once_without_credentials(self) -> None:
        """Contract: I4."""
        with self.assertLogs("shardvisor", "INFO") as logs:
            Producer("amqp://user:hush@127.0.0.1", shard_count=2, registry_url="redis://:hush@127.0.0.1")
        self.assertEqual(len(logs.output), 1)
        line = logs.output[0]
        for part in ("shard_count=2", "whatsapp-0", "whatsapp-1", "whatsapp_media-1", "whatsapp_avatars-0"):
            self.assertIn(part, line)
        self.assertNotIn("hush", line)

    def test_settings_that_contradict_are_refused(self) -> None:
        for count in (0, -1, 1025, 2.0, True, "2"):
            with self.assertRaises(ValueError):
                Producer("amqp://127.0.0.1", shard_count=count)  # type: ignore[arg-type]
        with self.assertRaises(ValueError):
            Producer("amqp://127.0.0.1", shard_count=2, registry_url="redis://h", status_url="http://h")


if __name__ == "__main__":
    unittest.main()

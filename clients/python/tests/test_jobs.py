"""What is published for each kind of job, compared with the fixture that the daemon parses."""

import inspect
import json
import unittest
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID

from shardvisor import AsyncProducer, Job, JobError, Producer, jobs

from .fixtures import fixture

JOBS: Any = fixture("jobs.json")
CHANNEL = JOBS["channel_id"]


def build(name: str, arguments: dict[str, Any], **more: Any) -> Job:
    """Build a job by its name."""
    job: Job = getattr(jobs, name)(CHANNEL, **arguments, **more)
    return job


class Jobs(unittest.TestCase):
    def test_each_job_is_what_the_daemon_reads(self) -> None:
        """Contract: Q1."""
        for case in JOBS["jobs"]:
            with self.subTest(case["name"], arguments=case["arguments"]):
                job = build(case["name"], case["arguments"], job_id="j")
                envelope = json.loads(job.body)
                self.assertEqual(envelope["data"], case["data"])
                self.assertEqual((job.name, job.base, job.id), (case["name"], case["base"], "j"))
                self.assertEqual((envelope["name"], envelope["id"]), (case["name"], "j"))
                self.assertEqual(envelope["channel_id"], str(UUID(CHANNEL)))
        self.assertEqual({case["name"] for case in JOBS["jobs"]}, set(jobs.__all__))

    def test_what_the_daemon_would_bury_is_refused_with_the_field(self) -> None:
        """Contract: Q5."""
        for case in JOBS["refused"]:
            with self.subTest(case["name"], field=case["field"]), self.assertRaises(JobError) as caught:
                build(case["name"], case["arguments"])
            self.assertIn(case["field"], str(caught.exception))
        for arguments in (
            {"chat_id": None, "text": "x"},
            {"chat_id": True, "text": "x"},
            {"chat_id": "7", "text": "x", "mentions": "one"},
            {"chat_id": "7", "text": "x" * (1 << 20)},
        ):
            with self.assertRaises(JobError):
                build("send", arguments)
        for job_id in ("", "x" * 129):
            with self.assertRaises(JobError):
                build("connect", {}, job_id=job_id)
        with self.assertRaises(JobError):
            build("send_location", {"chat_id": "7", "latitude": float("nan"), "longitude": 0})
        with self.assertRaises(JobError):
            build("download_media", {"chat_id": "7", "message_id": "9", "media": {"x": float("inf")}})

    def test_a_job_has_an_id_and_times(self) -> None:
        """Contract: Q1."""
        first, second = build("connect", {}), build("connect", {})
        self.assertNotEqual(first.id, second.id)
        self.assertEqual(UUID(first.id).version, 4)
        local = timezone(timedelta(hours=2))
        until = datetime(2030, 1, 31, 14, 0, 0, 5000, tzinfo=local)
        envelope = json.loads(build("connect", {}, expires_at=until).body)
        self.assertEqual(envelope["expires_at"], "2030-01-31T12:00:00.005Z")
        age = datetime.now(timezone.utc) - datetime.fromisoformat(envelope["enqueued_at"].replace("Z", "+00:00"))
        self.assertLess(abs(age), timedelta(minutes=1))
        with self.assertRaises(JobError):
            build("connect", {}, expires_at=datetime(2030, 1, 31))

    def test_both_producers_have_a_method_for_each(self) -> None:
        for name in jobs.__all__:
            for kind in (Producer, AsyncProducer):
                method = getattr(kind, f"enqueue_{name}")
                self.assertEqual(method.__name__, f"enqueue_{name}")
                names = list(inspect.signature(method).parameters)
                self.assertEqual(names, ["self", *inspect.signature(getattr(jobs, name)).parameters])


if __name__ == "__main__":
    unittest.main()

"""The shard rule, read from the fixture that the Rust and TypeScript suites read too."""

import subprocess
import sys
import unittest
import uuid
from typing import Any

from shardvisor import (
    BASES,
    ChannelIdError,
    ShardCountError,
    UnknownBase,
    parse_channel_id,
    parse_shard_count,
    queue_for_channel,
    queue_name,
    shard_count_from_env,
    shard_for,
)

from .fixtures import ROOT, fixture

PARITY: Any = fixture("shard_parity.json")


class Parity(unittest.TestCase):
    def test_the_fixture_is_what_its_script_writes(self) -> None:
        script = ROOT / "tests" / "fixtures" / "generate_shard_parity.py"
        subprocess.run([sys.executable, str(script), "--check"], check=True)

    def test_every_spelling_of_a_channel_has_one_canonical_form_and_one_shard(self) -> None:
        """Contract: I1. Field report R55."""
        self.assertGreaterEqual(len(PARITY["channels"]), 64)
        for channel in PARITY["channels"]:
            for spelling in channel["spellings"]:
                self.assertEqual(str(parse_channel_id(spelling)), channel["canonical"])
                for count in PARITY["counts"]:
                    expected = channel["shards"][str(count)]
                    self.assertEqual(shard_for(spelling, count), expected, f"{spelling} of {count}")
                    self.assertEqual(shard_for(uuid.UUID(spelling), count), expected)

    def test_queue_names_are_those_of_the_fixture(self) -> None:
        """Contract: I2."""
        self.assertEqual(list(BASES), PARITY["bases"])
        for base in BASES:
            for count in PARITY["counts"]:
                names = PARITY["queues"][base][str(count)]
                self.assertEqual([queue_name(base, index, count) for index in range(count)], names)
                for channel in PARITY["channels"]:
                    name = queue_for_channel(base, channel["canonical"], count)
                    self.assertEqual(name, names[channel["shards"][str(count)]])
        for base in PARITY["refused_bases"]:
            with self.assertRaises(UnknownBase):
                queue_for_channel(base, PARITY["channels"][0]["canonical"], 2)

    def test_what_is_no_channel_id_is_a_value_error(self) -> None:
        """Contract: I1. Field report R55."""
        for refused in PARITY["refused_ids"]:
            for count in (1, 2):
                with self.subTest(refused["why"], value=refused["value"]), self.assertRaises(ValueError) as caught:
                    shard_for(refused["value"], count)
                self.assertIsInstance(caught.exception, ChannelIdError)
        for other in (None, 7, b"6f9619ff8b864011b42d00c04fc964ff", ["6f"]):
            with self.assertRaises(ChannelIdError):
                shard_for(other, 2)  # type: ignore[arg-type]

    def test_one_shard_owns_everything(self) -> None:
        """Contract: I1."""
        for count in (1, 0, -3):
            self.assertEqual(shard_for(uuid.UUID(int=(1 << 128) - 1), count), 0)
            self.assertEqual(queue_for_channel("whatsapp", uuid.UUID(int=5), count), "whatsapp")
        for other in (2.0, "2", None, True):
            with self.assertRaises(TypeError):
                shard_for(uuid.UUID(int=5), other)  # type: ignore[arg-type]


class Count(unittest.TestCase):
    def test_counts_follow_one_grammar(self) -> None:
        """Contract: I3. Field report R54."""
        grammar = PARITY["count_grammar"]
        for accepted in grammar["accepted"]:
            self.assertEqual(parse_shard_count(accepted["value"]), accepted["count"])
        for refused in grammar["refused"]:
            for variable in ("SHARD_COUNT", "WHATSAPP_SHARD_COUNT"):
                with self.subTest(refused["why"], value=refused["value"]), self.assertRaises(ShardCountError) as caught:
                    shard_count_from_env({variable: refused["value"]})
                self.assertIn(variable, str(caught.exception))
                self.assertIn(repr(refused["value"]), str(caught.exception))

    def test_two_names_of_one_setting_must_agree(self) -> None:
        """Contract: I3."""
        self.assertEqual(shard_count_from_env({}), 1)
        self.assertEqual(shard_count_from_env({"SHARD_COUNT": "3"}), 3)
        self.assertEqual(shard_count_from_env({"WHATSAPP_SHARD_COUNT": "4"}), 4)
        self.assertEqual(shard_count_from_env({"SHARD_COUNT": "2", "WHATSAPP_SHARD_COUNT": "2"}), 2)
        with self.assertRaises(ShardCountError) as caught:
            shard_count_from_env({"SHARD_COUNT": "2", "WHATSAPP_SHARD_COUNT": "3"})
        self.assertIn("WHATSAPP_SHARD_COUNT='3'", str(caught.exception))


class StandardLibraryAlone(unittest.TestCase):
    def test_importing_loads_nothing_that_must_be_installed(self) -> None:
        script = (
            "import sys, shardvisor; shardvisor.shard_for('6f9619ff8b864011b42d00c04fc964ff', 2); "
            "shardvisor.Producer('amqp://localhost', shard_count=2, registry_url='redis://localhost'); "
            "print(sorted({name.split('.')[0] for name in sys.modules} - sys.stdlib_module_names - {'shardvisor'}))"
        )
        source = str(ROOT / "clients" / "python" / "src")
        done = subprocess.run(
            [sys.executable, "-S", "-c", script], env={"PYTHONPATH": source}, capture_output=True, text=True, check=True
        )
        self.assertEqual(done.stdout.strip(), "['__main__']")


if __name__ == "__main__":
    unittest.main()

/** The shard rule, read from the fixture that the Rust and Python suites read too. */
import assert from "node:assert/strict";
import { test } from "node:test";

import {
  BASES,
  type Base,
  ChannelIdError,
  parseChannelId,
  parseShardCount,
  queueForChannel,
  queueName,
  ShardCountError,
  shardCountFromEnv,
  shardFor,
  UnknownBaseError,
} from "../src/index.js";
import { fixture } from "./fixtures.js";

interface Refused {
  value: string;
  why: string;
}

interface Parity {
  counts: number[];
  bases: string[];
  queues: Record<Base, Record<string, string[]>>;
  refused_bases: string[];
  channels: { canonical: string; spellings: string[]; shards: Record<string, number> }[];
  refused_ids: Refused[];
  count_grammar: { accepted: { value: string; count: number }[]; refused: Refused[] };
}

const parity = fixture<Parity>("shard_parity.json");

/** Contract: I1. Field report R55. */
test("every spelling of a channel has one canonical form and one shard", () => {
  assert.ok(parity.channels.length >= 64);
  for (const channel of parity.channels) {
    for (const spelling of channel.spellings) {
      assert.equal(parseChannelId(spelling), channel.canonical);
      for (const count of parity.counts) {
        assert.equal(shardFor(spelling, count), channel.shards[count], `${spelling} of ${count}`);
      }
    }
  }
});

/** Contract: I2. */
test("queue names are those of the fixture", () => {
  assert.deepEqual(BASES, parity.bases);
  for (const base of BASES) {
    for (const count of parity.counts) {
      const names = parity.queues[base][count] as string[];
      assert.deepEqual(
        Array.from({ length: count }, (_, index) => queueName(base, index, count)),
        names,
      );
      for (const channel of parity.channels) {
        assert.equal(queueForChannel(base, channel.canonical, count), names[channel.shards[count] as number]);
      }
    }
  }
  for (const base of parity.refused_bases) {
    assert.throws(() => queueForChannel(base as Base, "6f9619ff8b864011b42d00c04fc964ff", 2), UnknownBaseError);
  }
});

/** Contract: I1. Field report R55. */
test("what is no channel id is refused", () => {
  for (const { value, why } of parity.refused_ids) {
    for (const count of [1, 2]) {
      assert.throws(() => shardFor(value, count), ChannelIdError, `${why}: ${JSON.stringify(value)}`);
    }
  }
  for (const other of [undefined, null, 7, {}, ["6f9619ff8b864011b42d00c04fc964ff"]]) {
    assert.throws(() => shardFor(other as unknown as string, 2), ChannelIdError);
  }
});

/** Contract: I1. */
test("one shard owns everything", () => {
  for (const count of [1, 0, -3]) {
    assert.equal(shardFor("ffffffffffffffffffffffffffffffff", count), 0);
    assert.equal(queueForChannel("whatsapp", "ffffffffffffffffffffffffffffffff", count), "whatsapp");
  }
  for (const count of [Number.NaN, 2.5, "2", undefined]) {
    assert.throws(() => shardFor("ffffffffffffffffffffffffffffffff", count as number), TypeError);
  }
});

/** Contract: I3. Field report R54. */
test("counts follow one grammar", () => {
  for (const { value, count } of parity.count_grammar.accepted) {
    assert.equal(parseShardCount(value), count);
  }
  for (const { value, why } of parity.count_grammar.refused) {
    for (const variable of ["SHARD_COUNT", "WHATSAPP_SHARD_COUNT"]) {
      assert.throws(
        () => shardCountFromEnv({ [variable]: value }),
        (error: unknown) =>
          error instanceof ShardCountError && error.message.startsWith(`${variable}=${JSON.stringify(value)} `),
        `${why}: ${JSON.stringify(value)}`,
      );
    }
  }
});

/** Contract: I3. */
test("two names of one setting must agree", () => {
  assert.equal(shardCountFromEnv({}), 1);
  assert.equal(shardCountFromEnv({ SHARD_COUNT: "3" }), 3);
  assert.equal(shardCountFromEnv({ WHATSAPP_SHARD_COUNT: "4" }), 4);
  assert.equal(shardCountFromEnv({ SHARD_COUNT: "2", WHATSAPP_SHARD_COUNT: "2" }), 2);
  assert.throws(() => shardCountFromEnv({ SHARD_COUNT: "2", WHATSAPP_SHARD_COUNT: "3" }), /WHATSAPP_SHARD_COUNT="3"/);
});

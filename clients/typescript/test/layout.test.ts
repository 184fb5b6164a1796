/** The layout check decides from what was read and when; here it is told both. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { LayoutMismatch, LayoutUnavailable, Producer } from "../src/index.js";
import { LayoutCheck, parseLayout, statusAddress } from "../src/layout.js";

function checked() {
  const state = { now: 100_000, warnings: [] as string[] };
  const check = new LayoutCheck(
    2,
    5_000,
    (line) => state.warnings.push(line),
    () => state.now,
  );
  return { state, check };
}

/** Contract: I3b. */
test("an answer holds for its time", () => {
  const { state, check } = checked();
  assert.ok(check.due());
  check.read({ shardCount: 2, epoch: 1 });
  assert.ok(!check.due());
  state.now += 5_000;
  assert.ok(check.due());
});

/** Contract: I3b. */
test("a mismatch names both and is read again each time", () => {
  const { check } = checked();
  check.read({ shardCount: 2, epoch: 1 });
  assert.throws(
    () => check.read({ shardCount: 3, epoch: 2 }),
    (error: unknown) =>
      error instanceof LayoutMismatch &&
      error.own === 2 &&
      error.fleet === 3 &&
      error.epoch === 2 &&
      /2 shard.* 3 \(epoch 2\)/.test(error.message),
  );
  assert.ok(check.due());
  assert.throws(() => check.failed(new Error("away")), LayoutUnavailable);
  check.read({ shardCount: 2, epoch: 3 });
  assert.ok(!check.due());
});

test("an outage does not stop a producer that was right", () => {
  const { state, check } = checked();
  assert.throws(() => check.failed(new Error("away")), LayoutUnavailable);
  check.read({ shardCount: 2, epoch: 1 });
  state.now += 6_000;
  check.failed(new Error("away"));
  assert.ok(!check.due());
  state.now += 6_000;
  check.failed(new Error("away"));
  assert.equal(state.warnings.length, 1);
});

test("no layout yet is no mismatch", () => {
  const { state, check } = checked();
  check.read(undefined);
  assert.equal(state.warnings.length, 1);
});

test("nonsense is no layout", () => {
  assert.deepEqual(parseLayout('{"shard_count":2,"epoch":7,"more":[]}'), { shardCount: 2, epoch: 7 });
  for (const nonsense of ["", "null", "[]", "{}", '{"shard_count":"2","epoch":7}', '{"shard_count":2}', "2"]) {
    assert.throws(() => parseLayout(nonsense), LayoutUnavailable);
  }
});

test("an address is completed", () => {
  assert.equal(statusAddress("http://127.0.0.1:8080"), "http://127.0.0.1:8080/status");
  assert.equal(statusAddress("https://box/shardvisor/status"), "https://box/shardvisor/status");
  assert.throws(() => statusAddress("file:///status"), TypeError);
});

/** Contract: I4. */
test("a producer logs its count and queues once without credentials", () => {
  const lines: string[] = [];
  const logger = { info: (line: string) => lines.push(line), warn: (line: string) => lines.push(line) };
  new Producer("amqp://user:hush@127.0.0.1", { shardCount: 2, registryUrl: "redis://:hush@127.0.0.1", logger });
  assert.equal(lines.length, 1);
  for (const part of ["shard_count=2", "whatsapp-0", "whatsapp-1", "whatsapp_media-1", "whatsapp_avatars-0"]) {
    assert.ok(lines[0]?.includes(part), part);
  }
  assert.ok(!lines[0]?.includes("hush"));
});

test("settings that contradict are refused", () => {
  for (const shardCount of [0, -1, 1025, 2.5, Number.NaN, "2" as unknown as number]) {
    assert.throws(() => new Producer("amqp://127.0.0.1", { shardCount }), /is refused/);
  }
  const both = { shardCount: 2, registryUrl: "redis://h", statusUrl: "http://h" };
  assert.throws(() => new Producer("amqp://127.0.0.1", both), TypeError);
});

/** What is published for each kind of job, compared with the fixture that the daemon parses. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { JOB_NAMES, type JobData, JobError, type JobName, makeJob, Producer } from "../src/index.js";
import { fixture } from "./fixtures.js";

interface Jobs {
  channel_id: string;
  jobs: { name: JobName; base: string; arguments: Record<string, unknown>; data: Record<string, unknown> }[];
  refused: { name: JobName; arguments: Record<string, unknown>; field: string }[];
}

const cases = fixture<Jobs>("jobs.json");
const camel = (field: string): string => field.replace(/_[a-z]/g, (pair) => pair.slice(1).toUpperCase());

function build(name: JobName, asked: Record<string, unknown>, jobId?: string) {
  const data = Object.fromEntries(Object.entries(asked).map(([field, value]) => [camel(field), value]));
  return makeJob(name, cases.channel_id, data as unknown as JobData[JobName], { jobId });
}

/** Contract: Q1. */
test("each job is what the daemon reads", () => {
  for (const { name, base, arguments: asked, data } of cases.jobs) {
    const job = build(name, asked, "j");
    const envelope = JSON.parse(job.body.toString());
    assert.deepEqual(envelope.data, data);
    assert.deepEqual([job.name, job.base, job.id], [name, base, "j"]);
    assert.deepEqual([envelope.name, envelope.id], [name, "j"]);
    assert.equal(envelope.channel_id, "6f9619ff-8b86-4011-b42d-00c04fc964ff");
  }
  assert.deepEqual(new Set(cases.jobs.map(({ name }) => name)), new Set(JOB_NAMES));
});

/** Contract: Q5. */
test("what the daemon would bury is refused with the field", () => {
  const refusedFor = (field: string) => (error: unknown) => error instanceof JobError && error.message.includes(field);
  for (const { name, arguments: asked, field } of cases.refused) {
    assert.throws(() => build(name, asked), refusedFor(field));
  }
  const send = { chat_id: "7", text: "x" };
  assert.throws(() => build("send", { ...send, txet: "y" }), refusedFor("txet"));
  assert.throws(() => build("send", { ...send, chat_id: null }), refusedFor("chat_id"));
  assert.throws(() => build("send", { ...send, chat_id: 1.5 }), refusedFor("chat_id"));
  assert.throws(() => build("send", { ...send, mentions: "one" }), refusedFor("mentions"));
  assert.throws(() => build("send", { ...send, text: "\ud800" }), refusedFor("text"));
  assert.throws(() => build("send", { ...send, parse_mode: "Markdown" }), refusedFor("parse_mode"));
  assert.throws(() => build("send", { ...send, text: "x".repeat(1 << 20) }), refusedFor("bytes"));
  assert.throws(() => build("send", { ...send, constructor: 1 }), refusedFor("constructor"));
  assert.throws(() => build("constructor" as JobName, {}), refusedFor("name"));
  for (const jobId of ["", "x".repeat(129)]) {
    assert.throws(() => build("connect", {}, jobId), refusedFor("id"));
  }
  assert.equal(build("connect", {}, "\u{1f44b}".repeat(128)).id.length, 256);
});

/** Contract: Q1. */
test("a job has an id and times", () => {
  const first = build("connect", {});
  assert.match(first.id, /^[0-9a-f]{8}-[0-9a-f]{4}-4/);
  assert.notEqual(first.id, build("connect", {}).id);
  const job = makeJob("connect", cases.channel_id, {}, { expiresAt: new Date("2030-01-31T14:00:00.005+02:00") });
  const envelope = JSON.parse(job.body.toString());
  assert.equal(envelope.expires_at, "2030-01-31T12:00:00.005Z");
  assert.ok(Math.abs(Date.now() - Date.parse(envelope.enqueued_at)) < 60_000);
  assert.throws(() => makeJob("connect", cases.channel_id, {}, { expiresAt: new Date("never") }), JobError);
});

test("the producer has a method for each", () => {
  for (const name of JOB_NAMES) {
    const method = camel(`enqueue_${name}`);
    assert.equal(typeof (Producer.prototype as unknown as Record<string, unknown>)[method], "function", method);
  }
});

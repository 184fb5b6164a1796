/** The producer against a real RabbitMQ and a real Redis. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, beforeEach, describe, test } from "node:test";

import { type Channel, type ChannelModel, connect, type GetMessage } from "amqplib";
import { createClient } from "redis";

import {
  LAYOUT_KEY,
  LayoutMismatch,
  LayoutUnavailable,
  Producer,
  type ProducerOptions,
  PublishFailed,
  QueueMissing,
} from "../src/index.js";
import { Server } from "./servers.js";

const CHANNEL = "6f9619ff-8b86-4011-b42d-00c04fc964ff";
const OTHER = "6f9619fe-8b86-4011-b42d-00c04fc964ff";
const QUEUES = ["whatsapp-0", "whatsapp-1", "whatsapp_media-1", "whatsapp_avatars-1"];
const quiet = { info: () => {}, warn: () => {} };

describe("the producer", { timeout: 120_000 }, () => {
  const rabbit = new Server("start-rabbit");
  const redis = new Server("start-redis");
  let connection: ChannelModel;
  let broker: Channel;
  const producers: Producer[] = [];

  const open = async () => {
    connection = await connect(rabbit.url);
    connection.on("error", () => {});
    broker = await connection.createChannel();
  };
  const declare = async (queue: string, more: Record<string, unknown> = { "x-queue-type": "quorum" }) => {
    await broker.deleteQueue(queue);
    await broker.assertQueue(queue, { durable: true, arguments: more });
  };
  const take = async (queue: string): Promise<GetMessage[]> => {
    const taken: GetMessage[] = [];
    for (;;) {
      const message = await broker.get(queue, { noAck: true });
      if (message === false) {
        return taken;
      }
      taken.push(message);
    }
  };
  const ids = async (queue: string) => (await take(queue)).map(({ properties }) => properties.messageId);
  const producer = (more: ProducerOptions = {}, url = rabbit.url): Producer => {
    const made = new Producer(url, { shardCount: 2, logger: quiet, ...more });
    producers.push(made);
    return made;
  };
  const publishLayout = async (layout: string) => {
    const client = await createClient({ url: redis.url }).connect();
    await client.set(LAYOUT_KEY, layout);
    client.destroy();
  };

  before(async () => {
    await Promise.all([rabbit.up(), redis.up()]);
    await open();
  });
  beforeEach(async () => {
    for (const queue of QUEUES) {
      await declare(queue);
    }
  });
  after(async () => {
    await Promise.all(producers.map((made) => made.close()));
    await connection.close();
    await Promise.all([rabbit.run("down"), redis.run("down")]);
  });

  /** Contract: Q2, I2. */
  test("a job lies in the queue of its shard durably", async () => {
    const made = producer();
    const jobId = await made.enqueueSend(CHANNEL.toUpperCase(), { chatId: 7, text: "grüß Gott" }, { jobId: "j1" });
    assert.equal(jobId, "j1");
    await made.enqueueSend(OTHER, { chatId: "7", text: "other" });
    await made.enqueueDownloadMedia(CHANNEL, { chatId: "7", messageId: "9", media: { file_id: "f" } });
    await made.enqueueFetchAvatar(CHANNEL, { chatId: "7" });
    const [message] = await take("whatsapp-1");
    assert.ok(message !== undefined);
    const { deliveryMode, messageId, contentType, type } = message.properties;
    assert.deepEqual([deliveryMode, messageId, contentType, type], [2, "j1", "application/json", "send"]);
    const body = JSON.parse(message.content.toString());
    assert.equal(body.channel_id, CHANNEL);
    assert.deepEqual(body.data, { chat_id: "7", text: "grüß Gott" });
    for (const queue of ["whatsapp-0", "whatsapp_media-1", "whatsapp_avatars-1"]) {
      assert.equal((await take(queue)).length, 1, queue);
    }
  });

  /** Contract: I2. */
  test("a job for a queue that is missing rejects and declares nothing", async () => {
    await broker.deleteQueue("whatsapp-1");
    const made = producer();
    // Side by side with others, so that the returned one must be told apart.
    const jobs = [CHANNEL, OTHER, CHANNEL, OTHER].map((channel, at) => made.enqueueConnect(channel, { jobId: `j${at}` }));
    const outcomes = (await Promise.allSettled(jobs)).map((outcome) =>
      outcome.status === "fulfilled" ? outcome.value : outcome.reason,
    );
    assert.deepEqual([outcomes[1], outcomes[3]], ["j1", "j3"]);
    assert.ok(outcomes[0] instanceof QueueMissing && outcomes[0].queue === "whatsapp-1");
    assert.ok(outcomes[2] instanceof QueueMissing);
    assert.deepEqual(await ids("whatsapp-0"), ["j1", "j3"]);
    const probe = await connection.createChannel();
    probe.on("error", () => {});
    await assert.rejects(probe.checkQueue("whatsapp-1"), /404/);
  });

  /** Contract: Q2. */
  test("a refused job rejects", async () => {
    await declare("whatsapp-1", { "x-max-length": 1, "x-overflow": "reject-publish" });
    const made = producer();
    await made.enqueueConnect(CHANNEL);
    await assert.rejects(made.enqueueConnect(CHANNEL), PublishFailed);
  });

  /** Contract: Q2. */
  test("many jobs are confirmed side by side", async () => {
    const made = producer();
    const jobs = Array.from({ length: 1000 }, (_, at) => made.enqueueConnect(CHANNEL, { jobId: `j${at}` }));
    const confirmed = await Promise.all(jobs);
    assert.deepEqual((await ids("whatsapp-1")).sort(), confirmed.sort());
  });

  /** Field report R25. */
  test("a lost connection is opened again", async () => {
    const made = producer();
    await made.enqueueConnect(CHANNEL, { jobId: "before" });
    await rabbit.run("ctl", "close_all_connections", "test");
    await Promise.all(["after", "later"].map((jobId) => made.enqueueConnect(CHANNEL, { jobId })));
    await open();
    assert.deepEqual(await ids("whatsapp-1"), ["before", "after", "later"]);
  });

  test("a broker that is away rejects without showing the password", async () => {
    const made = producer({}, "amqp://guest:hush@127.0.0.1:1/");
    await assert.rejects(
      made.enqueueConnect(CHANNEL),
      (error: unknown) => error instanceof PublishFailed && !error.message.includes("hush"),
    );
  });

  /** Contract: I3b. */
  test("another count than the registry tells is refused", async () => {
    await publishLayout('{"shard_count":3,"epoch":7}');
    const made = producer({ registryUrl: redis.url });
    await assert.rejects(
      made.enqueueConnect(CHANNEL),
      (error: unknown) =>
        error instanceof LayoutMismatch && error.own === 2 && error.fleet === 3 && error.epoch === 7,
    );
    await producer({ registryUrl: redis.url, checkLayout: false }).enqueueConnect(CHANNEL, { jobId: "unchecked" });
    await publishLayout('{"shard_count":2,"epoch":8}');
    await made.enqueueConnect(CHANNEL, { jobId: "agreed" });
    assert.deepEqual(await ids("whatsapp-1"), ["unchecked", "agreed"]);
    await publishLayout("two");
    await assert.rejects(producer({ registryUrl: redis.url }).checkLayout(), LayoutUnavailable);
    await assert.rejects(producer({ registryUrl: "redis://127.0.0.1:1" }).checkLayout(), LayoutUnavailable);
  });

  /** Contract: I3b. */
  test("another count than the status tells is refused", async () => {
    let layout = { shard_count: 3, epoch: 7 };
    const page = createServer((request, answer) => {
      answer.writeHead(request.url === "/status" ? 200 : 404).end(JSON.stringify(layout));
    }).listen(0, "127.0.0.1");
    await new Promise((resolve) => page.once("listening", resolve));
    const statusUrl = `http://127.0.0.1:${(page.address() as AddressInfo).port}`;
    const made = producer({ statusUrl, layoutMaxAgeMs: 0 });
    await assert.rejects(made.enqueueConnect(CHANNEL), LayoutMismatch);
    layout = { shard_count: 2, epoch: 8 };
    await made.enqueueConnect(CHANNEL);
    page.closeAllConnections();
    await new Promise((resolve) => page.close(resolve));
    // The page is gone, and it agreed when it was last read.
    await made.enqueueConnect(CHANNEL);
    await assert.rejects(producer({ statusUrl }).enqueueConnect(CHANNEL), LayoutUnavailable);
    assert.equal((await take("whatsapp-1")).length, 2);
  });
});

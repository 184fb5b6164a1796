/**
 * The producer, on amqplib.
 *
 * A job is in the broker, on disk, when `enqueue…` resolves: persistent, with a publisher confirm, mandatory. Nothing is ever
 * declared here: queues belong to the daemon, and a job for one that is missing rejects with `QueueMissing`.
 */
import type { ChannelModel, ConfirmChannel, Message } from "amqplib";

import { checkedShardCount, shardCountFromEnv } from "./count.js";
import { Enqueue } from "./enqueue.js";
import { PublishFailed, QueueMissing } from "./errors.js";
import { BASES, queueForChannel, queueName } from "./identity.js";
import type { Job } from "./job.js";
import { LayoutCheck, readRegistry, readStatus, statusAddress } from "./layout.js";

/** Where log lines go. */
export interface Logger {
  info(line: string): void;
  warn(line: string): void;
}

/** The settings of a {@link Producer}. URLs may hold passwords: they are never shown. */
export interface ProducerOptions {
  /** Without it, `SHARD_COUNT` or `WHATSAPP_SHARD_COUNT` of the environment count, or 1. */
  shardCount?: number | undefined;
  /** Compare the layout with the one in this Redis (needs the package `redis`). */
  registryUrl?: string | undefined;
  /** Compare the layout with the one that this daemon shows at `/status`. */
  statusUrl?: string | undefined;
  /** False turns the comparison off. */
  checkLayout?: boolean | undefined;
  /** How long an answer counts, in milliseconds. Default 5,000. */
  layoutMaxAgeMs?: number | undefined;
  /** How long to wait for a connection and for each confirm, in milliseconds. Default 30,000. */
  timeoutMs?: number | undefined;
  /** Default: the console. */
  logger?: Logger | undefined;
}

interface Link {
  connection: ChannelModel;
  channel: ConfirmChannel;
  /** An error of a job of a channel that is open means that the broker refused it. */
  open: boolean;
  /** Jobs that await their confirm, by id: a returned message arrives before the confirm of the same one. */
  pending: Map<string, Pending[]>;
}

interface Pending {
  readonly queue: string;
  returned: boolean;
}

const SHOWN = 8;

/**
 * Enqueues jobs; any number at a time. The connection is opened at the first job, and again when it was lost: a job whose
 * confirm was lost with it is published once more under the same id, which the daemon answers without doing it twice.
 */
export class Producer extends Enqueue {
  readonly shardCount: number;
  readonly #url: string;
  readonly #timeoutMs: number;
  readonly #logger: Logger;
  readonly #check: LayoutCheck | undefined;
  readonly #read: () => Promise<{ shardCount: number; epoch: number } | undefined>;
  #checking: Promise<void> | undefined;
  #link: Link | undefined;
  #opening: Promise<Link> | undefined;

  /** Takes the broker's `amqp:` or `amqps:` URL; nothing is connected yet. */
  constructor(url: string, options: ProducerOptions = {}) {
    super();
    const { registryUrl, statusUrl, layoutMaxAgeMs = 5_000 } = options;
    this.#url = url;
    this.#timeoutMs = options.timeoutMs ?? 30_000;
    this.#logger = options.logger ?? console;
    this.shardCount = options.shardCount === undefined ? shardCountFromEnv() : checkedShardCount(options.shardCount);
    if (registryUrl !== undefined && statusUrl !== undefined) {
      throw new TypeError("give registryUrl or statusUrl, not both: they tell the same");
    }
    if (statusUrl !== undefined) {
      statusAddress(statusUrl);
    }
    this.#read = () => (statusUrl === undefined ? readRegistry(registryUrl as string) : readStatus(statusUrl));
    const compare = (options.checkLayout ?? true) && (registryUrl ?? statusUrl) !== undefined;
    this.#check = compare
      ? new LayoutCheck(this.shardCount, layoutMaxAgeMs, (line) => this.#logger.warn(`shardvisor: ${line}`))
      : undefined;
    this.#logger.info(`shardvisor producer: shard_count=${this.shardCount} queues=${names(this.shardCount).join(", ")}`);
  }

  /** The queue in which a job belongs. */
  queueFor(job: Job): string {
    return queueForChannel(job.base, job.channelId, this.shardCount);
  }

  async enqueue(job: Job): Promise<string> {
    if (this.#check?.due()) {
      await this.checkLayout();
    }
    const queue = this.queueFor(job);
    const opened = this.#link !== undefined;
    const link = await this.#open(queue);
    try {
      await publish(link, queue, job, this.#timeoutMs);
    } catch (error) {
      if (!(error instanceof ConnectionLost)) {
        throw error;
      }
      this.#forget(link);
      // It may have died long before this job, unnoticed, or together with many jobs: each goes out once more.
      if (!opened) {
        throw error;
      }
      await publish(await this.#open(queue), queue, job, this.#timeoutMs);
    }
    return job.id;
  }

  /** Compares the layouts now, if there is one to compare with; rejects with `LayoutMismatch` or `LayoutUnavailable`. */
  async checkLayout(): Promise<void> {
    const check = this.#check;
    if (check === undefined) {
      return;
    }
    this.#checking ??= this.#read()
      .then(
        (layout) => check.read(layout),
        (cause: unknown) => check.failed(cause),
      )
      .finally(() => {
        this.#checking = undefined;
      });
    await this.#checking;
  }

  /** Closes the connection. A later job opens a new one. */
  async close(): Promise<void> {
    const link = this.#link ?? (await this.#opening?.catch(() => undefined));
    this.#link = undefined;
    await link?.connection.close().catch(() => undefined);
  }

  async #open(queue: string): Promise<Link> {
    if (this.#link !== undefined) {
      return this.#link;
    }
    this.#opening ??= this.#connect().finally(() => {
      this.#opening = undefined;
    });
    try {
      return await this.#opening;
    } catch (cause) {
      throw new PublishFailed(queue, `no connection: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
    }
  }

  async #connect(): Promise<Link> {
    const { connect } = await import("amqplib");
    const connection = await connect(this.#url, { timeout: this.#timeoutMs });
    connection.on("error", () => {}); // "close" follows, and what was pending is told.
    const channel = await connection.createConfirmChannel();
    const link: Link = { connection, channel, open: true, pending: new Map() };
    channel.on("error", () => {});
    // Before amqplib itself tells the jobs that await their confirm.
    channel.prependListener("close", () => {
      link.open = false;
      this.#forget(link);
    });
    channel.on("return", (message: Message) => returned(link, message));
    this.#link = link;
    return link;
  }

  #forget(link: Link): void {
    if (this.#link === link) {
      this.#link = undefined;
      void link.connection.close().catch(() => undefined);
    }
  }
}

/** A confirm that went with its connection. */
class ConnectionLost extends PublishFailed {
  constructor(queue: string, cause: unknown) {
    super(queue, `the connection was lost: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
    this.name = "PublishFailed";
  }
}

function publish(link: Link, queue: string, job: Job, timeoutMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const entry: Pending = { queue, returned: false };
    const waiting = link.pending.get(job.id) ?? [];
    link.pending.set(job.id, waiting);
    waiting.push(entry);
    const settle = (error?: Error) => {
      clearTimeout(timer);
      waiting.splice(waiting.indexOf(entry), 1);
      if (waiting.length === 0) {
        link.pending.delete(job.id);
      }
      if (error === undefined) {
        resolve();
      } else {
        reject(error);
      }
    };
    const timer = setTimeout(() => settle(new PublishFailed(queue, `no confirm in ${timeoutMs} ms`)), timeoutMs);
    const confirmed = (error: unknown) => {
      if (error === null) {
        settle(entry.returned ? new QueueMissing(queue) : undefined);
      } else if (link.open) {
        settle(new PublishFailed(queue, "refused by the broker"));
      } else {
        settle(new ConnectionLost(queue, error));
      }
    };
    const properties = { contentType: "application/json", messageId: job.id, type: job.name };
    try {
      link.channel.publish("", queue, job.body, { mandatory: true, persistent: true, ...properties }, confirmed);
    } catch (error) {
      settle(new ConnectionLost(queue, error));
    }
  });
}

/** Notes which job came back; its confirm follows. Jobs of one id and one queue share their fate. */
function returned(link: Link, message: Message): void {
  const { routingKey } = message.fields as { routingKey: string };
  const waiting = link.pending.get(String(message.properties.messageId));
  const first = waiting?.find((entry) => entry.queue === routingKey && !entry.returned);
  if (first !== undefined) {
    first.returned = true;
  }
}

function names(count: number): string[] {
  return BASES.flatMap((base) =>
    count <= SHOWN
      ? Array.from({ length: count }, (_, index) => queueName(base, index, count))
      : [`${queueName(base, 0, count)} to ${queueName(base, count - 1, count)}`],
  );
}

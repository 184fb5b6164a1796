/**
 * The layout check: a producer that counts other shards than the fleet must not enqueue.
 *
 * The count in force is published in the registry (`shardvisor:layout`) and at `/status`. It is read before the first job and
 * again when the last answer is older than the allowed age. What decides is {@link LayoutCheck}, which reads nothing itself.
 */
import { LayoutMismatch, LayoutUnavailable } from "./errors.js";

export const LAYOUT_KEY = "shardvisor:layout";
const READ_TIMEOUT_MS = 5_000;

/** The count in force, and how often it has changed. */
export interface Layout {
  shardCount: number;
  epoch: number;
}

/** Reads `{"shard_count": 2, "epoch": 7}`, whatever else is in it. */
export function parseLayout(text: string): Layout {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new LayoutUnavailable("the published layout can't be read", { cause });
  }
  const { shard_count: shardCount, epoch } = (value ?? {}) as Record<string, unknown>;
  const right = (number: unknown): number is number => Number.isSafeInteger(number) && (number as number) >= 0;
  if (!right(shardCount) || !right(epoch)) {
    throw new LayoutUnavailable("the published layout can't be right");
  }
  return { shardCount, epoch };
}

/** Whether a job may be enqueued, given what was last read and when. */
export class LayoutCheck {
  #readAt: number | undefined;
  #mismatch = false;
  #silent = false;

  constructor(
    private readonly own: number,
    private readonly maxAgeMs: number,
    private readonly warn: (line: string) => void,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Whether the layout must be read before the next job. */
  due(): boolean {
    return this.#mismatch || this.#readAt === undefined || this.now() - this.#readAt >= this.maxAgeMs;
  }

  /** Takes an answer in; `undefined` when no daemon has published a layout yet. */
  read(layout: Layout | undefined): void {
    this.#readAt = this.now();
    this.#silent = false;
    this.#mismatch = layout !== undefined && layout.shardCount !== this.own;
    if (layout === undefined) {
      this.warn("no layout is published yet: nothing to compare this producer's shard count with");
    } else if (this.#mismatch) {
      throw new LayoutMismatch(this.own, layout.shardCount, layout.epoch);
    }
  }

  /** Takes a failure in: what was known to agree goes on agreeing, a first read that fails is an error. */
  failed(cause: unknown): void {
    if (this.#readAt === undefined || this.#mismatch) {
      throw cause instanceof LayoutUnavailable ? cause : unavailable(cause);
    }
    this.#readAt = this.now();
    if (!this.#silent) {
      this.#silent = true;
      this.warn(`${unavailable(cause).message}: going on with the one read before`);
    }
  }
}

function unavailable(cause: unknown): LayoutUnavailable {
  const why = cause instanceof Error ? cause.message || cause.name : String(cause);
  return new LayoutUnavailable(`the layout in force can't be read: ${why}`, { cause });
}

/** Completes an address without a path to that of `/status`. */
export function statusAddress(address: string): string {
  const url = new URL(address);
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw new TypeError("statusUrl must be an http: or https: URL");
  }
  if (url.pathname === "/") {
    url.pathname = "/status";
  }
  return url.href;
}

/** Reads the layout from a daemon's `/status`. */
export async function readStatus(address: string): Promise<Layout> {
  const answer = await fetch(statusAddress(address), { signal: AbortSignal.timeout(READ_TIMEOUT_MS) });
  if (!answer.ok) {
    await answer.body?.cancel();
    throw new LayoutUnavailable(`/status answered ${answer.status}`);
  }
  return parseLayout(await answer.text());
}

/** Reads the layout from Redis, over a connection of its own: it is seldom, and nothing is left that could break unseen. */
export async function readRegistry(address: string): Promise<Layout | undefined> {
  const { createClient } = await import("redis").catch((cause: unknown) => {
    throw new Error("registryUrl needs the package redis: npm install redis", { cause });
  });
  const client = createClient({ url: address, socket: { connectTimeout: READ_TIMEOUT_MS, reconnectStrategy: false } });
  client.on("error", () => {}); // Told by connect() and get() as well.
  const late = AbortSignal.timeout(READ_TIMEOUT_MS);
  const end = () => client.destroy();
  late.addEventListener("abort", end);
  try {
    await client.connect();
    const value = await client.get(LAYOUT_KEY);
    return value === null ? undefined : parseLayout(value);
  } finally {
    late.removeEventListener("abort", end);
    if (client.isOpen) {
      client.destroy();
    }
  }
}

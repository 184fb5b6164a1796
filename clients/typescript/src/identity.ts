/**
 * The shard rule: which shard owns a channel, and what its queues are called.
 *
 * The daemon and the other clients compute the same, bit for bit; `tests/fixtures/shard_parity.json` holds them to it. The
 * whole text is checked before a digit of it is read: `parseInt` alone would take `12xy5678` for 0x12 and a brace for NaN.
 */
import { ChannelIdError, UnknownBaseError } from "./errors.js";

/** The three kinds of work queues: sends and control, inbound media, profile pictures. */
export const BASES = ["whatsapp", "whatsapp_media", "whatsapp_avatars"] as const;
/** One of {@link BASES}. */
export type Base = (typeof BASES)[number];

const SPELLING = /^(?:[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$/;

/** The canonical form of a channel id: lower case, with dashes. */
export function parseChannelId(channelId: string): string {
  if (typeof channelId !== "string" || !SPELLING.test(channelId)) {
    throw new ChannelIdError(channelId);
  }
  const digits = channelId.replaceAll("-", "").toLowerCase();
  const fields = [digits.slice(0, 8), digits.slice(8, 12), digits.slice(12, 16), digits.slice(16, 20), digits.slice(20)];
  return fields.join("-");
}

/** The shard that owns a channel: its first 32 bits, big-endian, modulo the count; 0 when there is one shard. */
export function shardFor(channelId: string, shardCount: number): number {
  if (!Number.isSafeInteger(shardCount)) {
    throw new TypeError(`shardCount must be a whole number, not ${String(shardCount)}`);
  }
  // Read as a number above 2^31, never as a signed 32-bit one.
  const prefix = Number.parseInt(parseChannelId(channelId).slice(0, 8), 16);
  return shardCount > 1 ? prefix % shardCount : 0;
}

/** The queue of a base for one shard: the base alone with one shard, `<base>-<index>` with more. */
export function queueName(base: Base, index: number, shardCount: number): string {
  if (!BASES.includes(base)) {
    throw new UnknownBaseError(base);
  }
  return shardCount > 1 ? `${base}-${index}` : base;
}

/** The queue in which a channel's jobs of a base belong. */
export function queueForChannel(base: Base, channelId: string, shardCount: number): string {
  return queueName(base, shardFor(channelId, shardCount), shardCount);
}

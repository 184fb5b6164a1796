/**
 * The shard count as text: one strict grammar, the same in the daemon and in every client.
 *
 * `Number()` would take `1e1`, `0x2`, ` 2` and the empty string; another language's parser takes others. Who accepts half of
 * it disagrees with the daemon about where jobs belong.
 */
import { ShardCountError } from "./errors.js";

export const MAX_SHARD_COUNT = 1024;
const VARIABLES = ["SHARD_COUNT", "WHATSAPP_SHARD_COUNT"] as const;
const PLAIN = /^[1-9][0-9]{0,3}$/;

/** Reads a count of 1 to 1,024 in plain ASCII digits: no sign, no blank, no leading zero. */
export function parseShardCount(value: string, variable = "SHARD_COUNT"): number {
  const count = typeof value === "string" && PLAIN.test(value) ? Number(value) : Number.NaN;
  if (!(count <= MAX_SHARD_COUNT)) {
    throw new ShardCountError(
      `${variable}=${JSON.stringify(value)} is refused: expected a whole number from 1 to ${MAX_SHARD_COUNT}, in plain digits`,
    );
  }
  return count;
}

/** A count given as a number, or the error that a text would have raised. */
export function checkedShardCount(count: number): number {
  if (!Number.isInteger(count) || count < 1 || count > MAX_SHARD_COUNT) {
    throw new ShardCountError(`shardCount=${String(count)} is refused: expected a whole number from 1 to ${MAX_SHARD_COUNT}`);
  }
  return count;
}

/** Reads `SHARD_COUNT` or its alias `WHATSAPP_SHARD_COUNT`; 1 when neither is set. Both set and different is an error. */
export function shardCountFromEnv(environment: Record<string, string | undefined> = process.env): number {
  const found = VARIABLES.filter((name) => environment[name] !== undefined);
  const counts = found.map((name) => parseShardCount(environment[name] as string, name));
  if (new Set(counts).size > 1) {
    const both = found.map((name) => `${name}=${JSON.stringify(environment[name])}`).join(" and ");
    throw new ShardCountError(`${both} contradict each other: they are the same setting, set one of them`);
  }
  return counts[0] ?? 1;
}

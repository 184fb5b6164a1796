/** The producer's side of shardvisor: where a channel's jobs belong, and how they get there. */
export { MAX_SHARD_COUNT, parseShardCount, shardCountFromEnv } from "./count.js";
export type * from "./data.js";
export * from "./errors.js";
export { BASES, type Base, parseChannelId, queueForChannel, queueName, shardFor } from "./identity.js";
export { type Job, type JobOptions, makeJob, MAX_JOB_BYTES } from "./job.js";
export { LAYOUT_KEY, type Layout } from "./layout.js";
export { type Logger, Producer, type ProducerOptions } from "./producer.js";
export { JOB_NAMES } from "./shapes.js";

/** What a producer can be told. Every error is a `ShardvisorError`, told apart by its class or its `name`. */

/** The base of all errors of this package. */
export class ShardvisorError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** A value that is no channel id. */
export class ChannelIdError extends ShardvisorError {
  constructor(readonly value: unknown) {
    const shown = typeof value === "string" ? JSON.stringify(value.slice(0, 64)) : String(value);
    super(`${shown} is not a channel id: expected a UUID of 32 hexadecimal digits, plain or dashed 8-4-4-4-12`);
  }
}

/** A queue base that is none of the three. */
export class UnknownBaseError extends ShardvisorError {
  constructor(readonly base: unknown) {
    super(`${JSON.stringify(base)} is no queue base: expected whatsapp, whatsapp_media or whatsapp_avatars`);
  }
}

/** A shard count that is refused. */
export class ShardCountError extends ShardvisorError {}

/** A job that the daemon would refuse; the message names the field. */
export class JobError extends ShardvisorError {}

/** This producer and the fleet count their shards differently: its jobs would wait where nobody owns the channel. */
export class LayoutMismatch extends ShardvisorError {
  constructor(
    readonly own: number,
    readonly fleet: number,
    readonly epoch: number,
  ) {
    super(
      `this producer counts ${own} shard(s), the fleet has ${fleet} (epoch ${epoch}): ` +
        "give both the same SHARD_COUNT, or turn the check off with checkLayout: false",
    );
  }
}

/** The count in force could not be read, and no earlier answer of it is known. Try again later. */
export class LayoutUnavailable extends ShardvisorError {}

/** The broker has no such queue, so that the job went nowhere. No shardvisor has run with this layout yet. */
export class QueueMissing extends ShardvisorError {
  constructor(readonly queue: string) {
    super(`the broker has no queue ${JSON.stringify(queue)}: the job was returned (queues are declared by the daemon)`);
  }
}

/** The broker did not confirm the job. It may have it or not: enqueue again under the same job id. */
export class PublishFailed extends ShardvisorError {
  constructor(
    readonly queue: string,
    why: string,
    options?: ErrorOptions,
  ) {
    super(`the broker did not confirm the job for ${JSON.stringify(queue)}: ${why}`, options);
  }
}

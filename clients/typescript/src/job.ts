/** A job as it travels: its envelope around what it is told. */
import { randomUUID } from "node:crypto";

import type { JobData, JobName } from "./data.js";
import { JobError } from "./errors.js";
import { type Base, parseChannelId } from "./identity.js";
import { wireData } from "./shapes.js";

export const MAX_JOB_BYTES = 1 << 20;

/** What any job may be given. */
export interface JobOptions {
  /** The idempotency key: a job that is enqueued again under the same id is done once. A new UUID when absent. */
  jobId?: string | undefined;
  /** From when on it shall no longer be done. */
  expiresAt?: Date | undefined;
}

/** One unit of work for one channel. Made by {@link makeJob}. */
export interface Job {
  readonly name: JobName;
  readonly id: string;
  readonly channelId: string;
  /** The queue base it belongs on. */
  readonly base: Base;
  /** The JSON that is published. */
  readonly body: Buffer;
}

/** Puts a job together; refuses with a {@link JobError} what the daemon would bury. */
export function makeJob<K extends JobName>(name: K, channelId: string, data: JobData[K], options: JobOptions = {}): Job {
  const canonical = parseChannelId(channelId);
  const id = options.jobId ?? randomUUID();
  const length = typeof id === "string" ? [...id].length : 0;
  if (length < 1 || length > 128) {
    throw new JobError("field `id`: expected a string of 1 to 128 characters");
  }
  const { expiresAt } = options;
  if (expiresAt !== undefined && !(expiresAt instanceof Date && Number.isFinite(expiresAt.getTime()))) {
    throw new JobError("field `expires_at`: expected a valid Date");
  }
  const envelope = {
    name,
    id,
    channel_id: canonical,
    data: wireData(name, data),
    enqueued_at: new Date().toISOString(),
    expires_at: expiresAt?.toISOString(),
  };
  const body = Buffer.from(JSON.stringify(envelope));
  if (body.length > MAX_JOB_BYTES) {
    throw new JobError(`${body.length} bytes are over the limit of ${MAX_JOB_BYTES}`);
  }
  return { name, id, channelId: canonical, base: baseOf(name), body };
}

function baseOf(name: JobName): Base {
  switch (name) {
    case "download_media":
      return "whatsapp_media";
    case "fetch_avatar":
      return "whatsapp_avatars";
    default:
      return "whatsapp";
  }
}

/**
 * How each kind of job goes on the wire: one rule for each field, and no field without one, since a misspelt option that is
 * silently left out sends the wrong message.
 */
import type { JobData, JobName } from "./data.js";
import { JobError } from "./errors.js";

/** Takes a field's value and returns what is published; `undefined` leaves the field out. */
type Rule = (field: string, value: unknown) => unknown;
type Shape<T> = { [F in keyof Required<T>]: Rule };

const LONE_SURROGATE = /\p{Surrogate}/u;

function refuse(field: string, problem: string): never {
  throw new JobError(`field \`data.${field}\`: ${problem}`);
}

/** A text that must not be empty. Numbers are taken too: Telegram's ids are some. */
function needed(field: string, value: unknown): string {
  if (typeof value === "bigint" || (typeof value === "number" && Number.isSafeInteger(value))) {
    return value.toString();
  }
  return plain(field, value) || refuse(field, "must not be empty");
}

/** A text that may be empty. */
function plain(field: string, value: unknown): string {
  if (typeof value !== "string" || LONE_SURROGATE.test(value)) {
    refuse(field, "expected a text");
  }
  return value;
}

const optional: Rule = (field, value) => (value == null ? undefined : needed(field, value));
const optionalPlain: Rule = (field, value) => (value == null ? undefined : plain(field, value));
const flag: Rule = (field, value) =>
  value == null || value === false ? undefined : value === true || refuse(field, "expected true or false");

function list(field: string, value: unknown): string[] {
  return Array.isArray(value) ? value.map((entry) => needed(field, entry)) : refuse(field, "expected a list of texts");
}

const filled: Rule = (field, value) => {
  const entries = list(field, value);
  return entries.length > 0 ? entries : refuse(field, "must not be empty");
};

const optionalList: Rule = (field, value) => {
  const entries = value == null ? [] : list(field, value);
  return entries.length > 0 ? entries : undefined;
};

const oneOf =
  (...words: string[]): Rule =>
  (field, value) =>
    words.includes(value as string) ? value : refuse(field, `expected one of ${words.join(", ")}`);

const maybe =
  (rule: Rule): Rule =>
  (field, value) =>
    value == null ? undefined : rule(field, value);

const degrees =
  (limit: number): Rule =>
  (field, value) =>
    typeof value === "number" && Math.abs(value) <= limit ? value : refuse(field, `expected -${limit} to ${limit}`);

const webAddress: Rule = (field, value) =>
  typeof value === "string" && /^(https?:\/\/|file:\/\/\/)/.test(value)
    ? value
    : refuse(field, "expected an http: or https: URL, or file:// and the path of a stored file");

const wholeNumber: Rule = (field, value) =>
  typeof value === "number" && Number.isInteger(value) && value >= 0 && value < 2 ** 32
    ? value
    : refuse(field, "expected a whole number");

const record: Rule = (field, value) =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? value : refuse(field, "expected an object");

const optionalRecords: Rule = (field, value) => {
  const entries = value == null ? [] : Array.isArray(value) ? value : refuse(field, "expected a list of objects");
  return entries.length > 0 ? entries.map((entry) => record(field, entry)) : undefined;
};

const sendable = {
  chatId: needed,
  replyTo: optional,
  threadId: optional,
  onUncertain: maybe(oneOf("resend", "dead_letter")),
};
const participants = { groupId: needed, participants: filled };

const SHAPES: { [K in JobName]: Shape<JobData[K]> } = {
  connect: {},
  disconnect: { logout: flag },
  send: {
    ...sendable,
    text: needed,
    editMessageId: optional,
    mentions: optionalList,
    parseMode: maybe(oneOf("MarkdownV2", "HTML")),
    blocks: optionalRecords,
  },
  send_media: {
    ...sendable,
    kind: oneOf("image", "video", "audio", "voice", "document", "sticker"),
    url: webAddress,
    caption: optionalPlain,
    fileName: optionalPlain,
    mimeType: optionalPlain,
  },
  send_location: {
    ...sendable,
    latitude: degrees(90),
    longitude: degrees(180),
    title: optionalPlain,
    address: optionalPlain,
  },
  send_reaction: { chatId: needed, messageId: needed, emoji: plain, participant: optional, fromMe: flag },
  mark_read: { chatId: needed, messageIds: filled, participant: optional },
  revoke: { chatId: needed, messageId: needed, participant: optional },
  resync_history: { chatId: optional, count: maybe(wholeNumber) },
  group_create: { subject: needed, participants: list },
  group_update_subject: { groupId: needed, subject: needed },
  group_update_description: { groupId: needed, description: plain },
  group_add_participants: participants,
  group_remove_participants: participants,
  group_promote: participants,
  group_demote: participants,
  group_leave: { groupId: needed },
  group_invite_link: { groupId: needed, reset: flag },
  group_fetch: { groupId: needed },
  download_media: { chatId: needed, messageId: needed, media: record },
  fetch_avatar: { chatId: needed, preview: flag },
};

/** Every kind of job. */
export const JOB_NAMES = Object.keys(SHAPES) as JobName[];

const snake = (field: string): string => field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** What a job is told, as it is published: checked, in snake case, without what is absent. */
export function wireData<K extends JobName>(name: K, data: JobData[K]): Record<string, unknown> {
  const shape: Record<string, Rule> = SHAPES[name];
  if (!Object.hasOwn(SHAPES, name)) {
    throw new JobError(`field \`name\`: ${JSON.stringify(name)} is no job that shardvisor knows`);
  }
  const given = data as Readonly<Record<string, unknown>>;
  for (const field of Object.keys(given)) {
    if (!Object.hasOwn(shape, field)) {
      refuse(field, "there is no such field");
    }
  }
  const wire: Record<string, unknown> = {};
  for (const [field, rule] of Object.entries(shape)) {
    const value = rule(snake(field), given[field]);
    if (value !== undefined) {
      wire[snake(field)] = value;
    }
  }
  return wire;
}

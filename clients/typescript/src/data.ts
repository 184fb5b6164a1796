/** What each kind of job is told. `shardvisor schema` prints the same, in snake case, as a JSON Schema. */

/** A conversation in the platform's own form. Telegram's are numbers and may be given as such. */
export type Chat = string | number | bigint;
/** The provider's id of a message. */
export type MessageId = string | number | bigint;
/** When an earlier attempt may have reached the platform: send again, or give up into the dead-letter queue. */
export type OnUncertain = "resend" | "dead_letter";
export type MediaKind = "image" | "video" | "audio" | "voice" | "document" | "sticker";
export type ParseMode = "MarkdownV2" | "HTML";

/** `connect`: start the channel, and keep it started. */
export interface Connect {}

/** `disconnect`: stop the channel, and keep it stopped. */
export interface Disconnect {
  /** Give up the login too (WhatsApp: unlink the device). */
  logout?: boolean | undefined;
}

/** What the three kinds of sends have in common. */
interface Sendable {
  chatId: Chat;
  /** The message that this answers. */
  replyTo?: MessageId | undefined;
  /** A topic or thread inside the conversation. */
  threadId?: MessageId | undefined;
  onUncertain?: OnUncertain | undefined;
}

/** `send`: a text message, or the new text of one sent before. */
export interface Send extends Sendable {
  text: string;
  /** An own message whose text this replaces. */
  editMessageId?: MessageId | undefined;
  /** Who is mentioned, in the platform's own form. */
  mentions?: readonly string[] | undefined;
  parseMode?: ParseMode | undefined;
  /** Slack: Block Kit blocks; the text is then what notifications show. */
  blocks?: readonly Record<string, unknown>[] | undefined;
}

/** `send_media`: a file, by URL. */
export interface SendMedia extends Sendable {
  kind: MediaKind;
  /** `http:` or `https:`. */
  url: string;
  caption?: string | undefined;
  fileName?: string | undefined;
  mimeType?: string | undefined;
}

/** `send_location`: a place; with `title` and `address` it is shown as a venue. */
export interface SendLocation extends Sendable {
  latitude: number;
  longitude: number;
  title?: string | undefined;
  address?: string | undefined;
}

/** `send_reaction`: an empty `emoji` takes the reaction back. */
export interface SendReaction {
  chatId: Chat;
  messageId: MessageId;
  emoji: string;
  participant?: string | undefined;
  fromMe?: boolean | undefined;
}

/** `mark_read`: tell the peer that messages were read. */
export interface MarkRead {
  chatId: Chat;
  messageIds: readonly MessageId[];
  participant?: string | undefined;
}

/** `revoke`: delete a message for everyone. */
export interface Revoke {
  chatId: Chat;
  messageId: MessageId;
  participant?: string | undefined;
}

/** `resync_history`: all of it, one conversation, or so many messages. */
export interface ResyncHistory {
  chatId?: Chat | undefined;
  count?: number | undefined;
}

/** `group_create`. */
export interface GroupCreate {
  subject: string;
  participants: readonly string[];
}

/** `group_leave`, `group_fetch`. */
export interface GroupRef {
  groupId: Chat;
}

/** `group_update_subject`. */
export interface GroupUpdateSubject extends GroupRef {
  subject: string;
}

/** `group_update_description`: an empty one removes it. */
export interface GroupUpdateDescription extends GroupRef {
  description: string;
}

/** `group_add_participants`, `group_remove_participants`, `group_promote`, `group_demote`. */
export interface GroupParticipants extends GroupRef {
  participants: readonly string[];
}

/** `group_invite_link`: with `reset`, the old link is made invalid first. */
export interface GroupInviteLink extends GroupRef {
  reset?: boolean | undefined;
}

/** `download_media`: fetch a received file into the store. */
export interface DownloadMedia {
  chatId: Chat;
  messageId: MessageId;
  /** The `media` object of the event that announced it, as it was. */
  media: Readonly<Record<string, unknown>>;
}

/** `fetch_avatar`: fetch a profile picture into the store. */
export interface FetchAvatar {
  chatId: Chat;
  /** The small picture instead of the full one. */
  preview?: boolean | undefined;
}

/** Each kind of job and what it is told. */
export interface JobData {
  connect: Connect;
  disconnect: Disconnect;
  send: Send;
  send_media: SendMedia;
  send_location: SendLocation;
  send_reaction: SendReaction;
  mark_read: MarkRead;
  revoke: Revoke;
  resync_history: ResyncHistory;
  group_create: GroupCreate;
  group_update_subject: GroupUpdateSubject;
  group_update_description: GroupUpdateDescription;
  group_add_participants: GroupParticipants;
  group_remove_participants: GroupParticipants;
  group_promote: GroupParticipants;
  group_demote: GroupParticipants;
  group_leave: GroupRef;
  group_invite_link: GroupInviteLink;
  group_fetch: GroupRef;
  download_media: DownloadMedia;
  fetch_avatar: FetchAvatar;
}

/** The name of a kind of job. */
export type JobName = keyof JobData;

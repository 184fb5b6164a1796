/** One method for each kind of job, whatever carries them. */
import type * as data from "./data.js";
import { type Job, type JobOptions, makeJob } from "./job.js";

/** The `enqueue…` methods. Each resolves with the job's id when the broker has confirmed it. */
export abstract class Enqueue {
  /** Puts a job into its queue, durably; resolves with its id. */
  abstract enqueue(job: Job): Promise<string>;

  async #put<K extends data.JobName>(
    name: K,
    channelId: string,
    what: data.JobData[K],
    options: JobOptions | undefined,
  ): Promise<string> {
    return this.enqueue(makeJob(name, channelId, what, options));
  }

  /** Start the channel, and keep it started. */
  enqueueConnect(channelId: string, options?: JobOptions): Promise<string> {
    return this.#put("connect", channelId, {}, options);
  }

  /** Stop the channel, and keep it stopped. */
  enqueueDisconnect(channelId: string, what: data.Disconnect = {}, options?: JobOptions): Promise<string> {
    return this.#put("disconnect", channelId, what, options);
  }

  /** Send a text message, or give an own one a new text. */
  enqueueSend(channelId: string, what: data.Send, options?: JobOptions): Promise<string> {
    return this.#put("send", channelId, what, options);
  }

  /** Send the file behind a URL. */
  enqueueSendMedia(channelId: string, what: data.SendMedia, options?: JobOptions): Promise<string> {
    return this.#put("send_media", channelId, what, options);
  }

  /** Send a place. */
  enqueueSendLocation(channelId: string, what: data.SendLocation, options?: JobOptions): Promise<string> {
    return this.#put("send_location", channelId, what, options);
  }

  /** React to a message, or take the reaction back. */
  enqueueSendReaction(channelId: string, what: data.SendReaction, options?: JobOptions): Promise<string> {
    return this.#put("send_reaction", channelId, what, options);
  }

  /** Tell the peer that messages were read. */
  enqueueMarkRead(channelId: string, what: data.MarkRead, options?: JobOptions): Promise<string> {
    return this.#put("mark_read", channelId, what, options);
  }

  /** Delete a message for everyone. */
  enqueueRevoke(channelId: string, what: data.Revoke, options?: JobOptions): Promise<string> {
    return this.#put("revoke", channelId, what, options);
  }

  /** Fetch the channel's history again. */
  enqueueResyncHistory(channelId: string, what: data.ResyncHistory = {}, options?: JobOptions): Promise<string> {
    return this.#put("resync_history", channelId, what, options);
  }

  /** Create a group. */
  enqueueGroupCreate(channelId: string, what: data.GroupCreate, options?: JobOptions): Promise<string> {
    return this.#put("group_create", channelId, what, options);
  }

  /** Change a group's name. */
  enqueueGroupUpdateSubject(channelId: string, what: data.GroupUpdateSubject, options?: JobOptions): Promise<string> {
    return this.#put("group_update_subject", channelId, what, options);
  }

  /** Change a group's description. */
  enqueueGroupUpdateDescription(
    channelId: string,
    what: data.GroupUpdateDescription,
    options?: JobOptions,
  ): Promise<string> {
    return this.#put("group_update_description", channelId, what, options);
  }

  /** Add people to a group. */
  enqueueGroupAddParticipants(channelId: string, what: data.GroupParticipants, options?: JobOptions): Promise<string> {
    return this.#put("group_add_participants", channelId, what, options);
  }

  /** Remove people from a group. */
  enqueueGroupRemoveParticipants(
    channelId: string,
    what: data.GroupParticipants,
    options?: JobOptions,
  ): Promise<string> {
    return this.#put("group_remove_participants", channelId, what, options);
  }

  /** Make participants admins. */
  enqueueGroupPromote(channelId: string, what: data.GroupParticipants, options?: JobOptions): Promise<string> {
    return this.#put("group_promote", channelId, what, options);
  }

  /** Make admins participants. */
  enqueueGroupDemote(channelId: string, what: data.GroupParticipants, options?: JobOptions): Promise<string> {
    return this.#put("group_demote", channelId, what, options);
  }

  /** Leave a group. */
  enqueueGroupLeave(channelId: string, what: data.GroupRef, options?: JobOptions): Promise<string> {
    return this.#put("group_leave", channelId, what, options);
  }

  /** Get (or renew) a group's invite link. */
  enqueueGroupInviteLink(channelId: string, what: data.GroupInviteLink, options?: JobOptions): Promise<string> {
    return this.#put("group_invite_link", channelId, what, options);
  }

  /** Read a group's metadata. */
  enqueueGroupFetch(channelId: string, what: data.GroupRef, options?: JobOptions): Promise<string> {
    return this.#put("group_fetch", channelId, what, options);
  }

  /** Fetch a received file into the store. */
  enqueueDownloadMedia(channelId: string, what: data.DownloadMedia, options?: JobOptions): Promise<string> {
    return this.#put("download_media", channelId, what, options);
  }

  /** Fetch a profile picture into the store. */
  enqueueFetchAvatar(channelId: string, what: data.FetchAvatar, options?: JobOptions): Promise<string> {
    return this.#put("fetch_avatar", channelId, what, options);
  }
}

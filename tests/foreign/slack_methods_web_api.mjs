// Calls the Web API by Slack's own client. What it expects to find is put there by the test: a direct conversation D7 with a
// message that DM_TS names, a conversation D8 that refuses, and a rate limit in D9.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.FOREIGN_DIR}/package.json`);
const { WebClient } = require("@slack/web-api");

const options = { slackApiUrl: process.env.SLACK_API_URL, rejectRateLimitedCalls: true, retryConfig: { retries: 0 } };
const api = new WebClient(process.env.SLACK_BOT_TOKEN, options);
const refused = async (word, promise) => {
  const refusal = await promise.then(() => assert.fail(`expected ${word}`), (error) => error);
  assert.equal(refusal.data?.error ?? refusal.code, word, refusal);
  return refusal;
};

const me = await api.auth.test();
assert.ok(me.user_id.startsWith("U") && me.bot_id.startsWith("B"));
const sent = await api.chat.postMessage({ channel: "D7", text: "grüße 🦀", blocks: [{ type: "divider" }] });
assert.equal(sent.message.text, "grüße 🦀");
assert.equal(sent.message.blocks[0].type, "divider");
assert.equal((await api.chat.postMessage({ channel: "U7", text: "to a person" })).channel, "D7");
const reply = await api.chat.postMessage({ channel: "D7", text: "in a thread", thread_ts: sent.ts });
assert.equal(reply.message.thread_ts, sent.ts);
assert.equal((await api.chat.update({ channel: "D7", ts: sent.ts, text: "edited" })).text, "edited");
await refused("cant_update_message", api.chat.update({ channel: "D7", ts: process.env.DM_TS, text: "not mine" }));
assert.ok((await api.reactions.add({ channel: "D7", timestamp: process.env.DM_TS, name: "thumbsup" })).ok);
await refused("already_reacted", api.reactions.add({ channel: "D7", timestamp: process.env.DM_TS, name: "thumbsup" }));
const got = await api.reactions.get({ channel: "D7", timestamp: process.env.DM_TS, full: true });
assert.deepEqual(got.message.reactions, [{ name: "thumbsup", count: 1, users: [me.user_id] }]);
assert.ok((await api.reactions.remove({ channel: "D7", timestamp: process.env.DM_TS, name: "thumbsup" })).ok);
await refused("no_reaction", api.reactions.remove({ channel: "D7", timestamp: process.env.DM_TS, name: "thumbsup" }));
assert.ok((await api.chat.delete({ channel: "D7", ts: sent.ts })).ok);
await refused("message_not_found", api.chat.delete({ channel: "D7", ts: sent.ts }));

const file = Buffer.from("bytes of a file");
const uploaded = await api.filesUploadV2({ channel_id: "D7", file, filename: "note.txt", initial_comment: "a note" });
const id = uploaded.files[0].files[0].id;
assert.equal((await api.files.info({ file: id })).file.size, file.length);
const shown = (await api.conversations.history({ channel: "D7" })).messages[0];
assert.equal(shown.text, "a note");
const headers = { Authorization: `Bearer ${process.env.SLACK_BOT_TOKEN}` };
assert.equal(await (await fetch(shown.files[0].url_private, { headers })).text(), "bytes of a file");

assert.equal((await api.conversations.info({ channel: "D7" })).channel.is_im, true);
assert.equal((await api.conversations.open({ users: "U7" })).channel.id, "D7");
assert.equal((await api.users.info({ user: "U7" })).user.id, "U7");
await refused("channel_not_found", api.chat.postMessage({ channel: "C404", text: "x" }));
await refused("no_text", api.chat.postMessage({ channel: "D7" }));
await refused("is_archived", api.chat.postMessage({ channel: "D8", text: "x" }));
const limited = await refused("slack_webapi_rate_limited_error", api.chat.postMessage({ channel: "D9", text: "x" }));
assert.equal(limited.retryAfter, 3);
await refused("invalid_auth", new WebClient("xoxb-unknown", options).auth.test());
await refused("not_allowed_token_type", api.apps.connections.open());

// Calls the methods of the Bot API by telegraf. The chats are those of telegram_methods_ptb.py.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.FOREIGN_DIR}/package.json`);
const { Telegram, TelegramError } = require("telegraf");

const api = new Telegram(process.env.TELEGRAM_TOKEN, { apiRoot: process.env.TELEGRAM_API_URL });
const refused = async (code, promise) => {
  const refusal = await promise.then(() => assert.fail(`expected ${code}`), (error) => error);
  assert.ok(refusal instanceof TelegramError, refusal);
  assert.equal(refusal.code, code);
  return refusal;
};

assert.equal((await api.getMe()).is_bot, true);
assert.equal((await api.getChat(7)).type, "private");
assert.equal(await api.setMyCommands([{ command: "start", description: "begin" }]), true);

const source = Buffer.from("bytes of a file");
// Beside an upload telegraf passes this parameter on only as text.
const reply_parameters = JSON.stringify({ message_id: 1 });
const photo = await api.sendPhoto(7, { source }, { caption: "a photo", reply_parameters });
assert.equal(photo.caption, "a photo");
assert.equal(photo.reply_to_message.text, "hello");
const { document } = await api.sendDocument(7, { source, filename: "note.txt" });
assert.equal(document.file_name, "note.txt");
assert.equal((await api.sendDocument(7, document.file_id)).document.file_id, document.file_id);
for (const kind of ["Video", "Audio", "Voice", "Sticker", "Animation"]) {
  assert.ok((await api[`send${kind}`](7, { source }))[kind.toLowerCase()].file_id, kind);
}
const link = await api.getFileLink(document.file_id);
assert.equal(await (await fetch(link)).text(), "bytes of a file");

const sent = await api.sendMessage(7, "grüße 🦀", {
  reply_markup: { inline_keyboard: [[{ text: "ok", callback_data: "yes" }]] },
});
assert.equal(sent.reply_markup.inline_keyboard[0][0].callback_data, "yes");
assert.equal((await api.editMessageText(7, sent.message_id, undefined, "edited")).text, "edited");
assert.match((await refused(400, api.editMessageText(7, sent.message_id, undefined, "edited"))).message, /not modified/);
assert.equal(await api.setMessageReaction(7, 1, [{ type: "emoji", emoji: "👍" }]), true);
assert.equal(await api.deleteMessage(7, sent.message_id), true);
assert.equal((await api.sendLocation(7, 52.52, 13.405)).location.longitude, 13.405);
assert.equal((await api.sendVenue(7, 52.52, 13.405, "a title", "an address")).venue.title, "a title");
assert.equal(await api.sendChatAction(7, "typing"), true);

await refused(400, api.sendMessage(404, "x"));
await refused(403, api.sendMessage(8, "x"));
assert.equal((await refused(400, api.sendMessage(-5, "x"))).parameters.migrate_to_chat_id, -1000000000005);
assert.equal((await refused(429, api.sendMessage(9, "x"))).parameters.retry_after, 3);
await refused(401, new Telegram("1:unknown", { apiRoot: process.env.TELEGRAM_API_URL }).getMe());

assert.equal(await api.setWebhook("https://example.org/hook"), true);
assert.equal((await api.getWebhookInfo()).url, "https://example.org/hook");
await refused(409, api.getUpdates(0, 100, 0, []));
assert.equal(await api.deleteWebhook(), true);
const updates = await api.getUpdates(0, 100, 0, ["message"]);
const heard = updates.filter((update) => update.message);
assert.deepEqual(heard.map((update) => update.message.text), ["hello"]);
assert.ok(updates.some((update) => "quantum_message" in update), "an unknown kind is passed on");
assert.deepEqual(await api.getUpdates(0, 100, updates.at(-1).update_id + 1, ["message"]), []);

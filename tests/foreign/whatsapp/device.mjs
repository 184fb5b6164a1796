// A linked device on Baileys. WHATSAPP_URL and WHATSAPP_MEDIA_URL say where, WHATSAPP_ROOT_KEY (hex) whose certificates to
// trust, AUTH_DIR where its state is kept, FOREIGN_DIR where Baileys is installed; with CACHED_KEYS the keys are kept in memory
// too. One JSON object a line: commands come in, events go out.
import http from "node:http";
import https from "node:https";
import { syncBuiltinESMExports } from "node:module";
import { createInterface } from "node:readline";

const installed = `${process.env.FOREIGN_DIR}/node_modules/baileys`;
const { WA_CERT_DETAILS } = await import(`${installed}/lib/Defaults/index.js`);
const baileys = await import(`${installed}/lib/index.js`);

// The simulator's certificates are good, and signed by its own root.
WA_CERT_DETAILS.PUBLIC_KEY = Buffer.from(process.env.WHATSAPP_ROOT_KEY, "hex");

// Media hosts are always spoken to with TLS, and history lies on a host of a fixed name; the simulator has one, without TLS.
const media = new URL(process.env.WHATSAPP_MEDIA_URL);
const { fetch } = globalThis;
globalThis.fetch = (url, options) => fetch(String(url).replace(/^https:\/\/[^/]+/, media.origin), options);
https.request = (options, done) => http.request({ ...options, hostname: media.hostname, port: media.port, agent: undefined }, done);
syncBuiltinESMExports();

// The library below Baileys prints whole sessions where the events go.
for (const level of ["log", "info", "warn"]) console[level] = () => {};

const tell = (event) => process.stdout.write(`${JSON.stringify(event)}\n`);
const silent = { level: "silent", trace() {}, debug() {}, info() {}, warn() {}, error() {}, child: () => silent };
if (process.env.BAILEYS_LOG) {
  for (const level of ["info", "warn", "error"]) {
    silent[level] = (...what) => console.error(level, ...what.map((part) => (part instanceof Object ? JSON.stringify(part, (_, value) => (value instanceof Error ? value.stack : value)) : part)));
  }
}

const { state, saveCreds } = await baileys.useMultiFileAuthState(process.env.AUTH_DIR);
const messages = new Map();
let socket;
let leaving = false;
let saved = Promise.resolve();

function describe(message) {
  const content = baileys.extractMessageContent(message.message) ?? {};
  const kind = baileys.getContentType(content);
  const text = content.conversation ?? content.extendedTextMessage?.text ?? content[kind]?.caption ?? content[kind]?.text;
  return { id: message.key.id, chat: message.key.remoteJid, from: message.key.participant ?? message.key.remoteJid, mine: message.key.fromMe, status: message.status, kind, text };
}

// What is gone from the host is asked of the phone once.
async function open(message) {
  try {
    return await baileys.downloadMediaMessage(message, "buffer", {});
  } catch (error) {
    if (error?.output?.statusCode !== 404) throw error;
    return baileys.downloadMediaMessage(await socket.updateMediaMessage(message), "buffer", {});
  }
}

function connect() {
  socket = baileys.makeWASocket({
    auth: process.env.CACHED_KEYS ? { creds: state.creds, keys: baileys.makeCacheableSignalKeyStore(state.keys, silent) } : state,
    logger: silent,
    waWebSocketUrl: process.env.WHATSAPP_URL,
    version: [2, 3000, 1],
    browser: baileys.Browsers.ubuntu("Chrome"),
    getMessage: async (key) => messages.get(key.id),
  });
  socket.ev.on("creds.update", ({ accountSyncCounter }) => {
    saved = saved.then(saveCreds).then(() => accountSyncCounter && tell({ event: "synced" }));
  });
  socket.ev.on("connection.update", ({ qr, connection, lastDisconnect }) => {
    if (qr) tell({ event: "code", code: qr });
    if (connection === "open") tell({ event: "open", me: socket.user.id });
    if (connection === "close") {
      const code = lastDisconnect?.error?.output?.statusCode;
      tell({ event: "close", code });
      // A restart after pairing is no failure; everything else is the test's to judge.
      if (!leaving && code === baileys.DisconnectReason.restartRequired) connect();
    }
  });
  socket.ev.on("messages.upsert", ({ messages: arrived }) => {
    for (const message of arrived) {
      messages.set(message.key.id, message.message);
      const failed = message.messageStubType === 2 ? message.messageStubParameters?.[0] : undefined;
      const what = { event: "message", ...describe(message), failed };
      const attached = ["imageMessage", "documentMessage", "audioMessage"].includes(what.kind) && !what.mine;
      if (!attached) {
        tell(what);
        continue;
      }
      open(message).then(
        (bytes) => tell({ ...what, bytes: bytes.toString("base64") }),
        (error) => tell({ ...what, failed: String(error) }),
      );
    }
  });
  socket.ev.on("messages.update", (updates) => {
    for (const { key, update } of updates) tell({ event: "update", id: key.id, status: update.status });
  });
  socket.ev.on("messaging-history.set", ({ chats, messages: old }) => {
    tell({ event: "history", chats: chats.map((chat) => chat.id), messages: old.length });
  });
  socket.ev.on("groups.upsert", (groups) => {
    for (const group of groups) tell({ event: "group", id: group.id, subject: group.subject });
  });
}

const commands = {
  text: async ({ to, text }) => (await socket.sendMessage(to, { text })).key.id,
  image: async ({ to, bytes, caption }) => (await socket.sendMessage(to, { image: Buffer.from(bytes, "base64"), caption })).key.id,
  document: async ({ to, bytes, name }) => {
    const document = { document: Buffer.from(bytes, "base64"), mimetype: "text/plain", fileName: name };
    return (await socket.sendMessage(to, document)).key.id;
  },
  react: async ({ to, id, emoji }) => (await socket.sendMessage(to, { react: { text: emoji, key: { remoteJid: to, id, fromMe: false } } })).key.id,
  read: async ({ chat, id }) => socket.readMessages([{ remoteJid: chat, id }]),
  create: async ({ subject, members }) => (await socket.groupCreate(subject, members)).id,
  groups: async () => Object.values(await socket.groupFetchAllParticipating()).map((group) => group.subject),
  picture: async ({ of }) => (await socket.profilePictureUrl(of, "image")) ?? null,
  known: async ({ numbers }) => (await socket.onWhatsApp(...numbers)).map((found) => found.jid),
  digits: async ({ number, digits }) => socket.requestPairingCode(number, digits),
  reconnect: async () => connect(),
};

createInterface({ input: process.stdin })
  .on("line", async (line) => {
    const { ask, ...command } = JSON.parse(line);
    try {
      tell({ event: "answer", ask, value: (await commands[command.do](command)) ?? null });
    } catch (error) {
      tell({ event: "answer", ask, failed: String(error?.stack ?? error) });
    }
  })
  .on("close", async () => {
    leaving = true;
    await socket.end(undefined);
    // Half of its credentials would be none.
    await saved;
    process.exit(0);
  });

connect();

// An echo bot on telegraf: TELEGRAM_API_URL and TELEGRAM_TOKEN say where and who, FOREIGN_DIR where telegraf is installed.
import { createRequire } from "node:module";

const require = createRequire(`${process.env.FOREIGN_DIR}/package.json`);
const { Telegraf } = require("telegraf");

const bot = new Telegraf(process.env.TELEGRAM_TOKEN, { telegram: { apiRoot: process.env.TELEGRAM_API_URL } });
bot.on("text", (ctx) => ctx.reply(ctx.message.text));
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => bot.stop(signal));
await bot.launch({ allowedUpdates: ["message", "edited_message", "message_reaction", "callback_query"] });

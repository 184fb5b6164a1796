// An echo bot on Bolt: SLACK_API_URL, SLACK_APP_TOKEN and SLACK_BOT_TOKEN say where and who, FOREIGN_DIR where Bolt is
// installed.
import { createRequire } from "node:module";

const require = createRequire(`${process.env.FOREIGN_DIR}/package.json`);
const { App, LogLevel } = require("@slack/bolt");

const app = new App({
  token: process.env.SLACK_BOT_TOKEN,
  appToken: process.env.SLACK_APP_TOKEN,
  socketMode: true,
  logLevel: LogLevel.WARN,
  clientOptions: { slackApiUrl: process.env.SLACK_API_URL },
});
app.message(async ({ message, say }) => {
  if (message.subtype === undefined && message.text) await say({ text: message.text, thread_ts: message.thread_ts });
});
app.event(/^reaction_/, async () => {});
app.action(/.*/, async ({ ack }) => ack());
app.command(/.*/, async ({ ack }) => ack());
app.error(async (error) => console.error(error));
await app.start();

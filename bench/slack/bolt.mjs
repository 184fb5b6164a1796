// Echo bots on Bolt, all in one process. The first argument is where Bolt is installed; the tokens come by standard input, an
// app token and a bot token a line, an empty line after the last. SLACK_API_URL says where.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(`${process.argv[2]}/package.json`);
const { App, LogLevel } = require("@slack/bolt");

const clientOptions = { slackApiUrl: process.env.SLACK_API_URL };
for await (const line of createInterface({ input: process.stdin })) {
  if (!line.trim()) break;
  const [appToken, token] = line.trim().split(" ");
  const app = new App({ token, appToken, socketMode: true, logLevel: LogLevel.ERROR, clientOptions });
  app.message(async ({ message, say }) => {
    if (message.subtype === undefined) await say({ text: message.text, thread_ts: message.thread_ts });
  });
  app.start();
}

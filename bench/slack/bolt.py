"""Echo bots on slack-bolt, all in one process. The tokens come by standard input, an app token and a bot token a line, an
empty line after the last. SLACK_API_URL says where."""

import asyncio
import os
import sys

from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

URL = os.environ["SLACK_API_URL"]


async def echo(message, say):
    if "subtype" not in message:
        await say(text=message["text"], thread_ts=message.get("thread_ts"))


async def start(app_token, token, turn):
    app = AsyncApp(token=token, client=AsyncWebClient(token=token, base_url=URL))
    app.event("message")(echo)
    handler = AsyncSocketModeHandler(app, app_token, web_client=AsyncWebClient(base_url=URL))
    async with turn:
        await handler.connect_async()
    return handler


async def main():
    loop = asyncio.get_running_loop()
    tokens = []
    while line := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        tokens.append(line.split())
    turn = asyncio.Semaphore(50)
    handlers = await asyncio.gather(*(start(app_token, token, turn) for app_token, token in tokens))
    await asyncio.Event().wait()
    return handlers


asyncio.run(main())

"""Echo bots on python-telegram-bot, all in one process.

Reads tokens from the standard input, one a line, and ends with it. TELEGRAM_API_URL says where. The argument says how the
bots are built: `documented` as the documentation has it, `tuned` with one TLS context for all of them and longer polls.
"""

import asyncio
import ssl
import sys
from os import environ

from telegram import Update
from telegram.ext import ApplicationBuilder, ContextTypes, MessageHandler, filters
from telegram.request import HTTPXRequest

URL = environ["TELEGRAM_API_URL"]


async def echo(update: Update, _context: ContextTypes.DEFAULT_TYPE) -> None:
    await update.message.reply_text(update.message.text)


def build(token, context):
    builder = ApplicationBuilder().token(token).base_url(f"{URL}/bot")
    if context is not None:
        kwargs = {"verify": context}
        builder = builder.request(HTTPXRequest(connection_pool_size=256, httpx_kwargs=kwargs))
        builder = builder.get_updates_request(HTTPXRequest(connection_pool_size=1, httpx_kwargs=kwargs))
    application = builder.build()
    application.add_handler(MessageHandler(filters.TEXT & filters.UpdateType.MESSAGE, echo))
    return application


async def start(application, turn, polling):
    async with turn:
        await application.initialize()
        await application.start()
        await application.updater.start_polling(allowed_updates=["message"], **polling)


async def main():
    loop = asyncio.get_running_loop()
    tokens = []
    while line := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        tokens.append(line)
    tuned = sys.argv[1] == "tuned"
    context = ssl.create_default_context() if tuned else None
    polling = {"timeout": 30} if tuned else {}
    applications = [build(token, context) for token in tokens]
    # Some at a time: all at once only makes their first requests time out.
    turn = asyncio.Semaphore(50)
    await asyncio.gather(*(start(application, turn, polling) for application in applications))
    await asyncio.Event().wait()


asyncio.run(main())

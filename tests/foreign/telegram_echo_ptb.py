"""An echo bot on python-telegram-bot: TELEGRAM_API_URL and TELEGRAM_TOKEN say where and who."""

import os

from telegram import Update
from telegram.ext import ApplicationBuilder, ContextTypes, MessageHandler, filters

URL = os.environ["TELEGRAM_API_URL"]
KINDS = ["message", "edited_message", "message_reaction", "callback_query"]


async def echo(update: Update, _context: ContextTypes.DEFAULT_TYPE) -> None:
    await update.message.reply_text(update.message.text)


application = (
    ApplicationBuilder()
    .token(os.environ["TELEGRAM_TOKEN"])
    .base_url(f"{URL}/bot")
    .base_file_url(f"{URL}/file/bot")
    .build()
)
application.add_handler(MessageHandler(filters.TEXT & filters.UpdateType.MESSAGE, echo))
application.run_polling(allowed_updates=KINDS)

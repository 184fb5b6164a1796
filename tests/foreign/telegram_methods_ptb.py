"""Calls the methods of the Bot API by python-telegram-bot and judges the answers by its own types and errors.

TELEGRAM_API_URL and TELEGRAM_TOKEN say where and who. The chats: 7 is a person who said "hello" (message 1), 8 one who
blocked the bot, -5 a group that became -1000000000005. Sends to chat 9 meet a flood limit of 3 seconds.
"""

import asyncio
import os
import sys

from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, InputFile, error
from telegram.constants import ChatAction

URL = os.environ["TELEGRAM_API_URL"]
TOKEN = os.environ["TELEGRAM_TOKEN"]


async def refused(kind, call, words=None):
    try:
        await call
    except kind as refusal:
        assert words is None or words in str(refusal), refusal
        return refusal
    raise AssertionError(f"expected {kind.__name__}")


async def files(bot):
    photo = await bot.send_photo(7, b"bytes of a photo", caption="a photo", reply_to_message_id=1)
    assert photo.caption == "a photo" and photo.reply_to_message.text == "hello"
    document = await bot.send_document(7, InputFile(b"bytes of a file", filename="note.txt"))
    assert document.document.file_name == "note.txt" and document.document.mime_type == "text/plain"
    again = await bot.send_document(7, document.document.file_id)
    assert again.document.file_id == document.document.file_id
    for method, field in [
        (bot.send_video, "video"),
        (bot.send_audio, "audio"),
        (bot.send_voice, "voice"),
        (bot.send_sticker, "sticker"),
        (bot.send_animation, "animation"),
    ]:
        assert getattr(await method(7, b"bytes"), field).file_size == 5
    assert (await bot.send_photo(7, "https://example.org/cat.jpg")).photo
    file = await bot.get_file(document.document.file_id)
    assert bytes(await file.download_as_bytearray()) == b"bytes of a file"
    await refused(error.BadRequest, bot.get_file("nothing"), "Wrong file_id")


async def messages(bot):
    buttons = InlineKeyboardMarkup([[InlineKeyboardButton("ok", callback_data="yes")]])
    sent = await bot.send_message(7, "grüße 🦀 \n<b>", reply_markup=buttons)
    assert sent.text == "grüße 🦀 \n<b>" and sent.reply_markup.inline_keyboard[0][0].callback_data == "yes"
    edited = await sent.edit_text("edited")
    assert edited.text == "edited" and edited.edit_date and edited.message_id == sent.message_id
    await refused(error.BadRequest, sent.edit_text("edited"), "not modified")
    assert await bot.set_message_reaction(7, 1, "👍")
    assert await bot.set_message_reaction(7, 1, None)
    await refused(error.BadRequest, bot.set_message_reaction(7, 1, "🧮"), "Reaction_invalid")
    assert await sent.delete()
    await refused(error.BadRequest, sent.delete(), "not found")
    place = await bot.send_location(7, 52.52, 13.405)
    assert abs(place.location.latitude - 52.52) < 1e-9
    venue = await bot.send_venue(7, 52.52, 13.405, "a title", "an address")
    assert venue.venue.title == "a title" and venue.venue.location.longitude == 13.405
    assert await bot.send_chat_action(7, ChatAction.TYPING)


async def refusals(bot):
    await refused(error.BadRequest, bot.send_message(404, "x"), "Chat not found")
    await refused(error.BadRequest, bot.send_message(7, ""), "text is empty")
    await refused(error.BadRequest, bot.send_message(7, "x" * 4097), "too long")
    await refused(error.Forbidden, bot.send_message(8, "x"), "blocked by the user")
    assert (await refused(error.ChatMigrated, bot.send_message(-5, "x"))).new_chat_id == -1000000000005
    assert (await refused(error.RetryAfter, bot.send_message(9, "x")))._retry_after.total_seconds() == 3
    async with Bot("1:unknown", base_url=f"{URL}/bot") as _:
        pass


async def polling(bot):
    assert await bot.set_webhook("https://example.org/hook", allowed_updates=["message"])
    info = await bot.get_webhook_info()
    assert info.url == "https://example.org/hook" and info.allowed_updates == ("message",)
    await refused(error.Conflict, bot.get_updates(), "webhook is active")
    assert await bot.delete_webhook()
    updates = await bot.get_updates(allowed_updates=["message", "message_reaction"])
    assert [update.message.text for update in updates if update.message] == ["hello"], updates
    assert await bot.get_updates(offset=updates[-1].update_id + 1) == ()
    # A client has one connection for polls, so the second poll is another client's.
    async with Bot(TOKEN, base_url=f"{URL}/bot") as other:
        older = asyncio.create_task(bot.get_updates(timeout=20))
        while not older.done():
            # The second poll may come first: then it is empty, and the next one ends the first.
            await other.get_updates(timeout=1)
        await refused(error.Conflict, older, "terminated by other getUpdates")


async def main():
    bot = Bot(TOKEN, base_url=f"{URL}/bot", base_file_url=f"{URL}/file/bot")
    async with bot:
        assert bot.bot.is_bot and str(bot.id) == TOKEN.split(":")[0]
        chat = await bot.get_chat(7)
        assert chat.type == "private" and chat.max_reaction_count
        assert await bot.set_my_commands([("start", "begin")])
        assert (await bot.get_my_commands())[0].command == "start"
        await files(bot)
        await messages(bot)
        try:
            await refusals(bot)
        except error.InvalidToken:
            print("the unknown token was refused")
        else:
            raise AssertionError("the unknown token was taken")
        await polling(bot)
        assert await bot.close()
        assert await bot.log_out()


asyncio.run(main())
sys.exit(0)

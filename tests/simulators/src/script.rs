//! One fixed conversation, and its record in a form in which two bots can be compared.
//!
//! Whoever runs the bot, the same person says and does the same; ids, dates and names of files are left out of the
//! record, and messages are numbered as they appear.

use std::{collections::HashMap, sync::Arc, time::Duration};

use serde_json::Value;

use crate::{
    TimedOut,
    telegram::{BotHandle, By, Entry, User, What},
};

/// What the person says, each answered before the next. Texts only are echoed.
const TEXTS: [&str; 5] =
    ["hello", "grüße, 你好, مرحبا 🦀👩‍👩‍👧", "line one\nline two", "/start now", "two  blanks & <b>marks</b>"];

/// Plays the conversation with a bot that echoes texts and asks for messages, edits, reactions and presses. The record.
pub async fn play(bot: &BotHandle, chat: i64, within: Duration) -> Result<Vec<String>, TimedOut> {
    bot.wait_for_poll(within).await?;
    let user = bot.user(chat);
    let mut answers = 0;
    for text in TEXTS {
        user.say(text);
        answers = answered(&user, answers, within).await?;
    }
    let last = user.answers().last().and_then(|entry| entry.message_id).unwrap_or_default();
    let reply = user.reply(last, "a reply").message_id;
    answers = answered(&user, answers, within).await?;
    user.photo(&b"a photo"[..], Some("a caption is no text"));
    user.send_file("document", "note.txt", &b"a note"[..], None);
    user.location(52.52, 13.405);
    user.venue(52.52, 13.405, "a place", "its address");
    user.edit(reply, "a reply, edited");
    user.react(last, &["👍"]);
    user.react(last, &[]);
    user.press(last, "a button");
    // The last word comes after all that is not echoed: once it is answered, the rest was seen and left alone.
    user.say("goodbye");
    answered(&user, answers, within).await?;
    bot.wait_for_confirmed(within).await?;
    Ok(normalise(&user.conversation()))
}

async fn answered(user: &User, answers: usize, within: Duration) -> Result<usize, TimedOut> {
    user.wait_for_answers(answers + 1, within).await.map(|answers| answers.len())
}

/// The conversation without what differs from run to run.
pub fn normalise(entries: &[Arc<Entry>]) -> Vec<String> {
    let mut numbers: HashMap<i64, usize> = HashMap::new();
    entries
        .iter()
        // Whether a bot shows that it types is a matter of taste.
        .filter(|entry| entry.what != What::Action)
        .map(|entry| {
            let mut number = |id: i64| {
                let next = numbers.len() + 1;
                *numbers.entry(id).or_insert(next)
            };
            let by = if entry.by == By::Bot { "bot" } else { "user" };
            let message = entry.message_id.map(|id| format!(" #{}", number(id))).unwrap_or_default();
            let reply = entry.content.pointer("/reply_to_message/message_id").and_then(Value::as_i64);
            let reply = reply.map(|id| format!(" to #{}", number(id))).unwrap_or_default();
            let kind = format!("{:?}", entry.what).to_lowercase();
            let content = content(&entry.content);
            format!("{by} {kind}{message}{reply}{content} {:?}", entry.text.as_deref().unwrap_or(""))
        })
        .collect()
}

/// What a message carries besides its text.
fn content(message: &Value) -> String {
    let kinds =
        ["photo", "video", "audio", "voice", "document", "sticker", "animation", "location", "venue", "entities"];
    let carried = kinds.into_iter().filter(|kind| message.get(kind).is_some());
    carried.map(|kind| format!(" +{kind}")).collect()
}

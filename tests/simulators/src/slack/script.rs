//! One fixed conversation, and its record in a form in which two bots can be compared.
//!
//! Whoever runs the bot, the same person says and does the same; times and ids are left out of the record, and messages
//! are numbered as they appear.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{AppHandle, By, Entry, Person};
use crate::TimedOut;

/// What the person says, each answered before the next. Texts only are echoed.
const TEXTS: [&str; 5] = [
    "hello",
    "grüße, 你好, مرحبا 🦀👩‍👩‍👧",
    "line one\nline two",
    "1 &lt; 2 &amp;&amp; *bold* <https://example.org|link>",
    "two  blanks",
];

/// Plays the conversation with a bot that echoes texts and hears of everything. The record.
pub async fn play(app: &AppHandle, user: &str, within: Duration) -> Result<Vec<String>, TimedOut> {
    app.wait_for_sockets(1, within).await?;
    let person = app.dm(user);
    let mut answers = 0;
    let mut last = String::new();
    for text in TEXTS {
        last = person.say(text);
        answers = answered(&person, answers, within).await?;
    }
    person.say_in_thread(&last, "in a thread");
    answers = answered(&person, answers, within).await?;
    person.send_file("note.txt", "a note", "a comment is no text");
    person.edit(&last, "edited");
    person.react(&last, "thumbsup");
    person.unreact(&last, "thumbsup");
    person.unfurl(&last);
    person.press(&last, "a_button", "a value");
    person.command("/do", "something");
    person.delete(&last);
    // The last word comes after all that is not echoed: once it is answered, the rest was seen and left alone.
    person.say("goodbye");
    answered(&person, answers, within).await?;
    let channel = app.member("C0CHANNEL", user);
    channel.mention("are you there?");
    answered(&channel, 0, within).await?;
    app.wait_for_acks(within).await?;
    let mut record = normalise(&person.conversation());
    record.extend(normalise(&channel.conversation()));
    Ok(record)
}

async fn answered(person: &Person, answers: usize, within: Duration) -> Result<usize, TimedOut> {
    person.wait_for_answers(answers + 1, within).await.map(|answers| answers.len())
}

/// The conversation without what differs from run to run.
fn normalise(entries: &[Arc<Entry>]) -> Vec<String> {
    let mut numbers: HashMap<String, usize> = HashMap::new();
    entries
        .iter()
        .map(|entry| {
            let mut number = |ts: &str| {
                let next = numbers.len() + 1;
                *numbers.entry(ts.to_owned()).or_insert(next)
            };
            let by = if entry.by == By::Bot { "bot" } else { "user" };
            let message = entry.ts.as_deref().map(|ts| format!(" #{}", number(ts))).unwrap_or_default();
            let thread =
                entry.content["thread_ts"].as_str().map(|ts| format!(" in #{}", number(ts))).unwrap_or_default();
            let files = if entry.content.get("files").is_some() { " +file" } else { "" };
            let kind = format!("{:?}", entry.what).to_lowercase();
            let bot = entry.text.split_once("> ").filter(|_| entry.text.starts_with("<@")).map(|(_, text)| text);
            format!("{by} {kind}{message}{thread}{files} {:?}", bot.unwrap_or(&entry.text))
        })
        .collect()
}

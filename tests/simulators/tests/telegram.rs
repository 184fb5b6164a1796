//! The simulator's own promises, asked over HTTP as any client does.

use std::time::Duration;

use reqwest::Client;
use serde_json::{Value, json};
use simulators::telegram::{ALWAYS, BotHandle, Fault, Limits, On, Telegram, What};

const SOON: Duration = Duration::from_secs(10);

async fn start() -> (Telegram, BotHandle, Api) {
    let telegram = Telegram::start().await.expect("a free port");
    let bot = telegram.add_bot();
    let api = Api { client: Client::builder().no_proxy().build().expect("a client"), base: base(&telegram, &bot) };
    (telegram, bot, api)
}

fn base(telegram: &Telegram, bot: &BotHandle) -> String {
    format!("{}/bot{}", telegram.url(), bot.token())
}

#[derive(Clone)]
struct Api {
    client: Client,
    base: String,
}

impl Api {
    async fn call(&self, method: &str, params: Value) -> (u16, Value) {
        let response = self.client.post(format!("{}/{method}", self.base)).json(&params).send().await.expect("answer");
        (response.status().as_u16(), response.json().await.expect("JSON"))
    }

    async fn ok(&self, method: &str, params: Value) -> Value {
        let (status, mut body) = self.call(method, params).await;
        assert_eq!((status, &body["ok"]), (200, &json!(true)), "{body}");
        body["result"].take()
    }

    async fn refused(&self, method: &str, params: Value) -> (u16, String) {
        let (status, body) = self.call(method, params).await;
        assert_eq!(body["ok"], json!(false), "{body}");
        assert_eq!(body["error_code"], json!(status));
        (status, body["description"].as_str().expect("a description").to_owned())
    }

    async fn updates(&self, params: Value) -> Vec<Value> {
        self.ok("getUpdates", params).await.as_array().expect("an array").clone()
    }

    fn poll(&self, params: Value) -> tokio::task::JoinHandle<(u16, Value)> {
        let api = self.clone();
        tokio::spawn(async move { api.call("getUpdates", params).await })
    }
}

fn ids(updates: &[Value]) -> Vec<i64> {
    updates.iter().map(|update| update["update_id"].as_i64().expect("an id")).collect()
}

#[tokio::test]
async fn a_long_poll_answers_when_something_happens_and_empty_when_its_time_is_over() {
    let (telegram, bot, api) = start().await;
    let poll = api.poll(json!({"timeout": 30}));
    telegram.wait_for_polls(1, SOON).await.expect("the poll is open");
    bot.user(7).say("hello");
    let (_, body) = poll.await.expect("no panic");
    assert_eq!(body["result"][0]["message"]["text"], "hello");
    assert_eq!(telegram.polls_open(), 0);
    let offset = body["result"][0]["update_id"].as_i64().expect("an id") + 1;
    let before = std::time::Instant::now();
    assert!(api.updates(json!({"offset": offset, "timeout": 1})).await.is_empty());
    assert!(before.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn updates_stay_until_an_offset_confirms_them_and_a_negative_one_drops_the_past() {
    let (_telegram, bot, api) = start().await;
    let user = bot.user(7);
    let sent: Vec<i64> = (0..5).map(|n| user.say(&n.to_string()).update_id.expect("asked for")).collect();
    assert_eq!(sent, (sent[0]..sent[0] + 5).collect::<Vec<_>>());
    assert_eq!(ids(&api.updates(json!({"limit": 2})).await), sent[..2]);
    assert_eq!(ids(&api.updates(json!({})).await), sent, "nothing was confirmed");
    assert_eq!(ids(&api.updates(json!({"offset": sent[2]})).await), sent[2..]);
    assert_eq!(ids(&api.updates(json!({"offset": -1})).await), sent[4..]);
    assert_eq!(bot.stats().pending, 1, "what was dropped is gone");
    assert_eq!(bot.stats().given_again, 2 + 3 + 1);
}

#[tokio::test]
async fn the_older_of_two_polls_is_ended_by_409() {
    let (telegram, bot, api) = start().await;
    let older = api.poll(json!({"timeout": 30}));
    telegram.wait_for_polls(1, SOON).await.expect("the poll is open");
    let newer = api.poll(json!({"timeout": 30}));
    let (status, body) = older.await.expect("no panic");
    assert_eq!(status, 409);
    assert_eq!(
        body["description"],
        "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
    );
    bot.wait_for_poll(SOON).await.expect("the newer one holds");
    bot.user(7).say("to the newer");
    let (_, body) = newer.await.expect("no panic");
    assert_eq!(body["result"][0]["message"]["text"], "to the newer");
    assert_eq!(bot.stats().conflicts, 1);
}

#[tokio::test]
async fn a_poll_whose_client_hung_up_is_no_longer_open_and_loses_nothing() {
    let (telegram, bot, api) = start().await;
    let poll = api.poll(json!({"timeout": 30}));
    telegram.wait_for_polls(1, SOON).await.expect("the poll is open");
    poll.abort();
    telegram.wait_for("no poll", SOON, || (telegram.polls_open() == 0).then_some(())).await.expect("it is closed");
    bot.user(7).say("kept");
    assert_eq!(api.updates(json!({})).await.len(), 1);
}

#[tokio::test]
async fn a_webhook_and_a_poll_shut_each_other_out() {
    let (telegram, bot, api) = start().await;
    let poll = api.poll(json!({"timeout": 30}));
    telegram.wait_for_polls(1, SOON).await.expect("the poll is open");
    api.ok("setWebhook", json!({"url": "https://example.org/hook"})).await;
    assert_eq!(poll.await.expect("no panic").1["description"], "Conflict: terminated by setWebhook request");
    let expected =
        "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first";
    assert_eq!(api.refused("getUpdates", json!({})).await, (409, expected.to_owned()));
    assert_eq!(api.ok("getWebhookInfo", json!({})).await["url"], "https://example.org/hook");
    bot.user(7).say("waits");
    api.ok("deleteWebhook", json!({})).await;
    assert_eq!(api.updates(json!({})).await.len(), 1);
    bot.user(7).say("is dropped");
    api.ok("deleteWebhook", json!({"drop_pending_updates": true})).await;
    assert!(api.updates(json!({})).await.is_empty());
}

#[tokio::test]
async fn reactions_come_only_when_asked_for_and_the_wish_is_remembered() {
    let (_telegram, bot, api) = start().await;
    let user = bot.user(7);
    let message = user.say("first").message_id;
    assert_eq!(user.react(message, &["👍"]).update_id, None, "not by default");
    let offset = ids(&api.updates(json!({"allowed_updates": ["message_reaction"]})).await)[0] + 1;
    assert!(user.react(message, &["🔥"]).update_id.is_some());
    assert_eq!(user.say("unwanted").update_id, None);
    let updates = api.updates(json!({"offset": offset})).await;
    assert_eq!(updates.len(), 1, "the wish holds for a request that names none");
    assert_eq!(updates[0]["message_reaction"]["new_reaction"][0]["emoji"], "🔥");
    assert_eq!(updates[0]["message_reaction"]["old_reaction"][0]["emoji"], "👍");
    api.updates(json!({"allowed_updates": []})).await;
    assert!(user.say("wanted").update_id.is_some(), "an empty list is the default again");
    assert_eq!(user.react(message, &[]).update_id, None);
}

#[tokio::test]
async fn a_method_is_known_in_any_letter_case_by_get_and_post_json_form_and_multipart() {
    let (_telegram, bot, api) = start().await;
    let user = bot.user(7);
    let url = |method: &str| format!("{}/{method}", api.base);
    let client = &api.client;
    let get = client.get(format!("{}?chat_id=7&text=get", url("SENDMESSAGE")));
    let form = client
        .post(url("sendmessage"))
        .header("content-type", "application/x-www-form-urlencoded")
        .body("chat_id=7&text=a+form+%F0%9F%A6%80&reply_parameters=%7B%22message_id%22%3A1%7D");
    let json = client.post(url("SendMessage")).json(&json!({"chat_id": "7", "text": " json\n"}));
    let parts = reqwest::multipart::Form::new().text("chat_id", "7").text("text", "multipart");
    let multipart = client.post(url("sendMessage")).multipart(parts);
    for request in [get, form, json, multipart] {
        assert_eq!(request.send().await.expect("an answer").status(), 200);
    }
    let texts: Vec<_> = user.answers().iter().map(|entry| entry.text.clone().expect("a text")).collect();
    assert_eq!(texts, ["get", "a form 🦀", "json", "multipart"]);
    assert_eq!(user.answers()[1].content["reply_to_message"]["text"], "get");
    assert_eq!(bot.stats().requests_of("sendMessage"), 4);
}

#[tokio::test]
async fn a_file_goes_by_upload_attachment_id_and_url_and_comes_back_by_its_path() {
    let (telegram, bot, api) = start().await;
    let user = bot.user(7);
    let upload = |field: &'static str| {
        let part = reqwest::multipart::Part::bytes(b"bytes of a file".as_slice()).file_name("a.txt");
        let form = reqwest::multipart::Form::new().text("chat_id", "7").text("caption", "see");
        if field == "attached" {
            form.text("document", "attach://attached").part("attached", part)
        } else {
            form.part(field, part)
        }
    };
    for field in ["document", "attached"] {
        let sent = api.client.post(format!("{}/sendDocument", api.base)).multipart(upload(field)).send().await;
        assert_eq!(sent.expect("an answer").status(), 200, "{field}");
    }
    let entry = user.answers().pop().expect("a document");
    let id = entry.content["document"]["file_id"].as_str().expect("an id");
    assert_eq!((entry.text.as_deref(), &entry.content["document"]["file_name"]), (Some("see"), &json!("a.txt")));
    api.ok("sendDocument", json!({"chat_id": 7, "document": id})).await;
    api.ok("sendPhoto", json!({"chat_id": 7, "photo": "https://example.org/cat.jpg"})).await;
    let unknown = api.refused("sendPhoto", json!({"chat_id": 7, "photo": "nothing"})).await;
    assert_eq!(unknown.0, 400);
    let file = api.ok("getFile", json!({"file_id": id})).await;
    let path = file["file_path"].as_str().expect("a path");
    let url = format!("{}/file/bot{}/{path}", telegram.url(), bot.token());
    let bytes = api.client.get(url).send().await.expect("an answer").bytes().await.expect("bytes");
    assert_eq!(bytes.as_ref(), b"bytes of a file");
    for method in ["Video", "Audio", "Voice", "Sticker", "Animation"] {
        let field = method.to_lowercase();
        api.ok(&format!("send{method}"), json!({"chat_id": 7, field: id})).await;
    }
}

#[tokio::test]
async fn what_is_in_a_chat_can_be_edited_deleted_reacted_to_and_answered() {
    let (_telegram, bot, api) = start().await;
    let user = bot.user(7);
    let theirs = user.say("hi").message_id;
    let buttons = json!({"inline_keyboard": [[{"text": "ok", "callback_data": "yes"}]]});
    let sent = api.ok("sendMessage", json!({"chat_id": 7, "text": "one", "reply_markup": buttons})).await;
    let id = sent["message_id"].as_i64().expect("an id");
    assert_eq!(id, theirs + 1, "one sequence for the chat");
    let same = json!({"chat_id": 7, "message_id": id, "text": "one", "reply_markup": buttons});
    assert!(api.refused("editMessageText", same).await.1.starts_with("Bad Request: message is not modified"));
    api.ok("editMessageText", json!({"chat_id": 7, "message_id": id, "text": "two"})).await;
    let foreign = json!({"chat_id": 7, "message_id": theirs, "text": "x"});
    assert_eq!(api.refused("editMessageText", foreign).await.1, "Bad Request: message can't be edited");
    let like = json!({"chat_id": 7, "message_id": theirs, "reaction": [{"type": "emoji", "emoji": "👍"}]});
    api.ok("setMessageReaction", like).await;
    let odd = json!({"chat_id": 7, "message_id": theirs, "reaction": [{"type": "emoji", "emoji": "🧮"}]});
    assert_eq!(api.refused("setMessageReaction", odd).await.1, "Bad Request: REACTION_INVALID");
    user.press(id, "yes");
    let press = api.updates(json!({})).await.pop().expect("the press");
    assert_eq!(press["callback_query"]["message"]["text"], "two");
    api.ok("answerCallbackQuery", json!({"callback_query_id": press["callback_query"]["id"], "text": "thanks"})).await;
    assert_eq!(api.refused("answerCallbackQuery", json!({"callback_query_id": "1"})).await.0, 400);
    api.ok("deleteMessage", json!({"chat_id": 7, "message_id": id})).await;
    assert_eq!(api.refused("deleteMessage", json!({"chat_id": 7, "message_id": id})).await.0, 400);
    let whats: Vec<_> = user.conversation().iter().map(|entry| entry.what).collect();
    use What::{Delete, Edit, Message, Press, PressAnswer, Reaction};
    assert_eq!(whats, [Message, Message, Edit, Reaction, Press, PressAnswer, Delete]);
}

#[tokio::test]
async fn refusals_have_the_platforms_words() {
    let (telegram, bot, api) = start().await;
    let user = bot.user(7);
    bot.migrate(-5, -1_000_000_000_005);
    let hi = |chat: i64| json!({"chat_id": chat, "text": "hi"});
    assert_eq!(api.refused("sendMessage", hi(8)).await, (400, "Bad Request: chat not found".into()));
    assert_eq!(api.refused("sendMessage", json!({"text": "hi"})).await.1, "Bad Request: chat_id is empty");
    assert_eq!(api.refused("sendMessage", json!({"chat_id": 7})).await.1, "Bad Request: message text is empty");
    let long = "x".repeat(4097);
    let long = json!({"chat_id": 7, "text": long});
    assert_eq!(api.refused("sendMessage", long).await.1, "Bad Request: message is too long");
    let (status, body) = api.call("sendMessage", hi(-5)).await;
    assert_eq!((status, &body["parameters"]["migrate_to_chat_id"]), (400, &json!(-1_000_000_000_005_i64)));
    user.block();
    let blocked = api.refused("sendMessage", hi(7)).await;
    assert_eq!(blocked, (403, "Forbidden: bot was blocked by the user".into()));
    user.unblock();
    api.ok("sendMessage", hi(7)).await;
    assert_eq!(api.refused("sendPoem", json!({})).await, (404, "Not Found: method not found".into()));
    let other = |token: &str| Api { base: format!("{}/bot{token}", telegram.url()), ..api.clone() };
    assert_eq!(other("1:unknown").refused("getMe", json!({})).await, (401, "Unauthorized".into()));
    assert_eq!(other("nonsense").refused("getMe", json!({})).await, (404, "Not Found".into()));
    let poll = api.poll(json!({"offset": i32::MAX, "timeout": 30}));
    bot.wait_for_poll(SOON).await.expect("the poll is open");
    bot.revoke();
    assert_eq!(poll.await.expect("no panic").0, 401, "the poll that waits hears it too");
    assert_eq!(api.refused("getMe", json!({})).await.0, 401);
}

#[tokio::test]
async fn a_fault_strikes_before_or_after_the_work_as_it_says() {
    let (telegram, bot, api) = start().await;
    let user = bot.user(7);
    let send = |text: &str| json!({"chat_id": 7, "text": text});
    let on = || On::bot(&bot).and_method("sendMessage").and_chat(7);
    let raw = |text: &str| api.client.post(format!("{}/sendMessage", api.base)).json(&send(text)).send();
    telegram.fault(on(), Fault::ResetBefore, 1);
    assert!(raw("never").await.expect_err("a reset").is_request());
    telegram.fault(on(), Fault::ResetAfter, 1);
    assert!(raw("done").await.is_err());
    telegram.fault(on(), Fault::Malformed, 1);
    assert!(raw("cut").await.expect("an answer").json::<Value>().await.is_err());
    telegram.fault(on(), Fault::Page(502), 1);
    assert_eq!(raw("page").await.expect("an answer").status(), 502);
    telegram.fault(on(), Fault::too_many(3), 1);
    let (status, body) = api.call("sendMessage", send("limited")).await;
    assert_eq!((status, &body["parameters"]["retry_after"]), (429, &json!(3)));
    let hole = telegram.fault(on(), Fault::BlackHole, ALWAYS);
    let swallowed = tokio::spawn(raw("swallowed"));
    telegram.wait_for("the strike", SOON, || (telegram.fired(hole) == 1).then_some(())).await.expect("it struck");
    telegram.heal(hole);
    telegram.fault(on(), Fault::Unanswered, 1);
    let unheard = tokio::spawn(raw("unheard"));
    user.wait_for_answers(3, SOON).await.expect("it was done");
    assert!(!swallowed.is_finished() && !unheard.is_finished());
    telegram.fault(on(), Fault::SlowAnswer(Duration::from_millis(50)), 1);
    api.ok("sendMessage", send("slow")).await;
    let texts: Vec<_> = user.answers().iter().map(|entry| entry.text.clone().expect("a text")).collect();
    assert_eq!(texts, ["done", "cut", "unheard", "slow"]);
}

#[tokio::test]
async fn an_outage_refuses_connections_and_ends_on_the_same_port_with_nothing_lost() {
    let (telegram, bot, api) = start().await;
    let poll = api.client.post(format!("{}/getUpdates", api.base)).json(&json!({"timeout": 30})).send();
    let poll = tokio::spawn(poll);
    bot.wait_for_poll(SOON).await.expect("the poll is open");
    telegram.outage();
    assert!(poll.await.expect("no panic").is_err(), "open connections are reset");
    telegram.wait_for("no poll", SOON, || (telegram.polls_open() == 0).then_some(())).await.expect("closed");
    bot.user(7).say("meanwhile");
    let refused = api.client.post(format!("{}/getMe", api.base)).send().await.expect_err("refused");
    assert!(refused.is_connect(), "{refused:?}");
    telegram.recover();
    let mut updates = Vec::new();
    while updates.is_empty() {
        let Ok(answer) = api.client.post(format!("{}/getUpdates", api.base)).send().await else {
            tokio::task::yield_now().await;
            continue;
        };
        updates = answer.json::<Value>().await.expect("JSON")["result"].as_array().expect("an array").clone();
    }
    assert_eq!(updates[0]["message"]["text"], "meanwhile");
}

#[tokio::test]
async fn send_limits_are_enforced_when_asked_for() {
    let (telegram, bot, api) = start().await;
    bot.user(7);
    // So slow that the test's own time makes no difference.
    telegram.limit(Some(Limits { chat_per_second: 0.01, ..Limits::default() }));
    let mut refused = 0;
    for n in 0..6 {
        let (status, body) = api.call("sendMessage", json!({"chat_id": 7, "text": n.to_string()})).await;
        refused += u32::from(status == 429 && body["parameters"]["retry_after"].as_u64() > Some(50));
    }
    assert_eq!(refused, 3);
    telegram.limit(None);
    api.ok("sendMessage", json!({"chat_id": 7, "text": "free"})).await;
}

#[tokio::test]
async fn an_unknown_kind_comes_in_the_middle_of_a_batch() {
    let (_telegram, bot, api) = start().await;
    bot.user(7).say("before");
    bot.push_update("quantum_message", &json!({"spin": 0.5}));
    bot.user(7).say("after");
    let updates = api.updates(json!({"allowed_updates": ["message"]})).await;
    assert_eq!(updates[1]["quantum_message"]["spin"], 0.5);
    assert_eq!(updates[2]["message"]["text"], "after");
}

#[tokio::test]
async fn a_driver_in_any_language_plays_and_reads_the_conversation_over_http() {
    let (telegram, bot, api) = start().await;
    let control = |path: String| format!("{}/control/{path}", telegram.url());
    let chat = control(format!("bots/{}/chats/7", bot.token()));
    let post = |url: String, body: Value| {
        let request = api.client.post(url).json(&body);
        async move {
            let response = request.send().await.expect("an answer");
            (response.status().as_u16(), response.json::<Value>().await.expect("JSON"))
        }
    };
    let (status, made) = post(control("bots".into()), json!({"token": "5:five"})).await;
    assert_eq!((status, &made["id"]), (200, &json!(5)));
    assert_eq!(post(chat.clone(), json!({"act": "say", "text": "hi"})).await.1["message_id"], 1);
    assert_eq!(post(chat.clone(), json!({"act": "edit", "message_id": 9, "text": "hi"})).await.0, 404);
    post(control("faults".into()), json!({"method": "sendMessage", "fault": {"page": 502}})).await;
    let send = api.client.post(format!("{}/sendMessage", api.base)).json(&json!({"chat_id": 7, "text": "hi"}));
    assert_eq!(send.send().await.expect("an answer").status(), 502);
    api.ok("sendMessage", json!({"chat_id": 7, "text": "hi"})).await;
    let wait = json!({"token": bot.token(), "chat": 7, "answers": 1, "within_ms": 5000});
    assert_eq!(post(control("wait".into()), wait).await.0, 200);
    let entries: Value = api.client.get(chat).send().await.expect("an answer").json().await.expect("JSON");
    assert_eq!((&entries[0]["by"], &entries[1]["by"]), (&json!({"user": 7}), &json!("bot")));
}

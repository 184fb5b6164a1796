//! An app as its tests hold it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use serde_json::Value;

use super::{
    Greeting, Person, Slack,
    app::{App, AppState, Order},
    methods,
    server::Server,
    socket,
    stats::AppStats,
};
use crate::{TimedOut, lock};

/// An app of the simulator.
#[derive(Debug, Clone)]
pub struct AppHandle {
    pub(super) slack: Slack,
    pub(super) app: Arc<App>,
}

impl AppHandle {
    /// The app's id.
    pub fn id(&self) -> &str {
        &self.app.id
    }

    /// What sockets are opened with (`xapp-…`).
    pub fn app_token(&self) -> &str {
        &self.app.app_token
    }

    /// What the Web API is called with (`xoxb-…`).
    pub fn bot_token(&self) -> &str {
        &self.app.bot_token
    }

    /// The bot's id as a person of the workspace.
    pub fn bot_user(&self) -> &str {
        &self.app.bot_user
    }

    /// The server it is on.
    pub fn slack(&self) -> &Slack {
        &self.slack
    }

    pub(super) fn server(&self) -> &Server {
        &self.slack.server
    }

    /// A person (`U…`) in the direct conversation with the bot, which exists from now on.
    pub fn dm(&self, user: &str) -> Person {
        self.member(&methods::dm_of(user), user)
    }

    /// A person in a conversation of which the bot is a member from now on.
    pub fn member(&self, channel: &str, user: &str) -> Person {
        lock(&self.app.state).channel(channel);
        Person { app: self.clone(), channel: channel.to_owned(), user: user.to_owned() }
    }

    /// Tells the app of an event of any kind. Its event id.
    pub fn push_event(&self, event: Value) -> String {
        let payload = self.app.around(event);
        self.act(|state| state.push(self.server(), "events_api", payload)).unwrap_or_default()
    }

    /// Puts a payload of any kind on the way.
    pub fn push(&self, kind: &'static str, payload: Value) {
        self.act(|state| state.push(self.server(), kind, payload));
    }

    /// Every token of the app is refused with this word, and its sockets are closed; or all is well again.
    pub fn refuse(&self, error: Option<&str>) {
        self.act(|state| state.refused_with = error.map(str::to_owned));
        if error.is_some() {
            self.close_sockets();
        }
    }

    /// How sockets are greeted from now on.
    pub fn greet(&self, greeting: Greeting) {
        self.act(|state| state.greeting = greeting);
    }

    /// Tells every socket to go; they stay open until they are closed from either side.
    pub fn disconnect(&self, reason: &str) {
        self.act(|state| {
            for socket in &mut state.sockets {
                socket.leaving = true;
                let _ = socket.orders.send(Order::Send(socket::disconnect(reason)));
            }
        });
    }

    /// Sends every socket any text.
    pub fn send_text(&self, text: &str) {
        self.order(|| Order::Send(text.to_owned()));
    }

    /// Closes the sockets that are open now, by a close frame.
    pub fn close_sockets(&self) {
        self.order(|| Order::Close);
    }

    /// Closes those that were told to go.
    pub fn close_leaving(&self) {
        let state = lock(&self.app.state);
        for socket in state.sockets.iter().filter(|socket| socket.leaving) {
            let _ = socket.orders.send(Order::Close);
        }
    }

    /// Resets the connections of the sockets that are open now.
    pub fn reset_sockets(&self) {
        lock(&self.app.state).sockets.iter().for_each(|socket| socket.cutter.cut());
    }

    /// The sockets that are open now stay so, and nothing goes through them in either direction any more.
    pub fn freeze_sockets(&self) {
        self.order(|| Order::Freeze);
    }

    fn order(&self, order: impl Fn() -> Order) {
        for socket in &lock(&self.app.state).sockets {
            let _ = socket.orders.send(order());
        }
    }

    /// What is counted for the app.
    pub fn stats(&self) -> AppStats {
        lock(&self.app.state).stats()
    }

    /// Waits until so many sockets are open.
    pub async fn wait_for_sockets(&self, sockets: usize, within: Duration) -> Result<(), TimedOut> {
        let what = format!("{sockets} sockets of an app");
        self.slack.wait_for(&what, within, || (self.stats().live == sockets).then_some(())).await
    }

    /// Waits until everything is acknowledged.
    pub async fn wait_for_acks(&self, within: Duration) -> Result<(), TimedOut> {
        let what = "an app to acknowledge everything";
        self.slack.wait_for(what, within, || (self.stats().pending == 0).then_some(())).await
    }

    /// The texts that the bot sent more than once to a conversation, each with how often.
    pub fn repeats(&self, channel: &str) -> Vec<(String, usize)> {
        let mut texts: HashMap<String, usize> = HashMap::new();
        let mut state = lock(&self.app.state);
        for entry in state.channel(channel).entries.iter().filter(|entry| entry.is_answer()) {
            *texts.entry(entry.text.clone()).or_default() += 1;
        }
        let mut repeats: Vec<_> = texts.into_iter().filter(|(_, count)| *count > 1).collect();
        repeats.sort();
        repeats
    }

    fn act<T>(&self, act: impl FnOnce(&mut AppState) -> T) -> T {
        let done = act(&mut lock(&self.app.state));
        self.server().changed();
        done
    }
}

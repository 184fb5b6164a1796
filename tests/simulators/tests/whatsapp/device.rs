//! A device on whatsapp-rust, as tests hold it.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use simulators::whatsapp::{Address, Phone, WhatsApp};
use tokio::sync::Notify;
use whatsapp_rust::{
    TokioRuntime,
    bot::BotHandle,
    pair_code::PairCodeOptions,
    prelude::*,
    store::Backend,
    transport::TokioWebSocketTransportFactory,
    wacore::{
        net::{HttpClient, HttpRequest, HttpResponse},
        runtime::{AbortHandle, Runtime},
        store::InMemoryBackend,
    },
};

/// How long a test waits for anything. Keys from digits alone take seconds in an unoptimised build.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// The client waits seconds at a time for what never comes here; its timers run faster.
struct Quick(TokioRuntime);

type Task<T> = Pin<Box<dyn Future<Output = T> + Send>>;

#[async_trait::async_trait]
impl Runtime for Quick {
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send + 'static>>) -> AbortHandle {
        self.0.spawn(future)
    }

    fn sleep(&self, duration: Duration) -> Task<()> {
        self.0.sleep(duration / 10)
    }

    fn spawn_blocking(&self, work: Box<dyn FnOnce() + Send + 'static>) -> Task<()> {
        self.0.spawn_blocking(work)
    }

    fn yield_now(&self) -> Option<Task<()>> {
        self.0.yield_now()
    }
}

/// Media hosts are always spoken to with TLS; the simulator is not.
struct Plain(reqwest::Client);

#[async_trait::async_trait]
impl HttpClient for Plain {
    async fn execute(&self, request: HttpRequest) -> whatsapp_rust::anyhow::Result<HttpResponse> {
        let url = request.url.replacen("https://127.0.0.1", "http://127.0.0.1", 1);
        let mut sent = self.0.request(request.method.parse()?, url);
        for (name, value) in &request.headers {
            sent = sent.header(name, value);
        }
        let answer = sent.body(request.body.unwrap_or_default()).send().await?;
        Ok(HttpResponse { status_code: answer.status().as_u16(), body: answer.bytes().await?.to_vec() })
    }
}

/// What a device has told: its events, and the messages of them one by one.
#[derive(Default)]
struct Told {
    events: Mutex<VecDeque<Arc<Event>>>,
    messages: Mutex<VecDeque<InboundMessage>>,
    more: Notify,
}

/// A device and what it has told so far.
pub(crate) struct Device {
    pub(crate) store: Arc<dyn Backend>,
    bot: BotHandle,
    told: Arc<Told>,
}

impl Device {
    /// A client with nothing in its store.
    pub(crate) async fn unlinked(whatsapp: &WhatsApp) -> Self {
        Self::with(whatsapp, Arc::new(InMemoryBackend::new()), None).await
    }

    /// A client that asks this number for a link by code.
    pub(crate) async fn by_code(whatsapp: &WhatsApp, number: &str, digits: &str) -> Self {
        let options = PairCodeOptions {
            phone_number: number.to_owned(),
            custom_code: Some(digits.to_owned()),
            ..PairCodeOptions::default()
        };
        Self::with(whatsapp, Arc::new(InMemoryBackend::new()), Some(options)).await
    }

    /// A client on a store that was used before.
    pub(crate) async fn with(whatsapp: &WhatsApp, store: Arc<dyn Backend>, by_code: Option<PairCodeOptions>) -> Self {
        let told = Arc::new(Told::default());
        let tell = Arc::clone(&told);
        let mut builder = Bot::builder()
            .with_backend_arc(Arc::clone(&store))
            .with_transport_factory(TokioWebSocketTransportFactory::new().with_url(whatsapp.url()))
            .with_http_client(Plain(reqwest::Client::new()))
            .with_runtime(Quick(TokioRuntime))
            .with_version((2, 3000, 1))
            .with_wanted_pre_key_count(20)
            .with_event_delivery(EventDelivery::Ordered { capacity: 4096 })
            .on_event(move |event, _| {
                tell.messages.lock().expect("no panic").extend(event.messages().cloned());
                tell.events.lock().expect("no panic").push_back(event);
                tell.more.notify_waiters();
                async {}
            });
        if let Some(options) = by_code {
            builder = builder.with_pair_code(options);
        }
        let bot = builder.build().await.expect("a client").spawn();
        Self { store, bot, told }
    }

    /// A device of this phone, linked by a scanned code and logged in.
    pub(crate) async fn of(whatsapp: &WhatsApp, phone: &Phone) -> (Self, Address) {
        let device = Self::unlinked(whatsapp).await;
        let code = device.code().await;
        let address = phone.scan(&code).expect("linked");
        device.connected().await;
        whatsapp.wait_for_device(&address, SOON).await.expect("online");
        (device, address)
    }

    /// The code that it shows.
    pub(crate) async fn code(&self) -> String {
        let shown = |event: &Event| if let Event::PairingQrCode(code) = event { Some(code.code.clone()) } else { None };
        self.wait_for("a code", shown).await
    }

    pub(crate) async fn connected(&self) {
        self.wait_for("a connection", |event| matches!(event, Event::Connected(_)).then_some(())).await;
    }

    /// Waits for an event, and takes all that came before it out of the way.
    pub(crate) async fn wait_for<T>(&self, what: &str, mut seen: impl FnMut(&Event) -> Option<T>) -> T {
        let events = &self.told.events;
        self.wait(what, || {
            std::iter::from_fn(|| events.lock().expect("no panic").pop_front()).find_map(|event| seen(&event))
        })
        .await
    }

    /// Waits for a message that `seen` looks for, and takes all that came before it out of the way.
    async fn wait_for_message(&self, what: &str, mut seen: impl FnMut(&InboundMessage) -> bool) -> InboundMessage {
        let messages = &self.told.messages;
        self.wait(what, || {
            std::iter::from_fn(|| messages.lock().expect("no panic").pop_front()).find(|message| seen(message))
        })
        .await
    }

    async fn wait<T>(&self, what: &str, mut seen: impl FnMut() -> Option<T>) -> T {
        let wait = async {
            loop {
                let more = self.told.more.notified();
                tokio::pin!(more);
                more.as_mut().enable();
                if let Some(found) = seen() {
                    return found;
                }
                more.await;
            }
        };
        tokio::time::timeout(SOON, wait).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
    }

    /// Waits for a message of a person; what the account's own phone tells its devices is none.
    pub(crate) async fn message(&self) -> InboundMessage {
        self.wait_for_message("a message", |message| message.message.protocol_message.is_unset()).await
    }

    /// Waits for a message with this text. Its id.
    pub(crate) async fn text(&self, text: &str) -> String {
        let is = |message: &InboundMessage| message.message.text_content() == Some(text);
        self.wait_for_message(&format!("the text {text:?}"), is).await.info.id.to_string()
    }

    pub(crate) fn client(&self) -> Arc<Client> {
        self.bot.client()
    }

    pub(crate) async fn say(&self, chat: &str, text: &str) -> String {
        let chat: Jid = chat.parse().expect("an address");
        self.client().send_text(chat, text).await.expect("sent").message_id
    }

    /// Ends the client in good order. Its store.
    pub(crate) async fn shut_down(self) -> Arc<dyn Backend> {
        self.bot.shutdown().await;
        self.store
    }
}

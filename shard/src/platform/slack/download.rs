//! Files in: what a message showed is fetched with the bot's token, and that token goes to Slack alone.

use reqwest::header::{AUTHORIZATION, HeaderValue};
use serde_json::Value;
use url::Url;

use super::{
    api::unanswered,
    event::text,
    send::{Failure, SlackSender, refused},
};
use crate::{
    identity::ChannelId,
    job::DownloadMedia,
    media::mime_type,
    platform::{Done, Failed},
};

impl SlackSender {
    /// Fetches a received file. Where it lies is asked anew: the announced object may have been anywhere meanwhile.
    pub(super) async fn download(&self, channel: ChannelId, data: &DownloadMedia) -> Result<Done, Failure> {
        let id = data.media.get("reference").and_then(Value::as_str);
        let id = id.ok_or_else(|| refused("rejected", "the media object is not the one that an event announced"))?;
        let told = self.call_form("files.info", &[("file", id)]).await?;
        let file = &told["file"];
        let kind = text(file, "/mimetype");
        self.media.wants(kind.as_deref(), file["size"].as_u64()).map_err(Failure::Own)?;
        let address = text(file, "/url_private_download").or_else(|| text(file, "/url_private"));
        let address = address.and_then(|address| Url::parse(&address).ok());
        let address = address.ok_or_else(|| refused("rejected", "the file is gone"))?;
        if !self.api.is_slacks_own(&address) {
            return Err(refused("rejected", "the file lies on a host that is not Slack's"));
        }
        let _room = self.media.room().await.map_err(Failure::Own)?;
        let mut bearer = HeaderValue::from_str(&format!("Bearer {}", self.token()?.expose()))
            .map_err(|_| refused("logged_out", "the bot token has no form that fits into a header"))?;
        bearer.set_sensitive(true);
        let request = self.api.client().get(address).header(AUTHORIZATION, bearer);
        let response = request.send().await.map_err(unanswered)?;
        match response.status().as_u16() {
            200 => {}
            404 | 410 => return Err(refused("rejected", "the file is gone")),
            401 | 403 => return Err(scope()),
            status => {
                let error = format!("the file's host answered HTTP {status}");
                return Err(Failure::Own(Failed::Retry { error, after: None }));
            }
        }
        // To a token without the scope, Slack shows a page on which a person could log in, with status 200.
        let is_page = |kind: &str| kind == "text/html";
        if mime_type(&response).as_deref().is_some_and(is_page) && !kind.as_deref().is_some_and(is_page) {
            return Err(scope());
        }
        let result = self.media.take(response, channel, kind.as_deref()).await.map_err(Failure::Own)?;
        Ok(Done { provider_id: None, result: Some(result) })
    }
}

fn scope() -> Failure {
    refused("rejected", "Slack does not give the file to this token: the app needs the scope files:read")
}

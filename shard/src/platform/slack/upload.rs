//! Files out: a place is asked for, the file goes there as it comes from its URL, and only then it is shown.

use std::time::Duration;

use serde_json::{Map, Value, json};
use url::Url;

use super::{
    api::unanswered,
    event::text,
    send::{Failure, SlackSender, refused},
};
use crate::{
    identity::ChannelId,
    job::{MediaKind, SendMedia},
    media::Source,
    platform::{Done, Failed},
};

/// How long the way of a file may take.
const UPLOAD: Duration = Duration::from_secs(300);

impl SlackSender {
    /// Sends a file. Until the last call nothing is shown, so that only that one leaves a doubt.
    pub(super) async fn send_media(&self, channel: ChannelId, data: &SendMedia) -> Result<Done, Failure> {
        let url = Url::parse(&data.url).map_err(|_| refused("rejected", "the file's URL is none"))?;
        let name = data.file_name.clone().unwrap_or_else(|| name_of(&url, data.kind));
        let early = Failure::before_anything_was_shown;
        // The limit comes first: a file that may not be shown yet is not fetched for nothing.
        self.turn("files.completeUploadExternal", Some(&data.chat_id)).await?;
        let conversation = self.conversation(&data.chat_id).await.map_err(early)?;
        let file = self.media.source(channel, &data.url).await.map_err(Failure::Own)?;
        let id = self.upload(&name, file).await.map_err(early)?;
        let mut params = Map::new();
        params.insert("files".into(), json!([{"id": id, "title": name}]));
        params.insert("channel_id".into(), conversation.as_str().into());
        for (key, value) in [
            ("initial_comment", data.caption.as_ref()),
            ("thread_ts", data.thread_id.as_ref().or(data.reply_to.as_ref())),
        ] {
            if let Some(value) = value {
                params.insert(key.into(), value.as_str().into());
            }
        }
        let answer = self.call("files.completeUploadExternal", None, params.into()).await?;
        let mut result = json!({ "file_id": id });
        if conversation != data.chat_id {
            result["chat_id"] = conversation.as_str().into();
        }
        Ok(Done { provider_id: shown_as(&answer, &conversation), result: Some(result) })
    }

    /// Files go into conversations only: for a person, the one with them is opened.
    async fn conversation(&self, chat: &str) -> Result<String, Failure> {
        if !chat.starts_with(['U', 'W']) {
            return Ok(chat.to_owned());
        }
        let answer = self.call("conversations.open", None, json!({ "users": chat })).await?;
        text(&answer, "/channel/id")
            .ok_or_else(|| refused("bad_recipient", "no conversation with this person was opened"))
    }

    async fn upload(&self, name: &str, file: Source) -> Result<String, Failure> {
        let length = file.length.to_string();
        let place = self.call_form("files.getUploadURLExternal", &[("filename", name), ("length", &length)]).await?;
        let address = text(&place, "/upload_url").and_then(|url| Url::parse(&url).ok());
        let (Some(id), Some(address)) = (text(&place, "/file_id"), address) else {
            return Err(again("Slack gave no place for the file"));
        };
        let request = self.api.client().post(address).timeout(UPLOAD);
        let request = request.header("content-length", length).body(file.into_body());
        let response = request.send().await.map_err(unanswered)?;
        match response.status() {
            status if status.is_success() => Ok(id),
            status => Err(again(&format!("the upload was answered with HTTP {}", status.as_u16()))),
        }
    }
}

fn again(error: &str) -> Failure {
    Failure::Own(Failed::Retry { error: error.to_owned(), after: None })
}

/// The `ts` of the message that shows the file; the platform often tells it later, by an event, or not at all.
fn shown_as(answer: &Value, channel: &str) -> Option<String> {
    let shares = &answer["files"][0]["shares"];
    ["private", "public"].into_iter().find_map(|kind| text(&shares[kind][channel][0], "/ts"))
}

/// The name by which the platform tells what kind of file it is.
fn name_of(url: &Url, kind: MediaKind) -> String {
    let last = url.path_segments().and_then(|mut parts| parts.next_back()).filter(|last| last.contains('.'));
    let plain = |name: &&str| name.len() <= 200 && !name.contains('%');
    match (last.filter(plain), kind) {
        (Some(last), _) => last.to_owned(),
        (None, MediaKind::Image) => "image.jpg".to_owned(),
        (None, MediaKind::Video) => "video.mp4".to_owned(),
        (None, MediaKind::Audio) => "audio.mp3".to_owned(),
        (None, MediaKind::Voice) => "voice.ogg".to_owned(),
        (None, MediaKind::Sticker) => "sticker.webp".to_owned(),
        (None, MediaKind::Document) => "file".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_by_its_url_or_its_kind() {
        let name = |url: &str| name_of(&url.parse().unwrap(), MediaKind::Image);
        assert_eq!(name("https://files.test/a/cat.png?size=1"), "cat.png");
        for other in ["https://files.test/", "https://files.test/download", "https://files.test/%2e%2e.x"] {
            assert_eq!(name(other), "image.jpg");
        }
    }

    #[test]
    fn the_message_of_a_file_is_found_where_the_platform_tells_it() {
        let answer = json!({"files": [{"id": "F1", "shares": {"public": {"C1": [{"ts": "1.2"}]}}}]});
        assert_eq!(shown_as(&answer, "C1"), Some("1.2".to_owned()));
        assert_eq!(shown_as(&json!({"files": [{"id": "F1"}]}), "C1"), None);
    }
}

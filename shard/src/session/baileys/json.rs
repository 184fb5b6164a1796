//! Bytes as Baileys writes them: base64, an object that says it is a buffer, or a list of numbers.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;
use whatsapp_rust::wacore::libsignal::protocol::KeyPair;

/// Bytes, in whatever form.
pub(super) fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => STANDARD.decode(text).ok(),
        Value::Array(numbers) => numbers.iter().map(|number| u8::try_from(number.as_u64()?).ok()).collect(),
        Value::Object(buffer) if buffer.get("type").and_then(Value::as_str) == Some("Buffer") => {
            bytes(buffer.get("data")?)
        }
        _ => None,
    }
}

pub(super) fn number(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

/// `{public, private}`.
pub(super) fn key_pair(value: &Value) -> Option<KeyPair> {
    super::pair(&bytes(&value["public"])?, &bytes(&value["private"])?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bytes_are_read_in_every_form() {
        for form in [
            json!("AQI="),
            json!([1, 2]),
            json!({"type": "Buffer", "data": "AQI="}),
            json!({"type": "Buffer", "data": [1, 2]}),
        ] {
            assert_eq!(bytes(&form), Some(vec![1, 2]), "{form}");
        }
        for none in [json!(null), json!("no base64!"), json!([256]), json!({"data": "AQI="})] {
            assert_eq!(bytes(&none), None, "{none}");
        }
    }
}

//! `[http2]`: what an HTTP/2 client may have and do.

use super::keys;
use ringroad_http::{Http2, Misbehaviour};
use ringroad_settings::{Section, Value, value};

/// HTTP/2 as a file asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeaksHttp2 {
    /// Bounds of each connection.
    pub bounds: Http2,
    /// Also on listeners without TLS, with clients that begin with its preface.
    pub prior_knowledge: bool,
}

/// Reads the table.
pub(super) fn read(mut section: Section<'_>) -> SpeaksHttp2 {
    section.describe(&keys::HTTP2);
    let mut bounds = Http2::default();
    if let Some(streams) = section.read("streams", |value| value::count(value, 1, 1 << 16)) {
        bounds.streams = streams as u32;
    }
    let windows = section.read("windows", |value| {
        match value::some(value, "two sizes", |value| small(value, 1024))?[..] {
            [_, connection] if connection < 65_535 => {
                Err("expected at least 65535 bytes for the connection, with which each begins".to_owned())
            }
            [stream, connection] => Ok((stream, connection)),
            _ => Err("expected two sizes: of a stream, and of a connection".to_owned()),
        }
    });
    if let Some((stream, connection)) = windows {
        (bounds.stream_window, bounds.connection_window) = (stream, connection);
    }
    if let Some(rule) = section.read("misbehaviour", |value| misbehaviour(&value::text(value)?)) {
        bounds.misbehaviour = rule;
    }
    if let Some(bytes) = section.read("header_list", |value| small(value, 1024)) {
        bounds.header_list_bytes = bytes;
    }
    if let Some(bytes) = section.read("heads", |value| small(value, 1024)) {
        bounds.heads_bytes = bytes as usize;
    }
    if let Some(websocket) = section.read("websocket", value::truth) {
        bounds.websocket = websocket;
    }
    let prior_knowledge = section.read("prior_knowledge", value::truth).unwrap_or(false);
    section.finish();
    SpeaksHttp2 { bounds, prior_knowledge }
}

/// Returns a size that HTTP/2 can say.
fn small(value: &Value<'_>, least: u64) -> Result<u32, String> {
    value::bytes(value, least, (1 << 31) - 1).map(|bytes| bytes as u32)
}

/// `200 + 20/s`
fn misbehaviour(text: &str) -> Result<Misbehaviour, String> {
    let rule = text.split_once('+').and_then(|(burst, rate)| {
        let per_second = rate.trim().strip_suffix("/s")?.trim().parse().ok()?;
        Some(Misbehaviour { burst: burst.trim().parse().ok()?, per_second })
    });
    rule.ok_or_else(|| format!("expected a budget and what comes back, as \"200 + 20/s\", found {text:?}"))
}

//! The forms of a line: combined, JSON, or a text of one's own.
//!
//! Whatever a client sends, a line keeps its shape: what would end a quoted text or the line, or command a
//! terminal, is escaped.

use crate::json::{is_deceptive, string};
use ringroad_gate::flow::{End, Ended, Flow, protocol};
use ringroad_gate::template::{Template, Values, Variable};
use ringroad_http::Refused;
use std::fmt::Write;

/// A line by a template, with each value escaped; `-` stands for a value that is empty.
pub(super) fn text(out: &mut Vec<u8>, template: &Template, flow: &Flow, end: &End) {
    template.append(&Escaped(&Ended { flow, end }), out);
    out.push(b'\n');
}

struct Escaped<'v, V>(&'v V);

impl<V: Values> Values for Escaped<'_, V> {
    fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
        let mut value = Vec::new();
        self.0.append(variable, &mut value);
        let mut text = String::with_capacity(value.len());
        quoted(&mut text, if value.is_empty() { b"-" } else { &value });
        out.extend_from_slice(text.as_bytes());
    }
}

/// What is known of a request that the protocol layer has refused.
pub(super) struct OfRefused<'r, 'h> {
    pub(super) refused: &'r Refused<'h>,
    pub(super) now: &'r super::Stamp,
}

impl Values for OfRefused<'_, '_> {
    fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
        let mut text = |text: &str| out.extend_from_slice(text.as_bytes());
        match variable {
            Variable::Client | Variable::Peer => {
                if let Some(client) = self.refused.client {
                    text(&client.ip().to_canonical().to_string());
                }
            }
            Variable::Status => text(&self.refused.status.map_or(0, |status| status.code()).to_string()),
            Variable::Bytes => text("0"),
            Variable::Error => text(&self.refused.reason.to_string()),
            Variable::Time => text(&self.now.combined()),
            Variable::Time3339 => text(&format!("{}Z", self.now.seconds())),
            Variable::Target => out.extend_from_slice(first_line(self.refused)),
            _ => {}
        }
    }
}

/// A line about a request that the protocol layer has refused.
pub(super) fn refused_text(out: &mut Vec<u8>, template: &Template, values: &OfRefused<'_, '_>) {
    template.append(&Escaped(values), out);
    out.push(b'\n');
}

/// Returns the first line of what came.
pub(super) fn first_line<'h>(refused: &Refused<'h>) -> &'h [u8] {
    refused.head.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default()
}

/// As Apache and nginx write it, so that every tool reads it.
pub(super) fn combined(out: &mut Vec<u8>, now: &str, flow: &Flow, end: &End) {
    let request = &flow.request;
    let mut line = String::with_capacity(request.head().bytes().len() + 128);
    match flow.context.client() {
        Some(client) => drop(write!(line, "{client}")),
        None => line.push('-'),
    }
    let _ = write!(line, " - - [{now}] \"");
    quoted(&mut line, request.method_name().as_bytes());
    line.push(' ');
    quoted(&mut line, flow.sent_target().as_bytes());
    let _ = write!(line, " {}\" {} {} \"", protocol(request.version()), end.status, end.bytes);
    quoted(&mut line, request.headers().get("referer").unwrap_or(b"-"));
    line.push_str("\" \"");
    quoted(&mut line, request.headers().get("user-agent").unwrap_or(b"-"));
    line.push_str("\"\n");
    out.extend_from_slice(line.as_bytes());
}

/// Within quotes: what would end them, or the line, or command a terminal, is escaped, and so are bytes that
/// are not UTF-8.
pub(super) fn quoted(out: &mut String, text: &[u8]) {
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\\' => {
                    out.push('\\');
                    out.push(character);
                }
                other if other.is_control() || is_deceptive(other) => {
                    let mut buffer = [0; 4];
                    for byte in other.encode_utf8(&mut buffer).bytes() {
                        let _ = write!(out, "\\x{byte:02x}");
                    }
                }
                other => out.push(other),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
}

/// An object on a line.
pub(super) fn json(out: &mut Vec<u8>, now: &str, millis: u32, flow: &Flow, end: &End) {
    let (request, context) = (&flow.request, &flow.context);
    let mut line = String::with_capacity(request.head().bytes().len() + 256);
    let _ = write!(line, "{{\"time\":\"{now}.{millis:03}Z\",\"id\":");
    string(&mut line, context.id().as_bytes());
    if let Some(client) = context.client() {
        let _ = write!(line, ",\"remote\":\"{client}\"");
    }
    pair(&mut line, "method", Some(request.method_name().as_bytes()));
    pair(&mut line, "target", Some(flow.sent_target().as_bytes()));
    pair(&mut line, "host", request.authority().map(str::as_bytes));
    let _ = write!(
        line,
        ",\"protocol\":\"{}\",\"status\":{},\"bytes\":{},\"duration_s\":{:.6}",
        protocol(request.version()),
        end.status,
        end.bytes,
        end.took.as_secs_f64()
    );
    pair(&mut line, "referer", request.headers().get("referer"));
    pair(&mut line, "user_agent", request.headers().get("user-agent"));
    if let Some(upstream) = context.upstream() {
        pair(&mut line, "upstream", Some(upstream.address.as_bytes()));
        let _ = write!(line, ",\"upstream_duration_s\":{:.6}", upstream.took.as_secs_f64());
    }
    pair(
        &mut line,
        "route",
        context.route.as_ref().and_then(|route| route.name.as_deref()).map(str::as_bytes),
    );
    pair(&mut line, "subject", context.subject.as_deref().map(str::as_bytes));
    pair(&mut line, "trace", context.trace.as_deref().map(str::as_bytes));
    pair(&mut line, "cut", end.cut.map(str::as_bytes));
    pair(&mut line, "error", context.error().as_deref().map(str::as_bytes));
    line.push_str("}\n");
    out.extend_from_slice(line.as_bytes());
}

pub(super) fn pair(line: &mut String, key: &str, text: Option<&[u8]>) {
    if let Some(text) = text {
        let _ = write!(line, ",\"{key}\":");
        string(line, text);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ringroad_gate::flow::{AnsweredBy, Chosen, Local};
    use ringroad_http::{FieldBlock, Request, RequestBody};
    use std::collections::BTreeSet;
    use std::rc::Rc;
    use std::time::Duration;
    use std::time::Instant;

    fn flow() -> Flow {
        let lines = FieldBlock::of([("User-Agent", "evil\u{9b}2J\"agent")]).unwrap();
        let request =
            Request::from_parts("GET", "/a'b?c=%22", "example.org", &lines, RequestBody::empty()).unwrap();
        let flow = Flow::new(request, &Local::new(Instant::now()), &Rc::default());
        flow.context.fault("connect: refused".to_owned());
        let took = Duration::from_millis(2);
        flow.context.answered_by(AnsweredBy { address: "unix:/x".into(), took });
        flow
    }

    fn end() -> End {
        End { status: 502, bytes: 17, took: Duration::from_micros(3), cut: None }
    }

    #[test]
    fn a_combined_line_keeps_its_shape_whatever_a_client_sends() {
        let mut out = Vec::new();
        combined(&mut out, "06/Nov/1994:08:49:37 +0000", &flow(), &end());
        let line = "- - - [06/Nov/1994:08:49:37 +0000] \"GET /a'b?c=%22 HTTP/1.1\" 502 17 \"-\" \
                    \"evil\\xc2\\x9b2J\\\"agent\"\n";
        assert_eq!(String::from_utf8_lossy(&out), line);
    }

    #[test]
    fn a_json_line_is_one_object() {
        let mut out = Vec::new();
        let flow = flow();
        json(&mut out, "1994-11-06T08:49:37", 7, &flow, &end());
        let id = flow.context.id();
        let expected = format!(
            "{{\"time\":\"1994-11-06T08:49:37.007Z\",\"id\":\"{id}\",\"method\":\"GET\",\
             \"target\":\"/a'b?c=%22\",\"host\":\"example.org\",\"protocol\":\"HTTP/1.1\",\"status\":502,\
             \"bytes\":17,\"duration_s\":0.000003,\"user_agent\":\"evil\\u009b2J\\\"agent\",\"upstream\":\"unix:/x\",\
             \"upstream_duration_s\":0.002000,\"error\":\"connect: refused\"}}\n"
        );
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn every_field_of_a_json_line_is_in_the_schema_and_every_field_of_the_schema_is_written() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/access-log.schema.json");
        let schema = std::fs::read_to_string(path).unwrap();
        let (_, properties) = schema.split_once("\"properties\"").unwrap();
        let listed: BTreeSet<_> = properties
            .lines()
            .filter_map(|line| line.strip_prefix("    \"")?.split_once("\": {"))
            .map(|(name, _)| name.to_owned())
            .collect();
        let mut flow = flow();
        let lines = FieldBlock::of([("User-Agent", "a"), ("Referer", "b")]).unwrap();
        flow.request = Request::from_parts("GET", "/", "h", &lines, RequestBody::empty()).unwrap();
        flow.context.subject = Some("s".into());
        flow.context.trace = Some("t".into());
        let name = Some("r".to_owned());
        flow.context.route = Some(Rc::new(Chosen { name, ..Chosen::default() }));
        let mut out = Vec::new();
        json(&mut out, "", 0, &flow, &End { cut: Some("cut"), ..end() });
        let text = String::from_utf8(out).unwrap();
        let key = |part: &str| Some(part.strip_prefix('"')?.split_once("\":")?.0.to_owned());
        let mut written: BTreeSet<_> = text.split(['{', ',']).filter_map(key).collect();
        // The client's address comes from a connection, and the last two stand in lines of refused requests.
        written.extend(["remote", "refused", "request_line"].map(str::to_owned));
        assert_eq!(written, listed);
    }
}

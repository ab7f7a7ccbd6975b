//! `kind = "ask"`: another server decides.
//!
//! It gets the head of each request, without the body. A status of 200 to 299 admits the request, one from
//! 300 to 499 is the client's answer (a login page, a redirect to one), and anything else, or nothing in
//! time, is 503: a server that cannot be asked admits no request.

use super::{Identity, Verdict};
use crate::flow::Flow;
use crate::words;
use ringroad_http::{Client, Response};
use ringroad_settings::{Key, Section, Table, value};
use std::sync::Arc;
use std::time::Duration;

pub(super) static TABLE: Table = Table {
    name: "[auth.NAME] kind = \"ask\"",
    meaning: "Another server decides. It is sent a GET with the header lines of the request, and with \
        `X-Forwarded-Method`, `-Proto`, `-Host`, `-Uri` and `-For` and `X-Real-IP`. What clients say in such lines \
        (`X-Forwarded-…`, `X-Original-…`, `Forwarded`) it does not get, unless a proxy of `client_ip` says it, nor lines of \
        `copy` and `subject`, nor names with `_`. Its 2xx admits the request, its 3xx and 4xx is the client's answer.",
    keys: &[
        Key {
            name: "url",
            form: "URL, as `\"http://127.0.0.1:9091/verify\"`",
            default: "",
            meaning: "Where to ask.",
        },
        Key {
            name: "timeout",
            form: "time, 1ms or more",
            default: "5s",
            meaning: "How long it may take; longer: 503.",
        },
        Key {
            name: "copy",
            form: "names of header lines, as `[\"Remote-User\", \"Remote-Groups\"]`",
            default: "-",
            meaning: "Lines of its answer that the request gets. Lines of these names that clients send are removed.",
        },
        Key {
            name: "answer",
            form: "names of header lines, as `[\"Set-Cookie\"]`",
            default: "-",
            meaning: "Lines of its 2xx answer that the client gets beside those of the endpoint: so it can renew a session.",
        },
        Key {
            name: "subject",
            form: "name of a header line",
            default: "-",
            meaning: "The line of its answer with the caller's name. Lines of this name that clients send are removed; `copy` or `tell` hands the name on.",
        },
    ],
};

/// Lines of the client that are not its server's: they belong to the connection, or are written here.
const NOT_ASKED: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-method",
    "x-forwarded-proto",
    "x-forwarded-uri",
    "x-real-ip",
];

/// Lines of its answer that the client does not get.
const NOT_ANSWERED: &[&str] =
    &["connection", "content-length", "date", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

/// The longest answer that is handed to a client.
const ANSWER_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, PartialEq)]
pub(super) struct Ask {
    url: String,
    timeout: Duration,
    copy: Vec<String>,
    answer: Vec<String>,
    subject: Option<String>,
    /// All names of `copy` and `subject`.
    own_lines: Vec<String>,
}

fn is_one_of(name: &[u8], names: &[&str]) -> bool {
    names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// A worker's connections to servers that decide.
struct Asking(Client);

impl Default for Asking {
    fn default() -> Asking {
        Asking(Client::new())
    }
}

impl Ask {
    /// Returns the lines that are its answer's alone.
    pub(super) fn own_lines(&self) -> &[String] {
        &self.own_lines
    }

    pub(super) async fn ask(&self, flow: &Flow) -> Verdict {
        match self.answer(flow).await {
            Ok(verdict) => verdict,
            Err(why) => Verdict::Unavailable(format!("{}: {why}", self.url)),
        }
    }

    async fn answer(&self, flow: &Flow) -> Result<Verdict, String> {
        let asking = flow.context.local().own::<Asking>().0.clone().timeout(self.timeout);
        let mut asked = asking.get(&self.url);
        let client = flow.see_client();
        let by_proxy = flow.context.comes_by_proxy();
        // A client must not tell the server that decides where it comes from, what it asks for, or its name.
        // Lines with `_` are those with `-` to many programs, and go to no server behind either.
        let is_own = |name: &[u8]| self.own_lines.iter().any(|line| words::passes_for(name, line));
        let is_asked = |name: &[u8]| {
            let is_forged = name.contains(&b'_') || is_own(name) || !by_proxy && words::is_of_proxies(name);
            !is_forged && !is_one_of(name, NOT_ASKED)
        };
        for field in flow.request.headers().iter().filter(|field| is_asked(field.name)) {
            asked = asked.header(field.name, field.value);
        }
        asked = asked
            .header("X-Forwarded-Method", flow.request.method_name())
            .header("X-Forwarded-Proto", flow.scheme())
            .header("X-Forwarded-Host", flow.authority())
            .header("X-Forwarded-Uri", &*flow.target());
        if let Some(address) = client.map(|client| client.to_string()) {
            asked = asked.header("X-Forwarded-For", &address).header("X-Real-IP", &address);
        }
        let mut answer = asked.send().await.map_err(|why| why.to_string())?;
        let code = answer.status().code();
        match code {
            200..=299 => {
                let subject = self.subject.as_deref().and_then(|name| answer.header(name)).map(Arc::from);
                let copied = self.copy.iter().filter_map(|name| {
                    answer.headers().get(name).map(|value| (name.clone(), value.to_vec()))
                });
                let lines = copied.collect();
                let answered = self.answer.iter().flat_map(|name| {
                    answer
                        .headers()
                        .get_all(name)
                        .map(|value| (name.clone(), value.to_vec()))
                        .collect::<Vec<_>>()
                });
                Ok(Verdict::Known(Identity { subject, lines, answer: answered.collect(), claims: None }))
            }
            300..=499 => {
                let body = answer.bytes(ANSWER_BYTES_MAX).await.map_err(|why| why.to_string())?;
                let mut response = Response::new(body).status(answer.status());
                for field in answer.headers().iter().filter(|field| !is_one_of(field.name, NOT_ANSWERED)) {
                    response = response.header(field.name, field.value).map_err(|why| why.to_string())?;
                }
                let lines = answer.headers().iter().map(|field| (field.name, field.value));
                let response = words::with_upgrade(response, lines).map_err(|why| why.to_string())?;
                Ok(Verdict::Answered(Box::new(response)))
            }
            _ => Err(format!("status {code}")),
        }
    }
}

pub(super) fn read(section: &mut Section<'_>) -> Option<Ask> {
    section.describe(&TABLE);
    let url = section.require("url", "where to ask, as \"http://127.0.0.1:9091/verify\"", |value| {
        let text = value::text(value)?;
        let is_url = words::after_http(&text).is_some();
        is_url
            .then_some(text)
            .ok_or_else(|| value::found("a URL that begins with http:// or https://", value))
    });
    let timeout = section.read("timeout", |value| value::span(value, Duration::from_millis(1)));
    let copy = section.read("copy", |value| value::some(value, "names of header lines", words::header_name));
    let answer =
        section.read("answer", |value| value::some(value, "names of header lines", words::header_name));
    let subject = section.read("subject", words::header_name);
    let copy = copy.unwrap_or_default();
    Some(Ask {
        url: url?,
        timeout: timeout.unwrap_or(Duration::from_secs(5)),
        own_lines: copy.iter().chain(&subject).cloned().collect(),
        copy,
        answer: answer.unwrap_or_default(),
        subject,
    })
}

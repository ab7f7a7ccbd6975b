//! `secure_headers`: the header lines that protect pages in browsers, as a preset.

use crate::chain::{Answering, Builder, Filter};
use crate::feature::{Configured, Declaration, Feature, Reading, Scope, same};
use crate::flow::{Flow, Local};
use crate::stage::Stage;
use crate::words;
use ringroad_http::Response;
use ringroad_settings::{Key, Section, Table, Value, value};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

pub(super) static DECLARATION: Declaration = Declaration {
    key: Key {
        name: "secure_headers",
        form: "true, or a table as `{ hsts = \"365d\", frame = \"DENY\" }`",
        default: "-",
        meaning: "Adds lines that protect pages in browsers to every answer that does not have them: `X-Content-Type-Options: nosniff` and those below.",
    },
    tables: &[&TABLE],
    scope: Scope::Everywhere,
    read,
    named: None,
};

static TABLE: Table = Table {
    name: "secure_headers = { … }",
    meaning: "Values of the lines; an empty text leaves a line out.",
    keys: &[
        Key { name: "frame", form: "text", default: "SAMEORIGIN", meaning: "`X-Frame-Options`." },
        Key {
            name: "referrer",
            form: "text",
            default: "strict-origin-when-cross-origin",
            meaning: "`Referrer-Policy`.",
        },
        Key { name: "csp", form: "text", default: "-", meaning: "`Content-Security-Policy`." },
        Key { name: "permissions", form: "text", default: "-", meaning: "`Permissions-Policy`." },
        Key { name: "opener", form: "text", default: "-", meaning: "`Cross-Origin-Opener-Policy`." },
        Key {
            name: "hsts",
            form: "time up to 1000 days, as `\"365d\"`",
            default: "-",
            meaning: "`Strict-Transport-Security`, on answers to https requests only.",
        },
        Key { name: "subdomains", form: "true or false", default: "false", meaning: "`hsts` holds for names below as well." },
    ],
};

const YEARS: Duration = Duration::from_secs(1000 * 24 * 60 * 60);

fn read(section: &Section<'_>, _: &Reading<'_>) -> Option<Arc<dyn Feature>> {
    let name = DECLARATION.key.name;
    let preset = section.read(name, |value| {
        if value.is_table() || value::truth(value) == Ok(true) {
            Ok(!value.is_table())
        } else {
            Err(value::found("true or a table", value))
        }
    })?;
    let table = if preset { None } else { section.table(name) };
    let mut lines = vec![("X-Content-Type-Options", "nosniff".to_owned())];
    let mut hsts = None;
    let known = [
        ("frame", "X-Frame-Options", "SAMEORIGIN"),
        ("referrer", "Referrer-Policy", "strict-origin-when-cross-origin"),
        ("csp", "Content-Security-Policy", ""),
        ("permissions", "Permissions-Policy", ""),
        ("opener", "Cross-Origin-Opener-Policy", ""),
    ];
    if let Some(mut table) = table {
        table.describe(&TABLE);
        for (key, line, default) in known {
            let text = |value: &Value<'_>| {
                let text = value::text(value)?;
                words::check_line(line, &text).map(|()| text)
            };
            lines.push((line, table.read(key, text).unwrap_or_else(|| default.to_owned())));
        }
        let span = table.read("hsts", |value| value::span_within(value, Duration::ZERO..=YEARS));
        let below = table.read("subdomains", value::truth).unwrap_or(false);
        let end = if below { "; includeSubDomains" } else { "" };
        hsts = span.map(|span| format!("max-age={}{end}", span.as_secs()));
        table.finish();
    } else {
        lines.extend(known.map(|(_, line, default)| (line, default.to_owned())));
    }
    lines.retain(|(_, value)| !value.is_empty());
    Some(Arc::new(SecureHeaders { lines, hsts }))
}

#[derive(Debug, PartialEq)]
struct SecureHeaders {
    lines: Vec<(&'static str, String)>,
    hsts: Option<String>,
}

impl Configured for SecureHeaders {
    fn same_as(&self, other: &dyn Any) -> bool {
        same(self, other)
    }
}

impl Feature for SecureHeaders {
    fn install(self: Arc<Self>, _: &Rc<Local>, chain: &mut Builder) {
        chain.add(Stage::Shape, Rc::new(Lines(self)));
    }
}

struct Lines(Arc<SecureHeaders>);

impl Filter for Lines {
    fn response<'a>(&'a self, flow: &'a mut Flow, mut response: Response) -> Answering<'a> {
        let mut add = |name: &str, value: &str| {
            if response.header_value(name).is_none() {
                // Both were checked.
                let _ = response.add_header(name, value);
            }
        };
        for (name, value) in &self.0.lines {
            add(name, value);
        }
        if let Some(hsts) = self.0.hsts.as_deref().filter(|_| flow.scheme() == "https") {
            add("Strict-Transport-Security", hsts);
        }
        Answering::Now(response)
    }
}

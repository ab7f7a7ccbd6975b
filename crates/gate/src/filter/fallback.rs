//! `fallback = { status = 200, body = "[]" }`: the answer of a route when its endpoint fails.

use crate::chain::{Answering, Builder, Filter};
use crate::feature::{Configured, Declaration, Feature, Reading, Scope};
use crate::flow::{Answered, Flow, Local};
use crate::metrics::Families;
use crate::page::{self, For};
use crate::stage::Stage;
use crate::template::{Template, Use};
use crate::words;
use ringroad_http::{Response, Status};
use ringroad_settings::{Key, Section, Table, value};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) static DECLARATION: Declaration = Declaration {
    key: Key {
        name: "fallback",
        form: "table, as `{ status = 200, body = \"[]\", content_type = \"application/json\" }`",
        default: "-",
        meaning: "What is answered when what is behind the route cannot: no server, too late, breaker open, too many requests.",
    },
    tables: &[&TABLE],
    scope: Scope::Route,
    read,
    named: None,
};

static TABLE: Table = Table {
    name: "[[route]] fallback = { … }",
    meaning: "Takes the place of this server's own 502, 503 and 504, also where `errors` has a page for its status. It says `Cache-Control: no-store`, which \
        `headers.response` may change. Limits and authentication refuse as ever. Which servers take over for others is `backup` in `[upstream.NAME]`.",
    keys: &[
        Key { name: "status", form: "200 to 599", default: "503", meaning: "Its status." },
        Key { name: "body", form: "text with placeholders", default: "\"\"", meaning: "Its body." },
        Key { name: "file", form: "file name", default: "-", meaning: "A file with the body, in its place. It is read when the configuration is." },
        Key { name: "content_type", form: "media type", default: "-", meaning: "What the body is; by default what the file's name says, and `text/plain; charset=utf-8` for `body`." },
        Key {
            name: "on",
            form: "statuses, as `[500, 503]`",
            default: "-",
            meaning: "Answers of servers behind with these statuses are replaced as well.",
        },
    ],
};

fn read(section: &Section<'_>, _: &Reading<'_>) -> Option<Arc<dyn Feature>> {
    let mut table = section.table(DECLARATION.key.name)?;
    table.describe(&TABLE);
    let status = table.read("status", words::status).unwrap_or(Status::SERVICE_UNAVAILABLE);
    let text = table.read("body", |value| Template::parse(&value::text(value)?, Use::Answer));
    let file = table.read("file", |value| page::file(&table, &value::text(value)?));
    if table.has("file") && table.has("body") {
        table.mistake("body", "expected either `file` or `body`");
    }
    let content_type = table.read("content_type", |value| {
        let kind = value::text(value)?;
        words::check_line("Content-Type", &kind).map(|()| kind)
    });
    let on = table.read("on", |value| value::some(value, "statuses", value::status));
    table.finish();
    let (body, kind) = match (file, text) {
        (Some((bytes, kind)), _) => (Body::File(bytes), kind),
        (None, text) => (Body::Text(text), "text/plain; charset=utf-8".to_owned()),
    };
    let settings = Settings {
        status,
        body,
        content_type: content_type.unwrap_or(kind),
        on: on.unwrap_or_default(),
    };
    Some(Arc::new(Fallback { settings, given: AtomicU64::new(0) }))
}

#[derive(Debug)]
struct Fallback {
    settings: Settings,
    given: AtomicU64,
}

#[derive(Debug, PartialEq)]
struct Settings {
    status: Status,
    body: Body,
    content_type: String,
    on: Vec<u16>,
}

#[derive(Debug, PartialEq)]
enum Body {
    Text(Option<Template>),
    File(Arc<[u8]>),
}

impl Configured for Fallback {
    fn same_as(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<Fallback>().is_some_and(|other| self.settings == other.settings)
    }

    fn adopt(&self, before: &dyn Any) {
        if let Some(before) = before.downcast_ref::<Fallback>() {
            self.given.fetch_add(before.given.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn metrics(&self, labels: &str, out: &mut Families) {
        let help = "Answers by the fallback of a route.";
        let count = self.given.load(Ordering::Relaxed);
        out.family("ringroad_fallback_total", "counter", help).sample(labels, count);
    }
}

impl Feature for Fallback {
    fn install(self: Arc<Self>, _: &Rc<Local>, chain: &mut Builder) {
        chain.add(Stage::Store, Rc::new(Instead(self)));
    }
}

struct Instead(Arc<Fallback>);

impl Filter for Instead {
    fn response<'a>(&'a self, flow: &'a mut Flow, response: Response) -> Answering<'a> {
        let settings = &self.0.settings;
        let code = response.status_code().code();
        let of_ours = flow.context.is_refused() && matches!(code, 502..=504);
        if !of_ours && !settings.on.contains(&code) {
            return Answering::Now(response);
        }
        self.0.given.fetch_add(1, Ordering::Relaxed);
        flow.context.note_fallback();
        let body = match &settings.body {
            Body::File(bytes) => Arc::clone(bytes).into(),
            Body::Text(None) => ringroad_http::Body::empty(),
            Body::Text(Some(text)) => {
                let values = Answered { flow, response: &response };
                text.render(&For::new(&settings.content_type, &values)).into()
            }
        };
        let mut answer = Response::new(body).status(settings.status);
        // Checked when the settings were read.
        let _ = answer.set_header("Content-Type", &settings.content_type);
        // A cache that stores every 200 must not keep it after the failure is over.
        let _ = answer.set_header("Cache-Control", "no-store");
        if let Some(after) = response.header_value("retry-after").filter(|_| settings.status == response.status_code()) {
            let _ = answer.set_header("Retry-After", after);
        }
        Answering::Now(answer)
    }
}

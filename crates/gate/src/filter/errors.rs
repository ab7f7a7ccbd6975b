//! `errors`: custom pages for refusals.

use crate::chain::{Answering, Builder, Filter};
use crate::feature::{Configured, Declaration, Feature, Reading, Scope, same};
use crate::flow::{Answered, Flow, Local};
use crate::page::{self, For};
use crate::stage::Stage;
use crate::template::{Template, Use};
use crate::words;
use ringroad_http::{Body, Response};
use ringroad_settings::{Key, Section, Table, Value, value};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

pub(super) static DECLARATION: Declaration = Declaration {
    key: Key {
        name: "errors",
        form: "table, as `{ 404 = \"404.html\", \"5xx\" = { body = \"Sorry. Request {id}\" } }`",
        default: "-",
        meaning: "Pages for refusals by this server, by status or class of statuses; a status counts before its class. The value is the name of a file, which is read when the configuration is, or a table as below. `intercept = true` replaces the errors of upstream servers as well.",
    },
    tables: &[&PAGE],
    scope: Scope::Everywhere,
    read,
    named: None,
};

static PAGE: Table = Table {
    name: "errors = { STATUS = { … } }",
    meaning: "A page for refusals.",
    keys: &[
        Key { name: "file", form: "file name", default: "-", meaning: "The page." },
        Key { name: "body", form: "text with placeholders", default: "-", meaning: "The page as text; `{status}`, `{id}` and all others may stand in it." },
        Key { name: "content_type", form: "media type", default: "-", meaning: "What it is; by default what the file's name says, and `text/plain; charset=utf-8` for `body`." },
    ],
};

static INTERCEPT: Key = Key { name: "intercept", form: "true or false", default: "false", meaning: "" };

fn read(section: &Section<'_>, _: &Reading<'_>) -> Option<Arc<dyn Feature>> {
    let mut table = section.table(DECLARATION.key.name)?;
    table.describe_key(&INTERCEPT);
    let intercept = table.read(INTERCEPT.name, value::truth).unwrap_or(false);
    let mut pages = Vec::new();
    for (name, value) in table.pairs().filter(|(name, _)| *name != INTERCEPT.name) {
        let Some(of) = which(name) else {
            table.mistake(name, "expected a status from 400 to 599, \"4xx\" or \"5xx\"");
            continue;
        };
        match page(&table, name, value) {
            Ok(page) => pages.extend(page.map(|page| (of, page))),
            Err(what) => table.mistake(name, what),
        }
    }
    // An exact status takes precedence over its class.
    pages.sort_by_key(|(of, _)| std::cmp::Reverse(*of));
    Some(Arc::new(Errors { pages, intercept }))
}

fn page(table: &Section<'_>, name: &str, value: &Value<'_>) -> Result<Option<Page>, String> {
    if !value.is_table() {
        return file(table, &value::text(value)?).map(Some);
    }
    let Some(mut section) = table.inner_table(name) else { return Ok(None) };
    section.describe(&PAGE);
    let from_file = section.read("file", |value| file(&section, &value::text(value)?));
    let body = section.read("body", |value| Template::parse(&value::text(value)?, Use::Answer));
    let kind = section.read("content_type", |value| {
        let kind = value::text(value)?;
        words::check_line("Content-Type", &kind).map(|()| kind)
    });
    if section.has("file") == section.has("body") {
        section.mistake("body", "expected either `file` or `body`");
    }
    section.finish();
    let page = match (from_file, body) {
        (Some(page), _) => page,
        (None, Some(body)) => {
            Page { content: Content::Text(body), content_type: "text/plain; charset=utf-8".to_owned() }
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(Page { content_type: kind.unwrap_or(page.content_type), ..page }))
}

fn file(section: &Section<'_>, name: &str) -> Result<Page, String> {
    page::file(section, name).map(|(bytes, content_type)| Page { content: Content::File(bytes), content_type })
}

/// Reads 404 as itself, and `4xx` as 4.
fn which(name: &str) -> Option<u16> {
    match name {
        "4xx" | "4XX" => Some(4),
        "5xx" | "5XX" => Some(5),
        _ => name.parse().ok().filter(|status| (400..600).contains(status)),
    }
}

#[derive(Debug, PartialEq)]
struct Errors {
    pages: Vec<(u16, Page)>,
    intercept: bool,
}

#[derive(Debug, PartialEq)]
struct Page {
    content: Content,
    content_type: String,
}

#[derive(Debug, PartialEq)]
enum Content {
    File(Arc<[u8]>),
    Text(Template),
}

impl Configured for Errors {
    fn same_as(&self, other: &dyn Any) -> bool {
        same(self, other)
    }
}

impl Feature for Errors {
    fn install(self: Arc<Self>, _: &Rc<Local>, chain: &mut Builder) {
        chain.add(Stage::Shape, Rc::new(Pages(self)));
    }
}

struct Pages(Arc<Errors>);

impl Filter for Pages {
    fn response<'a>(&'a self, flow: &'a mut Flow, mut response: Response) -> Answering<'a> {
        let status = response.status_code().code();
        let context = &flow.context;
        let from_behind = self.0.intercept && context.upstream().is_some();
        if status < 400 || context.is_fallback() || !(context.is_refused() || from_behind) {
            return Answering::Now(response);
        }
        let fits = |(of, _): &&(u16, Page)| *of == status || *of == status / 100;
        let Some((_, page)) = self.0.pages.iter().find(fits) else { return Answering::Now(response) };
        let body: Body = match &page.content {
            Content::File(bytes) => Arc::clone(bytes).into(),
            Content::Text(text) => {
                let values = Answered { flow, response: &response };
                text.render(&For::new(&page.content_type, &values)).into()
            }
        };
        // Lines that describe the replaced page. The policy of this server's own pages would forbid the style
        // of the custom page.
        for name in ["Content-Encoding", "Content-Security-Policy", "ETag", "Last-Modified"] {
            response.remove_header(name);
        }
        response.set_body(body);
        // Checked when the settings were read.
        let _ = response.set_header("Content-Type", &page.content_type);
        Answering::Now(response)
    }
}

//! `headers`: lines of a route's answers and of its requests are set, added and removed.
//!
//! `headers = { Cache-Control = "no-cache" }` is the short form: constant lines of the endpoint's own
//! answers, which refusals do not carry. `response` and `request` have rules with placeholders; `response`
//! rules hold for every answer.

use crate::chain::{Answering, Builder, Filter, Step};
use crate::feature::{Configured, Declaration, Feature, Reading, Scope, same};
use crate::flow::{Answered, Flow, Local};
use crate::stage::Stage;
use crate::template::{Template, Use};
use crate::words;
use ringroad_http::Response;
use ringroad_settings::{Key, Section, Table, value};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

pub(super) static DECLARATION: Declaration = Declaration {
    key: Key {
        name: "headers",
        form: "table, as `{ Cache-Control = \"no-cache\", response = { remove = [\"Server\"] } }`",
        default: "-",
        meaning: "Header lines. A name with a text is a line of the endpoint's answers, which replaces lines of the same name and which refusals do not carry. `response` and `request` are tables of rules, see below.",
    },
    tables: &[&RULES],
    scope: Scope::Everywhere,
    read,
    named: None,
};

static RULES: Table = Table {
    name: "headers = { response = { … }, request = { … } }",
    meaning: "Rules for every answer of the route, refusals included, and for the request on its way to the endpoint. They \
        are applied in the order remove, set, add. Values may have placeholders.",
    keys: &[
        Key {
            name: "set",
            form: "table, as `{ X-Frame-Options = \"DENY\" }`",
            default: "-",
            meaning: "Replaces all lines of these names.",
        },
        Key {
            name: "add",
            form: "table, as `{ Link = \"</a.css>; rel=preload\" }`",
            default: "-",
            meaning: "Adds lines behind those of their names.",
        },
        Key {
            name: "remove",
            form: "names, as `[\"Server\", \"X-Powered-By\"]`",
            default: "-",
            meaning: "Removes all lines of these names.",
        },
    ],
};

/// The two tables of rules. They are read, and so described, beside free names.
static SIDES: Table = Table {
    name: "headers",
    meaning: "",
    keys: &[
        Key { name: "response", form: "table", default: "-", meaning: "Rules for answers." },
        Key { name: "request", form: "table", default: "-", meaning: "Rules for requests." },
    ],
};

fn read(section: &Section<'_>, _: &Reading<'_>) -> Option<Arc<dyn Feature>> {
    let mut table = section.table(DECLARATION.key.name)?;
    table.describe(&SIDES);
    let mut lines = Vec::new();
    for (name, value) in table.pairs() {
        if value.is_table() && matches!(name, "response" | "request") {
            continue;
        }
        let line = value::text(value).and_then(|line| words::check_line(name, &line).map(|()| line));
        match line {
            Ok(line) => lines.push((name.to_owned(), line)),
            Err(what) => table.mistake(name, what),
        }
    }
    let response = table.table_if("response").map(|section| rules(section, Use::Answer));
    let request = table.table_if("request").map(|section| rules(section, Use::Request));
    Some(Arc::new(Headers {
        lines,
        response: Arc::new(response.unwrap_or_default()),
        request: Arc::new(request.unwrap_or_default()),
    }))
}

fn rules(mut section: Section<'_>, used: Use) -> Rules {
    section.describe(&RULES);
    let lines = |key: &str| {
        let mut lines = Vec::new();
        let Some(table) = section.table(key) else { return lines };
        for (name, value) in table.pairs() {
            let template = value::text(value).and_then(|text| {
                // A constant is judged now; what placeholders bring in is judged when it is there.
                words::check_line(name, text.split('{').next().unwrap_or_default())?;
                let template = Template::parse(&text, used)?;
                template.as_text().map_or(Ok(()), |text| words::check_line(name, text))?;
                Ok(template)
            });
            match template {
                Ok(template) => lines.push((name.to_owned(), template)),
                Err(what) => table.mistake(name, what),
            }
        }
        lines
    };
    let (set, add) = (lines("set"), lines("add"));
    let remove = section.read("remove", |value| value::some(value, "names of header lines", words::header_name));
    section.finish();
    Rules { remove: remove.unwrap_or_default(), set, add }
}

#[derive(Debug, PartialEq)]
struct Headers {
    lines: Vec<(String, String)>,
    response: Arc<Rules>,
    request: Arc<Rules>,
}

#[derive(Debug, Default, PartialEq)]
struct Rules {
    remove: Vec<String>,
    set: Vec<(String, Template)>,
    add: Vec<(String, Template)>,
}

impl Rules {
    fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }
}

impl Configured for Headers {
    fn same_as(&self, other: &dyn Any) -> bool {
        same(self, other)
    }
}

impl Feature for Headers {
    fn install(self: Arc<Self>, _: &Rc<Local>, chain: &mut Builder) {
        if !self.response.is_empty() {
            chain.add(Stage::Shape, Rc::new(OfResponse(Arc::clone(&self.response))));
        }
        if !self.request.is_empty() {
            chain.add(Stage::Rewrite, Rc::new(OfRequest(Arc::clone(&self.request))));
        }
    }

    fn lines(&self) -> &[(String, String)] {
        &self.lines
    }
}

struct OfRequest(Arc<Rules>);

impl Filter for OfRequest {
    fn request<'a>(&'a self, flow: &'a mut Flow) -> Step<'a> {
        for name in &self.0.remove {
            flow.request.remove_header(name);
        }
        // A value with control characters is no line, and one that does not fit has no place: neither is
        // written.
        for (name, value) in &self.0.set {
            let value = value.render(flow);
            let _ = flow.request.set_header(name, &value);
        }
        for (name, value) in &self.0.add {
            let value = value.render(flow);
            let _ = flow.request.add_header(name, &value);
        }
        Step::Next
    }
}

struct OfResponse(Arc<Rules>);

impl Filter for OfResponse {
    fn response<'a>(&'a self, flow: &'a mut Flow, mut response: Response) -> Answering<'a> {
        for name in &self.0.remove {
            response.remove_header(name);
        }
        for (name, value) in &self.0.set {
            let value = value.render(&Answered { flow, response: &response });
            let _ = response.set_header(name, &value);
        }
        for (name, value) in &self.0.add {
            let value = value.render(&Answered { flow, response: &response });
            let _ = response.add_header(name, &value);
        }
        Answering::Now(response)
    }
}

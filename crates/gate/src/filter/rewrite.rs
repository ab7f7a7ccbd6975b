//! `rewrite = "/new/{rest}"`: another path for the endpoint than the client has asked for.

use crate::chain::{Builder, Filter, Step};
use crate::feature::{Configured, Declaration, Feature, Reading, Scope, same};
use crate::flow::{Flow, Local};
use crate::page;
use crate::path::Spellings;
use crate::stage::Stage;
use crate::template::{Template, Use};
use ringroad_http::Status;
use ringroad_settings::{Key, Section, value};
use std::any::Any;
use std::fmt::Write;
use std::rc::Rc;
use std::sync::Arc;

pub(super) static DECLARATION: Declaration = Declaration {
    key: Key {
        name: "rewrite",
        form: "path with placeholders, as `\"/v2/{rest}\"`",
        default: "-",
        meaning: "The path for the endpoint. `{rest}` is what lies below the route's path. The query stays, unless a `?` is written here. Files are looked up below `root` by all of it, and an upstream server is asked for it, below the path that `to` may have. A result with `.` or `..` is refused with 400.",
    },
    tables: &[],
    scope: Scope::Route,
    read,
    named: None,
};

fn read(section: &Section<'_>, _: &Reading<'_>) -> Option<Arc<dyn Feature>> {
    let to = section.read(DECLARATION.key.name, |value| {
        let text = value::text(value)?;
        let begins = text.starts_with('/') || text.starts_with("{path}");
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        if !begins || !plain {
            return Err(format!("expected a path that begins with `/`, in visible ASCII, found {text:?}"));
        }
        Template::parse(&text, Use::Request)
    })?;
    Some(Arc::new(Rewrite { to }))
}

#[derive(Debug, PartialEq)]
struct Rewrite {
    to: Template,
}

impl Configured for Rewrite {
    fn same_as(&self, other: &dyn Any) -> bool {
        same(self, other)
    }
}

impl Feature for Rewrite {
    fn install(self: Arc<Self>, _: &Rc<Local>, chain: &mut Builder) {
        chain.add(Stage::Rewrite, Rc::new(Path(self)));
    }
}

struct Path(Arc<Rewrite>);

impl Filter for Path {
    fn request<'a>(&'a self, flow: &'a mut Flow) -> Step<'a> {
        let mut target = escaped(&self.0.to.render(flow));
        if let Some(query) = flow.request.query().filter(|_| !target.contains('?')) {
            // Writing to a string does not fail.
            let _ = write!(target, "?{query}");
        }
        let path = target.split('?').next().unwrap_or_default();
        // What placeholders bring in is judged as the path of a request is.
        let refused = match Spellings::of(path) {
            Ok(_) => flow.rewrite(&target).is_err(),
            Err(_) => true,
        };
        if refused {
            let what = "The address leads to no place here.";
            return Step::Answer(page::refusal(Status::BAD_REQUEST, &flow.context, what));
        }
        Step::Next
    }
}

/// Returns the text with everything escaped that may not stand in a target.
fn escaped(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for &byte in text {
        if byte.is_ascii_graphic() && !matches!(byte, b'#' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}')
        {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

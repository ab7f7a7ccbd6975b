//! `cors`: which pages of other origins may read a route's answers (Fetch standard, CORS protocol).

use crate::chain::{Answering, Builder, Filter, Step};
use crate::feature::{Configured, Declaration, Feature, Reading, Scope, same};
use crate::flow::{Flow, Local};
use crate::page;
use crate::stage::Stage;
use crate::words;
use ringroad_http::{EncodeError, Method, Request, Response, Status};
use ringroad_settings::{Key, Section, Table, Value, value};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

pub(super) static DECLARATION: Declaration = Declaration {
    key: Key {
        name: "cors",
        form: "true, or a table as `{ origins = [\"https://app.example.org\"], credentials = true }`",
        default: "-",
        meaning: "Lets pages of other origins read the answers, see below; true admits every origin, without credentials. Preflight requests are answered before authentication and before the endpoint.",
    },
    tables: &[&TABLE],
    scope: Scope::Everywhere,
    read,
    named: None,
};

static TABLE: Table = Table {
    name: "cors = { … }",
    meaning: "Cross-origin resource sharing. A preflight request of an origin that is not listed gets 403; other requests \
        of it are answered without the lines that would let its page read them. What the endpoint itself says in \
        `Access-Control-Allow-Origin` and `-Credentials` is removed.",
    keys: &[
        Key {
            name: "origins",
            form: "origins, as `[\"https://app.example.org\", \"https://*.example.org\"]`",
            default: "*",
            meaning: "Origins that are admitted; `*.` stands for one or more labels.",
        },
        Key { name: "methods", form: "methods", default: "-", meaning: "Methods that a preflight admits; by default the one that is asked for." },
        Key { name: "headers", form: "names of header lines", default: "-", meaning: "Header lines that a preflight admits; by default those that are asked for." },
        Key { name: "expose", form: "names of header lines", default: "-", meaning: "Header lines of answers that a page may read besides the usual ones." },
        Key { name: "credentials", form: "true or false", default: "false", meaning: "Admits cookies and other credentials. Origins must be listed then." },
        Key { name: "max_age", form: "time, as `\"10m\"`", default: "10m", meaning: "How long a browser may keep the answer to a preflight." },
    ],
};

fn read(section: &Section<'_>, reading: &Reading<'_>) -> Option<Arc<dyn Feature>> {
    let name = DECLARATION.key.name;
    let methods_of_route = reading.methods.to_vec();
    let all = section.read(name, |value| {
        if value.is_table() || value::truth(value) == Ok(true) {
            Ok(!value.is_table())
        } else {
            Err(value::found("true or a table", value))
        }
    })?;
    let mut settings = Cors {
        origins: vec![Origin::Every],
        methods: None,
        headers: None,
        expose: None,
        credentials: false,
        max_age: Duration::from_secs(600),
        methods_of_route,
    };
    if all {
        return Some(Arc::new(settings));
    }
    let mut table = section.table(name)?;
    table.describe(&TABLE);
    let words = |key: &str, one: fn(&Value<'_>) -> Result<String, String>| {
        table.read(key, |value| value::some(value, "names", one)).map(|names| names.join(", "))
    };
    settings.methods = words("methods", method);
    settings.headers = words("headers", words::header_name);
    settings.expose = words("expose", words::header_name);
    if let Some(origins) = table.read("origins", |value| value::some(value, "origins", origin)) {
        settings.origins = origins;
    }
    settings.credentials = table.read("credentials", value::truth).unwrap_or(false);
    if let Some(span) = table.read("max_age", |value| value::span(value, Duration::ZERO)) {
        settings.max_age = span;
    }
    if settings.credentials && settings.origins.contains(&Origin::Every) {
        table.mistake("credentials", "browsers refuse credentials for every origin: list `origins`");
    }
    table.finish();
    Some(Arc::new(settings))
}

fn method(value: &Value<'_>) -> Result<String, String> {
    let name = value::text(value)?;
    let is_one = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    is_one.then_some(name.clone()).ok_or_else(|| format!("expected a method in capitals, as \"GET\", found {name:?}"))
}

fn origin(value: &Value<'_>) -> Result<Origin, String> {
    let text = value::text(value)?;
    if text == "*" {
        return Ok(Origin::Every);
    }
    let lower = text.to_ascii_lowercase();
    let parts = lower.split_once("://").filter(|(scheme, host)| {
        let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '?' | '#' | ',' | '*');
        !scheme.is_empty() && !host.is_empty() && !host.strip_prefix("*.").unwrap_or(host).contains(odd)
    });
    match parts {
        Some((scheme, host)) => Ok(match host.strip_prefix("*.") {
            Some(parent) => Origin::Below(format!("{scheme}://"), format!(".{parent}")),
            None => Origin::Exact(lower),
        }),
        None if lower == "null" => Ok(Origin::Exact(lower)),
        None => Err(format!("expected an origin without a path, as \"https://example.org\", found {text:?}")),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    Every,
    Exact(String),
    /// Scheme, and the end of the host.
    Below(String, String),
}

impl Origin {
    /// `origin` in lower case.
    fn admits(&self, origin: &str) -> bool {
        match self {
            Origin::Every => true,
            Origin::Exact(own) => own == origin,
            Origin::Below(scheme, end) => {
                let host = origin.strip_prefix(scheme.as_str());
                host.and_then(|host| host.strip_suffix(end.as_str())).is_some_and(|label| {
                    !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
                })
            }
        }
    }
}

#[derive(Debug, PartialEq)]
struct Cors {
    origins: Vec<Origin>,
    methods: Option<String>,
    headers: Option<String>,
    expose: Option<String>,
    credentials: bool,
    max_age: Duration,
    /// Methods that the route had before this feature added OPTIONS; empty: all.
    methods_of_route: Vec<String>,
}

impl Cors {
    fn admits(&self, origin: &str) -> bool {
        let lower = origin.to_ascii_lowercase();
        self.origins.iter().any(|own| own.admits(&lower))
    }

    fn every(&self) -> bool {
        self.origins.contains(&Origin::Every)
    }

    /// Adds the lines that let a page of `origin` read an answer.
    fn admit(&self, response: &mut Response, origin: &str) -> Result<(), EncodeError> {
        let value = if self.every() { "*" } else { origin };
        response.set_header("Access-Control-Allow-Origin", value)?;
        if self.credentials {
            response.set_header("Access-Control-Allow-Credentials", "true")?;
        }
        Ok(())
    }

    fn preflight(&self, request: &Request, context: &crate::flow::Context) -> Result<Response, EncodeError> {
        let origin = request.header("origin").unwrap_or_default();
        if !self.admits(origin) {
            return Ok(page::refusal(Status::FORBIDDEN, context, "Pages of this origin are not admitted here."));
        }
        let mut response = Response::empty(Status::NO_CONTENT);
        self.admit(&mut response, origin)?;
        let asked = |name: &str| request.header(name).unwrap_or_default().to_owned();
        let methods = self.methods.clone().unwrap_or_else(|| asked("access-control-request-method"));
        response.add_header("Access-Control-Allow-Methods", methods)?;
        let headers = self.headers.clone().unwrap_or_else(|| asked("access-control-request-headers"));
        if !headers.is_empty() {
            response.add_header("Access-Control-Allow-Headers", headers)?;
        }
        response.add_header("Access-Control-Max-Age", self.max_age.as_secs().to_string())?;
        Ok(response)
    }
}

impl Configured for Cors {
    fn same_as(&self, other: &dyn Any) -> bool {
        same(self, other)
    }
}

impl Feature for Cors {
    fn install(self: Arc<Self>, _: &Rc<Local>, chain: &mut Builder) {
        chain.add(Stage::Shape, Rc::new(Sharing(self)));
    }

    fn methods(&self) -> &'static [&'static str] {
        &["OPTIONS"]
    }
}

struct Sharing(Arc<Cors>);

impl Filter for Sharing {
    fn request<'a>(&'a self, flow: &'a mut Flow) -> Step<'a> {
        let request = &flow.request;
        if request.method() != Method::Options {
            return Step::Next;
        }
        let fields = request.headers();
        if fields.get("origin").is_some() && fields.get("access-control-request-method").is_some() {
            let answer = self.0.preflight(request, &flow.context);
            return Step::Answer(answer.unwrap_or_else(|_| Response::empty(Status::BAD_REQUEST)));
        }
        let methods = &self.0.methods_of_route;
        if methods.is_empty() || methods.iter().any(|own| own == "OPTIONS") {
            return Step::Next;
        }
        // The route takes it for the sake of preflight requests only.
        let refused = page::refusal(Status::METHOD_NOT_ALLOWED, &flow.context, "This method is not served here.");
        let answer = refused.header("Allow", methods.join(", "));
        Step::Answer(answer.unwrap_or_else(|_| Response::empty(Status::METHOD_NOT_ALLOWED)))
    }

    fn response<'a>(&'a self, flow: &'a mut Flow, mut response: Response) -> Answering<'a> {
        let cors = &self.0;
        if !cors.every() {
            words::vary(&mut response, "Origin");
        }
        // What the endpoint says of it would let in pages that are not admitted here.
        response.remove_header("Access-Control-Allow-Origin");
        response.remove_header("Access-Control-Allow-Credentials");
        let origin = flow.request.header("origin");
        if cors.every() || origin.is_some_and(|origin| cors.admits(origin)) {
            // An origin is a header line's value already. One answer for all says so to all, since caches
            // have it for all (Fetch standard, CORS protocol and HTTP caches).
            let _ = cors.admit(&mut response, origin.unwrap_or_default());
            if let Some(names) = cors.expose.as_deref().filter(|_| flow.request.method() != Method::Options) {
                let _ = response.set_header("Access-Control-Expose-Headers", names);
            }
        }
        Answering::Now(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_admitted_whole_or_below_a_name() {
        let below = Origin::Below("https://".to_owned(), ".example.org".to_owned());
        let exact = Origin::Exact("https://example.org:8443".to_owned());
        for (origin, admitted) in [
            ("https://a.example.org", true),
            ("https://a.b.example.org", true),
            ("https://example.org", false),
            ("https://.example.org", false),
            ("http://a.example.org", false),
            ("https://aexample.org", false),
            ("https://evil.example/a.example.org", false),
        ] {
            assert_eq!(below.admits(origin), admitted, "{origin}");
        }
        assert!(exact.admits("https://example.org:8443") && !exact.admits("https://example.org"));
    }
}

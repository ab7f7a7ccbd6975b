//! `timeouts` of a route: how long its endpoint and its clients may take.

use crate::chain::{Builder, Filter, Step};
use crate::feature::{Configured, Declaration, Feature, Reading, Scope, same};
use crate::flow::{Flow, Local};
use crate::stage::Stage;
use crate::words;
use futures_core::Stream;
use ringroad_engine::time::{Sleep, sleep};
use ringroad_http::{BodyError, Chunk, RequestBody};
use ringroad_settings::{Key, Section, Table, value};
use std::any::Any;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

pub(super) static DECLARATION: Declaration = Declaration {
    key: Key {
        name: "timeouts",
        form: "table, as `{ answer = \"5s\", body = \"2m\" }`",
        default: "-",
        meaning: "Times of this route's requests, see below.",
    },
    tables: &[&TABLE],
    scope: Scope::Route,
    read,
    named: None,
};

static TABLE: Table = Table {
    name: "[[route]] timeouts = { … }",
    meaning: "Times of a route, besides those of `[timeouts]`, which hold for a connection.",
    keys: &[
        Key {
            name: "answer",
            form: "time, 1ms or more",
            default: "-",
            meaning: "From the request to the head of its answer, whatever the kind of the route; longer: 504, and the work is given up.",
        },
        Key {
            name: "body",
            form: "time, 1ms or more",
            default: "-",
            meaning: "How long all of the request's body may take; longer: 408.",
        },
        Key {
            name: "tell",
            form: "name of a header line, as `\"X-Request-Timeout-Ms\"`",
            default: "-",
            meaning: "Tells servers behind and applications how many milliseconds are left of `answer`, in place of what the client sent under this name. Calls of gRPC are told in `grpc-timeout` in any case, unless theirs is shorter.",
        },
    ],
};

fn read(section: &Section<'_>, _: &Reading<'_>) -> Option<Arc<dyn Feature>> {
    let mut table = section.table(DECLARATION.key.name)?;
    table.describe(&TABLE);
    let span = |key: &str| table.read(key, |value| value::span(value, Duration::from_millis(1)));
    let (answer, body) = (span("answer"), span("body"));
    let tell = table.read("tell", words::header_name);
    if table.has("tell") && !table.has("answer") {
        table.mistake("tell", "expected with `answer`");
    }
    if !table.has("answer") && !table.has("body") {
        section.mistake(DECLARATION.key.name, "expected `answer`, `body` or both");
    }
    table.finish();
    Some(Arc::new(Timeouts { answer, body, tell }))
}

#[derive(Debug, PartialEq)]
struct Timeouts {
    answer: Option<Duration>,
    body: Option<Duration>,
    tell: Option<String>,
}

impl Configured for Timeouts {
    fn same_as(&self, other: &dyn Any) -> bool {
        same(self, other)
    }
}

impl Feature for Timeouts {
    fn install(self: Arc<Self>, _: &Rc<Local>, chain: &mut Builder) {
        if self.answer.is_some() {
            chain.add(Stage::Rewrite, Rc::new(Told(Arc::clone(&self))));
        }
        chain.add(Stage::Admit, Rc::new(Spans(self)));
    }
}

struct Spans(Arc<Timeouts>);

impl Filter for Spans {
    fn request<'a>(&'a self, flow: &'a mut Flow) -> Step<'a> {
        flow.context.deadline = self.0.answer;
        if let Some(span) = self.0.body.filter(|_| !flow.request.body().is_empty()) {
            let body = std::mem::take(flow.request.body());
            let size = body.bytes_left();
            let timed = Timed { body, sleep: Box::pin(sleep(span)) };
            flow.request.replace_body(RequestBody::stream(size, timed));
        }
        Step::Next
    }
}

/// Tells what is behind how much time is left, last of all.
struct Told(Arc<Timeouts>);

impl Filter for Told {
    fn request<'a>(&'a self, flow: &'a mut Flow) -> Step<'a> {
        let Some(span) = self.0.answer else { return Step::Next };
        // Steps that did not wait took no time that is worth telling.
        let left = if flow.context.waited { flow.context.time_left().unwrap_or(span) } else { span };
        let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
        if let Some(name) = &self.0.tell {
            // The name was checked, and a number is a value.
            let _ = flow.request.set_header(name, millis.to_string());
        }
        let content = flow.request.header("content-type").unwrap_or_default();
        if content.starts_with("application/grpc") {
            let told = flow.request.header("grpc-timeout").and_then(grpc_nanos);
            if told.is_none_or(|nanos| nanos > left.as_nanos()) {
                // At most eight digits (gRPC over HTTP/2, "Timeout").
                let value = if millis < 100_000_000 { format!("{millis}m") } else { format!("{}S", millis / 1000) };
                let _ = flow.request.set_header("grpc-timeout", value);
            }
        }
        Step::Next
    }
}

/// Reads the value of `grpc-timeout`.
fn grpc_nanos(value: &str) -> Option<u128> {
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    let number: u128 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    let unit: u128 = match unit {
        "H" => 3_600_000_000_000,
        "M" => 60_000_000_000,
        "S" => 1_000_000_000,
        "m" => 1_000_000,
        "u" => 1_000,
        "n" => 1,
        _ => return None,
    };
    Some(number * unit)
}

/// A body that fails when its time is over.
struct Timed {
    body: RequestBody,
    sleep: Pin<Box<Sleep>>,
}

impl Stream for Timed {
    type Item = Result<Chunk, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // What is there counts, also if the time is over.
        if let Poll::Ready(next) = Pin::new(&mut self.body).poll_next(context) {
            return Poll::Ready(next);
        }
        self.sleep.as_mut().poll(context).map(|()| Some(Err(BodyError::TooSlow)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_call_is_read_in_all_its_units() {
        for (value, nanos) in [
            ("1H", Some(3_600_000_000_000)),
            ("2M", Some(120_000_000_000)),
            ("3S", Some(3_000_000_000)),
            ("10m", Some(10_000_000)),
            ("7u", Some(7_000)),
            ("99999999n", Some(99_999_999)),
            ("100000000n", None),
            ("", None),
            ("S", None),
            ("5", None),
            ("5x", None),
            ("-5S", None),
        ] {
            assert_eq!(grpc_nanos(value), nanos, "{value}");
        }
    }
}

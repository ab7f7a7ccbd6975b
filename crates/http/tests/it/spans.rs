//! Requests as spans of `tracing`: what a subscriber sees of them.

use ringroad_http::{Request, Response, Router, Server, Status, get, layers};
use std::collections::HashMap;
use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Writes spans and events down, each with the span that it is in.
#[derive(Clone, Default)]
struct Book {
    seen: Arc<Mutex<Seen>>,
    last: Arc<AtomicU64>,
}

#[derive(Default)]
struct Seen {
    spans: HashMap<u64, String>,
    inside: Vec<u64>,
    events: Vec<String>,
}

struct Text<'t>(&'t mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Times differ from run to run.
        if field.name() == "took_us" {
            self.0.push_str(" took_us");
        } else {
            write!(self.0, " {field}={value:?}").unwrap();
        }
    }
}

impl Subscriber for Book {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "ringroad_http" || metadata.target() == "handler"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut text = span.metadata().name().to_owned();
        span.record(&mut Text(&mut text));
        self.seen.lock().unwrap().spans.insert(id, text);
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut seen = self.seen.lock().unwrap();
        values.record(&mut Text(seen.spans.get_mut(&span.into_u64()).unwrap()));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = event.metadata().level().to_string();
        event.record(&mut Text(&mut text));
        let mut seen = self.seen.lock().unwrap();
        let span = seen.inside.last().map(|id| seen.spans[id].clone());
        seen.events.push(format!("{text} in {}", span.unwrap_or_default()));
    }

    fn enter(&self, span: &Id) {
        self.seen.lock().unwrap().inside.push(span.into_u64());
    }

    fn exit(&self, _: &Id) {
        self.seen.lock().unwrap().inside.pop();
    }
}

async fn hello(_: Request) -> Response {
    // The task waits once, and other tasks run outside of the span.
    ringroad_engine::yield_now().await;
    tracing::info!(target: "handler", "inside");
    Response::empty(Status::NO_CONTENT)
}

async fn broken(_: Request) -> Response {
    Response::empty(Status::INTERNAL_SERVER_ERROR)
}

#[test]
fn a_request_is_a_span_with_its_answer_as_an_event() {
    let book = Book::default();
    tracing::subscriber::with_default(book.clone(), || {
        ringroad_engine::run(async {
            let router = Router::new().route("/a", get(hello)).route("/broken", get(broken));
            let server = Server::new().router(router.layer(layers::trace())).local().unwrap();
            for target in ["/a?b=c", "/broken"] {
                drop(server.call(Request::builder("GET", target).finish().unwrap()).await);
            }
            tracing::info!(target: "handler", "outside");
        })
        .unwrap();
    });
    let events = std::mem::take(&mut book.seen.lock().unwrap().events);
    let request = |target: &str| format!("request method=\"GET\" target={target:?}");
    assert_eq!(
        events,
        [
            format!("INFO message=inside in {}", request("/a?b=c")),
            format!("INFO message=answered status=204 took_us in {} status=204", request("/a?b=c")),
            format!("ERROR message=answered status=500 took_us in {} status=500", request("/broken")),
            "INFO message=outside in ".to_owned(),
        ]
    );
}

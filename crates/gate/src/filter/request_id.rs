//! `request_id = "X-Request-Id"`: every answer carries the request's id in this line.

use crate::chain::{Answering, Builder, Filter, Step};
use crate::feature::{Configured, Declaration, Feature, Reading, Scope, same};
use crate::flow::{Flow, Local};
use crate::stage::Stage;
use crate::words;
use ringroad_http::Response;
use ringroad_settings::{Key, Section};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

pub(super) static DECLARATION: Declaration = Declaration {
    key: Key {
        name: "request_id",
        form: "name of a header line, as `\"X-Request-Id\"`",
        default: "-",
        meaning: "Every answer carries its request id in this line.",
    },
    tables: &[],
    scope: Scope::Top,
    read,
    named: None,
};

fn read(section: &Section<'_>, _: &Reading<'_>) -> Option<Arc<dyn Feature>> {
    let name = section.read(DECLARATION.key.name, words::header_name)?;
    Some(Arc::new(RequestId { name }))
}

#[derive(Debug, PartialEq)]
struct RequestId {
    name: String,
}

impl Configured for RequestId {
    fn same_as(&self, other: &dyn Any) -> bool {
        same(self, other)
    }
}

impl Feature for RequestId {
    fn install(self: Arc<Self>, _: &Rc<Local>, chain: &mut Builder) {
        chain.add(Stage::Identify, Rc::new(Line(self)));
    }
}

struct Line(Arc<RequestId>);

impl Filter for Line {
    fn request<'a>(&'a self, flow: &'a mut Flow) -> Step<'a> {
        flow.context.shows_id = true;
        Step::Next
    }

    fn response<'a>(&'a self, flow: &'a mut Flow, mut response: Response) -> Answering<'a> {
        // The name was checked, and an id is visible ASCII.
        let _ = response.add_header(&self.0.name, flow.context.id());
        Answering::Now(response)
    }
}

//! `on_client_gone`: what happens to a request when its client leaves before the answer.

use crate::chain::{Builder, Filter, Step};
use crate::feature::{Configured, Declaration, Feature, Reading, Scope, same};
use crate::flow::{Flow, Local};
use crate::stage::Stage;
use ringroad_http::OnClientGone;
use ringroad_settings::{Key, Section, value};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

pub(super) static DECLARATION: Declaration = Declaration {
    key: Key {
        name: "on_client_gone",
        form: "`\"cancel\"`, `\"cancel_safe\"` or `\"finish\"`",
        default: "`\"cancel\"`",
        meaning: "When its client leaves before the answer (see `timeouts.half_close`), a request is given up at once (`cancel`), only if its method is GET, HEAD, OPTIONS or TRACE (`cancel_safe`), or never (`finish`).",
    },
    tables: &[],
    scope: Scope::Everywhere,
    read,
    named: None,
};

fn read(section: &Section<'_>, _: &Reading<'_>) -> Option<Arc<dyn Feature>> {
    let words = [
        ("cancel", OnClientGone::Cancel),
        ("cancel_safe", OnClientGone::CancelSafe),
        ("finish", OnClientGone::Finish),
    ];
    let what = section.read(DECLARATION.key.name, |value| value::one_of(value, &words))?;
    Some(Arc::new(Rule(what)))
}

#[derive(Debug, PartialEq)]
struct Rule(OnClientGone);

impl Configured for Rule {
    fn same_as(&self, other: &dyn Any) -> bool {
        same(self, other)
    }
}

impl Feature for Rule {
    fn install(self: Arc<Self>, _: &Rc<Local>, chain: &mut Builder) {
        // Before any step that waits.
        chain.add(Stage::Shape, Rc::new(Setting(self)));
    }
}

struct Setting(Arc<Rule>);

impl Filter for Setting {
    fn request<'a>(&'a self, flow: &'a mut Flow) -> Step<'a> {
        flow.request.set_on_client_gone((self.0).0);
        Step::Next
    }
}

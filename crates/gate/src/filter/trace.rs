//! `trace = true`: W3C Trace Context is taken, made and passed on.

use crate::chain::{Builder, Filter, Step};
use crate::feature::{Configured, Declaration, Feature, Reading, Scope, same};
use crate::flow::{Flow, Local};
use crate::stage::Stage;
use ringroad_settings::{Key, Section, value};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

pub(super) static DECLARATION: Declaration = Declaration {
    key: Key {
        name: "trace",
        form: "true or false",
        default: "false",
        meaning: "Takes a request's `traceparent`, or makes one, and gives the endpoint's server this server's own span as parent (W3C Trace Context). The trace's id is `{trace}` in texts and `trace` in the JSON log.",
    },
    tables: &[],
    scope: Scope::Top,
    read,
    named: None,
};

fn read(section: &Section<'_>, _: &Reading<'_>) -> Option<Arc<dyn Feature>> {
    let on = section.read(DECLARATION.key.name, value::truth)?;
    on.then(|| Arc::new(Trace) as Arc<dyn Feature>)
}

#[derive(Debug, PartialEq)]
struct Trace;

impl Configured for Trace {
    fn same_as(&self, other: &dyn Any) -> bool {
        same(self, other)
    }
}

impl Feature for Trace {
    fn install(self: Arc<Self>, _: &Rc<Local>, chain: &mut Builder) {
        chain.add(Stage::Identify, Rc::new(Span));
    }
}

struct Span;

impl Filter for Span {
    fn request<'a>(&'a self, flow: &'a mut Flow) -> Step<'a> {
        let local = Rc::clone(flow.context.local());
        let theirs = {
            let mut theirs = flow.request.headers().get_all("traceparent");
            // Several are none (§3.2).
            let parent = theirs.next().filter(|_| theirs.next().is_none()).and_then(parent);
            parent.map(|(trace, flags)| (trace.to_owned(), flags.to_owned()))
        };
        let taken = theirs.is_some();
        let (trace, flags) = theirs.unwrap_or_else(|| {
            let id = format!("{:016x}{:016x}", local.next_random_id(), local.next_random_id());
            (id, "00".to_owned())
        });
        if !taken {
            // It belongs to the parent (§3.3).
            flow.request.remove_header("tracestate");
        }
        let line = format!("00-{trace}-{:016x}-{flags}", local.next_random_id());
        // There may be no room left for it; the trace then ends here.
        let _ = flow.request.set_header("traceparent", line);
        flow.context.trace = Some(trace.into());
        Step::Next
    }
}

/// Returns the trace's id and the flags of a parent (§3.2): version, id, span, flags. A later version may
/// have more behind.
fn parent(line: &[u8]) -> Option<(&str, &str)> {
    let line = str::from_utf8(line).ok()?;
    let mut parts = line.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, len: usize| {
        text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let zero = |text: &str| text.bytes().all(|byte| byte == b'0');
    let right = hex(version, 2) && hex(trace, 32) && hex(span, 16) && hex(flags, 2);
    let whole = version != "ff" && (version != "00" || parts.next().is_none());
    (right && whole && !zero(trace) && !zero(span)).then_some((trace, flags))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_taken_as_the_standard_writes_it_and_no_other() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let good = format!("00-{trace}-00f067aa0ba902b7-01");
        assert_eq!(parent(good.as_bytes()), Some((trace, "01")));
        assert_eq!(parent(format!("cc-{trace}-00f067aa0ba902b7-01-more").as_bytes()), Some((trace, "01")));
        for bad in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(parent(bad.as_bytes()), None, "{bad}");
        }
    }
}

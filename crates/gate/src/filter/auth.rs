//! `auth = "NAME"`: a route answers only clients that are known.
//!
//! The kinds are in [`crate::auth`]. Of several tables the first that knows the client counts; those that
//! answer at once are asked without a task of their own.

use crate::auth::{self, Auth, Identity, Verdict};
use crate::chain::{Answering, Builder, Filter, Step};
use crate::feature::{Configured, Declaration, Feature, Named, Reading, Scope};
use crate::flow::{Flow, Local};
use crate::page;
use crate::stage::Stage;
use crate::words;
use ringroad_engine::time;
use ringroad_http::{Response, Status};
use ringroad_settings::{Key, Section, value};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

pub(super) static DECLARATION: Declaration = Declaration {
    key: Key {
        name: "auth",
        form: "name or list of names, as `[\"users\", \"keys\"]`",
        default: "-",
        meaning: "Answers only clients that one of these `[auth.NAME]` knows; others get 401. The caller's name is `{subject}` in the log and in header rules, and the key `subject` of limits.",
    },
    tables: auth::TABLES,
    scope: Scope::Route,
    read,
    named: Some(Named { key: auth::KEY, read: auth::read }),
};

fn read(section: &Section<'_>, reading: &Reading<'_>) -> Option<Arc<dyn Feature>> {
    let name = DECLARATION.key.name;
    let tables = section.read(name, |value| {
        value::some(value, "names of [auth.NAME]", |value| {
            reading.tables.get::<Auth>(auth::KEY.name, &value::text(value)?)
        })
    });
    // With a wrong list no route is served: the mistake is noted, and the configuration refused.
    Some(Arc::new(Required { tables: tables? }))
}

#[derive(Debug)]
struct Required {
    tables: Vec<Arc<Auth>>,
}

impl Configured for Required {
    fn same_as(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<Required>().is_some_and(|other| {
            let mut pairs = self.tables.iter().zip(&other.tables);
            self.tables.len() == other.tables.len() && pairs.all(|(one, other)| one.same_as(&**other))
        })
    }
}

impl Feature for Required {
    fn install(self: Arc<Self>, _: &Rc<Local>, chain: &mut Builder) {
        chain.add(Stage::Authenticate, Rc::new(Gate(self)));
    }
}

/// Returns the table's verdict, if it is there before the time to the answer is over.
async fn in_time(table: &Auth, flow: &Flow) -> Verdict {
    let Some(left) = flow.context.time_left() else { return table.later(flow).await };
    let late = |_| Verdict::Unavailable("no verdict in time (timeouts.answer of the route)".to_owned());
    time::timeout(left, table.later(flow)).await.unwrap_or_else(late)
}

struct Gate(Arc<Required>);

/// Lines of the server that decides, for the client.
struct ForClient(Vec<(String, Vec<u8>)>);

impl Filter for Gate {
    fn request<'a>(&'a self, flow: &'a mut Flow) -> Step<'a> {
        let mut judged = Vec::with_capacity(self.0.tables.len());
        for table in &self.0.tables {
            match table.at_once(flow) {
                Some(Verdict::Known(identity)) => {
                    return self.admit(flow, table, identity).map_or(Step::Next, Step::Answer);
                }
                other => judged.push(other),
            }
        }
        if judged.iter().all(Option::is_some) {
            return Step::Answer(self.refuse(flow, judged.into_iter().flatten().collect()));
        }
        Step::Wait(Box::pin(async move {
            let mut verdicts = Vec::with_capacity(judged.len());
            for (table, judged) in self.0.tables.iter().zip(judged) {
                let verdict = match judged {
                    Some(verdict) => verdict,
                    None => in_time(table, flow).await,
                };
                if let Verdict::Known(identity) = verdict {
                    return self.admit(flow, table, identity);
                }
                verdicts.push(verdict);
            }
            Some(self.refuse(flow, verdicts))
        }))
    }

    fn response<'a>(&'a self, flow: &'a mut Flow, mut response: Response) -> Answering<'a> {
        let lines = flow.request.extensions_mut().remove::<ForClient>();
        for (name, value) in lines.into_iter().flat_map(|lines| lines.0) {
            // These were lines of an answer. Lines of its framing are refused here, and left out.
            let _ = response.add_header(&name, value);
        }
        Answering::Now(response)
    }
}

impl Gate {
    /// Notes the caller, and writes the lines that only this server may write. Returns the refusal of a
    /// request that has no room for them: a server behind would take it for another caller's.
    fn admit(&self, flow: &mut Flow, by: &Auth, identity: Identity) -> Option<Response> {
        for table in &self.0.tables {
            for line in table.own_lines() {
                words::remove_all_like(&mut flow.request, line);
            }
            if let Some(line) = table.hidden() {
                flow.request.remove_header(line);
            }
        }
        let name = by.tell().zip(identity.subject.as_deref());
        let lines = identity.lines.iter().map(|(name, value)| (&**name, &**value));
        let lines = lines.chain(name.map(|(line, subject)| (line, subject.as_bytes())));
        let are_told = lines.fold(true, |told, (name, value)| told & words::tell(&mut flow.request, name, value));
        if !identity.answer.is_empty() {
            flow.request.extensions_mut().insert(ForClient(identity.answer));
        }
        flow.context.known = true;
        flow.context.subject = identity.subject.as_deref().map(Rc::from);
        (!are_told).then(|| page::no_room(&flow.context))
    }

    fn refuse(&self, flow: &Flow, verdicts: Vec<Verdict>) -> Response {
        let mut wrong = Vec::new();
        for verdict in verdicts {
            match verdict {
                Verdict::Answered(response) => return *response,
                Verdict::Unavailable(why) => {
                    flow.context.fault(format!("authentication: {why}"));
                    let what = "Credentials cannot be checked now.";
                    return page::refusal_for(1, Status::SERVICE_UNAVAILABLE, &flow.context, what);
                }
                verdict => wrong.push(matches!(verdict, Verdict::Wrong)),
            }
        }
        let what = "This needs valid credentials.";
        let mut refused = page::refusal(Status::UNAUTHORIZED, &flow.context, what);
        for (table, wrong) in self.0.tables.iter().zip(wrong) {
            // A realm is visible ASCII without quotes.
            let _ = refused.add_header("WWW-Authenticate", table.challenge(wrong));
        }
        refused
    }
}

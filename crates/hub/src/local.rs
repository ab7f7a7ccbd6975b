//! The members of one worker: what the hub hands to the worker is handed to them here.

use crate::matcher::{Matcher, Subject};
use crate::roster::Roster;
use crate::topics::{ENDED, Found, Hub, INTERNAL, Inner, LOST, Publication, Since, Wanted};
use ringroad_engine::spawn;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Takes messages. It must not come or go meanwhile.
pub(crate) trait Member {
    /// Queues a message for its client; one that is too slow is closed instead. `topic` is the one by which
    /// it is a member. False: it was not queued.
    fn take(&self, publication: &Arc<Publication>, topic: &str) -> bool;

    /// Closes its client, for messages are lost, so that it comes back and learns whether it has missed any.
    fn lost(&self);

    /// Closes its client, for the hub has ended, so that it comes back and finds what is in its place.
    fn ended(&self);
}

/// A member of a topic.
struct Entry {
    number: u64,
    /// It has all messages up to this one, or has no need of them.
    from: u64,
    member: Rc<dyn Member>,
}

/// The members of one hub on this worker.
struct Local {
    hub: Hub,
    topics: RefCell<HashMap<Arc<str>, Roster<Entry>>>,
    /// Those that want topics by a pattern. Each message is held against all of them.
    matching: RefCell<Roster<(Vec<Matcher>, Entry)>>,
    next: Cell<u64>,
}

thread_local! {
    static LOCALS: RefCell<Vec<Rc<Local>>> = const { RefCell::new(Vec::new()) };
}

/// Returns this worker's part of the hub, made with its task at the first call.
fn local(hub: &Hub) -> Rc<Local> {
    let known = LOCALS
        .with(|locals| locals.borrow().iter().find(|local| Arc::ptr_eq(&local.hub.0, &hub.0)).map(Rc::clone));
    known.unwrap_or_else(|| {
        let local = Rc::new(Local {
            hub: hub.clone(),
            topics: RefCell::default(),
            matching: RefCell::default(),
            next: Cell::new(0),
        });
        LOCALS.with(|locals| locals.borrow_mut().push(Rc::clone(&local)));
        let mut inbox = hub.0.inbox();
        let running = Running(Rc::clone(&local));
        spawn(async move {
            let Running(local) = &running;
            while let Ok(publication) = inbox.recv().await {
                if publication.topic() == ENDED {
                    return local.end();
                }
                local.deliver(&publication);
            }
        })
        .detach();
        local
    })
}

/// Lets this worker hear of what the hub publishes for its own use.
pub(crate) fn attend(hub: &Hub) {
    drop(local(hub));
}

/// Forgets the worker's part when its task ends, which is with the runtime.
struct Running(Rc<Local>);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = LOCALS.try_with(|locals| locals.borrow_mut().retain(|local| !Rc::ptr_eq(local, &self.0)));
    }
}

impl Local {
    fn for_all(&self, tell: impl Fn(&dyn Member)) {
        let topics = self.topics.borrow();
        topics.values().flat_map(Roster::iter).for_each(|entry| tell(&*entry.member));
        let matching = self.matching.borrow();
        matching.iter().for_each(|(_, entry)| tell(&*entry.member));
    }

    fn end(&self) {
        self.for_all(|member| member.ended());
        crate::centrifugo::ended(&self.hub);
    }

    fn deliver(&self, publication: &Arc<Publication>) {
        if publication.topic() == crate::centrifugo::CONTROL {
            return crate::centrifugo::control(&self.hub, &publication.message.data);
        }
        if publication.topic() == LOST {
            return self.for_all(|member| member.lost());
        }
        let offset = publication.seq;
        let mut delivered = 0;
        {
            let topics = self.topics.borrow();
            // A member of several of the message's topics gets it once.
            let mut seen = HashSet::new();
            for topic in &publication.topics {
                let members = topics.get(topic).into_iter().flat_map(Roster::iter);
                for entry in members.filter(|entry| entry.from < offset) {
                    if publication.topics.len() > 1 && !seen.insert(entry.number) {
                        continue;
                    }
                    delivered += u64::from(entry.member.take(publication, topic));
                }
            }
        }
        let matching = self.matching.borrow();
        if !matching.is_empty() && !publication.topic().starts_with(INTERNAL) {
            let base = &self.hub.settings().url;
            let topics: Vec<_> = publication.topics.iter().map(|topic| Subject::new(topic, base)).collect();
            for (matchers, entry) in matching.iter().filter(|(_, entry)| entry.from < offset) {
                if matchers.iter().any(|matcher| topics.iter().any(|topic| matcher.matches(topic))) {
                    delivered += u64::from(entry.member.take(publication, publication.topic()));
                }
            }
        }
        drop(matching);
        self.hub.0.counts.delivered.fetch_add(delivered, Ordering::Relaxed);
    }
}

/// A membership, until this is dropped.
pub(crate) struct Membership {
    local: Rc<Local>,
    wanted: Wanted,
    /// Its handles in the rosters: one for each name, or the one of its matchers.
    places: Box<[u32]>,
}

/// Makes `member` one of these topics. It is handed what it has missed first. `None`: there are too many
/// topics, or the hub has ended.
pub(crate) fn join(
    hub: &Hub,
    wanted: Wanted,
    after: Option<Since>,
    member: &Rc<impl Member + 'static>,
) -> Option<(Membership, Found)> {
    if hub.has_ended() {
        return None;
    }
    let local = local(hub);
    let found = hub.0.enter(&wanted, after)?;
    let number = local.next.replace(local.next.get() + 1);
    let entry = || Entry { number, from: found.seq, member: Rc::clone(member) as Rc<dyn Member> };
    let places = match &wanted {
        Wanted::Names(names) => {
            let mut topics = local.topics.borrow_mut();
            let mut enter = |name: &String| topics.entry(name.as_str().into()).or_default().insert(entry());
            names.iter().map(&mut enter).collect()
        }
        Wanted::Matching(matchers) => {
            Box::from([local.matching.borrow_mut().insert((matchers.clone(), entry()))])
        }
    };
    Some((Membership { local, wanted, places }, found))
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut gone = Vec::with_capacity(self.places.len());
        match &self.wanted {
            Wanted::Names(names) => {
                let mut topics = self.local.topics.borrow_mut();
                for (name, place) in names.iter().zip(&self.places) {
                    let Some(members) = topics.get_mut(name.as_str()) else { continue };
                    gone.extend(members.remove(*place));
                    if members.is_empty() {
                        topics.remove(name.as_str());
                    }
                }
            }
            Wanted::Matching(_) => {
                let mut matching = self.local.matching.borrow_mut();
                gone.extend(
                    self.places.iter().filter_map(|place| matching.remove(*place)).map(|(_, entry)| entry),
                );
            }
        }
        // Dropped with nothing borrowed.
        drop(gone);
        let inner: &Inner = &self.local.hub.0;
        inner.leave(&self.wanted);
    }
}

//! The clients of one worker: pings, silent clients, tokens that end, and what the HTTP API wants of clients.
//!
//! One task for each worker looks at the clients that are due, once in a second; an idle client has neither a
//! timer nor a task of its own for that. A client is due once in each heartbeat of its hub, and at least each
//! 25 seconds.

use super::codes::{self, Disconnect};
use super::session::{Action, Client};
use crate::local::Member;
use crate::topics::Hub;
use ringroad_engine::spawn;
use ringroad_engine::time::sleep;
use ringroad_http::ws::Frame;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The end of a token is noticed within so many seconds, however seldom clients are pinged.
const LOOK_SECONDS_MAX: u64 = 25;

struct Keeper {
    begun: Instant,
    ping: Frame,
    /// Clients by the second in which they are looked at next.
    due: RefCell<BTreeMap<u64, Vec<Weak<Client>>>>,
}

thread_local! {
    static KEEPER: RefCell<Option<Rc<Keeper>>> = const { RefCell::new(None) };
}

/// Forgets the worker's keeper when its task ends.
struct Running(Rc<Keeper>);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = KEEPER.try_with(|keeper| keeper.borrow_mut().take());
    }
}

/// Looks after a client from now on.
pub(super) fn keep(client: &Rc<Client>) {
    let known = KEEPER.with(|keeper| keeper.borrow().as_ref().map(Rc::clone));
    let keeper = known.unwrap_or_else(|| {
        let keeper =
            Rc::new(Keeper { begun: Instant::now(), ping: Frame::text("{}"), due: RefCell::default() });
        KEEPER.with(|place| *place.borrow_mut() = Some(Rc::clone(&keeper)));
        let running = Running(Rc::clone(&keeper));
        spawn(async move {
            while !running.0.due.borrow().is_empty() {
                sleep(Duration::from_secs(1)).await;
                running.0.look();
            }
        })
        .detach();
        keeper
    });
    let now = keeper.begun.elapsed().as_secs();
    client.ping_at.set(now + heartbeat(client));
    let at = now + span(client);
    keeper.due.borrow_mut().entry(at).or_default().push(Rc::downgrade(client));
}

/// Seconds between two pings of a client.
fn heartbeat(client: &Client) -> u64 {
    client.hub.settings().heartbeat.as_secs().max(1)
}

/// Seconds until a client is looked at again.
fn span(client: &Client) -> u64 {
    heartbeat(client).min(LOOK_SECONDS_MAX)
}

impl Keeper {
    /// Looks at the clients that are due.
    fn look(&self) {
        let second = self.begun.elapsed().as_secs();
        let due = {
            let mut all = self.due.borrow_mut();
            let later = all.split_off(&(second + 1));
            std::mem::replace(&mut *all, later)
        };
        let now = SystemTime::now();
        for weak in due.into_values().flatten() {
            let Some(client) = weak.upgrade() else { continue };
            if let Some(why) = self.look_at(&client, now, second) {
                client.end(why);
            } else if !client.exit.sender.is_closed() {
                let at = second + span(&client);
                self.due.borrow_mut().entry(at).or_default().push(weak);
            }
        }
    }

    /// Pings a client. `Some`: it is ended.
    fn look_at(&self, client: &Rc<Client>, now: SystemTime, second: u64) -> Option<Disconnect> {
        if !client.is_connected.get() {
            return Some(codes::STALE);
        }
        if client.person.borrow().until.is_some_and(|until| until < now) {
            return Some(codes::CONNECTION_EXPIRED);
        }
        if client.has_subscriptions_that_end.get() {
            client.ask(Action::LookAtSubscriptions);
        }
        if second < client.ping_at.get() {
            return None;
        }
        if !client.is_heard.replace(false) {
            return Some(codes::NO_PONG);
        }
        client.ping_at.set(second + heartbeat(client));
        // A client that does not take this is slow, or it is closed already.
        let _ = client.exit.sender.send_frame(&self.ping);
        None
    }
}

/// Closes the clients of a hub that has ended, also those without a channel.
pub(crate) fn ended(hub: &Hub) {
    let Some(keeper) = KEEPER.with(|keeper| keeper.borrow().as_ref().map(Rc::clone)) else { return };
    let due = keeper.due.borrow();
    let clients = due.values().flatten().filter_map(Weak::upgrade);
    clients.filter(|client| Arc::ptr_eq(&client.hub.0, &hub.0)).for_each(|client| client.ended());
}

/// Hands what the HTTP API wants to the clients of a user on this worker.
pub(crate) fn control(hub: &Hub, data: &str) {
    let Ok(Value::Object(wish)) = serde_json::from_str::<Value>(data) else { return };
    let text = |name: &str| wish.get(name).and_then(Value::as_str).unwrap_or_default();
    let Some(keeper) = KEEPER.with(|keeper| keeper.borrow().as_ref().map(Rc::clone)) else { return };
    let (user, id, channel) = (text("user"), text("client"), text("channel"));
    let due = keeper.due.borrow();
    for client in due.values().flatten().filter_map(Weak::upgrade) {
        let is_meant = Arc::ptr_eq(&client.hub.0, &hub.0)
            && client.is_connected.get()
            && client.person.borrow().user == user
            && (id.is_empty() || *client.id == *id);
        if !is_meant {
            continue;
        }
        match text("method") {
            "disconnect" => {
                let code = wish.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
                client.ask(Action::Disconnect(code.unwrap_or(3503), text("reason").to_owned()));
            }
            "unsubscribe" => client.ask(Action::Unsubscribe(channel.to_owned())),
            "subscribe" => client.ask(Action::Subscribe(channel.to_owned())),
            "refresh" => client.ask(Action::Refresh {
                is_expired: wish.get("expired").and_then(Value::as_bool).unwrap_or(false),
                until: wish.get("expire_at").and_then(Value::as_u64),
            }),
            _ => {}
        }
    }
}

//! Users in a topic: an id and what is known of each, counted over all workers, and over all processes that
//! have the hub.

use crate::topics::{Hub, INTERNAL, Message};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::{MutexGuard, PoisonError};

/// A change of the users in a topic: the topic, the user, and what is known of it; `None`: it goes.
pub(crate) type Change = (String, String, Option<Value>);

/// By topic, then by id: what is known of a user, and its number of members.
type Users = HashMap<String, BTreeMap<String, (Value, usize)>>;

/// Users of a hub.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    own: Users,
    /// Those of other processes, by process.
    others: HashMap<String, HashMap<String, BTreeMap<String, Value>>>,
}

impl Presence {
    fn is_elsewhere(&self, topic: &str, user: &str) -> bool {
        self.others.values().any(|node| node.get(topic).is_some_and(|users| users.contains_key(user)))
    }

    fn is_here(&self, topic: &str, user: &str) -> bool {
        self.own.get(topic).is_some_and(|users| users.contains_key(user))
    }
}

fn all(hub: &Hub) -> MutexGuard<'_, Presence> {
    hub.0.presence.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a member of this user. True: it is the user's first.
pub(crate) fn enter(hub: &Hub, topic: &str, user: &str, info: Value) -> bool {
    let mut all = all(hub);
    let users = all.own.entry(topic.to_owned()).or_default();
    let (known, members) = users.entry(user.to_owned()).or_insert((Value::Null, 0));
    *members += 1;
    if *members > 1 {
        return false;
    }
    *known = info.clone();
    // Under the lock, so that others hear of changes in their order.
    if let Some(shared) = &hub.0.shared {
        shared.tell_user(hub.node(), (topic.to_owned(), user.to_owned(), Some(info)));
    }
    !all.is_elsewhere(topic, user)
}

/// Removes a member of this user. True: it was the user's last.
pub(crate) fn leave(hub: &Hub, topic: &str, user: &str) -> bool {
    let mut all = all(hub);
    let Some(users) = all.own.get_mut(topic) else { return false };
    let Some((_, members)) = users.get_mut(user) else { return false };
    *members = members.saturating_sub(1);
    if *members > 0 {
        return false;
    }
    users.remove(user);
    if users.is_empty() {
        all.own.remove(topic);
    }
    if let Some(shared) = &hub.0.shared {
        shared.tell_user(hub.node(), (topic.to_owned(), user.to_owned(), None));
    }
    !all.is_elsewhere(topic, user)
}

/// Returns the users in a topic, by id.
pub(crate) fn users(hub: &Hub, topic: &str) -> Vec<(String, Value)> {
    let all = all(hub);
    let elsewhere = all.others.values().filter_map(|node| node.get(topic)).flatten();
    let here = all.own.get(topic).into_iter().flatten().map(|(user, (info, _))| (user, info));
    let users: BTreeMap<&String, &Value> = elsewhere.chain(here).collect();
    users.into_iter().map(|(user, info)| (user.clone(), info.clone())).collect()
}

/// Returns how many users are in a topic.
pub(crate) fn count(hub: &Hub, topic: &str) -> usize {
    users(hub, topic).len()
}

/// Calls `tell` with all users of this process. No user comes or goes meanwhile.
pub(crate) fn with_own(hub: &Hub, tell: impl FnOnce(Vec<Change>)) {
    let all = all(hub);
    let each = all.own.iter().flat_map(|(topic, users)| users.iter().map(move |user| (topic, user)));
    tell(each.map(|(topic, (user, (info, _)))| (topic.clone(), user.clone(), Some(info.clone()))).collect());
}

/// Returns the other processes that have users.
pub(crate) fn nodes(hub: &Hub) -> Vec<String> {
    all(hub).others.keys().cloned().collect()
}

/// Takes what another process announces of its users: all of them, or changes. The members here are told of
/// users that are gone without having left.
pub(crate) fn of_others(hub: &Hub, node: &str, is_all: bool, users: Vec<Change>) {
    let mut all = all(hub);
    let mut before = Vec::new();
    if is_all && let Some(had) = all.others.remove(node) {
        before.extend(had.into_iter().flat_map(|(topic, users)| {
            users.into_iter().map(move |(user, info)| (topic.clone(), user, info))
        }));
    }
    let known = all.others.entry(node.to_owned()).or_default();
    for (topic, user, info) in users {
        match info {
            Some(info) => drop(known.entry(topic).or_default().insert(user, info)),
            None => {
                if let Some(users) = known.get_mut(&topic) {
                    users.remove(&user);
                    if users.is_empty() {
                        known.remove(&topic);
                    }
                }
            }
        }
    }
    if known.is_empty() {
        all.others.remove(node);
    }
    before.retain(|(topic, user, _)| !all.is_elsewhere(topic, user) && !all.is_here(topic, user));
    drop(all);
    for (topic, user, info) in before {
        match topic.strip_prefix(INTERNAL) {
            Some(_) => crate::centrifugo::gone(hub, &topic, &info),
            None => {
                let message = Message {
                    data: json!({"user_id": user}).to_string(),
                    kind: Some(format!("{}member_removed", crate::pusher::INTERNAL)),
                    private: true,
                    ..Message::default()
                };
                hub.tell_here(&topic, message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_with_several_members_comes_once_and_goes_once() {
        let hub = Hub::new(crate::Settings::default());
        assert!(enter(&hub, "a", "u", Value::from(1)));
        assert!(!enter(&hub, "a", "u", Value::from(2)));
        assert!(enter(&hub, "a", "v", Value::Null));
        assert_eq!(users(&hub, "a"), [("u".to_owned(), Value::from(1)), ("v".to_owned(), Value::Null)]);
        assert!(!leave(&hub, "a", "u"));
        assert_eq!(users(&hub, "a").len(), 2);
        assert!(leave(&hub, "a", "u"));
        assert!(!leave(&hub, "a", "u") && !leave(&hub, "b", "u"));
        assert_eq!(count(&hub, "a"), 1);
        assert!(leave(&hub, "a", "v"));
        assert!(all(&hub).own.is_empty());
    }
}

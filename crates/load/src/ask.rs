//! One request before a load, to learn what the server answers.
//!
//! A load on a path that does not exist measures how fast a server refuses. So each message is sent once,
//! over a separate connection, and the answer is reported. Start at [`ask`].

use crate::error::Error;
use crate::plan::{Message, Pace, Plan, Split};
use crate::run::run;
use ringroad_engine::choose::Choice;
use ringroad_wire::Status;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Maximum number of messages: more would be a load.
const MESSAGES_MAX: usize = 16;

/// Time limit for an answer: a slower server is measured by the load.
const PATIENCE: Duration = Duration::from_secs(2);

/// The answer to one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The request: method and URL.
    pub what: String,
    /// The result.
    pub heard: Heard,
    /// The Location of a 3xx answer.
    pub location: Option<String>,
    /// Cookies that the server has set (`name=value`), if the plan keeps them.
    pub cookies: Vec<String>,
}

/// Result of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A good answer.
    Good,
    /// An answer of a status that is not expected.
    Status(u16),
    /// An answer that is not as expected, and the reason: not HTTP, or another body.
    Wrong(String),
    /// No answer in time, or no connection. The load reports the reason.
    Nothing,
}

/// Sends each of the plan's messages once, or the first [`MESSAGES_MAX`].
///
/// # Errors
/// As [`run`](crate::run()), except that a server that cannot be reached is [`Heard::Nothing`].
pub fn ask(plan: &Plan, choice: &Choice, stop: &Arc<AtomicBool>) -> Result<Vec<Asked>, Error> {
    let mut all = Vec::new();
    for message in plan.messages.iter().take(MESSAGES_MAX) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        all.push(ask_one(plan, message, choice, stop)?);
    }
    Ok(all)
}

fn ask_one(plan: &Plan, message: &Message, choice: &Choice, stop: &Arc<AtomicBool>) -> Result<Asked, Error> {
    let target = plan.sites().nth(message.site.into()).unwrap_or(&plan.target).clone();
    let secured = target.scheme.is_secured();
    let one = Plan {
        target,
        others: Vec::new(),
        messages: vec![Message { weight: 1, site: 0, ..message.clone() }],
        connections: 1,
        silent: 0,
        idle: 0,
        threads: 1,
        processes: 1,
        split: Split::WHOLE,
        part: 0,
        pipeline: 1,
        pace: Pace::Closed,
        stages: None,
        connect_rate: None,
        duration: Some(plan.timeout.min(PATIENCE)),
        count: Some(1),
        warmup: Duration::ZERO,
        timeout: plan.timeout.min(PATIENCE),
        until_closed: false,
        slices: 1,
        tls: plan.tls.clone().filter(|_| secured),
        direct: None,
        ..plan.clone()
    };
    let what = message.label().to_owned();
    let silent = |what| Asked { what, heard: Heard::Nothing, location: None, cookies: Vec::new() };
    let counts = match run(&one, choice, stop, &mut |_| {}) {
        Ok(outcome) => outcome.counts,
        Err(why) if why.is_usage() || why.is_interrupted() => return Err(why),
        Err(why) => {
            let heard = why.what_was_heard().map(|why| Heard::Wrong(why.to_owned()));
            return Ok(Asked { heard: heard.unwrap_or(Heard::Nothing), ..silent(what) });
        }
    };
    let heard = match counts.statuses.keys().next() {
        _ if counts.completed > 0 => Heard::Good,
        Some(status) if counts.errors.status > 0 => Heard::Status(*status),
        // A connection on which the server spoke otherwise, before the request or behind it.
        _ if counts.errors.protocol > 0 || (counts.errors.connect > 0 && counts.bytes_received > 0) => {
            Heard::Wrong(counts.failures.keys().next().cloned().unwrap_or_default())
        }
        _ => Heard::Nothing,
    };
    Ok(Asked { what, heard, location: counts.location, cookies: counts.cookies })
}

/// Returns a status with its phrase: `404 Not Found`.
pub fn named(status: u16) -> String {
    Status::new(status).map_or_else(|| status.to_string(), |known| known.to_string().trim_end().to_owned())
}

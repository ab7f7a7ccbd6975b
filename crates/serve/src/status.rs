//! The page of a route with `kind = "status"`: groups of servers behind, and what is known of each server;
//! stores that several servers share; and the hubs.
//!
//! [`groups`] takes what is known at a moment; [`page`] and [`json`] are two ways to show the same.

use crate::by_driver;
use crate::config::HubTable;
use crate::page::{document, escape};
use crate::service::Shared;
use ringroad_gate::feature::NamedTables;
use ringroad_gate::store::{self, Store};
use ringroad_gate::upstream::{Balance, Group, State};
use ringroad_policy::breaker;
use ringroad_stores::redis::Breaker;
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SECOND: f64 = 1e9;

/// Returns what is known now, as JSON.
pub(crate) fn json(shared: &Shared) -> Value {
    let now = shared.now();
    let plan = shared.plan();
    let seconds = shared.started.elapsed().unwrap_or_default().as_secs();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_s": seconds,
        "stopping": shared.stopping.load(Ordering::Relaxed),
        "workers": by_driver::json(shared),
        "upstreams": plan.groups.iter().map(|group| of_group(group, now)).collect::<Vec<_>>(),
        "stores": stores(&plan.config.tables),
        "hubs": plan.config.hubs.iter().map(|table| of_hub(table)).collect::<Vec<_>>(),
    })
}

/// Returns what is known of the `[redis.NAME]`.
fn stores(tables: &NamedTables) -> Vec<Value> {
    tables.of::<Store>(store::FAMILY).map(|(name, store)| of_store(name, store)).collect()
}

fn of_store(name: &str, store: &Store) -> Value {
    let redis = store.redis();
    let (health, counters) = (redis.health(), redis.counters());
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (breaker, open_for) = match health.breaker {
        Breaker::Closed => ("closed", None),
        Breaker::Probing => ("probing", None),
        Breaker::Open(left) => ("open", Some(left.as_secs_f64())),
    };
    json!({
        "name": name,
        "address": redis.settings().to.to_string(),
        "state": health.state.as_str(),
        "next_attempt_s": health.next_attempt.map(|left| left.as_secs_f64()),
        "last_failure": health.last_failure.as_deref(),
        "breaker": breaker,
        "breaker_open_for_s": open_for,
        "connections": health.connections,
        "waiting": health.waiting,
        "latency_ms": health.latency.map(milliseconds),
        "answered": load(&counters.answered).saturating_sub(load(&counters.errors)),
        "errors": load(&counters.errors),
        "timed_out": load(&counters.timed_out),
        "lost": load(&counters.lost),
        "refused": load(&counters.refused) + load(&counters.full),
    })
}

/// Returns a time in milliseconds, to hundredths.
fn milliseconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 1e5).round() / 1e2
}

fn of_hub(table: &HubTable) -> Value {
    let (hub, counts) = (table.hub(), table.hub().counts());
    let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    let mut told = json!({
        "name": table.name,
        "topics": hub.topics(),
        "connections": load(&counts.members),
        "published": load(&counts.published),
        "delivered": load(&counts.delivered),
        "last": hub.last().to_string(),
    });
    if let (Some(state), Some(told)) = (hub.server(), told.as_object_mut()) {
        told.insert("store".to_owned(), json!(if state.is_up { "up" } else { "down" }));
        told.insert("store_why".to_owned(), json!(state.why));
        told.insert("machines".to_owned(), json!(state.processes));
        told.insert("ready".to_owned(), json!(hub.is_ready()));
        told.insert("refused".to_owned(), json!(load(&counts.unavailable)));
        told.insert("gaps".to_owned(), json!(load(&counts.gaps)));
        told.insert("lost".to_owned(), json!(load(&counts.lost)));
    }
    told
}

fn of_group(group: &Group, now: u64) -> Value {
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (state, open_for) = match group.breaker(now) {
        None => (Value::Null, Value::Null),
        Some(breaker::State::Closed) => (json!("closed"), Value::Null),
        Some(breaker::State::Probing) => (json!("probing"), Value::Null),
        Some(breaker::State::Open(until)) => {
            (json!("open"), json!(until.saturating_sub(now) as f64 / SECOND))
        }
    };
    let servers: Vec<Value> = group
        .servers()
        .iter()
        .map(|server| {
            let (state, ejected_for) = match server.state(now) {
                State::Up => ("up", Value::Null),
                State::Down => ("down", Value::Null),
                State::Ejected(until) => ("ejected", json!(until.saturating_sub(now) as f64 / SECOND)),
            };
            json!({
                "address": server.address().to_string(),
                "state": state,
                "ejected_for_s": ejected_for,
                "check": server.complaint(),
                "weight": server.weight(),
                "backup": server.is_backup(),
                "in_flight": server.in_flight(),
                // Unknown until a request has been answered there.
                "latency_ms": server.took().map(milliseconds),
                "requests": load(&server.sent),
                // No connection, no answer, a broken one, or a status of `retry.on`.
                "failures": load(&server.failed),
                "answers_5xx": load(&server.errors),
                "ejections": load(&server.ejections),
            })
        })
        .collect();
    let places = group.places();
    json!({
        "name": group.name(),
        "balance": balance(group.balance()),
        "breaker": state,
        "breaker_open_for_s": open_for,
        "requests_at_once": places.map(|(used, ..)| used),
        "requests_most": places.map(|(_, most, _)| most),
        "requests_in_line": places.map(|(.., waiting)| waiting),
        "repeats": load(&group.repeated),
        "hedged": load(&group.hedged),
        "refused": load(&group.refused),
        "breaker_opened": load(&group.opened),
        "panics": load(&group.panicked),
        "servers": servers,
    })
}

fn balance(balance: &Balance) -> &'static str {
    match balance {
        Balance::Least => "least",
        Balance::Time => "time",
        Balance::Turns => "turns",
        Balance::Hash(_) => "hash",
        Balance::Sticky { .. } => "sticky",
    }
}

/// Rules for this page alone.
const STYLE: &str = "<style>\n\
    section { margin-bottom: 2.5rem; }\n\
    h2 { font-size: 1.05rem; font-weight: 600; margin: 0 0 .35rem; }\n\
    .facts { color: var(--dim); font-size: .9rem; margin: 0 0 .8rem; }\n\
    .n { text-align: right; white-space: nowrap; }\n\
    .address { white-space: nowrap; }\n\
    .state { font-weight: 600; white-space: nowrap; }\n\
    .state::before { content: \"\"; display: inline-block; width: .6rem; height: .6rem; border-radius: 50%; margin-right: .45rem; background: currentColor; }\n\
    .up { color: #1a8f4c; } .ejected, .probing, .connecting { color: #b97a10; } .down, .open, .failing, .unreachable { color: #c93a3a; }\n\
    .why { color: var(--dim); font-size: .85rem; }\n\
    .scroll { overflow-x: auto; }\n\
    @media (prefers-color-scheme: dark) { .up { color: #4cc884; } .ejected, .probing, .connecting { color: #e0aa4d; } .down, .open, .failing, .unreachable { color: #f08080; } }\n\
    </style>\n";

/// Returns the same as a page.
pub(crate) fn page(shared: &Shared) -> String {
    let all = json(shared);
    let mut out = String::from(STYLE);
    let uptime = all.get("uptime_s").and_then(Value::as_u64).unwrap_or(0);
    let stopping = if all.get("stopping") == Some(&Value::Bool(true)) { ", stopping" } else { "" };
    // Writing to a string does not fail.
    let _ = write!(
        out,
        "<h1>Status</h1>\n<p class=\"facts\">ringroad {}, up {}{stopping}</p>\n",
        env!("CARGO_PKG_VERSION"),
        span(uptime)
    );
    let groups = all.get("upstreams").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if groups.is_empty() {
        out.push_str("<p>No route has upstream servers.</p>\n");
    }
    groups.iter().for_each(|group| section(&mut out, group));
    if !groups.is_empty() {
        out.push_str(COLUMNS);
    }
    let stores = all.get("stores").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if !stores.is_empty() {
        store_section(&mut out, stores);
    }
    if let Some(workers) = all.get("workers") {
        by_driver::section(&mut out, workers);
    }
    let hubs = all.get("hubs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if !hubs.is_empty() {
        hub_section(&mut out, hubs);
    }
    document("Status", &out).replace("<title>", "<meta http-equiv=\"refresh\" content=\"5\">\n<title>")
}

fn section(out: &mut String, group: &Value) {
    let text = |key: &str| escape(group[key].as_str().unwrap_or_default());
    let number = |key: &str| group[key].as_u64().unwrap_or(0);
    let _ =
        write!(out, "<section>\n<h2>{}</h2>\n<p class=\"facts\">balance {}", text("name"), text("balance"));
    match group["breaker"].as_str() {
        Some("open") => {
            let left = group["breaker_open_for_s"].as_f64().unwrap_or(0.0);
            let _ = write!(out, " · <span class=\"open\">breaker open for {left:.0} s</span>");
        }
        Some("probing") => out.push_str(" · <span class=\"probing\">breaker probing</span>"),
        Some(other) => {
            let _ = write!(out, " · breaker {}", escape(other));
        }
        None => {}
    }
    if group["requests_most"].is_u64() {
        let (used, most) = (number("requests_at_once"), number("requests_most"));
        let _ = write!(out, " · {used} of {most} requests, {} in line", number("requests_in_line"));
    }
    for (key, word) in
        [("repeats", "repeats"), ("refused", "refused"), ("panics", "choices with health ignored")]
    {
        if number(key) > 0 {
            let _ = write!(out, " · {} {word}", number(key));
        }
    }
    out.push_str(
        "</p>\n<div class=\"scroll\"><table>\n<thead><tr><th>Server</th><th>State</th><th class=\"n\">In flight</th>\
         <th class=\"n\">Latency</th><th class=\"n\">Requests</th><th class=\"n\">Failures</th>\
         <th class=\"n\">5xx answers</th><th class=\"n\">Ejections</th></tr></thead>\n<tbody>\n",
    );
    for server in group["servers"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let text = |key: &str| escape(server[key].as_str().unwrap_or_default());
        let number = |key: &str| server[key].as_u64().unwrap_or(0);
        let mut address = text("address");
        if number("weight") != 1 {
            let _ = write!(address, " <span class=\"why\">weight {}</span>", number("weight"));
        }
        if server["backup"] == true {
            address.push_str(" <span class=\"why\">backup</span>");
        }
        let mut state = format!("<span class=\"state {0}\">{0}</span>", text("state"));
        if let Some(left) = server["ejected_for_s"].as_f64() {
            let _ = write!(state, " <span class=\"why\">for {left:.0} s</span>");
        }
        if server["check"].is_string() {
            let _ = write!(state, " <span class=\"why\">last check: {}</span>", text("check"));
        }
        let _ = writeln!(
            out,
            "<tr><td class=\"address\">{address}</td><td>{state}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            number("in_flight"),
            server["latency_ms"].as_f64().map_or_else(|| "–".to_owned(), |ms| format!("{ms:.2} ms")),
            number("requests"),
            number("failures"),
            number("answers_5xx"),
            number("ejections")
        );
    }
    out.push_str("</tbody>\n</table></div>\n</section>\n");
}

/// Says once what the columns of all groups count.
const COLUMNS: &str = "<p class=\"why\">Failures: no connection, no answer, a broken one, or a status of \
    <code>retry.on</code>; they lead to ejection. The breaker counts 5xx answers as well. \
    Latency: to the head of an answer, of the last ones; failures are not in it.</p>\n";

fn store_section(out: &mut String, stores: &[Value]) {
    out.push_str(
        "<section>\n<h2>Stores</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th>Store</th><th>State</th>\
         <th>Breaker</th><th class=\"n\">Connections</th><th class=\"n\">Waiting</th>\
         <th class=\"n\">Latency</th><th class=\"n\">Answered</th><th class=\"n\">Errors</th><th class=\"n\">Timed out</th>\
         <th class=\"n\">Lost</th><th class=\"n\">Not sent</th></tr></thead>\n<tbody>\n",
    );
    for store in stores {
        let text = |key: &str| escape(store[key].as_str().unwrap_or_default());
        let number = |key: &str| store[key].as_u64().unwrap_or(0);
        let mut state = format!("<span class=\"state {0}\">{0}</span>", text("state"));
        match store["next_attempt_s"].as_f64() {
            Some(left) if left > 0.0 => {
                let _ = write!(state, " <span class=\"why\">tried again in {left:.1} s</span>");
            }
            Some(_) => state.push_str(" <span class=\"why\">tried again with the next command</span>"),
            None => {}
        }
        let fails = store["state"] == "unreachable" || store["state"] == "failing";
        if fails && store["last_failure"].is_string() {
            let _ = write!(state, "<br><span class=\"why\">{}</span>", text("last_failure"));
        }
        let mut breaker = format!("<span class=\"{0}\">{0}</span>", text("breaker"));
        if let Some(left) = store["breaker_open_for_s"].as_f64() {
            let _ = write!(breaker, " <span class=\"why\">for {left:.1} s</span>");
        }
        let latency = match store["latency_ms"].as_f64() {
            Some(milliseconds) => format!("{milliseconds:.2} ms"),
            None => "-".to_owned(),
        };
        let _ = writeln!(
            out,
            "<tr><td class=\"address\">{} <span class=\"why\">{}</span></td><td>{state}</td><td>{breaker}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{latency}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            text("name"),
            text("address"),
            number("connections"),
            number("waiting"),
            number("answered"),
            number("errors"),
            number("timed_out"),
            number("lost"),
            number("refused")
        );
    }
    out.push_str("</tbody>\n</table></div>\n</section>\n");
}

fn hub_section(out: &mut String, hubs: &[Value]) {
    out.push_str(
        "<section>\n<h2>Hubs</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th>Hub</th><th>Store</th>\
         <th class=\"n\">Machines</th><th class=\"n\">Topics</th><th class=\"n\">Connections</th>\
         <th class=\"n\">Published</th><th class=\"n\">Delivered</th></tr></thead>\n<tbody>\n",
    );
    for hub in hubs {
        let number = |key: &str| hub[key].as_u64().map_or_else(|| "–".to_owned(), |count| count.to_string());
        let store = match hub["store"].as_str() {
            None => "–".to_owned(),
            Some(state) => {
                let why = hub["store_why"].as_str().map(escape).unwrap_or_default();
                format!("<span class=\"state {state}\">{state}</span> <span class=\"why\">{why}</span>")
            }
        };
        let name = escape(hub["name"].as_str().unwrap_or_default());
        let _ = writeln!(
            out,
            "<tr><td>{name}</td><td>{store}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            number("machines"),
            number("topics"),
            number("connections"),
            number("published"),
            number("delivered")
        );
    }
    out.push_str("</tbody>\n</table></div>\n</section>\n");
}

fn span(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        more => format!("{} days", more / 86_400),
    }
}

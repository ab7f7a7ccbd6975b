//! Active checks: a task for each server asks it again and again whether it is well.
//!
//! The tasks run beside requests, on the runtime for such work, and end with their group. Checks of servers
//! do not fall together: each begins at a random time and is up to a tenth early or late.

use crate::feature::Tending;
use crate::flow::Local;
use crate::upstream::{Address, Check, Group, Server};
use ringroad_engine::spawn;
use ringroad_engine::time::sleep;
use ringroad_http::Client;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Is told of a server of a group that its checks have found sick, and why, or well again (`None`).
type Report = Rc<dyn Fn(&Group, &Server, Option<String>)>;

/// Returns the task that checks a group's servers. `None`: they are not checked. `secure`: TLS is spoken
/// there, as the client that `make` makes speaks it. `epoch` is where the clock of decisions begins. `report`
/// hears of changes.
pub fn tend(
    group: &Arc<Group>,
    secure: bool,
    make: impl FnOnce() -> Client + Send + 'static,
    epoch: Instant,
    report: impl Fn(&Group, &Server, Option<String>) + Send + 'static,
) -> Option<Tending> {
    group.guards().check.as_ref()?;
    let group = Arc::downgrade(group);
    let tend = move || -> crate::chain::Later<'static, ()> {
        Box::pin(async move {
            let Some(known) = group.upgrade() else { return };
            let (local, client, report): (_, _, Report) = (Local::new(epoch), make(), Rc::new(report));
            for server in known.servers() {
                let (group, server) = (Weak::clone(&group), Arc::downgrade(server));
                let (local, client, report) = (Rc::clone(&local), client.clone(), Rc::clone(&report));
                spawn(watch(group, server, secure, local, client, report)).detach();
            }
        })
    };
    Some(Box::new(tend))
}

/// Checks one server for as long as its group is in force.
async fn watch(
    group: Weak<Group>,
    server: Weak<Server>,
    secure: bool,
    local: Rc<Local>,
    client: Client,
    report: Report,
) {
    let mut first = true;
    loop {
        let Some(every) = group.upgrade().and_then(|group| Some(group.guards().check.as_ref()?.every)) else {
            return;
        };
        // A part of 2^16 is fine enough.
        let random = f64::from((local.random() >> 48) as u32) / 65536.0;
        let share = if first { random } else { 0.9 + random / 5.0 };
        first = false;
        sleep(every.mul_f64(share)).await;
        let (Some(known), Some(server)) = (group.upgrade(), server.upgrade()) else { return };
        let Some(check) = known.guards().check.clone() else { return };
        // Not held while the server is asked.
        drop(known);
        let complaint = ask(&client, &server, &check, secure).await.err();
        if server.checked(complaint.clone(), check.rise, check.fall, local.now())
            && let Some(group) = group.upgrade()
        {
            report(&group, &server, complaint);
        }
    }
}

/// Asks a server once.
///
/// # Errors
/// Why it is not well.
async fn ask(client: &Client, server: &Server, check: &Check, secure: bool) -> Result<(), String> {
    let scheme = if secure { "https" } else { "http" };
    let (client, authority) = match server.address() {
        Address::Unix(path) => (client.clone().unix(path), "localhost".to_owned()),
        tcp => (client.clone(), tcp.to_string()),
    };
    let client = client.timeout(check.timeout).connect_timeout(check.timeout);
    let authority =
        check.host.as_deref().filter(|_| matches!(server.address(), Address::Unix(_))).unwrap_or(&authority);
    let mut asked =
        client.get(&format!("{scheme}://{authority}{}", check.path)).header("User-Agent", "ringroad-check");
    if let Some(host) = &check.host {
        asked = asked.header("Host", host);
    }
    let mut response = asked.send().await.map_err(|why| why.to_string())?;
    let code = response.status().code();
    // The body is read so that the connection can serve the next check.
    let _ = response.bytes(64 << 10).await;
    let is_good =
        if check.statuses.is_empty() { (200..400).contains(&code) } else { check.statuses.contains(&code) };
    is_good.then_some(()).ok_or_else(|| format!("status {code}"))
}

//! A bad day: of six servers behind, one is slow, one fails, one flaps, one hangs and one refuses.

use crate::ports::nowhere;
use crate::support::{behind, start};
use ringroad_engine::DriverName;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno";

drivers!(
    of_six_servers_one_good_one_is_enough_for_all_but_one_request_of_a_thousand,
    |driver: DriverName| {
        let (good, answered) = behind(|client| {
            while client.until(b"\r\n\r\n").is_some() {
                client.send(OK);
            }
        });
        // No request's answer may depend on it.
        let (slow, _) = behind(|client| {
            while client.until(b"\r\n\r\n").is_some() {
                std::thread::sleep(Duration::from_millis(500));
                if !client.try_send(OK) {
                    return;
                }
            }
        });
        let (failing, _) = behind(|client| {
            while client.until(b"\r\n\r\n").is_some() {
                client.send("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\nno");
            }
        });
        let turn = Arc::new(AtomicUsize::new(0));
        let (flapping, _) = behind(move |client| {
            while client.until(b"\r\n\r\n").is_some() {
                let is_up = (turn.fetch_add(1, Ordering::SeqCst) / 10).is_multiple_of(2);
                client.send(if is_up { OK } else { UNAVAILABLE });
            }
        });
        let (hanging, _) = behind(|client| while client.until(b"\r\n\r\n").is_some() {});
        let refusing = nowhere();
        let all = [good, slow, failing, flapping, hanging, refusing];
        let servers: Vec<_> = all.iter().map(|address| format!("\"http://{address}\"")).collect();
        let rules = format!(
            r#"
        [upstream.g]
        servers = [{}]
        balance = "time"
        panic = 0
        eject = {{ after = 3, for = "30s..5m", most = "90%" }}
        health = {{ path = "/healthz", every = "200ms", timeout = "100ms", rise = 2, fall = 2 }}
        retry = {{ times = 4, on = [500, 503], backoff = "1ms..10ms" }}
        hedge = {{ after = "50ms" }}

        [[route]]
        path = "/"
        kind = "proxy"
        to = "upstream:g"
        timeouts = {{ answer = "60s" }}

        [[route]]
        path = "/status"
        kind = "status"
        "#,
            servers.join(", ")
        );
        let good_is_down = format!("upstream g: {good} is down");
        let is_over = (0..10).any(|_| {
            let site = start(driver, &rules, |_| {});
            let mut well = 0;
            let mut others = Vec::new();
            for _ in 0..10 {
                let mut client = site.client();
                for _ in 0..100 {
                    match client.get("/").status {
                        200 => well += 1,
                        other => others.push(other),
                    }
                }
            }
            // On a machine that stands still the good server, too, is late with its checks. Then there was
            // none for a while: once more.
            let was_late =
                || site.events.try_iter().any(|event| event.to_string().starts_with(&good_is_down));
            if well < 999 && was_late() {
                return false;
            }
            assert!(well >= 999, "{well} of 1000: {others:?}");
            assert!(answered.load(Ordering::SeqCst) > 0);
            let reply = site.client().ask("GET", "/status", &[("Accept", "application/json")]);
            let status: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
            let group = &status["upstreams"][0];
            assert!(group["repeats"].as_u64().unwrap() > 0, "{group}");
            true
        });
        assert!(is_over, "the good server was taken for one that is down each time");
    }
);

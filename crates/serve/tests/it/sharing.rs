//! Connections to upstream servers within their bound, and requests that are sent again.

use crate::ports::nowhere;
use crate::support::{Client, HANG, behind, start, wait_until};
use ringroad_engine::DriverName;
use ringroad_serve::Event;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn proxy(path: &str, to: &str, more: &str) -> String {
    format!("[[route]]\npath = \"{path}\"\nkind = \"proxy\"\nto = \"{to}\"\n{more}")
}

drivers!(
    /// Each takes a descriptor: with none left they would fail.
    requests_that_find_no_room_for_a_connection_wait_for_one,
    |driver: DriverName| {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counted = (Arc::clone(&now), Arc::clone(&most));
        let (address, _) = behind(move |client| {
            let here = counted.0.fetch_add(1, Ordering::SeqCst) + 1;
            counted.1.fetch_max(here, Ordering::SeqCst);
            while client.until(b"\r\n\r\n").is_some() {
                std::thread::sleep(std::time::Duration::from_millis(2));
                client.send(OK);
            }
            counted.0.fetch_sub(1, Ordering::SeqCst);
        });
        let route = proxy("/", &format!("http://{address}"), "connect_timeout = \"1h\"\n");
        let site = start(driver, &format!("max_upstream_connections = 2\n{route}"), |_| {});
        let mut clients: Vec<_> = (0..20).map(|_| site.client()).collect();
        for client in &mut clients {
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        }
        for client in &mut clients {
            assert_eq!(client.reply().status, 200);
        }
        assert!((1..=2).contains(&most.load(Ordering::SeqCst)));
    }
);

drivers!(
    a_request_that_waits_too_long_for_room_is_told_so_and_not_that_the_server_is_down,
    |driver: DriverName| {
        let (address, count) = behind(|client| drop(client.rest()));
        // Only the one that has to wait has little time.
        let to = format!("http://{address}");
        let routes = [
            proxy("/held", &to, "connect_timeout = \"1h\"\nanswer_timeout = \"1h\"\n"),
            proxy("/", &to, "connect_timeout = \"100ms\"\n"),
        ];
        let site = start(driver, &format!("max_upstream_connections = 1\n{}", routes.concat()), |_| {});
        let mut holds = site.client();
        holds.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_until("the connection is taken", || count.load(Ordering::SeqCst) == 1);
        let reply = site.client().get("/");
        assert_eq!((reply.status, reply.header("Retry-After")), (503, Some("1")));
        let said = match site.event() {
            event @ Event::Fault { .. } => event.to_string(),
            event => panic!("{event:?}"),
        };
        assert!(said.contains("connect: no room for another connection within 100ms"), "{said}");
        let servers = site.service.servers();
        assert!(!servers.is_empty());
        assert!(
            servers.iter().all(|(_, left_out)| *left_out == 0),
            "that is not the server's fault: {servers:?}"
        );
    }
);

drivers!(
    /// Its server closes it with the answer. The request that waits for room neither gets it nor loses its
    /// place.
    a_connection_that_is_over_is_not_handed_to_a_request_that_waits,
    |driver: DriverName| {
        let (go_on, told) = std::sync::mpsc::channel();
        let told = std::sync::Mutex::new(told);
        let (address, count) = behind(move |client| {
            client.until(b"\r\n\r\n");
            told.lock().unwrap().recv_timeout(HANG).unwrap();
            client.send_and_finish(OK);
            client.rest();
        });
        let metrics = "[[route]]\npath = \"/metrics\"\nkind = \"metrics\"\n";
        let route = proxy("/", &format!("http://{address}"), "connect_timeout = \"20s\"\n");
        let site = start(driver, &format!("max_upstream_connections = 1\n{route}{metrics}"), |_| {});
        let ask = |client: &mut Client| {
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        };
        let mut clients: Vec<_> = (0..3).map(|_| site.client()).collect();
        clients.iter_mut().for_each(ask);
        let waiting = || site.client().get("/metrics").text().contains("\nringroad_upstream_waiting 2\n");
        wait_until("two requests wait for room", waiting);
        // Which of them has the room first is not said: the requests came on connections of their own.
        clients.iter().for_each(|_| go_on.send(()).unwrap());
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.reply().status, 200, "request {number}");
        }
        assert_eq!(count.load(Ordering::SeqCst), 3, "a connection for each");
    }
);

drivers!(idle_connections_make_room_for_requests_to_another_server, |driver: DriverName| {
    let answers = |client: &mut Client| {
        while client.until(b"\r\n\r\n").is_some() {
            client.send(OK);
        }
    };
    let ((one, _), (other, _)) = (behind(answers), behind(answers));
    let long = "connect_timeout = \"1h\"\nkeep_for = \"24h\"\n";
    let routes = [
        proxy("/one/", &format!("http://{one}/"), long),
        proxy("/other/", &format!("http://{other}/"), long),
    ];
    let site = start(driver, &format!("max_upstream_connections = 1\n{}", routes.concat()), |_| {});
    let mut client = site.client();
    for _ in 0..3 {
        assert_eq!(client.get("/one/").status, 200);
        assert_eq!(client.get("/other/").status, 200);
    }
});

fn group(servers: &[std::net::SocketAddr], route: &str) -> String {
    let servers: Vec<_> = servers.iter().map(|address| format!("\"http://{address}\"")).collect();
    let group = format!("[upstream.app]\nservers = [{}]\nbalance = \"turns\"\n", servers.join(", "));
    format!("{group}{}", proxy("/", "upstream:app", route))
}

drivers!(
    /// RFC 9110 §9.2.2: what may have been acted upon is repeated only where that changes nothing.
    an_idempotent_request_that_gets_no_answer_goes_to_another_server_and_others_do_not,
    |driver: DriverName| {
        let (closes, closed) = behind(|client| drop(client.until(b"\r\n\r\n")));
        let (answers, _) = behind(|client| {
            while let Some(head) = client.until(b"\r\n\r\n") {
                let has_body = String::from_utf8(head).unwrap().contains("Content-Length: 4");
                if !has_body || client.exactly(4).is_some_and(|body| body == b"body") {
                    client.send(OK);
                }
            }
        });
        let site = start(driver, &group(&[closes, answers], ""), |_| {});
        let mut client = site.client();
        for _ in 0..2 {
            assert_eq!(client.get("/").status, 200);
            client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
            assert_eq!(client.reply().status, 200, "with its body");
        }
        assert!(closed.load(Ordering::SeqCst) > 0, "the other one was asked first at least once");
        let mut statuses = Vec::new();
        for _ in 0..2 {
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
            statuses.push(client.reply().status);
        }
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 502]);
    }
);

drivers!(an_answer_that_has_begun_is_not_asked_for_again, |driver: DriverName| {
    let (breaks, _) = behind(|client| {
        client.until(b"\r\n\r\n");
        client.send("HTTP/1.1 200");
    });
    let (answers, asked) = behind(|client| {
        while client.until(b"\r\n\r\n").is_some() {
            client.send(OK);
        }
    });
    let site = start(driver, &group(&[breaks, answers], ""), |_| {});
    let mut client = site.client();
    let statuses = [client.get("/").status, client.get("/").status];
    assert!(statuses.contains(&502) && statuses.contains(&200), "{statuses:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
});

drivers!(any_request_goes_on_to_a_server_that_can_be_reached, |driver: DriverName| {
    let closed = nowhere();
    let (answers, _) = behind(|client| {
        while client.until(b"\r\n\r\nbody").is_some() {
            client.send(OK);
        }
    });
    for buffer in ["", "buffer = false\n"] {
        let site = start(driver, &group(&[closed, answers], buffer), |_| {});
        let mut client = site.client();
        for _ in 0..4 {
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
            assert_eq!(client.reply().status, 200, "{buffer}");
        }
    }
});

//! Reloads: another configuration takes effect with the next request or is refused, and no request fails
//! meanwhile.

use crate::over::Over;
use crate::support::{Client, Site, configure, start, wait_until};
use ringroad_engine::DriverName;
use ringroad_serve::Event;
use socket2::{Domain, Socket, Type};
use std::io::Read;
use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn respond(body: &str) -> String {
    format!("[[route]]\npath = \"/\"\nkind = \"respond\"\nbody = \"{body}\"\n")
}

drivers!(a_reload_is_in_force_with_the_next_request_also_on_old_connections, |driver: DriverName| {
    let mut site = start(driver, &respond("one"), |_| {});
    let mut client = site.client();
    assert_eq!(client.get("/").text(), "one");
    configure(site.folder.path(), &respond("two"));
    assert_eq!(client.get("/").text(), "one");
    site.service.reload();
    assert_eq!(client.get("/").text(), "two");
    assert!(matches!(site.event(), Event::Reloaded { waiting } if waiting.is_empty()));
});

drivers!(a_wrong_configuration_changes_nothing_and_says_why, |driver: DriverName| {
    let mut site = start(driver, &respond("one"), |_| {});
    let mut client = site.client();
    for (text, why) in [
        ("workers = \"x\"\n[[route]]\npath = \"/\"\nkind = \"health\"\n", "workers: expected a number"),
        ("[[route]]\npath = \"/\"\nkind = \"static\"\nroot = \"nowhere\"\n", "No such file or directory"),
        ("log.file = \"no/folder/log\"\n[[route]]\npath = \"/\"\nkind = \"health\"\n", "log.file: "),
        ("[[route]]\npath = \"/m\"\nkind = \"metrics\"\nlisten = \"192.0.2.1:1\"\n", "192.0.2.1:1"),
    ] {
        configure(site.folder.path(), text);
        site.service.reload();
        let event = site.event();
        assert!(matches!(event, Event::ReloadRefused(_) | Event::ReloadFailed(_)), "{event:?}");
        assert!(event.to_string().contains(why), "{event}");
        assert!(event.to_string().contains("the old"), "{event}");
        assert_eq!(client.get("/").text(), "one", "{text}");
        assert_eq!(site.client().get("/").text(), "one", "{text}");
    }
    configure(site.folder.path(), &respond("two"));
    site.service.reload();
    assert_eq!(client.get("/").text(), "two");
});

#[test]
fn what_needs_new_workers_is_told_to_wait_and_the_rest_is_in_force() {
    let mut site = start(DriverName::Epoll, &respond("one"), |_| {});
    configure(site.folder.path(), &format!("workers = 2\nlimits.body = 5\n{}", respond("two")));
    site.service.reload();
    let event = site.event();
    let said = "in force except workers (an address has its threads from its start): restart for that";
    assert!(event.to_string().contains(said), "{event}");
    assert_eq!(site.client().get("/").text(), "two");
}

#[test]
fn a_control_socket_moves_with_a_reload() {
    let text = |name: &str| format!("control = \"{name}\"\n{}", respond("one"));
    let mut site = start(DriverName::Epoll, &text("a.sock"), |_| {});
    let answers = |site: &Site, name: &str| std::os::unix::net::UnixStream::connect(site.path(name)).is_ok();
    assert!(answers(&site, "a.sock"));
    configure(site.folder.path(), &text("b.sock"));
    site.service.reload();
    assert!(matches!(site.event(), Event::Reloaded { waiting } if waiting.is_empty()));
    assert_eq!((answers(&site, "a.sock"), answers(&site, "b.sock")), (false, true));
    // One that cannot be had leaves the one before.
    configure(site.folder.path(), &text("nowhere/c.sock"));
    site.service.reload();
    let event = site.event();
    assert!(matches!(event, Event::ReloadFailed(_)), "{event}");
    assert!(answers(&site, "b.sock"));
    configure(site.folder.path(), &respond("two"));
    site.service.reload();
    assert!(!site.path("b.sock").exists());
}

#[test]
fn a_hub_that_keeps_its_settings_is_reported_at_each_reload() {
    let hub = |heartbeat: &str| {
        format!(
            "[hub.news]\nheartbeat = \"{heartbeat}\"\n[[route]]\npath = \"/\"\nkind = \"hub\"\nhub = \"news\"\n"
        )
    };
    let mut site = start(DriverName::Epoll, &hub("5s"), |_| {});
    let mut waiting = |heartbeat: &str| {
        configure(site.folder.path(), &hub(heartbeat));
        site.service.reload();
        match site.event() {
            Event::Reloaded { waiting } => waiting,
            event => panic!("{event}"),
        }
    };
    let told = ["hub.news (its members stay with a hub of the same name)".to_owned()];
    assert_eq!(
        (waiting("5s"), waiting("6s"), waiting("6s"), waiting("5s")),
        (vec![], told.to_vec(), told.to_vec(), vec![])
    );
}

drivers!(limits_and_timeouts_are_those_of_the_last_reload_also_on_old_connections, |driver: DriverName| {
    let mut site = start(driver, &respond("one"), |_| {});
    let get = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(500));
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789";
    // `None`: it came so late that its connection was closed as one that is idle.
    let status = |site: &Site, request: &str| {
        let mut client = site.client();
        client.try_send(request);
        client.try_reply(false).map(|reply| reply.status)
    };
    assert_eq!((status(&site, &get), status(&site, post)), (Some(200), Some(200)));
    let mut idle = site.client();
    assert_eq!(idle.get("/").status, 200);
    let bounds = "limits = { request_line = 400, body = 5 }\ntimeouts = { keep_alive = \"1s\" }\ndrain = \"1s\"\n\
                  max_connections = 500\n";
    configure(site.folder.path(), &format!("{bounds}{}", respond("two")));
    site.service.reload();
    let event = site.event();
    assert!(matches!(&event, Event::Reloaded { waiting } if waiting.is_empty()), "{event}");
    // Each worker takes them over at its next turn.
    wait_until("the limits are in force", || status(&site, &get) == Some(414));
    wait_until("the body's limit is in force", || status(&site, post) == Some(413));
    assert_eq!(idle.rest(), b"", "silent for longer than the new time");
    configure(site.folder.path(), &respond("three"));
    site.service.reload();
    wait_until("the defaults are back", || status(&site, &get) == Some(200));
});

drivers!(connections_above_a_reloads_number_wait_for_room, |driver: DriverName| {
    let mut site = start(driver, &respond("one"), |_| {});
    let mut first = site.client();
    assert_eq!(first.get("/").status, 200);
    configure(site.folder.path(), &format!("max_connections = 1\n{}", respond("one")));
    site.service.reload();
    wait_until("once the number is in force, the idle connection makes room for another", || {
        assert_eq!(site.client().get("/").status, 200);
        !first.try_send("GET / HTTP/1.1\r\nHost: a\r\n\r\n") || first.try_reply(false).is_none()
    });
});

drivers!(addresses_come_and_go, |driver: DriverName| {
    let mut site = start(driver, &respond("one"), |_| {});
    let first = site.address();
    let mut old = site.client();
    assert_eq!(old.get("/").text(), "one");
    let metrics = "[[route]]\npath = \"/metrics\"\nkind = \"metrics\"\nlisten = \"127.0.0.1:0\"\n";
    configure(site.folder.path(), &format!("{}{metrics}", respond("one")));
    site.service.reload();
    let addresses: Vec<_> = site.service.addresses().collect();
    assert_eq!((addresses.len(), addresses[0]), (2, first));
    assert_eq!(Client::new(addresses[1]).get("/metrics").status, 200);
    configure(site.folder.path(), &respond("one"));
    site.service.reload();
    assert_eq!(site.service.addresses().collect::<Vec<_>>(), [first]);
    wait_until("the address is left", || std::net::TcpStream::connect(addresses[1]).is_err());
    assert_eq!(old.get("/").text(), "one");
});

#[test]
fn a_log_that_is_left_for_another_is_complete() {
    let log = |name: &str| format!("log.file = \"{name}\"\n{}", respond("x"));
    let mut site = start(DriverName::Epoll, &log("a.log"), |_| {});
    let mut client = site.client();
    for round in 0..30 {
        for name in ["a.log", "b.log", "c.log"] {
            configure(site.folder.path(), &log(name));
            site.service.reload();
            client.get(&format!("/{round}"));
        }
    }
    drop(client);
    let Site { folder, service, .. } = site;
    service.stop().unwrap();
    for name in ["a.log", "b.log", "c.log"] {
        let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
        let told: Vec<_> = text.lines().filter_map(|line| line.split(' ').nth(6)).collect();
        assert_eq!(told, (0..30).map(|round| format!("/{round}")).collect::<Vec<_>>(), "{name}");
    }
}

drivers!(many_reloads_under_load_fail_no_request, |driver: DriverName| {
    let mut site = start(driver, &format!("log.file = \"access.log\"\n{}", respond("0")), |_| {});
    let (address, stop, asked) = (site.address(), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _over = Over(&stop);
        for connections in 0..4 {
            let (stop, asked) = (&stop, &asked);
            scope.spawn(move || {
                let mut client = Client::new(address);
                while !stop.load(Ordering::Relaxed) {
                    // Half of them connect anew each time.
                    if connections % 2 == 0 {
                        client = Client::new(address);
                    }
                    let reply = client.get("/");
                    assert_eq!(reply.status, 200, "{reply:?}");
                    assert!(reply.text().parse::<u32>().is_ok(), "{reply:?}");
                    asked.fetch_add(1, Ordering::Relaxed);
                    // It has had as many requests as one may.
                    if reply.header("Connection") == Some("close") {
                        client = Client::new(address);
                    }
                }
            });
        }
        for round in 1..=200 {
            // Every tenth is wrong, and changes nothing.
            let wrong = if round % 10 == 0 { "no key\n" } else { "" };
            configure(
                site.folder.path(),
                &format!("{wrong}log.file = \"access.log\"\n{}", respond(&round.to_string())),
            );
            let before = asked.load(Ordering::Relaxed);
            site.service.reload();
            wait_until("requests go on", || asked.load(Ordering::Relaxed) > before);
        }
        assert_eq!(site.client().get("/").text(), "199");
    });
    let Site { service, events, .. } = site;
    service.stop().unwrap();
    let taken = events.try_iter().filter(|event| matches!(event, Event::Reloaded { .. })).count();
    assert_eq!(taken, 180);
});

/// A port of all addresses that no other program gets as long as the socket is there, which does not listen.
/// `None`: there is no IPv6 here.
fn port_of_all() -> Option<(Socket, u16)> {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, None).ok()?;
    socket.set_reuse_address(true).unwrap();
    socket.set_only_v6(false).unwrap();
    socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)).into()).ok()?;
    std::net::TcpListener::bind("[::1]:0").ok()?;
    let port = socket.local_addr().unwrap().as_socket().unwrap().port();
    Some((socket, port))
}

/// What is answered at an address; `None` if nothing listens there, or the listener just goes.
fn body_at(address: &str) -> Option<String> {
    let mut client = Client::of(TcpStream::connect(address).ok()?);
    client.try_send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.try_reply(false).map(|reply| reply.text().to_owned())
}

drivers!(addresses_that_cover_each_other_are_served_beside_each_other, |driver: DriverName| {
    for workers in [1, 2] {
        for (addresses, at_v4, at_other_v4, at_v6) in [
            (&["0.0.0.0", "[::]"][..], true, true, true),
            (&["[::]", "0.0.0.0"], true, true, true),
            (&["127.0.0.1", "[::]"], true, true, true),
            (&["[::]", "127.0.0.1"], true, true, true),
            (&["127.0.0.1", "[::1]", "[::]"], true, true, true),
            (&["[::]"], true, true, true),
            (&["127.0.0.1", "[::1]"], true, false, true),
            (&["0.0.0.0", "127.0.0.1"], true, true, false),
            (&["127.0.0.1", "0.0.0.0"], true, true, false),
            (&["[::]", "[::1]"], true, true, true),
        ] {
            let Some((_guard, port)) = port_of_all() else { return eprintln!("skipped: no IPv6") };
            let listen: Vec<String> = addresses.iter().map(|ip| format!("\"{ip}:{port}\"")).collect();
            let top = format!("@listen = [{}]\nworkers = {workers}\n", listen.join(", "));
            let site = start(driver, &(top + &respond("one")), |_| {});
            assert_eq!(site.service.addresses().count(), addresses.len());
            for (address, served) in [("127.0.0.1", at_v4), ("127.0.0.2", at_other_v4), ("[::1]", at_v6)] {
                let body = body_at(&format!("{address}:{port}"));
                assert_eq!(body.as_deref(), served.then_some("one"), "{address} of {addresses:?}");
            }
        }
    }
});

drivers!(a_reload_takes_addresses_that_overlap_those_of_before, |driver: DriverName| {
    for workers in [1, 2] {
        let Some((_guard, port)) = port_of_all() else { return eprintln!("skipped: no IPv6") };
        let config = |addresses: &[&str], body: &str| {
            let listen: Vec<String> =
                addresses.iter().map(|at| format!("\"{at}\"").replace("PORT", &port.to_string())).collect();
            format!("@listen = [{}]\nworkers = {workers}\n{}", listen.join(", "), respond(body))
        };
        let mut site = start(driver, &config(&["127.0.0.1:PORT"], "0"), |_| {});
        let (over, asked) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let _over = Over(&over);
            let client = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let mut stream =
                        TcpStream::connect(("127.0.0.1", port)).expect("no connection is refused");
                    // The server's end is closed before the next one begins: of many at once select would
                    // have no descriptor left.
                    let _ = stream.shutdown(std::net::Shutdown::Write);
                    let _ = stream.read(&mut [0]);
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
            for (round, (addresses, other_v4, v6)) in [
                (&["0.0.0.0:PORT"][..], true, false),
                (&["127.0.0.1:PORT"], false, false),
                (&["[::]:PORT"], true, true),
                (&["0.0.0.0:PORT", "[::]:PORT"], true, true),
                (&["[::]:PORT"], true, true),
                (&["127.0.0.1:PORT", "[::]:PORT"], true, true),
                (&["127.0.0.1:PORT", "[::1]:PORT"], false, true),
                (&["[::]:PORT", "127.0.0.1:PORT"], true, true),
                (&["0.0.0.0:PORT"], true, false),
            ]
            .into_iter()
            .enumerate()
            {
                let body = round.to_string();
                // One that cannot be had: all stays as it was.
                let failing: Vec<&str> = addresses.iter().copied().chain(["192.0.2.1:1"]).collect();
                configure(site.folder.path(), &config(&failing, "failed"));
                site.service.reload();
                let event = site.event();
                assert!(matches!(event, Event::ReloadFailed(_)), "{event:?}");
                assert_ne!(body_at(&format!("127.0.0.1:{port}")).as_deref(), Some("failed"));
                configure(site.folder.path(), &config(addresses, &body));
                site.service.reload();
                let event = site.event();
                assert!(matches!(&event, Event::Reloaded { waiting } if waiting.is_empty()), "{event:?}");
                for (address, served) in [("127.0.0.1", true), ("127.0.0.2", other_v4), ("[::1]", v6)] {
                    let expected = served.then(|| body.clone());
                    let address = format!("{address}:{port}");
                    let shown = format!("{address} of {addresses:?}");
                    wait_until(&shown, || body_at(&address) == expected);
                }
            }
            over.store(true, Ordering::Relaxed);
            client.join().unwrap();
            assert!(asked.load(Ordering::Relaxed) > 0);
        });
    }
});

#[test]
fn an_address_that_another_program_has_is_told_as_such() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut site = start(DriverName::Epoll, &respond("one"), |_| {});
    configure(site.folder.path(), &format!("@listen = [\"127.0.0.1:0\", \"{address}\"]\n{}", respond("two")));
    site.service.reload();
    let event = site.event().to_string();
    assert!(event.contains("another program has it") && event.contains(&address.to_string()), "{event}");
}

//! Workers on several drivers side by side, and their moves between drivers while clients ask.

use crate::over::Over;
use crate::support::{Client, Folder, Site, configure, start, wait_until};
use ringroad_engine::DriverName;
use ringroad_engine::choose::{Wish, probe};
use ringroad_serve::{Event, EventSink, MoveError, Overrides, Service, Source, StartError, load};
use serde_json::json;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;

const PAGES: &str = "[[route]]\npath = \"/\"\nkind = \"respond\"\nbody = \"hello\"\n\
                     [[route]]\npath = \"/status\"\nkind = \"status\"\n\
                     [[route]]\npath = \"/metrics\"\nkind = \"metrics\"\n";

/// Starts what a configuration says about drivers.
fn started(overrides: Overrides, rest: &str) -> Result<Site, StartError> {
    let folder = Folder::new();
    let source = Source::File(configure(folder.path(), rest));
    let config = load(&source, &overrides)?;
    let (tell, events) = channel();
    let voice = EventSink::new(move |event| drop(tell.send(event)), |_| Ok(()));
    Ok(Site { service: Service::start(source, overrides, config, voice)?, folder, events })
}

fn both_can_be_had() -> bool {
    match probe(DriverName::IoUring) {
        Ok(_) => true,
        Err(refusal) => {
            eprintln!("skipped: {refusal}");
            false
        }
    }
}

fn crews(service: &Service) -> Vec<(DriverName, usize)> {
    service.crews().iter().map(|crew| (crew.driver(), crew.workers)).collect()
}

/// What the status says about a driver.
fn told(site: &Site, driver: DriverName) -> serde_json::Value {
    let reply = site.client().ask("GET", "/status", &[("Accept", "application/json")]);
    let status: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    let all = status["workers"]["drivers"].as_array().unwrap().clone();
    all.into_iter().find(|one| one["driver"] == driver.as_str()).unwrap_or_default()
}

#[test]
fn workers_on_two_drivers_share_an_address_and_each_has_its_figures() {
    if !both_can_be_had() {
        return;
    }
    let site =
        started(Overrides::default(), &format!("drivers = {{ epoll = 1, io_uring = 2 }}\n{PAGES}")).unwrap();
    assert_eq!(crews(&site.service), [(DriverName::IoUring, 2), (DriverName::Epoll, 1)]);
    assert_eq!(site.service.workers(), 3);
    let mut asked = 0;
    wait_until("both have answered", || {
        assert_eq!(site.client().get("/").text(), "hello");
        asked += 1;
        let requests = |driver| told(&site, driver)["requests"].as_u64().unwrap();
        requests(DriverName::IoUring) > 0 && requests(DriverName::Epoll) > 0
    });
    for driver in [DriverName::IoUring, DriverName::Epoll] {
        let one = told(&site, driver);
        assert!(one["cpu_s"].as_f64().unwrap() > 0.0, "{one}");
        assert!(one["cpu_us_per_request"].as_f64().unwrap() > 0.0, "{one}");
        assert!(one["latency_mean_ms"].as_f64().unwrap() > 0.0, "{one}");
        assert!(one["latency_p99_ms_at_most"].as_f64().unwrap() > 0.0, "{one}");
        assert_eq!(one["responses"]["2xx"], one["requests"], "{one}");
    }
    let text = site.client().get("/metrics");
    let sum = |family: &str| -> f64 {
        let lines = text.text().lines().filter(|line| line.starts_with(family));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    };
    let all = sum("ringroad_http_requests_total{");
    assert!(all >= f64::from(asked), "{}", text.text());
    assert_eq!(sum("ringroad_driver_requests_total{"), all, "{}", text.text());
    assert_eq!(sum("ringroad_driver_request_duration_seconds_count{"), all, "{}", text.text());
    assert!(
        sum("ringroad_driver_cpu_seconds_total{") > 0.0 && sum("ringroad_other_cpu_seconds_total") >= 0.0
    );
    for line in
        ["ringroad_driver_workers{driver=\"io_uring\"} 2", "ringroad_driver_workers{driver=\"epoll\"} 1"]
    {
        assert!(text.text().contains(line), "{}", text.text());
    }
    crate::support::promtool(&["check", "metrics"], Some(text.text()));
    let page = site.client().get("/status");
    assert!(
        page.text().contains("<h2>Drivers</h2>")
            && page.text().contains("<span class=\"address\">epoll</span>"),
        "{}",
        page.text()
    );
    site.service.stop().unwrap();
}

#[test]
fn drivers_that_contradict_other_keys_are_told_with_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = |top: &str| {
        let file = configure(folder.path(), &format!("{top}\n{PAGES}"));
        load(&Source::File(file), &Overrides::default()).unwrap_err().to_string()
    };
    for (top, line, what) in [
        ("workers = 2\ndrivers = { epoll = 1 }", 2, "workers: it cannot stand beside `drivers`"),
        ("drivers = { epoll = 1 }\ndriver = \"epoll\"", 3, "driver: it cannot stand beside `drivers`"),
        ("drivers = {}", 2, "drivers: expected at least one driver"),
        ("drivers = { epoll = 0 }", 2, "drivers.epoll: expected a number from 1 to 1024, found 0"),
        ("drivers = { epol = 1 }", 2, "drivers.epol: "),
        ("drivers = { epoll = 1024, poll = 1 }", 2, "drivers: expected at most 1024 threads together"),
        ("drivers = 2", 2, "drivers: expected a table, found 2"),
    ] {
        let told = wrong(top);
        assert!(told.contains(what) && told.contains(&format!("ringroad.toml:{line}:")), "{top}: {told}");
    }
    let file = configure(folder.path(), &format!("drivers = {{ epoll = 1 }}\n{PAGES}"));
    let overrides = Overrides { workers: Some(2), ..Overrides::default() };
    let told = load(&Source::File(file), &overrides).unwrap_err().to_string();
    assert!(told.starts_with("--workers: the configuration has `drivers`"), "{told}");
}

#[test]
fn a_command_line_puts_all_workers_on_its_drivers() {
    let file = format!("drivers = {{ epoll = 1, poll = 2 }}\n{PAGES}");
    let one = Overrides { driver: Some(Wish::Named(DriverName::Poll)), ..Overrides::default() };
    let site = started(one, &file).unwrap();
    assert_eq!(crews(&site.service), [(DriverName::Poll, 3)]);
    crate::drivers::on(DriverName::Select, |select| {
        let several = vec![(DriverName::Epoll, 1), (select, 1)];
        let site = started(Overrides { drivers: several.clone(), ..Overrides::default() }, &file).unwrap();
        assert_eq!(crews(&site.service), several);
        assert_eq!(site.client().get("/").status, 200);
    });
}

drivers!(workers_move_under_load_and_no_request_fails, |from: DriverName| {
    let mut site = start(from, &format!("@listen = \"127.0.0.1:0\"\nworkers = 2\n{PAGES}"), |_: &Path| {});
    let (address, over, asked) = (site.address(), AtomicBool::new(false), AtomicU64::new(0));
    let others: Vec<_> = crate::drivers::here().filter(|to| *to != from).collect();
    std::thread::scope(|scope| {
        let _over = Over(&over);
        for number in 0..4 {
            let (over, asked) = (&over, &asked);
            scope.spawn(move || {
                let mut client = Client::new(address);
                while !over.load(Ordering::Relaxed) {
                    let reply = client.get("/");
                    assert_eq!((reply.status, reply.text()), (200, "hello"));
                    asked.fetch_add(1, Ordering::Relaxed);
                    if number % 2 == 0 || reply.header("Connection") == Some("close") {
                        client = Client::new(address);
                    }
                }
            });
        }
        let go_on = || {
            let before = asked.load(Ordering::Relaxed);
            wait_until("requests go on", || asked.load(Ordering::Relaxed) > before + 100);
        };
        for to in others {
            go_on();
            // One of two, so that both are there; then the other.
            assert_eq!(site.service.move_workers(from, to, Some(1)).unwrap(), 1);
            assert_eq!(crews(&site.service), [(from, 1), (to, 1)]);
            go_on();
            assert_eq!(site.service.move_workers(from, to, None).unwrap(), 1);
            assert_eq!(crews(&site.service), [(to, 2)]);
            go_on();
            assert_eq!(site.service.move_workers(to, from, None).unwrap(), 2);
        }
        go_on();
    });
    assert_eq!(crews(&site.service), [(from, 2)]);
    // What those that were left have done is still counted.
    let mut scrapes = 0;
    wait_until("every request is counted once", || {
        let text = site.client().get("/metrics");
        let all = asked.load(Ordering::Relaxed) + scrapes;
        scrapes += 1;
        text.text().contains(&format!("ringroad_http_requests_total{{code=\"200\"}} {all}\n"))
    });
    site.service.stop().unwrap();
});

drivers!(a_move_that_cannot_be_is_refused_and_changes_nothing, |driver: DriverName| {
    let mut site = start(driver, PAGES, |_: &Path| {});
    let other = if driver == DriverName::Epoll { DriverName::Poll } else { DriverName::Epoll };
    let moved = site.service.move_workers(other, driver, None).unwrap_err();
    assert!(matches!(moved, MoveError::NotThere { there: 0, .. }), "{moved}");
    let moved = site.service.move_workers(driver, other, Some(2)).unwrap_err();
    assert!(matches!(moved, MoveError::NotThere { wanted: 2, there: 1, .. }), "{moved}");
    let moved = site.service.move_workers(driver, driver, None).unwrap_err();
    assert!(matches!(moved, MoveError::Same(_)), "{moved}");
    assert_eq!(crews(&site.service), [(driver, 1)]);
    assert_eq!(site.client().get("/").text(), "hello");
});

drivers!(an_address_that_a_reload_adds_has_the_drivers_of_the_last_move, |driver: DriverName| {
    let mut site = start(driver, PAGES, |_: &Path| {});
    let to = if driver == DriverName::Epoll { DriverName::Poll } else { DriverName::Epoll };
    site.service.move_workers(driver, to, None).unwrap();
    configure(site.folder.path(), &format!("@listen = [\"127.0.0.1:0\", \"[::1]:0\"]\n{PAGES}"));
    site.service.reload();
    assert!(matches!(site.event(), Event::Reloaded { .. }));
    let second = site.service.addresses().nth(1).unwrap();
    assert_eq!(Client::new(second).get("/").text(), "hello");
    assert_eq!((&told(&site, to)["workers"], &told(&site, driver)["workers"]), (&json!(1), &json!(0)));
});

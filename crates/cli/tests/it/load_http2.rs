//! `ringroad load --http2` against `ringroad serve`, and beside h2load.

use crate::serve::{Serving, ask, connect, drivers};
use crate::support::{Outcome, installed, ringroad, run};
use serde_json::Value;
use std::process::Command;

/// A server of HTTP/2 on this driver, first without TLS and then with it.
fn serving(driver: &str, folder: &std::path::Path) -> Serving {
    let pair = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(folder.join("site.pem"), pair.cert.pem()).unwrap();
    std::fs::write(folder.join("site.key"), pair.signing_key.serialize_pem()).unwrap();
    std::fs::write(folder.join("large"), vec![b'x'; 200_000]).unwrap();
    std::fs::write(
        folder.join("ringroad.toml"),
        "listen = [\"127.0.0.1:0\", { address = \"127.0.0.1:0\", tls = true, http2 = true }]\n\
         [tls]\ncertificates = [\"site.pem\"]\n[http2]\nprior_knowledge = true\n\
         [[route]]\npath = \"/\"\nkind = \"respond\"\nbody = \"a page\"\n\
         [[route]]\npath = \"/files/\"\nkind = \"static\"\nroot = \".\"\n\
         [[route]]\npath = \"/metrics\"\nkind = \"metrics\"\n",
    )
    .unwrap();
    let file = folder.join("ringroad.toml");
    Serving::of(&mut ringroad(["serve", "--driver", driver, "--config", file.to_str().unwrap()]))
}

fn load(url: &str, more: &[&str]) -> Outcome {
    run(&mut ringroad(["load", url, "--http2"].iter().chain(more)))
}

fn urls(serving: &Serving) -> Vec<String> {
    let lines = serving.said.iter().map(|line| line.trim());
    lines
        .filter(|line| line.starts_with("http://") || line.starts_with("https://"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn streams_in_closed_loop_are_counted_as_the_server_counts_them() {
    for driver in drivers() {
        let folder = tempfile::tempdir().unwrap();
        let serving = serving(driver, folder.path());
        let record = folder.path().join("run.json");
        let urls = urls(&serving);
        assert_eq!(urls.len(), 2, "{:?}", serving.said);
        for url in &urls {
            let trust = if url.starts_with("https") { &["-k"][..] } else { &[] };
            let out = ["--out", record.to_str().unwrap()];
            let pages = load(url, &[trust, &out, &["-c", "4", "--streams", "25", "-n", "2000"]].concat());
            assert_eq!(pages.code, Some(0), "{}{}", pages.text(), pages.stderr);
            assert!(pages.text().contains("4 connections of HTTP/2 x 25 streams"), "{}", pages.text());
            let told: Value = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
            let cell = &told["cells"][0];
            assert_eq!((&cell["completed"], &cell["variant"]), (&2000.into(), &"http2".into()));
            let large = load(
                &format!("{url}files/large"),
                &[trust, &["-c", "2", "--streams", "5", "-n", "50"]].concat(),
            );
            assert!(
                large.text().contains("50 sent, 50 completed, 0 failed"),
                "{}{}",
                large.text(),
                large.stderr
            );
        }
        let metrics = String::from_utf8(ask(&mut connect(serving.address), "/metrics").1).unwrap();
        let lines = metrics.lines().filter(|line| line.starts_with("ringroad_http_requests_total"));
        let requests: f64 = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
        // The load itself, and what asks about the server before it.
        assert!((4100.0..4120.0).contains(&requests), "{requests}: {metrics}");
    }
}

#[test]
fn an_open_loop_keeps_its_rate_over_streams() {
    for driver in drivers() {
        let folder = tempfile::tempdir().unwrap();
        let serving = serving(driver, folder.path());
        let url = urls(&serving).remove(0);
        let outcome = load(&url, &["-c", "2", "--streams", "10", "-r", "500", "-d", "1s", "--warmup", "0s"]);
        // Whether each request left in time is up to the machine; what is made of that is not.
        let expected = if outcome.text().contains("\nINVALID") { 5 } else { 0 };
        assert_eq!(outcome.code, Some(expected), "{}{}", outcome.text(), outcome.stderr);
        assert!(outcome.text().contains("500 sent, 500 completed, 0 failed"), "{}", outcome.text());
    }
}

#[test]
fn a_server_that_speaks_no_http_2_and_odd_options_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(&[folder.path().to_str().unwrap()]);
    let url = format!("http://{}/", serving.address);
    let outcome = load(&url, &["-c", "1", "-n", "10", "--timeout", "5s"]);
    assert_eq!((outcome.code, outcome.stdout.len()), (Some(1), 0), "{outcome:?}");
    assert!(outcome.stderr.contains("does not speak HTTP/2: its first bytes are an HTTP/1.1"), "{outcome:?}");
    for (more, expected) in [
        (&["--disable-keepalive", "-n", "1"][..], "--http2 with --disable-keepalive"),
        (&["--streams", "300", "-n", "1"], "from 1 to 256"),
    ] {
        let outcome = load(&url, more);
        assert_eq!(outcome.code, Some(2));
        assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
    }
    let outcome = run(&mut ringroad(["load", &url, "--streams", "2"]));
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
}

#[test]
fn a_port_with_tls_and_one_without_are_named_where_the_other_is_expected() {
    let folder = tempfile::tempdir().unwrap();
    let serving = serving("epoll", folder.path());
    let (secured, plain): (Vec<_>, Vec<_>) =
        urls(&serving).into_iter().partition(|url| url.starts_with("https"));
    let load = |words: &[&str]| run(&mut ringroad(["load", "-c", "2", "-n", "10"].iter().chain(words)));
    let http = secured[0].replacen("https", "http", 1);
    // `serve` answers plain HTTP on such a port, with 400.
    for (words, expected) in [
        (&[&*http][..], "whether this port expects http:// or https://"),
        (&[&*http, "--http2"], "its first bytes are an HTTP/1.1 answer"),
    ] {
        let outcome = load(words);
        assert_eq!((outcome.code, outcome.stdout.len()), (Some(1), 0), "{words:?}: {outcome:?}");
        assert!(outcome.stderr.contains(expected), "{words:?}: {outcome:?}");
    }
    let outcome = load(&["-k", &plain[0].replacen("http", "https", 1)]);
    assert_eq!((outcome.code, outcome.stdout.len()), (Some(1), 0), "{outcome:?}");
    assert!(outcome.stderr.contains("does not speak TLS on this port: load http://"), "{outcome:?}");
}

#[test]
fn h2load_counts_the_same() {
    if !installed("h2load") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let serving = serving("epoll", folder.path());
    let url = urls(&serving).remove(0);
    let ours = load(&url, &["-c", "4", "--streams", "25", "-n", "3000"]);
    assert!(ours.text().contains("3000 sent, 3000 completed, 0 failed"), "{}", ours.text());
    let theirs = Command::new("h2load").args(["-c", "4", "-m", "25", "-n", "3000", &url]).output().unwrap();
    let text = String::from_utf8_lossy(&theirs.stdout);
    assert!(text.contains("3000 succeeded, 0 failed") && text.contains("3000 2xx"), "{text}");
}

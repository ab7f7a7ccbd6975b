//! `ringroad load` and the answers of servers: its first request, statuses, redirects, cookies, and output
//! files. The servers are threads of the test.

use crate::support::{Outcome, ringroad, run, run_with_input};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

/// A server that answers each request (head and body of one read) with the result of `answer`, and the
/// requests it has received. It lives as long as the test.
fn serve(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (seen, answer) = (Arc::new(Mutex::new(Vec::new())), Arc::new(answer));
    let notes = Arc::clone(&seen);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (answer, notes) = (Arc::clone(&answer), Arc::clone(&notes));
            thread::spawn(move || {
                let mut buffer = [0; 8192];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    let request = String::from_utf8(buffer[..count].to_vec()).unwrap();
                    let answer = answer(&request);
                    notes.lock().unwrap().push(request);
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, seen)
}

fn answer(status: &str, more: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{more}Content-Length: {}\r\n\r\n{body}", body.len())
}

fn path(request: &str) -> &str {
    request.split(' ').nth(1).unwrap()
}

/// The plan is made again after the first request, and a pipe can be read only once.
#[test]
fn a_body_from_a_pipe_is_in_every_request() {
    let (address, seen) = serve(|_request| answer("200 OK", "", "x"));
    let url = format!("http://{address}/");
    let line = ["load", &*url, "-c", "1", "-n", "3", "-D", "/dev/stdin"];
    let outcome = run_with_input(&mut ringroad(line), b"the body");
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 4, "one to ask, then those of -n: {seen:?}");
    assert!(seen.iter().all(|request| request.ends_with("\r\n\r\nthe body")), "{seen:?}");
}

/// A site with a page, a page that has moved, and a login.
fn site() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    serve(|request| match path(request) {
        "/" | "/there/" => answer("200 OK", "", "hello"),
        "/moved" => answer("302 Found", "Location: /there/\r\n", ""),
        "/away" => answer("301 Moved", "Location: http://elsewhere.invalid/\r\n", ""),
        "/round" => answer("307 R", "Location: /round\r\n", ""),
        "/login" => answer("303 See Other", "Location: /there/\r\nSet-Cookie: id=7; Path=/\r\n", ""),
        _ => answer("404 Not Found", "", "no"),
    })
}

fn load(arguments: &[&str]) -> Outcome {
    run(&mut ringroad(["load"].iter().chain(arguments)))
}

const FEW: [&str; 4] = ["-c", "2", "-n", "20"];

#[test]
fn a_path_that_does_not_exist_is_told_after_one_request_and_recorded() {
    let (address, seen) = site();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let url = format!("http://{address}/nope");
    let outcome = load(&[&[&*url, "--out", file.to_str().unwrap()], &FEW[..]].concat());
    assert_eq!((outcome.code, outcome.stdout.len()), (Some(1), 0), "{}", outcome.stderr);
    let expected =
        format!("GET {url}: the server answered 404 Not Found, so nothing was loaded: check the path");
    assert!(outcome.stderr.contains(&expected), "{}", outcome.stderr);
    assert_eq!(seen.lock().unwrap().len(), 1);
    let record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert!(record["cells"][0]["skipped"].as_str().unwrap().contains("404 Not Found"));
    // If the load is requested anyway, the summary shows the statuses and latencies.
    let outcome = load(&[&[&*url, "--no-ask"], &FEW[..]].concat());
    let text = outcome.text();
    assert_eq!(outcome.code, Some(5), "{text}");
    assert!(text.contains("  status     404 Not Found: 20 (not expected)"), "{text}");
    assert!(
        text.contains("  latency        refused\n") && text.contains("distribution of the latency"),
        "{text}"
    );
    assert!(text.contains("INVALID\n  every answer was 404 Not Found: check the path"), "{text}");
    assert!(!text.contains("not one answer came"), "{text}");
    // If that status is expected, it is a load like any other.
    let outcome = load(&[&[&*url, "--expect-status", "404"], &FEW[..]].concat());
    let text = outcome.text();
    assert_eq!(outcome.code, Some(0), "{text}{}", outcome.stderr);
    assert!(text.contains("  status     404 Not Found: 20\n"), "{text}");
}

#[test]
fn without_words_the_verdict_is_still_said() {
    let (address, _) = site();
    let outcome = load(&[&[&*format!("http://{address}/nope"), "--no-ask", "-q"], &FEW[..]].concat());
    assert_eq!((outcome.code, outcome.stdout.len()), (Some(5), 0));
    assert!(
        outcome.stderr.starts_with("ringroad: INVALID: every answer was 404 Not Found"),
        "{}",
        outcome.stderr
    );
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
}

#[test]
fn a_redirect_is_named_and_followed_on_demand_on_the_same_host() {
    let (address, seen) = site();
    let url = format!("http://{address}/moved");
    let outcome = load(&[&[&*url], &FEW[..]].concat());
    assert_eq!(outcome.code, Some(1));
    assert!(
        outcome.stderr.contains("302 Found") && outcome.stderr.contains("it leads to /there/"),
        "{}",
        outcome.stderr
    );
    seen.lock().unwrap().clear();
    let outcome = load(&[&[&*url, "-L"], &FEW[..]].concat());
    let text = outcome.text();
    assert_eq!(outcome.code, Some(0), "{text}{}", outcome.stderr);
    assert!(text.starts_with(&format!("http://{address}/there/\n")), "{text}");
    let paths: Vec<String> = seen.lock().unwrap().iter().map(|request| path(request).to_owned()).collect();
    assert_eq!((paths[0].as_str(), paths.len()), ("/moved", 22));
    assert!(paths[1..].iter().all(|path| path == "/there/"), "{paths:?}");
    for (path, why) in [
        ("/away", "redirects to another host, http://elsewhere.invalid/"),
        ("/round", "more than 10 redirects"),
    ] {
        let outcome = load(&[&[&*format!("http://{address}{path}"), "-L"], &FEW[..]].concat());
        assert_eq!(outcome.code, Some(1));
        assert!(outcome.stderr.contains(why), "{}", outcome.stderr);
    }
}

#[test]
fn the_jar_keeps_the_cookies_of_the_first_answers_and_a_login_goes_on_as_a_get() {
    let (address, seen) = site();
    let url = format!("http://{address}/login");
    let outcome = load(&[&[&*url, "-L", "--jar", "-b", "mine=1", "--body", "user=x"], &FEW[..]].concat());
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let seen = seen.lock().unwrap();
    assert!(seen[0].starts_with("POST /login ") && seen[0].contains("\r\nCookie: mine=1\r\n"), "{}", seen[0]);
    assert_eq!(seen.len(), 22);
    for request in &seen[1..] {
        assert!(
            request.starts_with("GET /there/ ") && request.contains("\r\nCookie: mine=1; id=7\r\n"),
            "{request}"
        );
        assert!(!request.contains("user=x"), "{request}");
    }
}

#[test]
fn options_of_other_load_generators_mean_the_same_here() {
    let (address, seen) = serve(|_| answer("200 OK", "", "ok"));
    let folder = tempfile::tempdir().unwrap();
    let body = folder.path().join("body");
    std::fs::write(&body, "{\"n\":{n},\"x\":{}}").unwrap();
    let words = format!(
        "{address}/a?b=c -c 2 -z 100ms --warmup 0s -m PUT -T application/json -A text/html -a me:secret --latency -D {}",
        body.display()
    );
    let outcome = load(&words.split(' ').collect::<Vec<_>>());
    // A tenth of a second in which a busy machine gives no answer is INVALID, and its requests are those.
    assert!(matches!(outcome.code, Some(0 | 5)), "{}{}", outcome.text(), outcome.stderr);
    let seen = seen.lock().unwrap().clone();
    let request = &seen[0];
    assert!(request.starts_with("PUT /a?b=c HTTP/1.1\r\n"), "{request}");
    for line in ["Content-Type: application/json", "Accept: text/html", "Authorization: Basic bWU6c2VjcmV0"] {
        assert!(request.contains(&format!("\r\n{line}\r\n")), "{line}: {request}");
    }
    let body = |request: &str| request.split("\r\n\r\n").nth(1).unwrap().to_owned();
    assert!(body(request).starts_with("{\"n\":0,") && body(request).ends_with(",\"x\":{}}"), "{request}");
    assert_ne!(body(&seen[1]), body(&seen[seen.len() - 1]), "each request is another");
    let outcome = load(&[&*format!("{address}"), "-c", "1", "-n", "0.02k", "--body", "{n}", "--no-template"]);
    assert!(outcome.text().contains("20 sent, 20 completed"), "{}", outcome.text());
}

#[test]
fn urls_of_a_file_are_loaded_and_told_apart_on_several_servers() {
    let (one, other) = (site(), site());
    let folder = tempfile::tempdir().unwrap();
    let (urls, vars, record) =
        (folder.path().join("urls"), folder.path().join("vars.csv"), folder.path().join("run.json"));
    std::fs::write(&urls, format!("# two servers\nhttp://{}/ 3\nPOST http://{}/{{page}}\n", one.0, other.0))
        .unwrap();
    std::fs::write(&vars, "page\n\nthere/\nnope\n").unwrap();
    // A misspelt column name was sent literally.
    let outcome = load(&["http://127.0.0.1:9/{pag}", "--vars", vars.to_str().unwrap()]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("no {page} in a URL, a header line or the body"), "{}", outcome.stderr);
    let arguments =
        ["--urls", urls.to_str().unwrap(), "--vars", vars.to_str().unwrap(), "-c", "4", "-n", "400"];
    let outcome = load(&[&arguments[..], &["-o", record.to_str().unwrap()]].concat());
    let text = outcome.text();
    assert!(text.contains(&format!("  GET http://{}/\n", one.0)), "{text}{}", outcome.stderr);
    let record: Value = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
    let details = &record["cells"][0]["details"];
    let urls = details["urls"].as_array().unwrap();
    let count = |nth: usize, what: &str| urls[nth][what].as_u64().unwrap();
    assert_eq!(count(0, "refused"), 0);
    assert_eq!(count(0, "completed") + count(1, "completed") + count(1, "refused"), 400, "{details}");
    assert_eq!(details["statuses"]["404"].as_u64().unwrap_or(0), count(1, "refused"));
    let seen = other.1.lock().unwrap();
    assert!(seen.iter().all(|request| request.starts_with("POST ")) && !seen.is_empty());
    assert_eq!(load(&["--urls", "/nowhere/urls"]).code, Some(1));
    std::fs::write(folder.path().join("bad"), "http://a/ x\n").unwrap();
    let outcome = load(&["--urls", folder.path().join("bad").to_str().unwrap()]);
    assert!(outcome.code == Some(2) && outcome.stderr.contains("line 1"), "{}", outcome.stderr);
}

/// Without a good answer of any URL there is no load; with some, the user may not want it.
#[test]
fn urls_of_a_file_that_have_no_good_answer_are_named_before_they_are_loaded() {
    let (address, _) = site();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("urls");
    let list =
        |paths: &[&str]| paths.iter().map(|path| format!("http://{address}{path}\n")).collect::<String>();
    let words = ["--urls", file.to_str().unwrap(), "-c", "2", "-n", "20"];
    std::fs::write(&file, list(&["/", "/nope", "/moved", "/none"])).unwrap();
    let outcome = load(&words);
    let expected = format!(
        "warning: 3 of 4 URLs have no answer as expected: 404 Not Found (2, the first: GET http://{address}/nope); \
         302 Found (1: GET http://{address}/moved). They are loaded all the same"
    );
    assert!(outcome.stderr.contains(&expected), "{}", outcome.stderr);
    assert!(outcome.text().contains("200 OK: 5,"), "{}", outcome.text());
    let outcome = load(&[&words[..], &["-q"]].concat());
    assert!(!outcome.stderr.contains("as expected"), "{}", outcome.stderr);
    std::fs::write(&file, list(&["/nope", "/none"])).unwrap();
    let outcome = load(&words);
    assert_eq!((outcome.code, outcome.stdout.len()), (Some(1), 0), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("None of the 2 URLs asked has an answer as expected"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn connections_go_to_a_unix_socket_or_another_address_and_the_name_stays() {
    let (address, seen) = site();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(1..) = stream.read(&mut buffer) {
                    stream.write_all(answer("200 OK", "", "unix").as_bytes()).unwrap();
                }
            });
        }
    });
    let socket = socket.to_str().unwrap();
    for words in [&["http://name.invalid/x", "--unix", socket][..], &[&*format!("unix:{socket}:/x")]] {
        let outcome = load(&[words, &FEW[..]].concat());
        assert!(
            outcome.text().contains("20 sent, 20 completed, 0 failed"),
            "{}{}",
            outcome.text(),
            outcome.stderr
        );
    }
    let to = format!("name.invalid:80:{}:{}", address.ip(), address.port());
    let url = format!("http://{address}/");
    for (words, host) in [
        (&["http://name.invalid/", "--connect-to", &to][..], "name.invalid".to_owned()),
        (&[&url, "--host", "name.invalid"], format!("name.invalid:{}", address.port())),
    ] {
        seen.lock().unwrap().clear();
        let outcome = load(&[words, &FEW[..]].concat());
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let line = format!("\r\nHost: {host}\r\n");
        assert!(seen.lock().unwrap().iter().all(|request| request.contains(&line)), "{words:?}");
    }
}

#[test]
fn a_body_that_is_expected_decides_what_is_good() {
    let (address, _) = site();
    let url = format!("http://{address}/");
    let outcome = load(&[&[&*url, "--expect-body", "ell"], &FEW[..]].concat());
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let outcome = load(&[&[&*url, "--expect-body", "bye"], &FEW[..]].concat());
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("a body without the expected text"), "{}", outcome.stderr);
}

#[test]
fn the_record_and_the_seconds_go_where_they_are_wanted_and_the_summary_is_never_lost() {
    let (address, _) = site();
    let url = format!("http://{address}/");
    let folder = tempfile::tempdir().unwrap();
    for words in [&["--json"][..], &["-o", "-"]] {
        let outcome = run(ringroad([&["load", &url], &FEW[..], words].concat()).current_dir(folder.path()));
        let record: Value = serde_json::from_str(&outcome.text()).unwrap();
        assert_eq!(record["cells"][0]["completed"], 20);
        assert!(outcome.stderr.contains("20 sent, 20 completed"), "{}", outcome.stderr);
        assert!(!folder.path().join("-").exists());
    }
    let csv = folder.path().join("run.csv");
    let words = ["--csv", csv.to_str().unwrap(), "--out", "/dev/full"];
    let outcome = load(&[&[&*url], &FEW[..], &words].concat());
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.text().contains("20 sent, 20 completed"), "the summary is there: {}", outcome.text());
    assert!(outcome.stderr.contains("write, on /dev/full: No space left on device"), "{}", outcome.stderr);
    let text = std::fs::read_to_string(&csv).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines.len()), ("at_s,seconds,completed,failed,p50_us,p99_us,max_us", 2), "{text}");
    assert!(lines[1].starts_with("0,1,20,0,"), "{text}");
    let outcome = load(&[&[&*url, "--json", "--csv", "-"], &FEW[..]].concat());
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
}

#[test]
fn two_urls_are_loaded_in_turns_and_compared() {
    let (address, seen) = site();
    let (one, other) = (format!("http://{address}/"), format!("http://{address}/there/"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let words = ["--repeat", "6", "--warmup", "0s", "-c", "1", "--out", file.to_str().unwrap()];
    // A count has answers in every run, however busy the machine is.
    let outcome = load(&[&[&*one, "--vs", &*other, "-n", "20"], &words[..]].concat());
    let text = outcome.text();
    assert!(
        text.contains(&format!("A  {one}\nB  {other}\n")) && text.contains("6 of 6 blocks"),
        "{text}{}",
        outcome.stderr
    );
    assert!(text.contains("B/A, 95 % interval") && !text.contains("not enough data"), "{text}");
    let record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let cells = record["cells"].as_array().unwrap();
    assert_eq!((cells.len(), &record["blocks"], &record["baseline"]), (2, &6.into(), &one.clone().into()));
    assert!(cells.iter().all(|cell| cell["runs"].as_array().unwrap().len() == 6));
    let firsts = cells[0]["runs"].as_array().unwrap().iter().filter(|run| run["order"] == 0).count();
    assert!((1..6).contains(&firsts), "{firsts} of 6: the order is random, of a fixed seed");
    let seen = seen.lock().unwrap().clone();
    assert!(["/", "/there/"].iter().all(|wanted| seen.iter().any(|request| path(request) == *wanted)));
    let outcome = load(&[&[&*one, "-d", "50ms"], &words[..]].concat());
    assert!(outcome.text().contains("6 of 6 runs of 0.05 s"), "{}", outcome.text());
    let outcome = load(&[&[&*one, "--vs", &*format!("http://{address}/nope")], &words[..]].concat());
    assert!(outcome.code == Some(1) && outcome.stderr.contains("404 Not Found"), "{}", outcome.stderr);
}

#[test]
fn what_does_not_go_together_is_refused_with_2() {
    for (words, why) in [
        (&["a", "-L", "--also", "/b"][..], "-L with several URLs"),
        (&["a", "-L", "--no-ask"], "--no-ask"),
        // Neither was applied.
        (&["a", "-L", "--http2"], "-L and --jar with --http2"),
        (&["a", "--jar", "--http2"], "-L and --jar with --http2"),
        (&["a", "--jar", "--processes", "2"], "--processes"),
        (&["tcp://a:7", "-L"], "HTTP's"),
        (&["tcp://a:7", "--expect-status", "2xx"], "HTTP's"),
        (&["a", "--expect-status", "20"], "2xx"),
        (&["a", "--connect-to", "x"], "HOST1:PORT1"),
        (&["a", "-a", "me"], "USER:PASSWORD"),
        (&["a", "-c", "1kk"], "10k"),
        (&["a", "--knee", "p42<1ms"], "--knee p42<1ms"),
        (&["a", "--vs", "b", "--require", "p99<1ms"], "--require with --vs"),
        (&["a", "--repeat", "3", "--knee", "p99<1ms"], "--repeat"),
        (&["a", "--also", "http://b/", "-c", "1"], "fewer connections than servers"),
        (&["a", "--body", "{random:9-1}"], "{random:1-1000}"),
    ] {
        let outcome = load(words);
        assert_eq!((outcome.code, outcome.stdout.len()), (Some(2), 0), "{words:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(why), "{words:?}: {}", outcome.stderr);
    }
}

#[test]
fn the_help_has_headings_in_an_order_that_tells_what_belongs_together() {
    let text = run(&mut ringroad(["load", "--help"])).text();
    let headings: Vec<&str> =
        text.lines().filter(|line| line.ends_with(':') && !line.starts_with(' ')).collect();
    let expected = [
        "Load:",
        "Request:",
        "Connection:",
        "Checks:",
        "Output:",
        "Long-lived connections:",
        "Threads and processes:",
    ];
    let ours: Vec<&str> = headings.iter().copied().filter(|heading| expected.contains(heading)).collect();
    assert_eq!(ours, expected, "{text}");
}

/// An IPv4 loopback address may be written in IPv6 form (RFC 4291 §2.5.5.2).
#[test]
fn a_loopback_address_in_either_form_is_this_machine() {
    let (address, _) = site();
    for host in ["127.0.0.1", "[::ffff:127.0.0.1]"] {
        let outcome = load(&[&[&*format!("http://{host}:{}/", address.port())], &FEW[..]].concat());
        assert_eq!(outcome.code, Some(0), "{}", outcome.text());
        assert!(!outcome.stderr.contains("not this machine"), "{}", outcome.stderr);
    }
}

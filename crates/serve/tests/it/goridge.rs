//! Workers of RoadRunner, which speak goridge: what they are told, what clients get, and what happens when
//! they fail.

use crate::apps::{told, workers};
use crate::support::{Client, Site, start, wait_until, write};
use ringroad_engine::DriverName;
use std::io::Write as _;
use std::process::Command;

const WORKER: &str = include_str!("../apps/goridge.php");

/// Whether there is PHP here; says so where there is none.
fn php() -> bool {
    let found = Command::new("php").arg("-v").output().is_ok();
    if !found {
        // Past the capture of the test harness.
        let _ = writeln!(std::io::stderr(), "skipped: php is not installed");
    }
    found
}

fn site(driver: DriverName, more: &str) -> Site {
    let text = format!(
        "[[app]]\nname = \"rr\"\nprotocol = \"goridge\"\ncommand = [\"php\", \"goridge.php\"]\nqueue_timeout = \"2m\"\n{more}\n\
         [[route]]\npath = \"/\"\nkind = \"app\"\napp = \"rr\"\nroot = \"public\"\n"
    );
    start(driver, &text, |folder| {
        write(folder, "goridge.php", WORKER);
        std::fs::create_dir(folder.join("public")).unwrap();
        write(folder, "public/site.css", "body {}");
        write(folder, "public/index.php", "<?php secret();");
        write(folder, "public/.env", "SECRET=1");
    })
}

drivers!(a_worker_of_roadrunner_gets_and_gives_requests_and_answers, |driver: DriverName| {
    if !php() {
        return;
    }
    let site = site(driver, "workers = 1");
    let mut client = site.client();
    client.send(
        "PUT /echo?a=1&b HTTP/1.1\r\nHost: example.org\r\nCookie: x=1%202; y=3\r\nx-two: first\r\nX-Two: second\r\n\
         Content-Type: application/octet-stream\r\nContent-Length: 5\r\n\r\nhello",
    );
    let reply = client.reply();
    assert_eq!(reply.status, 201);
    assert_eq!(reply.headers("X-Many").collect::<Vec<_>>(), ["a", "b"]);
    let told: serde_json::Value = serde_json::from_str(reply.text()).unwrap();
    let request = &told["request"];
    assert_eq!(request["remoteAddr"], "127.0.0.1");
    assert_eq!(request["method"], "PUT");
    assert_eq!(request["protocol"], "HTTP/1.1");
    assert_eq!(request["uri"], "http://example.org/echo?a=1&b");
    assert_eq!(request["rawQuery"], "a=1&b");
    assert_eq!(request["headers"]["X-Two"], serde_json::json!(["first", "second"]));
    assert_eq!(request["cookies"], serde_json::json!({ "x": "1 2", "y": "3" }));
    assert_eq!((&request["parsed"], &told["body"]), (&false.into(), &"hello".into()));
    assert_eq!(client.get("/stream").text(), "one,two,three");
    assert_eq!(client.get("/nothing").status, 404);
});

drivers!(forms_reach_a_worker_of_roadrunner_as_trees_and_files, |driver: DriverName| {
    if !php() {
        return;
    }
    let site = site(driver, "workers = 1");
    let mut client = site.client();
    let body = "a[b][]=1&a[b][]=2&c=x+y";
    client.send(format!(
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    let told: serde_json::Value = serde_json::from_str(client.reply().text()).unwrap();
    assert_eq!(told["request"]["parsed"], true);
    let fields: serde_json::Value = serde_json::from_str(told["body"].as_str().unwrap()).unwrap();
    assert_eq!(fields, serde_json::json!({ "a": { "b": ["1", "2"] }, "c": "x y" }));
    // More than is kept in memory, so that the form is read from a file.
    let content = "0123456789".repeat(20_000);
    let body = format!(
        "--cut\r\nContent-Disposition: form-data; name=\"t[]\"\r\n\r\nvalue\r\n--cut\r\nContent-Disposition: form-data; \
         name=\"file\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\n{content}\r\n--cut--\r\n"
    );
    client.send(format!(
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=cut\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    let told: serde_json::Value = serde_json::from_str(client.reply().text()).unwrap();
    let upload = &told["request"]["uploads"]["file"];
    assert_eq!(
        (&upload["name"], &upload["mime"], &upload["error"]),
        (&"a.txt".into(), &"text/plain".into(), &0.into())
    );
    assert_eq!(upload["size"], content.len());
    assert_eq!(told["content"], content);
    let fields: serde_json::Value = serde_json::from_str(told["body"].as_str().unwrap()).unwrap();
    assert_eq!(fields, serde_json::json!({ "t": ["value"] }));
    assert!(
        !std::path::Path::new(upload["tmpName"].as_str().unwrap()).exists(),
        "the file of the form is left"
    );
    // A form that ends in its middle.
    client.send(
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=cut\r\nContent-Length: 9\r\n\r\n--cut\r\nCo",
    );
    assert_eq!(client.reply().status, 400);
});

drivers!(a_worker_of_roadrunner_that_fails_costs_as_little_as_it_can, |driver: DriverName| {
    if !php() {
        return;
    }
    // An error is the request's; the worker stays.
    let alone = site(driver, "workers = 1");
    let mut client = alone.client();
    let pid = client.get("/pid").text().to_owned();
    assert_eq!(client.get("/error").status, 500);
    assert_eq!(client.get("/pid").text(), pid);
    let site = site(driver, "workers = 2");
    let mut client = site.client();
    // A worker that ends without handling a request hands it on, whatever its method.
    client.send("POST /last HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    let reply = client.reply();
    assert_eq!((reply.status, reply.text()), (200, "handled"));
    // One that dies costs an idempotent request nothing.
    assert_eq!(client.get("/die").text(), "alive");
    // What is printed between frames is shown, and the worker replaced.
    assert_eq!(client.get("/print").status, 502);
    assert!(told(&site, "killed").contains("Warning: something is printed"));
    assert_ne!(client.get("/pid").status, 502);
});

drivers!(a_worker_of_roadrunner_that_is_too_late_is_replaced, |driver: DriverName| {
    if !php() {
        return;
    }
    let site = site(driver, "workers = 1\ntimeout = \"300ms\"\nkill_after = \"100ms\"");
    let mut client = site.client();
    assert_eq!(client.get("/slow").status, 504);
    // The next request waits for the replacement, which may be too late itself on a busy machine.
    wait_until("an answer in time", || {
        let reply = client.get("/pid");
        assert!(matches!(reply.status, 200 | 504), "{reply:?}");
        reply.status == 200
    });
});

drivers!(files_beside_an_application_are_sent_and_its_sources_are_not, |driver: DriverName| {
    if !php() {
        return;
    }
    let site = site(driver, "workers = 1");
    let mut client = site.client();
    assert_eq!(client.get("/site.css").text(), "body {}");
    for path in ["/index.php", "/.env", "/", "/site.css/x"] {
        let reply = client.get(path);
        assert_eq!((reply.status, reply.text()), (404, "nothing"), "{path}");
    }
});

drivers!(a_worker_of_roadrunner_may_answer_before_it_has_all_of_a_request, |driver: DriverName| {
    if !php() {
        return;
    }
    let site = site(driver, "workers = 1");
    let body = "x".repeat(5_000_000);
    let put = |client: &mut Client, path: &str| {
        client
            .send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        client.reply()
    };
    let mut client = site.client();
    // It goes on with what is left, and has the next request.
    let reply = put(&mut client, "/early-stays");
    let pid = client.get("/pid").text().to_owned();
    assert_eq!((reply.status, reply.text()), (413, &*format!("too much, {pid}")));
    // Neither side waits for the other.
    assert_eq!(put(&mut client, "/large-first").text().len(), 3_000_000);
    assert_eq!(client.get("/pid").text(), pid);
    // It ends: the answer counts all the same, and another worker has the next request.
    let reply = put(&mut client, "/early");
    assert_eq!((reply.status, reply.text()), (413, "too much"));
    assert_ne!(client.get("/pid").text(), pid);
});

drivers!(a_worker_of_roadrunner_that_does_not_read_is_too_late, |driver: DriverName| {
    if !php() {
        return;
    }
    let site = site(driver, "workers = 1\ntimeout = \"1s\"\nkill_after = \"100ms\"");
    let mut client = site.client();
    let body = "x".repeat(5_000_000);
    client.send(format!("POST /deaf HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    assert_eq!(client.reply().status, 504);
    wait_until("the replacement", || client.get("/pid").status == 200);
});

drivers!(what_a_worker_of_roadrunner_says_without_a_request_answers_none, |driver: DriverName| {
    if !php() {
        return;
    }
    let site = site(driver, "workers = 1");
    let mut client = site.client();
    assert_eq!(client.get("/twice").text(), "the answer");
    site.write("go", "");
    wait_until("the other answer", || site.path("said").exists());
    let mut other = site.client();
    other.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(other.reply().status, 201);
    assert!(told(&site, "without a request").contains("an answer to no request"));
});

/// A site in development with two workers.
fn changing(driver: DriverName, buffer: bool) -> Site {
    let text = format!(
        "control = \"control.sock\"\n[[app]]\nname = \"rr\"\nprotocol = \"goridge\"\ncommand = [\"php\", \"goridge.php\"]\n\
         workers = 2\ndev = true\nqueue_timeout = \"2m\"\nstop_timeout = \"1h\"\ntimeout = \"1h\"\n\
         [[route]]\npath = \"/\"\nkind = \"app\"\napp = \"rr\"\nbuffer = {buffer}\n"
    );
    start(driver, &text, |folder| write(folder, "goridge.php", WORKER))
}

drivers!(
    in_development_streams_of_events_of_a_worker_of_roadrunner_end_with_its_code,
    |driver: DriverName| {
        if !php() {
            return;
        }
        for buffer in [true, false] {
            let site = changing(driver, buffer);
            let mut stream = site.client();
            stream.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n").until(b"data: first").unwrap();
            let mut held = site.client();
            held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
            wait_until("the request", || site.path("held").exists());
            site.replace("goridge.php", WORKER.replace("'one'", "'two, and longer'"));
            told(&site, "generation 2 serves");
            // It ends well, so that the page asks again, and gets the new code. The old code learns of it.
            assert!(stream.until(b"\r\n0\r\n\r\n").is_some(), "{buffer}");
            wait_until("the old code", || site.path("left").exists());
            assert_eq!(site.client().get("/version").text(), "two, and longer");
            // A request in progress is finished by the old code.
            site.write("go", "");
            assert_eq!(held.reply().text(), "one", "{buffer}");
            let has = |state| !workers(&site, state).is_empty();
            wait_until("the end of the old workers", || !has("draining") && !has("stopping"));
        }
    }
);

drivers!(a_worker_of_roadrunner_that_is_silent_learns_that_its_client_has_left, |driver: DriverName| {
    if !php() {
        return;
    }
    let site = site(driver, "workers = 1\ntimeout = \"1h\"");
    let mut stream = site.client();
    stream.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n").until(b"data: first").unwrap();
    drop(stream);
    wait_until("the worker", || site.path("left").exists());
    assert_eq!(site.client().get("/version").text(), "one");
});

#[test]
fn each_line_of_a_worker_with_one_request_at_a_time_has_the_id_of_the_request_that_printed_it() {
    if !php() {
        return;
    }
    let text = "request_id = \"X-Request-Id\"\n[[app]]\nname = \"rr\"\nprotocol = \"goridge\"\n\
                command = [\"php\", \"goridge.php\"]\nworkers = 1\nqueue_timeout = \"2m\"\n\
                [[route]]\npath = \"/\"\nkind = \"app\"\napp = \"rr\"\n";
    let site = start(DriverName::Epoll, text, |folder| write(folder, "goridge.php", WORKER));
    let mut client = site.client();
    // More than are read at once.
    let ids: Vec<String> = (0..200)
        .map(|number| client.get(&format!("/prints?number={number};")))
        .map(|reply| reply.header("X-Request-Id").unwrap().to_owned())
        .collect();
    // A line without an end is one when more is printed.
    client.get("/prints?number=last;");
    for (number, id) in ids.iter().enumerate() {
        for text in [format!("of number={number};"), format!("its end, of number={number};")] {
            assert_eq!(told(&site, &format!(": {text}")), format!("app rr[0] {id}: {text}"));
        }
    }
}

//! Tasks of applications: submitted by workers and over the task socket, and what becomes of them.

use crate::apps::{ask, python, told, workers};
use crate::support::{Client, Site, start, wait_until, write};
use ringroad_engine::DriverName;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

const TASKS: &str = include_str!("../apps/tasks_app.py");

fn site(driver: DriverName, app: &str, more: &str) -> Site {
    let text = format!(
        "control = \"control.sock\"\n[[app]]\nname = \"web\"\napp = \"tasks_app:{app}\"\npython = \"python3\"\nqueue_timeout = \"2m\"\n{more}\n\
         [[route]]\npath = \"/metrics\"\nkind = \"metrics\"\n\
         [[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n"
    );
    start(driver, &text, |folder: &Path| write(folder, "tasks_app.py", TASKS))
}

fn tasks(site: &Site) -> serde_json::Value {
    ask(site, "{\"do\":\"status\"}")["ok"][0]["tasks"].clone()
}

/// Those of the task workers.
fn task_pids(site: &Site) -> Vec<i64> {
    let ready = workers(site, "ready");
    ready.iter().filter(|one| one["task"] == true).map(|one| one["pid"].as_i64().unwrap()).collect()
}

drivers!(a_task_runs_in_a_task_worker_and_its_result_comes_back, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi", "workers = 1\ntasks = 2");
    let mut client = site.client();
    let pid = client.get("/pid").text().to_owned();
    let added: serde_json::Value = serde_json::from_slice(&client.get("/add").body).unwrap();
    assert_eq!((&added[0], &added[2]), (&42.into(), &"1".into()));
    assert_ne!(added[1].to_string(), pid);
    assert_eq!(client.get("/big").text(), "3000002 bytes");
    assert_eq!(client.get("/later").text(), "42");
    assert_eq!(client.get("/many").text(), "True");
    assert_eq!(client.get("/workers").text(), "2");
    assert_eq!(client.get("/fails").text(), "raised: ValueError: this task fails");
    assert!(
        client.get("/unknown").text().starts_with("raised: there is no task 'unknown' (there are: big, ")
    );
    assert_eq!(client.get("/notes?one").text(), "None");
    // What it prints is told with its slot and its number.
    let line = told(&site, "noted one");
    assert!(line.starts_with("app web[t") && line.contains("] task "), "{line}");
    // A process that ends with its task, which is not repeated, is replaced.
    assert!(client.get("/ends").text().starts_with("died: the task worker ended with exit status: 7"));
    assert_eq!(client.get("/later").text(), "42");
    let told = tasks(&site);
    assert_eq!((&told["over"]["raised"], &told["over"]["died"]), (&2.into(), &1.into()), "{told}");
    let metrics = client.get("/metrics");
    for line in [
        "ringroad_app_tasks_total{app=\"web\",how=\"raised\"} 2\n",
        "ringroad_app_tasks_queued{app=\"web\"} 0\n",
        "ringroad_app_worker_requests_total{app=\"web\",slot=\"t",
    ] {
        assert!(metrics.text().contains(line), "{line}{}", metrics.text());
    }
    crate::support::promtool(&["check", "metrics"], Some(metrics.text()));
});

drivers!(an_asgi_application_awaits_its_tasks, |driver: DriverName| {
    if !python() {
        return;
    }
    for more in ["", "preload = true\n"] {
        let site = site(driver, "asgi", &format!("{more}workers = 1\ntasks = 1"));
        let mut client = site.client();
        assert!(client.get("/add").text().starts_with("[42, "));
        assert_eq!(client.get("/big").text(), "3000002 bytes");
        assert_eq!(client.get("/later").text(), "42");
        assert_eq!(client.get("/fails").text(), "raised: ValueError: this task fails");
        assert!(client.get("/blocks").text().starts_with("await the task"));
    }
});

drivers!(a_task_waits_while_a_worker_that_has_closed_its_link_has_not_ended, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi", "workers = 1\nconcurrency = 4\ntasks = 1");
    assert_eq!(site.client().get("/leaves").text(), "null");
    site.write("close", "");
    wait_until("the end of the link", || site.path("terminated").exists());
    let mut waits = site.client();
    waits.send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("a task that waits", || tasks(&site)["queued"] == 1);
    site.write("go", "");
    assert_eq!(waits.reply().text(), "42");
});

/// Sends a request, and leaves its answer to be received.
fn send(site: &Site, path: &str) -> Client {
    let mut client = site.client();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client
}

drivers!(a_full_queue_of_tasks_refuses, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi", "workers = 1\nconcurrency = 4\ntasks = 1\ntask_queue = 1");
    wait_until("a task worker", || task_pids(&site).len() == 1);
    let mut runs = send(&site, "/waits?go");
    wait_until("the task", || site.path("begun").exists());
    let mut waits = send(&site, "/later");
    wait_until("a task that waits", || tasks(&site)["queued"] == 1);
    assert_eq!(site.client().get("/add").text(), "refused: the queue is full (`task_queue`): 1 task waiting");
    site.write("go", "");
    assert_eq!(runs.reply().text(), "\"waited\"");
    assert_eq!(waits.reply().text(), "42");
    let over = tasks(&site)["over"].clone();
    assert_eq!((&over["timeout"], &over["refused"], &over["done"]), (&0.into(), &1.into(), &2.into()));
});

drivers!(a_task_that_takes_too_long_is_killed_and_the_one_behind_it_is_done, |driver: DriverName| {
    if !python() {
        return;
    }
    const TOO_LATE: &str = "timeout: a task did not end within 1s";
    let more = "workers = 1\nconcurrency = 4\ntasks = 1\ntask_timeout = \"1s\"";
    let site = site(driver, "wsgi", more);
    wait_until("a task worker", || task_pids(&site).len() == 1);
    let mut slow = send(&site, "/sleeps?3600");
    // On a machine that stands still it may be killed before it has begun.
    let is_over = || tasks(&site)["over"]["timeout"] == 1;
    wait_until("the task", || site.path("begun").exists() || is_over());
    let mut waits = send(&site, "/later");
    assert_eq!(slow.reply().text(), TOO_LATE);
    // There this one may be too late, too: then it is submitted again.
    let (mut told, mut late) = (waits.reply(), 1_u64);
    wait_until("a task that ends in time", || {
        let is_late = told.text() == TOO_LATE;
        if is_late {
            (told, late) = (waits.get("/later"), late + 1);
        }
        !is_late
    });
    assert_eq!(told.text(), "42");
    let over = tasks(&site)["over"].clone();
    assert_eq!((&over["timeout"], &over["refused"], &over["done"]), (&late.into(), &0.into(), &1.into()));
});

drivers!(a_reload_lets_a_task_end_and_keeps_those_that_wait, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi", "workers = 1\nconcurrency = 4\ntasks = 1");
    let mut slow = site.client();
    slow.send("GET /waits?go HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the task", || site.path("begun").exists());
    let old = task_pids(&site);
    let mut waits = site.client();
    waits.send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("a task that waits", || tasks(&site)["queued"] == 1);
    assert!(ask(&site, "{\"do\":\"reload\"}")["ok"].is_object());
    // The new one takes what waited; the old one still has its task.
    assert_eq!(waits.reply().text(), "42");
    let draining = workers(&site, "draining");
    assert!(draining.iter().any(|one| one["task"] == true && one["pid"] == old[0]), "{draining:?}");
    site.write("go", "");
    assert_eq!(slow.reply().text(), "\"waited\"");
    wait_until("the end of the old one", || workers(&site, "draining").is_empty());
    // A release without its tasks' code changes nothing.
    site.write("tasks_app.py", format!("raise RuntimeError('release 2 is broken')\n{TASKS}"));
    let told = ask(&site, "{\"do\":\"reload\"}");
    assert!(told["error"].as_str().unwrap().contains("release 2 is broken"), "{told}");
    assert_eq!(site.client().get("/later").text(), "42");
});

drivers!(tasks_that_run_when_the_server_stops_are_finished, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi", "workers = 1\ntasks = 1");
    let mut client = site.client();
    for text in ["one", "two"] {
        assert_eq!(client.get(&format!("/notes?{text}")).text(), "None");
    }
    // A request that waits for its task is answered.
    let mut waits = site.client();
    waits.send("GET /sleeps?0.3 HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the task", || site.path("begun").exists());
    let Site { folder, service, .. } = site;
    service.stop().unwrap();
    assert_eq!(waits.reply().text(), "\"slept\"");
    assert_eq!(std::fs::read_to_string(folder.path().join("noted")).unwrap(), "one\ntwo\n");
});

drivers!(programs_submit_tasks_over_a_socket_of_the_owner, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi", "workers = 1\ntasks = 1\ntask_socket = \"tasks.sock\"");
    let path = site.path("tasks.sock");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut say = |question: &str| -> serde_json::Value {
        stream.write_all(format!("{question}\n").as_bytes()).unwrap();
        serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap()
    };
    let added = say(r#"{"task":"tasks_app:add","args":[40],"kwargs":{"two":2},"id":"a"}"#);
    assert_eq!((&added["id"], &added["ok"][0]), (&"a".into(), &42.into()), "{added}");
    let failed = say(r#"{"task":"tasks_app:fails","id":2}"#);
    assert_eq!((&failed["why"], &failed["error"]), (&"raised".into(), &"ValueError: this task fails".into()));
    let sent = say(r#"{"task":"tasks_app:notes","args":["sent"],"wait":false}"#);
    assert_eq!(sent, serde_json::json!({ "id": null, "ok": null }));
    wait_until("the task", || site.path("noted").exists());
    assert!(say("rubbish")["error"].as_str().unwrap().starts_with("not an object"));
    // Of only its function, of the application, not any function of a module.
    assert_eq!(say(r#"{"task":"os:getpid"}"#)["why"], "raised");
    let Site { folder, service, .. } = site;
    service.stop().unwrap();
    assert!(!folder.path().join("tasks.sock").exists());
});

/// A worker that breaks the protocol, in the way that its task says, and one that sends messages.
const WORKER: &str = r#"
import json, os, socket, struct, sys

sock = socket.socket(fileno=3)
send = lambda kind, stream=0, payload=b"", aux=0: sock.sendall(struct.pack("<IBBHI", len(payload), kind, 0, aux, stream) + payload)

def read(size):
    data = b""
    while len(data) < size:
        got = sock.recv(size - len(data))
        if not got:
            os._exit(0)
        data += got
    return data

send(1, payload=json.dumps({"version": 1, "pid": os.getpid(), "language": "test"}).encode())
slot = int(os.environ["RINGROAD_SLOT"])
is_task = "RINGROAD_TASK" in os.environ
while True:
    length, kind, flags, aux, stream = struct.unpack("<IBBHI", read(12))
    payload = read(length)
    if kind == 2:
        welcome = json.loads(payload)
        assert (welcome["task"], welcome["workers"], welcome["tasks"]) == (is_task, 2, 1), welcome
        send(3, payload=b"{}")
        # A message to the task worker, which answers, and to a slot that is not there.
        if not is_task:
            send(52, payload=b"ping of %d" % slot, aux=0x8000)
            send(52, payload=b"nothing", aux=77)
    elif kind == 6:
        os._exit(0)
    elif kind == 52 and is_task:
        send(52, payload=b"pong to " + payload, aux=aux)
    elif kind == 52:
        print("slot %d got %s from %x" % (slot, payload.decode(), aux), flush=True)
    elif kind == 49:
        how = json.loads(payload)["task"]
        if how == "wrong number":
            send(50, stream + 1, b"1")
            send(50, stream, b"2")
        elif how == "silent":
            send(50, stream, aux=2)
        elif how == "text":
            send(50, stream, b"no JSON")
        elif how == "unknown outcome":
            send(50, stream, aux=9)
        elif how == "garbage":
            sock.sendall(b"\xff" * 100)
        elif how == "no number":
            send(48, 0, b"{}")
"#;

drivers!(messages_arrive_and_a_worker_that_breaks_the_protocol_is_replaced, |driver: DriverName| {
    if !python() {
        return;
    }
    let text = "control = \"control.sock\"\n[[app]]\nname = \"web\"\ncommand = [\"python3\", \"worker.py\"]\n\
                protocol = \"ringroad\"\nworkers = 2\ntasks = 1\ntask_socket = \"tasks.sock\"\n\
                [[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n";
    let site = start(driver, text, |folder: &Path| write(folder, "worker.py", WORKER));
    wait_until("a task worker", || task_pids(&site).len() == 1);
    let mut stream = UnixStream::connect(site.path("tasks.sock")).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut say = |how: &str| -> serde_json::Value {
        stream.write_all(format!("{{\"task\":\"{how}\"}}\n").as_bytes()).unwrap();
        serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap()
    };
    assert_eq!(say("wrong number")["ok"], 2);
    assert_eq!(say("silent")["ok"], serde_json::Value::Null);
    assert_eq!(say("text")["ok"], "no JSON");
    for (how, why) in
        [("unknown outcome", "unknown outcome"), ("garbage", "a frame of"), ("no number", "without a number")]
    {
        let answer = say(how);
        assert!(answer["why"] == "died" && answer["error"].as_str().unwrap().contains(why), "{answer}");
    }
    assert_eq!(say("silent")["ok"], serde_json::Value::Null);
    // Messages to a receiver that is not there yet are dropped, which is told; a new worker sends its own.
    wait_until("all processes", || workers(&site, "ready").len() == 3);
    assert!(ask(&site, "{\"do\":\"restart\",\"slot\":1}")["ok"].is_object());
    let (mut pong, mut dropped) = (false, false);
    while !(pong && dropped) {
        let line = site.event().to_string();
        pong |= line.ends_with("slot 1 got pong to ping of 1 from 8000");
        dropped |= line.contains("a message to 77 is dropped");
    }
});

#[test]
fn mistakes_about_tasks_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[[app]]\nname = \"a\"\ncommand = [\"x\"]\ntasks = 1\n\
                [[app]]\nname = \"b\"\napp = \"main:app\"\ntask_socket = \"t.sock\"\ntask_queue = 0\n";
    let file = crate::support::configure(folder.path(), text);
    let why = ringroad_serve::Config::load(&file).unwrap_err().to_string();
    for part in ["runs tasks", "`tasks = 1` or more", "task_queue"] {
        assert!(why.contains(part), "{part}: {why}");
    }
}

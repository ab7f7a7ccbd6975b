//! The life of an application's processes: what is ordered over the control socket, crash loops, starts
//! beside requests, health, workers that break their protocol. What does not depend on the driver is tested
//! on one.

use crate::apps::{ask, ask_at, python, told, workers};
use crate::support::{Site, start, wait_until, write};
use ringroad_engine::DriverName;
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::Path;

/// An application that looks at files before it does something.
const APP: &str = r#"
import asyncio, os, time

def log(text):
    with open("log", "a") as file:
        file.write(text + "\n")

def priority():
    return os.getpriority(os.PRIO_PROCESS, 0)

if os.path.exists("broken"):
    raise SystemExit(open("broken").read())
log("begin %d" % os.getpid())
while os.path.exists("import waits"):
    time.sleep(0.001)
if os.path.exists("no fork"):
    def refuse():
        raise BlockingIOError(11, open("no fork").read())
    os.fork = refuse
if os.path.exists("wait for a lower priority"):
    # The server lowers it a moment after the start.
    limit = time.monotonic() + 100
    while priority() != int(open("wait for a lower priority").read()) and time.monotonic() < limit:
        time.sleep(0.001)
    log("imported with %d" % priority())
log("end %d" % os.getpid())

async def app(scope, receive, send):
    if scope["type"] != "http":
        raise RuntimeError("only HTTP")
    status, body, path = 200, str(os.getpid()), scope["path"]
    if path == "/healthz":
        status, body = (200, "yes") if os.path.exists("healthy") else (503, "not yet")
    if path == "/priority":
        body = str(priority())
    if path == "/child":
        body = str(os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "3600"))
    if path == "/sleeps":
        await asyncio.sleep(3600)
    await send({"type": "http.response.start", "status": status, "headers": []})
    if path == "/held":
        await send({"type": "http.response.body", "body": b"first ", "more_body": True})
        while not os.path.exists("go"):
            await asyncio.sleep(0.01)
        body = "last"
    await send({"type": "http.response.body", "body": body.encode()})
"#;

/// A site with that application, for which `prepare` makes files.
fn lives(more: &str, prepare: impl FnOnce(&Path)) -> Site {
    let text = format!(
        "control = \"control.sock\"\n[[app]]\nname = \"web\"\napp = \"lives:app\"\npython = \"python3\"\n\
         queue_timeout = \"2m\"\n{more}\n[[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n"
    );
    start(DriverName::Epoll, &text, |folder| {
        write(folder, "lives.py", APP);
        prepare(folder);
    })
}

fn status(site: &Site) -> Value {
    ask(site, "{\"do\":\"status\"}")["ok"][0].clone()
}

fn pids(site: &Site) -> Vec<(bool, i64)> {
    let ready = workers(site, "ready");
    ready.iter().map(|one| (one["task"] == true, one["pid"].as_i64().unwrap())).collect()
}

#[test]
fn a_crash_loop_is_told_and_the_old_worker_stays() {
    if !python() {
        return;
    }
    // Older than it may be at once, so that it is to be replaced all the time.
    let more = "workers = 1\nmax_age = \"1ms\"\nbackoff = [\"1ms\", \"1h\"]";
    let site = lives(more, |_| {});
    let mut client = site.client();
    assert_eq!(client.get("/").status, 200);
    site.write("broken", "no database any more");
    let line = told(&site, "crash loop: 5 starts in a row have failed");
    assert!(line.contains("each 3600s") && line.contains("Workers that serve: 1"), "{line}");
    assert!(line.contains("no database any more"), "{line}");
    let told_so = status(&site);
    assert!(told_so["crash_loop"]["failures"].as_u64().unwrap() >= 5, "{told_so}");
    assert!(told_so["crash_loop"]["next_try_seconds"].as_f64().unwrap() > 60.0, "{told_so}");
    assert!(told_so["trouble"].as_str().unwrap().contains("no database any more"), "{told_so}");
    let table = ringroad_app::status_table(&told_so);
    assert!(table.contains("starts in a row have failed, next try in"), "{table}");
    // The old one serves as before.
    let pid = client.get("/").text().to_owned();
    let ready = |site: &Site| pids(site).iter().map(|(_, pid)| pid.to_string()).collect::<Vec<_>>();
    assert!(ready(&site) == std::slice::from_ref(&pid));
    // What is ordered is tried at once, and fails with the reason.
    let failed = ask(&site, "{\"do\":\"restart\",\"slot\":0}");
    let why = failed["error"].as_str().unwrap();
    assert!(why.contains("slot 0: not replaced, the old process stays"), "{why}");
    assert!(why.contains("no database any more"), "{why}");
    assert_eq!(client.get("/").text(), pid);
    // Mended, the next one closes the breaker.
    std::fs::remove_file(site.path("broken")).unwrap();
    assert_eq!(ask(&site, "{\"do\":\"restart\"}")["ok"]["web"], "1 replaced");
    wait_until("the new one", || site.client().get("/").text() != pid);
    told(&site, "starts succeed again");
    wait_until("the end of the loop", || status(&site)["crash_loop"].is_null());
}

#[test]
fn a_crash_loop_from_the_start_is_503_and_tries_go_on_slowly() {
    if !python() {
        return;
    }
    let site = lives("workers = 2\nbackoff = [\"1ms\", \"200ms\"]", |folder| {
        write(folder, "broken", "no database");
    });
    told(&site, "crash loop: 5 starts in a row have failed");
    let reply = site.client().get("/");
    assert!(reply.status == 503 && reply.header("Retry-After").is_some(), "{reply:?}");
    let failures = || status(&site)["crash_loop"]["failures"].as_u64().unwrap_or(0);
    let before = failures();
    wait_until("further tries", || failures() >= before + 2);
    std::fs::remove_file(site.path("broken")).unwrap();
    wait_until("both workers", || workers(&site, "ready").len() == 2);
    assert_eq!(site.client().get("/").status, 200);
    wait_until("the end of the loop", || status(&site)["crash_loop"].is_null());
}

/// The process of a slot that is ready, once there is one besides `other`.
fn pid_of(site: &Site, slot: u64, other: i64) -> i64 {
    let found = || {
        let ready = workers(site, "ready");
        let mut pids = ready.iter().filter(|one| one["slot"] == slot).filter_map(|one| one["pid"].as_i64());
        pids.find(|pid| *pid != other)
    };
    wait_until("a worker of the slot", || found().is_some());
    found().unwrap()
}

fn kill(pid: i64) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn a_worker_that_is_killed_before_it_has_served_is_replaced_at_once_each_time() {
    if !python() {
        return;
    }
    for more in ["", "preload = true"] {
        // All requests go to the first slot. A start that waits comes too late for this test.
        let site = lives(&format!("workers = 2\nbackoff = [\"1h\", \"1h\"]\n{more}"), |_| {});
        let mut last = 0;
        for _ in 0..7 {
            last = pid_of(&site, 1, last);
            kill(last);
        }
        pid_of(&site, 1, last);
        let now = status(&site);
        assert!(now["crash_loop"].is_null() && now["trouble"].is_null(), "{now}");
        assert_eq!(site.client().get("/").status, 200);
        told(&site, "app web[1]: died: signal: 9 (SIGKILL)");
    }
}

#[test]
fn a_worker_that_has_served_is_replaced_at_once_also_in_a_crash_loop() {
    if !python() {
        return;
    }
    let site = lives("workers = 2\nbackoff = [\"1ms\", \"1h\"]", |_| {});
    let (serves, idle) = (pid_of(&site, 0, 0), pid_of(&site, 1, 0));
    assert_eq!(site.client().get("/").text(), serves.to_string());
    site.write("broken", "no database");
    kill(idle);
    told(&site, "crash loop: 5 starts in a row have failed");
    std::fs::remove_file(site.path("broken")).unwrap();
    kill(serves);
    // Requests wait meanwhile.
    wait_until("another one", || {
        let reply = site.client().get("/");
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.text() != serves.to_string()
    });
    wait_until("the end of the loop", || status(&site)["crash_loop"].is_null());
}

#[test]
fn processes_of_every_kind_are_restarted_and_scaled_by_their_slots() {
    if !python() {
        return;
    }
    let site = lives("workers = 2\ntasks = 1", |_| {});
    wait_until("all", || pids(&site).len() == 3);
    let before = pids(&site);
    let order = |question: Value| ask(&site, &question.to_string());
    assert_eq!(order(json!({"do": "restart", "slot": "t0"}))["ok"]["web"], "1 replaced");
    wait_until("the end of the old one", || workers(&site, "ready").len() == 3);
    let after = pids(&site);
    assert_eq!(before[..2], after[..2]);
    assert!(before[2] != after[2] && after[2].0, "{after:?}");
    assert_eq!(order(json!({"do": "restart", "slot": 1}))["ok"]["web"], "1 replaced");
    let last = pids(&site);
    assert!(last[0] == after[0] && last[1] != after[1] && last[2] == after[2], "{last:?}");
    assert_eq!(order(json!({"do": "restart"}))["ok"]["web"], "3 replaced");
    assert!(pids(&site).iter().all(|pid| !last.contains(pid)));
    for (question, why) in [
        (json!({"do": "restart", "slot": "t7"}), "slot t7 has no process that serves"),
        (json!({"do": "restart", "slot": "x"}), "expected the number of a slot"),
        (json!({"do": "restart", "slot": true}), "expected a slot"),
        (json!({"do": "scale"}), "expected `workers`, `tasks`, or both"),
        (json!({"do": "scale", "workers": 0}), "1 to 1024 workers"),
        (json!({"do": "scale", "tasks": 1025}), "0 to 1024 task workers"),
        (json!({"do": "scale", "tasks": "2"}), "a number of tasks"),
    ] {
        let told = order(question);
        assert!(told["error"].as_str().is_some_and(|told| told.contains(why)), "{why}: {told}");
    }
    let kinds = |site: &Site| pids(site).iter().filter(|(is_task, _)| *is_task).count();
    site.write("import waits", "");
    assert_eq!(order(json!({"do": "scale", "tasks": 3}))["ok"]["web"], "3 task workers");
    let early = order(json!({"do": "restart", "slot": "t2"}));
    assert_eq!(
        early["error"],
        "web: slot t2 has no process that serves yet: it is starting, or waits for its next try"
    );
    std::fs::remove_file(site.path("import waits")).unwrap();
    wait_until("three task workers", || kinds(&site) == 3);
    let told = order(json!({"do": "scale", "workers": 1, "tasks": 0}));
    assert_eq!(told["ok"]["web"], "1 worker, 0 task workers");
    wait_until("one process", || status(&site)["workers"].as_array().unwrap().len() == 1);
    // A reload starts as many as there are to be now.
    assert!(order(json!({"do": "reload"}))["ok"].is_object());
    wait_until("one process again", || status(&site)["workers"].as_array().unwrap().len() == 1);
    assert_eq!(site.client().get("/").status, 200);
}

#[test]
fn a_number_of_workers_that_is_ordered_during_a_reload_holds_behind_it() {
    if !python() {
        return;
    }
    for (before, ordered) in [(1, 2), (2, 1)] {
        let site = lives(&format!("workers = {before}\ntasks = {before}"), |_| {});
        wait_until("all", || pids(&site).len() == 2 * before);
        site.write("import waits", "");
        let socket = site.path("control.sock");
        std::thread::scope(|scope| {
            let reload = scope.spawn(|| ask_at(&socket, "{\"do\":\"reload\"}"));
            wait_until("a start", || !workers(&site, "starting").is_empty());
            let order = json!({"do": "scale", "workers": ordered, "tasks": ordered});
            assert!(ask(&site, &order.to_string())["ok"].is_object());
            std::fs::remove_file(site.path("import waits")).unwrap();
            let told = reload.join().unwrap();
            assert!(told["ok"]["web"].as_str().unwrap().starts_with("generation 2 serves"), "{told}");
        });
        wait_until("the ordered number", || {
            let all = status(&site)["workers"].as_array().unwrap().clone();
            let is_new = |one: &Value| one["generation"] == 2 && one["state"] == "ready";
            all.len() == 2 * ordered && all.iter().all(is_new)
        });
    }
}

/// A process.
fn pid(text: &str) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(text.trim().parse().unwrap()).unwrap()
}

/// Whether a process runs: one that has ended may still wait for its parent.
fn runs(pid: rustix::process::Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    status.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

#[test]
fn what_a_command_has_started_ends_behind_it() {
    if !python() {
        return;
    }
    // The shell ends on SIGTERM and leaves the server that it has started.
    let text = "control = \"control.sock\"\n[[app]]\nname = \"web\"\n\
                command = [\"sh\", \"-c\", \"python3 http_app.py $0; true\", \"{socket}\"]\nworkers = 1\n\
                queue_timeout = \"2m\"\n[[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n";
    let site = start(DriverName::Epoll, text, |folder| write(folder, "http_app.py", crate::apps::HTTP));
    let first = pid(site.client().get("/").text());
    assert!(ask(&site, "{\"do\":\"reload\"}")["ok"].is_object());
    wait_until("the end of the first server", || !runs(first));
    let second = pid(site.client().get("/").text());
    assert!(first != second && runs(second));
    drop(site);
    assert!(!runs(second));
}

#[test]
fn what_a_worker_has_started_outlives_it_and_ends_with_the_application() {
    if !python() {
        return;
    }
    let site = lives("workers = 1", |_| {});
    let child = pid(site.client().get("/child").text());
    let worker = pid(site.client().get("/").text());
    assert!(ask(&site, "{\"do\":\"restart\"}")["ok"].is_object());
    wait_until("the end of the worker", || !runs(worker));
    assert_eq!(site.client().get("/").status, 200);
    assert!(runs(child));
    drop(site);
    assert!(!runs(child));
}

#[test]
fn a_fork_that_the_kernel_refuses_is_told_with_its_cause() {
    if !python() {
        return;
    }
    let site = lives("workers = 1\npreload = true", |folder| write(folder, "no fork", "no processes left"));
    let why = "fork: [Errno 11] no processes left";
    wait_until(why, || status(&site)["trouble"].as_str().is_some_and(|told| told.contains(why)));
}

#[test]
fn few_processes_start_at_a_time_beside_those_that_serve() {
    if !python() {
        return;
    }
    let site = lives("workers = 4", |_| {});
    wait_until("all", || pids(&site).len() == 4);
    std::fs::remove_file(site.path("log")).unwrap();
    assert!(ask(&site, "{\"do\":\"reload\"}")["ok"].is_object());
    let most = std::thread::available_parallelism().unwrap().get().div_ceil(4);
    let (mut now, mut begun) = (0, 0);
    for line in std::fs::read_to_string(site.path("log")).unwrap().lines() {
        if line.starts_with("begin") {
            (now, begun) = (now + 1, begun + 1);
        } else {
            now -= 1;
        }
        assert!(now <= most, "{now} at a time, at most {most}");
    }
    assert_eq!(begun, 4);
}

/// This process's priority, if one that was lowered can be had again here.
fn restorable() -> Option<i32> {
    let trial = std::thread::spawn(|| {
        let own = rustix::process::getpriority_process(None).ok()?;
        rustix::process::setpriority_process(None, own + 1).ok()?;
        rustix::process::setpriority_process(None, own).ok().map(|()| own)
    });
    trial.join().unwrap()
}

#[test]
fn a_process_that_starts_beside_others_has_a_lower_priority_until_it_is_ready() {
    let Some(own) = restorable().filter(|own| *own <= 9) else {
        let _ = writeln!(std::io::stderr(), "skipped: a priority that was lowered stays so for this user");
        return;
    };
    if !python() {
        return;
    }
    let site = lives("workers = 1\nstart_timeout = \"10m\"", |_| {});
    assert_eq!(site.client().get("/priority").text(), own.to_string());
    site.write("wait for a lower priority", (own + 10).to_string());
    assert!(ask(&site, "{\"do\":\"reload\"}")["ok"].is_object());
    let log = std::fs::read_to_string(site.path("log")).unwrap();
    assert!(log.contains(&format!("imported with {}\n", own + 10)), "{log}");
    assert_eq!(site.client().get("/priority").text(), own.to_string());
}

#[test]
fn a_worker_gets_requests_when_it_is_healthy() {
    if !python() {
        return;
    }
    for more in ["", "preload = true\n"] {
        let more = format!("{more}workers = 1\ntasks = 1\nhealth = \"/healthz?deep=1\"");
        let site = lives(&more, |_| {});
        // Task workers get no requests.
        wait_until("the task worker", || pids(&site).len() == 1 && pids(&site)[0].0);
        let mut client = site.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_until("a request that waits", || status(&site)["waiting"] == 1);
        site.write("healthy", "");
        assert_eq!(client.reply().status, 200);
    }
    // One that never is.
    let site = lives(
        "workers = 1\nhealth = \"/healthz\"\nstart_timeout = \"2s\"\nbackoff = [\"1ms\", \"1ms\"]",
        |_| {},
    );
    let why = "the health check answered 503";
    wait_until(why, || status(&site)["trouble"].as_str().is_some_and(|told| told.contains(why)));
}

#[test]
fn a_request_that_goes_on_too_long_does_not_cost_others_their_answer() {
    if !python() {
        return;
    }
    let more = "workers = 1\ntimeout = \"2s\"\nkill_after = \"1ms\"\nstop_timeout = \"10m\"";
    // The answer has to begin in time. Where a busy machine is too late with that, its site is of no use.
    let begins = |_: i32| {
        let site = lives(more, |_| {});
        let mut held = site.client();
        held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = held.until(b"\r\n\r\n").unwrap();
        if head.starts_with(b"HTTP/1.1 504 ") {
            return None;
        }
        held.until(b"first ").unwrap();
        Some((site, held))
    };
    let (site, mut held) = (0..10).find_map(begins).expect("an answer that begins in time");
    let pid = pids(&site)[0].1;
    assert_eq!(site.client().get("/sleeps").status, 504);
    told(&site, "it is replaced, and its other requests are finished");
    wait_until("the replacement", || {
        let ready = pids(&site);
        !ready.is_empty() && ready.iter().all(|(_, other)| *other != pid)
    });
    assert_eq!(status(&site)["restarts"]["timeout"], 1);
    // It has the requests, with some of which a busy machine may be too late.
    wait_until("an answer in time", || {
        let reply = site.client().get("/");
        assert!(matches!(reply.status, 200 | 504) && reply.text() != pid.to_string(), "{reply:?}");
        reply.status == 200
    });
    site.write("go", "");
    assert!(held.until(b"last\r\n0\r\n\r\n").is_some(), "the rest of the answer");
}

/// A worker that breaks the protocol on its data link, as the path says.
const WORKER: &str = r#"
import array, json, os, select, socket, struct

control = socket.socket(fileno=3)
links = []
frame = lambda kind, stream=0, payload=b"", flags=0, aux=0: struct.pack("<IBBHI", len(payload), kind, flags, aux, stream) + payload
answer = lambda stream, text: frame(20, stream, struct.pack("<IH", 0, 0) + text, 1, 200)

def read(sock, size):
    data = b""
    while len(data) < size:
        data += sock.recv(size - len(data)) or os._exit(0)
    return data

control.sendall(frame(1, payload=json.dumps({"version": 1, "pid": os.getpid(), "language": "test", "concurrency": 8}).encode()))
while True:
    for sock in select.select([control] + links, [], [])[0]:
        if sock is control:
            head, rights, _, _ = sock.recvmsg(12, 64)
            if not head:
                os._exit(0)
            length, kind, _, _, _ = struct.unpack("<IBBHI", head)
            read(sock, length)
            if kind == 2:
                control.sendall(frame(3, payload=b"{}"))
            elif kind == 9:
                links.append(socket.socket(fileno=array.array("i", rights[0][2])[0]))
            elif kind == 4:
                control.sendall(frame(5, payload=bytes(8)))
            elif kind == 6:
                os._exit(0)
            continue
        head = sock.recv(12)
        if not head:
            # It lives on: the server is to end it.
            links.remove(sock)
            continue
        length, kind, flags, aux, stream = struct.unpack("<IBBHI", head + read(sock, 12 - len(head)))
        payload = read(sock, length)
        if kind != 16:
            continue
        path = json.loads(payload[4:4 + struct.unpack("<I", payload[:4])[0]])["path"]
        if path == "/no-frame":
            sock.sendall(b"\xff" * 100)
        elif path == "/order":
            sock.sendall(frame(17, stream, b"a body before its head"))
        elif path == "/close" and not os.path.exists("closed"):
            open("closed", "w").close()
            links.remove(sock)
            sock.close()
        elif path == "/late" and not os.path.exists("late"):
            open("late", "w").close()
            sock.sendall(frame(24, stream, b"not begun", 1, 1))
        else:
            sock.sendall(answer(stream, b"%d" % os.getpid()))
"#;

drivers!(a_worker_that_breaks_its_link_is_replaced, |driver: DriverName| {
    if !python() {
        return;
    }
    let text = "control = \"control.sock\"\n[[app]]\nname = \"web\"\ncommand = [\"python3\", \"worker.py\"]\n\
                protocol = \"ringroad\"\nworkers = 1\nqueue_timeout = \"2m\"\n\
                [[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n";
    let site = start(driver, text, |folder: &Path| write(folder, "worker.py", WORKER));
    let mut client = site.client();
    let mut pid = client.get("/").text().to_owned();
    for path in ["/no-frame", "/order"] {
        assert_eq!(client.get(path).status, 502, "{path}");
        told(&site, "killed: ");
        let now = client.get("/").text().to_owned();
        assert_ne!(now, pid, "{path}");
        pid = now;
    }
    assert_eq!(status(&site)["restarts"]["protocol"], 2);
    // One that closes its link is told to end; a GET is repeated on the next one, which the log says.
    let repeated = client.get("/close");
    assert_eq!(repeated.status, 200);
    assert_ne!(repeated.text(), pid);
    told(&site, "had the request, another one gets it");
    // A request that was not begun is repeated whatever it is. It waits for another worker than this one.
    assert_eq!(ask(&site, "{\"do\":\"scale\",\"workers\":2}")["ok"]["web"], "2 workers");
    wait_until("two workers", || workers(&site, "ready").len() == 2);
    client.send("POST /late HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(client.reply().status, 200);
    told(&site, "had not begun the request, another one gets it");
});

#[test]
fn a_worker_that_does_not_heed_stop_gets_sigterm_before_it_is_killed() {
    if !python() {
        return;
    }
    let text = "control = \"control.sock\"\n[[app]]\nname = \"web\"\ncommand = [\"python3\", \"worker.py\"]\n\
                protocol = \"ringroad\"\nworkers = 1\nqueue_timeout = \"2m\"\nstop_timeout = \"16s\"\n\
                [[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n";
    let deaf = WORKER
        .replace("elif kind == 6:\n                os._exit(0)", "elif kind == 6:\n                pass");
    assert_ne!(deaf, WORKER);
    let heeds = "import os, signal\n\ndef term(*_):\n    os.write(1, b'SIGTERM came\\n')\n    os._exit(0)\n\n\
                 signal.signal(signal.SIGTERM, term)\n";
    let site =
        start(DriverName::Epoll, text, |folder: &Path| write(folder, "worker.py", format!("{heeds}{deaf}")));
    assert_eq!(site.client().get("/").status, 200);
    assert_eq!(ask(&site, "{\"do\":\"restart\",\"slot\":0}")["ok"]["web"], "1 replaced");
    told(&site, "SIGTERM came");
    wait_until("its end", || status(&site)["workers"].as_array().unwrap().len() == 1);
    assert!(status(&site)["restarts"]["stop_timeout"].is_null());
}

/// Starts that do not end.
const HANGS: &str = r#"
import contextlib, os, time

def make():
    time.sleep(3600)

if os.environ["HANGS"] == "import":
    make()

@contextlib.asynccontextmanager
async def lifespan():
    await connect()
    yield

async def connect():
    import asyncio
    print("connecting", flush=True)
    await asyncio.sleep(3600)

async def app(scope, receive, send):
    async with lifespan():
        pass
"#;

/// Applications with these names that hang at their start.
fn hangs(apps: &[(&str, &str)], start_timeout: &str, more: &str) -> Site {
    let mut text = String::new();
    for (name, target) in apps {
        text += &format!(
            "[[app]]\nname = \"{name}\"\napp = \"{target}\"\npython = \"python3\"\nworkers = 1\n\
             preload = {}\nstart_timeout = \"{start_timeout}\"\nbackoff = [\"1ms\", \"1ms\"]\nenv = {{ HANGS = \"{}\" }}\n\
             {more}\n[[route]]\npath = \"/{name}/\"\nkind = \"app\"\napp = \"{name}\"\n",
            *name == "mold",
            if *name == "mold" { "import" } else { *name },
        );
    }
    start(DriverName::Epoll, &text, |folder| write(folder, "hangs.py", HANGS))
}

#[test]
fn a_start_that_hangs_is_told_with_the_step_and_the_place() {
    if !python() {
        return;
    }
    let apps = [
        ("import", "hangs:app"),
        ("factory", "hangs:make()"),
        ("lifespan", "hangs:app"),
        ("mold", "hangs:app"),
    ];
    let site = hangs(&apps, "5s", "");
    let wanted = [
        "app import[0]: killed: not ready within 5s: the import of hangs has not ended",
        "app import[0]:   File \"hangs.py\", line 5 in make",
        "app factory[0]: killed: not ready within 5s: the factory make() has not ended",
        "app factory[0]:   File \"hangs.py\", line 5 in make",
        "app lifespan[0]: killed: not ready within 5s: lifespan.startup has not ended",
        "app lifespan[0]: lifespan.startup waits here:",
        "app lifespan[0]:   File \"hangs.py\", line 18, in connect",
        "app mold[preload]: not imported within 5s: the import of hangs has not ended",
        "app mold[preload]:   File \"hangs.py\", line 5 in make",
    ];
    let folder = format!("{}/", site.path(".").canonicalize().unwrap().display());
    let mut missing = wanted.to_vec();
    while !missing.is_empty() {
        let line = site.event().to_string().replace(&folder, "");
        missing.retain(|part| !line.contains(part));
    }
}

#[test]
fn a_server_that_stops_does_not_wait_for_a_start_that_hangs() {
    if !python() {
        return;
    }
    let site = hangs(&[("lifespan", "hangs:app")], "1h", "stop_timeout = \"1h\"");
    told(&site, "connecting");
    site.service.stop().unwrap();
}

#[test]
fn garbage_does_not_break_the_runner_for_python() {
    if !python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "garbage.py", include_str!("../apps/garbage.py"));
    let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runners/python/ringroad_runner.py");
    let output = std::process::Command::new("python3")
        .arg(folder.path().join("garbage.py"))
        .arg(runner)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout == b"nothing has broken it\n", "{said}");
}

#[test]
fn an_application_of_a_virtual_environment_runs_with_its_interpreter() {
    if !python() {
        return;
    }
    let text = "[[app]]\nname = \"web\"\napp = \"of_venv:app\"\nworkers = 1\nqueue_timeout = \"2m\"\n\
                [[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n";
    let site = start(DriverName::Epoll, text, |folder| {
        let mut venv = std::process::Command::new("python3");
        let made = venv.args(["-m", "venv", "--without-pip"]).arg(folder.join(".venv")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
        let app = "import sys\ndef app(environ, start_response):\n    start_response('200 OK', [])\n    \
                   return [sys.prefix.encode()]\n";
        write(folder, "of_venv.py", app);
    });
    // An environment that is active here comes first.
    let prefix = std::env::var("VIRTUAL_ENV").map_or_else(|_| site.path(".venv"), Into::into);
    assert_eq!(Path::new(site.client().get("/").text()), prefix.canonicalize().unwrap());
}

#[test]
fn a_stream_is_told_of_the_end_of_the_server_before_the_lifespan_ends() {
    if !python() {
        return;
    }
    let text = "[[app]]\nname = \"web\"\napp = \"asgi_app:app\"\nworkers = 1\nqueue_timeout = \"2m\"\n\
                [[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n";
    let prepare = |folder: &Path| write(folder, "asgi_app.py", include_str!("../apps/asgi_app.py"));
    let site = start(DriverName::Epoll, text, prepare);
    let mut stream = site.client();
    stream.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n").until(b"data: 0").unwrap();
    let Site { folder, service, .. } = site;
    service.stop().unwrap();
    // The server ends streams of events well when it stops, and does not wait for them.
    assert!(stream.rest().ends_with(b"\r\n0\r\n\r\n"), "the end of the stream");
    let events = std::fs::read_to_string(folder.path().join("events")).unwrap();
    assert_eq!(events, "startup\nleft: http.disconnect\nsend: OSError\nshutdown\n");
}

/// An application that prints, with several requests at once.
const PRINTS: &str = r#"
import asyncio, os, subprocess, threading, time, traceback

def until(name):
    while not os.path.exists(name):
        time.sleep(0.005)

def broken():
    raise ValueError("raised\nin two lines")

def wsgi(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/waits":
        print("half", end=" ", flush=True)
        open("waiting", "w").close()
        until("go")
        print("a line")
    if path == "/catches":
        subprocess.run(["echo", "of another process"])
        threading.Thread(target=print, args=("of another thread",)).start()
        try:
            broken()
        except ValueError:
            traceback.print_exc()
    if path == "/raises":
        broken()
    print("no end of a line", end="")
    start_response("200 OK", [])
    return [environ["ringroad.request_id"].encode()]

async def later():
    await asyncio.to_thread(until, "over")
    print("later")
    open("later", "w").close()

KEPT = []

async def asgi(scope, receive, send):
    path = scope["path"]
    if path == "/waits":
        KEPT.append(asyncio.create_task(later()))
        print("half", end=" ", flush=True)
        open("waiting", "w").close()
        await asyncio.to_thread(until, "go")
        await asyncio.to_thread(print, "of a thread that it waits for")
        print("a line")
    if path == "/catches":
        await asyncio.to_thread(subprocess.run, ["echo", "of another process"])
        try:
            broken()
        except ValueError:
            traceback.print_exc()
    if path == "/raises":
        broken()
    print("no end of a line", end="")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["ringroad.request_id"].encode()})
"#;

#[test]
fn each_line_of_a_request_has_its_id_however_many_there_are_at_once() {
    if !python() {
        return;
    }
    for app in ["wsgi", "asgi"] {
        let text = format!(
            "request_id = \"X-Request-Id\"\n[[app]]\nname = \"web\"\napp = \"prints:{app}\"\npython = \"python3\"\nworkers = 1\n\
             concurrency = 4\nqueue_timeout = \"2m\"\n[[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n"
        );
        let site = start(DriverName::Epoll, &text, |folder| write(folder, "prints.py", PRINTS));
        // Of two streams, which come each in its own order.
        let lines_to = |ends: &[&str]| {
            let mut lines: Vec<String> = Vec::new();
            while !ends.iter().all(|end| lines.iter().any(|line| line.ends_with(end))) {
                lines.push(site.event().to_string());
            }
            lines.retain(|line| line.starts_with("app web[0]"));
            lines
        };
        let mut waits = site.client();
        waits.send("GET /waits HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_until("the request", || site.path("waiting").exists());
        // Another one between the two halves of a line.
        let id = site.client().get("/catches").text().to_owned();
        let lines = lines_to(&["no end of a line", ": in two lines", "of another process"]);
        let of_request: Vec<_> = lines.iter().filter(|line| !line.contains("of another")).collect();
        assert!(of_request.len() >= 6, "{lines:?}");
        assert!(of_request.iter().all(|line| line.starts_with(&format!("app web[0] {id}: "))), "{lines:?}");
        assert!(of_request.iter().any(|line| line.ends_with(": in two lines")), "{lines:?}");
        // What others print has none, also while requests are there.
        assert!(lines.contains(&"app web[0]: of another process".to_owned()), "{lines:?}");
        let raises = site.client().get("/raises");
        let id = raises.header("X-Request-Id").unwrap().to_owned();
        let lines = lines_to(&[": in two lines"]);
        let others = |line: &&String| line.contains("of another thread");
        assert!(
            lines.iter().filter(|line| !others(line)).all(|line| line.contains(&format!(" {id}: "))),
            "{lines:?}"
        );
        site.write("go", "");
        let id = waits.reply().text().to_owned();
        assert!(told(&site, "half a line") == format!("app web[0] {id}: half a line"), "{app}");
        if app == "asgi" {
            // A task that has outlived its request belongs to none.
            assert_eq!(told(&site, "no end"), format!("app web[0] {id}: no end of a line"));
            site.write("over", "");
            wait_until("the task", || site.path("later").exists());
            assert_eq!(told(&site, "later"), "app web[0]: later");
        }
    }
}

//! Flask, Django, FastAPI and Starlette applications, unchanged: pages, uploads, streams, events, WebSocket.
//!
//! The frameworks are installed once into the target folder. Where that is not possible, the test says so.

use crate::app_sockets::{CLOSE, TEXT, frame, next, open};
use crate::environments::environment;
use crate::support::{Client, start, wait_until, write};
use ringroad_engine::DriverName;
use std::io::Write as _;
use std::path::{Path, PathBuf};

const PACKAGES: [&str; 5] =
    ["flask==3.1.3", "django==5.2.19", "fastapi==0.165.0", "starlette==1.10.0", "python-multipart==0.0.34"];

/// What the applications import.
const MODULES: [&str; 7] = [
    "flask",
    "django.core.asgi",
    "django.core.wsgi",
    "django.http",
    "fastapi",
    "python_multipart",
    "starlette.applications",
];

/// Each framework's module and attribute, and the beginning of its paths.
const APPS: [(&str, &str); 5] = [
    ("flask", "flask_app:app"),
    ("django", "django_app:wsgi"),
    ("django-asgi", "django_app:asgi"),
    ("fastapi", "fastapi_app:app"),
    ("starlette", "starlette_app:app"),
];

/// The interpreter of an environment with the frameworks.
fn python() -> Option<PathBuf> {
    match environment("frameworks", &PACKAGES, &MODULES) {
        Ok(place) => Some(place.join("bin/python")),
        Err(why) => {
            // Past the capture of the test harness.
            let _ = writeln!(std::io::stderr(), "skipped: frameworks of Python: {why}");
            None
        }
    }
}

fn prepare(folder: &Path) {
    write(folder, "flask_app.py", include_str!("../apps/flask_app.py"));
    write(folder, "django_app.py", include_str!("../apps/django_app.py"));
    write(folder, "fastapi_app.py", include_str!("../apps/fastapi_app.py"));
    write(folder, "starlette_app.py", include_str!("../apps/starlette_app.py"));
}

fn upload(client: &mut Client, name: &str) -> serde_json::Value {
    let mut body =
        b"--limit\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\ncaf\xc3\xa9\r\n--limit\r\n\
        Content-Disposition: form-data; name=\"file\"; filename=\"a.bin\"\r\n\
        Content-Type: application/octet-stream\r\n\r\n"
            .to_vec();
    body.extend((0..400_000_u32).map(|at| at as u8));
    body.extend_from_slice(b"\r\n--limit--\r\n");
    client.send(format!(
        "POST /{name}/upload HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=limit\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    ));
    let reply = client.send(body).reply();
    assert_eq!(reply.status, 200, "{name}: {}", reply.text());
    serde_json::from_slice(&reply.body).unwrap()
}

drivers!(applications_of_the_frameworks_run_unchanged, |driver: DriverName| {
    let Some(python) = python() else { return };
    let mut text = String::new();
    for (name, app) in APPS {
        text += &format!(
            "[[app]]\nname = \"{name}\"\napp = \"{app}\"\npython = \"{}\"\nworkers = 1\nqueue_timeout = \"2m\"\n\
             [[route]]\npath = \"/{name}/\"\nkind = \"app\"\napp = \"{name}\"\n",
            python.display()
        );
    }
    let site = start(driver, &text, prepare);
    let mut client = site.client();
    for (name, _) in APPS {
        let page = client.ask("GET", &format!("/{name}/page/W%C3%B6rld"), &[("X-From", "here")]);
        assert_eq!((page.status, page.text()), (200, "<p>Hello, W\u{f6}rld from here</p>"), "{name}");
        assert!(page.header("Content-Type").unwrap().starts_with("text/html"), "{name}");
        let told = upload(&mut client, name);
        let expected = serde_json::json!({ "name": "a.bin", "bytes": 400_000, "note": "caf\u{e9}" });
        assert_eq!(told, expected, "{name}");
        let all: String = (0..1000).map(|number| format!("{number};")).collect();
        assert_eq!(client.get(&format!("/{name}/stream")).text(), all, "{name}");
        let mut events = site.client();
        let reply = events.get(&format!("/{name}/events"));
        assert_eq!(reply.text(), "data: 0\n\ndata: 1\n\ndata: 2\n\n", "{name}");
        assert_eq!(client.get(&format!("/{name}/none")).status, 404, "{name}");
    }
    for (name, code) in [("fastapi", "[4002]"), ("starlette", "[\"left\"]")] {
        let (mut socket, _) = open(&site, &format!("/{name}/chat"), "");
        socket.send(frame(TEXT, true, b"you"));
        assert_eq!(next(&mut socket), (TEXT, b"Hello: you".to_vec()), "{name}");
        socket.send(frame(CLOSE, true, b"\x0f\xa2bye"));
        assert_eq!(next(&mut socket).0, CLOSE, "{name}");
        wait_until("the end", || site.client().get(&format!("/{name}/seen")).text() == code);
    }
});

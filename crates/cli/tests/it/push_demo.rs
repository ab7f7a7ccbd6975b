//! The demonstration of a hub in a browser: messages that are drawn, people that come and go, and what was
//! missed during a cut, by WebSocket and by the browser's own EventSource.

use crate::relay::Relay;
use crate::serve::{Serving, connect};
use crate::support::{Kill, Lines, installed, until};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};

/// Two windows with the page.
struct Browser {
    _process: Kill,
    /// There until this is dropped.
    input: Option<ChildStdin>,
    lines: Lines,
    errors: Lines,
}

impl Browser {
    fn open(url: &str, folder: &Path) -> Browser {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/push_demo.cjs");
        let mut command = Command::new("node");
        command.arg(script).arg(url).arg(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Kill(command.spawn().unwrap());
        let input = process.0.stdin.take();
        let lines = Lines::of(process.0.stdout.take().unwrap());
        let errors = Lines::of(process.0.stderr.take().unwrap());
        let mut browser = Browser { _process: process, input, lines, errors };
        browser.told();
        browser
    }

    fn told(&mut self) -> String {
        self.lines.next().unwrap_or_else(|| panic!("the browser has ended: {:?}", self.errors.rest()))
    }

    /// The value of an expression in a window, as JSON.
    fn of(&mut self, window: usize, expression: &str) -> String {
        writeln!(self.input.as_mut().unwrap(), "{window} {expression}").unwrap();
        self.told()
    }

    /// Waits until an expression has this value.
    fn until(&mut self, window: usize, expression: &str, value: &str) {
        let mut last = String::new();
        until(&format!("{expression} becomes {value}"), || {
            last = self.of(window, expression);
            last == value
        });
    }
}

impl Drop for Browser {
    /// Its processes write into their folder until they have ended. The program that started them ends with
    /// its input, after them, and its output ends with it.
    fn drop(&mut self) {
        self.input = None;
        self.lines.end();
    }
}

/// The texts of a list, the newest first, without the numbers beside them.
fn texts(list: &str) -> String {
    format!(
        "[...document.querySelectorAll('#{list} li:not(.note)')].map(one => one.firstChild.textContent).join('|')"
    )
}

/// What the states of both connections are.
const STATES: &str = "document.getElementById('socket-state').textContent + '|' + document.getElementById('events-state').textContent";

fn publish(serving: &Serving, data: &str) {
    let form = format!("topic=demo&data={data}");
    let mut stream = connect(serving.address);
    write!(
        stream,
        "POST /.well-known/mercure HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Authorization: Bearer demo\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{form}",
        form.len()
    )
    .unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).unwrap();
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
}

#[test]
fn the_page_draws_messages_and_people_and_recovers_after_a_cut() {
    if !installed("node") || !installed("chromium") {
        return;
    }
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/push.toml");
    let serving = Serving::start(&["--config", config.to_str().unwrap()]);
    let relay = Relay::start();
    relay.lead_to(Some(serving.address.port()));
    publish(&serving, "before");
    let folder = tempfile::tempdir().unwrap();
    let mut browser = Browser::open(&format!("http://{}/", relay.address), folder.path());
    for window in [1, 2] {
        browser.until(window, "document.querySelectorAll('#people span').length", "2");
        browser.until(window, &texts("socket"), "\"before\"");
        browser.until(window, &texts("events"), "\"before\"");
    }
    // What one window publishes both draw.
    let says =
        "document.getElementById('text').value = 'hello'; document.getElementById('say').requestSubmit()";
    browser.of(2, says);
    for list in ["socket", "events"] {
        browser.until(1, &texts(list), "\"hello|before\"");
    }
    // Cut off from outside: the browser comes back with its last id by itself.
    relay.lead_to(None);
    publish(&serving, "missed-1");
    publish(&serving, "missed-2");
    relay.lead_to(Some(serving.address.port()));
    for list in ["socket", "events"] {
        browser.until(1, &texts(list), "\"missed-2|missed-1|hello|before\"");
    }
    browser.until(1, "document.querySelectorAll('#socket .missed').length", "2");
    browser.until(1, STATES, "\"connected|connected\"");
    browser.until(1, "document.querySelectorAll('#people span').length", "2");
    // Cut by the page's own buttons.
    browser.of(
        1,
        "document.getElementById('cut-socket').click(); document.getElementById('cut-events').click()",
    );
    publish(&serving, "missed-3");
    for list in ["socket", "events"] {
        browser.until(1, &texts(list), "\"missed-3|missed-2|missed-1|hello|before\"");
    }
    // A window that is closed is seen to go.
    browser.of(2, "socket.onclose = null; socket.close()");
    browser.until(1, "document.querySelectorAll('#people span').length", "1");
}

//! `ringroad app`: asks a running server about its applications, over its control socket.

use crate::complaint::{DONE, FAILED, USAGE, name, say, why};
use crate::flags::{AppFlags, AppVerb, Common};
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(crate) fn run(flags: &AppFlags, common: &Common) -> ExitCode {
    ExitCode::from(match ask_and_tell(flags, common) {
        Ok(()) => DONE,
        Err((code, text)) => {
            text.lines().for_each(say);
            code
        }
    })
}

fn ask_and_tell(flags: &AppFlags, common: &Common) -> Result<(), (u8, String)> {
    let path = socket(flags.control.as_ref(), flags.config.as_ref())?;
    let mut question = match &flags.verb {
        AppVerb::Status { .. } => json!({ "do": "status" }),
        AppVerb::Reload => json!({ "do": "reload" }),
        AppVerb::Restart { slot } => {
            json!({ "do": "restart", "slot": slot.map(|slot| slot.to_string()) })
        }
        AppVerb::Scale { workers, tasks } => json!({ "do": "scale", "workers": workers, "tasks": tasks }),
        AppVerb::Stop => json!({ "do": "stop" }),
    };
    if let Some(app) = &flags.app {
        question.as_object_mut().map(|fields| fields.insert("app".to_owned(), json!(app)));
    }
    let told = answer_of(&path, &question)?;
    let mut text = String::new();
    match (&flags.verb, &told) {
        (AppVerb::Status { json: true }, told) => {
            text = serde_json::to_string_pretty(told).unwrap_or_default();
            text.push('\n');
        }
        (AppVerb::Status { .. }, Value::Array(apps)) => {
            let tables: Vec<String> = apps.iter().map(ringroad_app::status_table).collect();
            text = if tables.is_empty() { "no applications\n".to_owned() } else { tables.join("\n") };
        }
        (_, Value::Object(apps)) if !common.quiet => {
            for (app, done) in apps {
                text.push_str(&format!("{app}: {}\n", done.as_str().unwrap_or_default()));
            }
        }
        (_, Value::String(done)) if !common.quiet => text = format!("{done}\n"),
        _ => {}
    }
    // An output without a reader is no failure of the question.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    Ok(())
}

/// Returns the socket that was named, or the one that a configuration names.
pub(crate) fn socket(control: Option<&PathBuf>, config: Option<&PathBuf>) -> Result<PathBuf, (u8, String)> {
    if let Some(path) = control {
        return Ok(path.clone());
    }
    let Some(file) = config else {
        let text =
            "which server? name its control socket: --control PATH, or --config FILE with `control` in it";
        return Err((USAGE, text.to_owned()));
    };
    let config = ringroad_serve::Config::load(file).map_err(|why| (USAGE, why.to_string()))?;
    let text = || format!("{}: has no key `control`, the path of the control socket", name(file));
    config.control.ok_or_else(|| (USAGE, text()))
}

/// Returns the answer of the server at a control socket, or an exit code and why there is none.
pub(crate) fn answer_of(path: &Path, question: &Value) -> Result<Value, (u8, String)> {
    let answer = ask(path, question).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                " (is the server running with this --control?)"
            }
            _ => "",
        };
        (FAILED, format!("ask the server, on {}: {}{hint}", name(path), why(&error)))
    })?;
    if let Some(error) = answer.get("error").and_then(Value::as_str) {
        return Err((FAILED, error.to_owned()));
    }
    Ok(answer.get("ok").cloned().unwrap_or_default())
}

pub(crate) fn ask(path: &Path, question: &Value) -> io::Result<Value> {
    let mut stream = UnixStream::connect(path)?;
    stream.write_all(format!("{question}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    serde_json::from_str(&line).map_err(|_| io::Error::other("it did not answer as a server does"))
}

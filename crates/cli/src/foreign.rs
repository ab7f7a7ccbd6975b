//! Words of other tools: what an option of wrk, hey, k6, nginx or rsync is called here.
//!
//! Every function depends on its arguments alone. Start at [`of_error`].

use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error;
use std::ffi::OsString;
use std::num::{IntErrorKind, ParseIntError};
use std::path::Path;

/// Words that mean something elsewhere, and what to type here.
type Known = &'static [(&'static [&'static str], &'static str)];

const VERBS: Known = &[
    (&["bench", "wrk", "wrk2", "ab", "hey", "oha", "vegeta", "attack", "stress"], "ringroad load URL"),
    (&["run", "test"], "ringroad load URL, or ringroad lab run SUITE"),
    (&["file-server", "http-server", "http.server", "httpd", "static", "start"], "ringroad serve DIR"),
    (
        &["reverse-proxy", "proxy", "gateway"],
        "ringroad serve --config FILE, with a route of kind proxy (docs/gateway.md)",
    ),
    (&["rsync", "sync", "copy", "mirror"], "ringroad cp -a --resume SOURCE DEST"),
    (&["version"], "ringroad --version"),
];

const LOAD: Known = &[
    (
        &["-s", "--script", "--lua"],
        "there are no scripts: {n}, {random} and --vars FILE fill in each request, --urls FILE has several",
    ),
    (&["--vus", "--vu", "-u"], "-c N is the number of connections"),
    (&["-i", "--iterations"], "-n N is the number of requests"),
    (
        &["--no-tui", "--no-color"],
        "-q prints the verdict only, and NO_COLOR=1 in the environment prints no colours",
    ),
    (&["--disable-redirects", "--redirect"], "redirects are followed with -L only"),
    (&["--disable-compression", "--no-gzip"], "no compression is asked for: -H 'Accept-Encoding: gzip' does"),
    (
        &["--keepalive", "--keep-alive"],
        "connections are kept alive: --disable-keepalive makes one per request",
    ),
];

const SERVE: Known = &[
    (
        &["--directory", "--root", "--dir", "-d", "-r"],
        "the folder is an argument without an option: serve DIR",
    ),
    (&["--bind", "-b", "--host", "--address", "-a"], "--listen ADDRESS:PORT, as in --listen 127.0.0.1:8080"),
    (&["--browse"], "--autoindex lists folders; on loopback they are listed anyway"),
    (&["-c"], "a configuration is --config FILE, in TOML (docs/CONFIG.md)"),
    (&["-t"], "--check --config FILE checks a configuration"),
    (&["-s"], "signals do that: SIGHUP reloads the configuration, SIGTERM stops the server"),
    (
        &["--proxy", "--upstream", "--to", "--from", "--cors", "--gzip", "--spa", "--auth"],
        "that is set in a configuration, --config FILE (docs/gateway.md, docs/CONFIG.md)",
    ),
    (&["--cert"], "--tls-cert FILE with --tls-key FILE"),
    (&["--key"], "--tls-key FILE with --tls-cert FILE"),
];

const COPY: Known = &[
    (&["--progress", "--info", "-P"], "progress is shown on a terminal"),
    (&["--bwlimit"], "--rate BYTES bounds bytes per second"),
    (&["--threads", "-j", "--workers"], "--jobs N is the number of workers"),
    (&["-z", "--compress", "-e", "--rsh"], "copies are made on this machine only, without compression"),
    (&["-c", "--checksum"], "--verify compares contents"),
    (&["--partial", "--append"], "--resume goes on with an interrupted copy"),
];

/// Returns what to type where an argument of `serve` is no folder: habits are a port, an address, and a file.
pub(crate) fn folder_meant(argument: &Path) -> Option<String> {
    let word = argument.to_str()?;
    let port = word.rsplit(':').next().unwrap_or(word);
    if !word.contains('/') && port.parse::<u16>().is_ok() {
        let is_port = port == word;
        return Some(if is_port {
            format!("a port is -p {port}")
        } else {
            format!("an address is --listen {word}")
        });
    }
    if !argument.is_file() {
        return None;
    }
    Some(match argument.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => format!("a configuration is --config {word}"),
        Some("php" | "py") => format!("an application is --app {word}"),
        _ => "a folder is wanted: the file's own is served with all that is in it".to_owned(),
    })
}

/// Returns the words to type instead of an option of another program that copies.
pub(crate) fn copy_option(word: &str) -> Option<&'static str> {
    meaning(COPY, word)
}

fn meaning(known: Known, word: &str) -> Option<&'static str> {
    let name = word.split('=').next().unwrap_or(word);
    known.iter().find(|(words, _)| words.contains(&name)).map(|(_, meaning)| *meaning)
}

/// Returns a message in place of clap's, if the mistake is a habit from another program, or clap does not
/// name the word. `words` are the whole line.
pub(crate) fn of_error(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let verb = words.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (what, meaning) = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = text(ContextKind::InvalidSubcommand)?;
            (format!("{word}: not a verb"), verb_meant(word)?)
        }
        ErrorKind::UnknownArgument => {
            let word = text(ContextKind::InvalidArg)?;
            (format!("{verb} {word}: not an option here"), option_meant(verb, word)?)
        }
        ErrorKind::InvalidValue
            if verb == "serve" && text(ContextKind::InvalidArg)?.starts_with("--tls ") =>
        {
            let word = text(ContextKind::InvalidValue)?;
            let files = "--tls dev makes a certificate; files are named by --tls-cert and --tls-key";
            (format!("serve --tls {word}: not `dev`"), files.to_owned())
        }
        ErrorKind::ValueValidation => return number_meant(error, verb),
        ErrorKind::InvalidUtf8 => {
            let word = words.iter().find(|word| word.to_str().is_none())?;
            let hint = "%FF in a URL stands for such a byte; a body is in a file, -D FILE";
            (format!("{verb} {word:?}: not UTF-8"), hint.to_owned())
        }
        _ => return None,
    };
    Some(format!("{what} ({meaning})"))
}

/// Returns the message for a value that is not a whole number, in place of the standard library's.
fn number_meant(error: &clap::Error, verb: &str) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let why = match error.source()?.downcast_ref::<ParseIntError>()?.kind() {
        IntErrorKind::PosOverflow => "the number is too large",
        IntErrorKind::NegOverflow => "the number is too small",
        IntErrorKind::Zero => "at least 1 is expected",
        _ => "a whole number is expected",
    };
    let (option, value) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
    // Some load generators have the duration as `-t`.
    let is_time = verb == "load" && option.starts_with("--threads") && crate::flags::time(value).is_ok();
    let hint = if is_time { format!("; a duration is -d {value}") } else { String::new() };
    Some(format!("invalid value '{value}' for '{option}': {why}{hint}"))
}

fn verb_meant(word: &str) -> Option<String> {
    if word.contains("://") {
        return Some(format!("ringroad load {word}"));
    }
    if Path::new(word).is_dir() {
        return Some(format!("ringroad serve {word}"));
    }
    meaning(VERBS, word).map(str::to_owned)
}

fn option_meant(verb: &str, word: &str) -> Option<String> {
    if verb == "load" && !word.starts_with('-') {
        return Some(
            "there is a URL already: several are --also URL or --urls FILE, and --vs URL compares two; \
             -q takes no number, a rate is -r N"
                .to_owned(),
        );
    }
    let known = match verb {
        "load" => LOAD,
        "serve" => SERVE,
        _ => return None,
    };
    meaning(known, word).map(str::to_owned)
}

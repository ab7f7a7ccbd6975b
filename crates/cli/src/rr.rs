//! `rr`: the part of RoadRunner's command line that Laravel Octane uses, when the program is called `rr`.
//!
//! `rr -o KEY=VALUE … serve` becomes a configuration of our own: one application that speaks goridge, its
//! public files, and a control socket that takes the place of RoadRunner's RPC address. Lines on standard
//! output are JSON, as Octane reads them.

use crate::app::ask;
use crate::complaint::{DONE, FAILED, USAGE, print, say};
use crate::serve;
use ringroad_serve::config::{Format, LogTo, Target};
use ringroad_serve::{Overrides, Source};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The version of RoadRunner with which this command line agrees.
const VERSION: &str = "2025.1.0";

const HELP: &str = "\
rr: RoadRunner's command line, as far as Laravel Octane uses it, spoken by Ringroad

  rr [-w DIR] [-o KEY=VALUE]… serve     serve a PHP application
  rr [-o rpc.listen=ADDRESS] reset      start new workers, and stop the old ones when the new ones serve
  rr --version

Keys of -o: http.address, server.command, http.pool.num_workers, http.pool.max_jobs,
http.pool.supervisor.exec_ttl, http.static.dir, rpc.listen. Others are accepted and have no effect.
A configuration file (-c) is accepted if it is empty. `ringroad serve --config` has everything else.
";

/// Returns the line, or what is wrong with it, if the program was called `rr` and the line is one of
/// RoadRunner's. With an option that RoadRunner does not have, as in `rr serve --listen`, it is a line of our
/// own, and `rr` is a short name.
pub(crate) fn wanted(words: &[OsString]) -> Option<Result<Line, String>> {
    let (program, words) = words.split_first()?;
    let is_rr = Path::new(program).file_name() == Some(OsStr::new("rr"));
    is_rr.then(|| parse(words.iter().map(|word| word.to_string_lossy().into_owned())).transpose()).flatten()
}

/// A command line of RoadRunner.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Line {
    verb: String,
    file: Option<PathBuf>,
    folder: Option<PathBuf>,
    options: BTreeMap<String, String>,
}

pub(crate) fn run(line: Result<Line, String>) -> ExitCode {
    let line = match line {
        Ok(line) => line,
        Err(why) => {
            say(&why);
            return ExitCode::from(USAGE);
        }
    };
    match line.verb.as_str() {
        "version" => printed(&format!("rr version {VERSION} (ringroad {})\n", env!("CARGO_PKG_VERSION"))),
        "help" => printed(HELP),
        "reset" => ExitCode::from(reset(&line)),
        "serve" => ExitCode::from(begin(&line)),
        other => {
            say(&format!("rr {other}: not understood here: expected serve, reset or --version"));
            ExitCode::from(USAGE)
        }
    }
}

/// Reads a line; `None`: an option is none of RoadRunner's.
fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Line>, String> {
    let mut line = Line::default();
    while let Some(word) = words.next() {
        let (name, joined) = match word.split_once('=').filter(|_| word.starts_with("--")) {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (word.clone(), None),
        };
        let mut value =
            || joined.clone().or_else(|| words.next()).ok_or_else(|| format!("rr: {name} needs a value"));
        match name.as_str() {
            "--version" | "-v" => line.verb = "version".to_owned(),
            "--help" | "-h" => line.verb = "help".to_owned(),
            "-c" | "--config" => line.file = Some(value()?.into()),
            "-w" | "--WorkDir" => line.folder = Some(value()?.into()),
            "-o" | "--override" => {
                let pair = value()?;
                let (key, value) =
                    pair.split_once('=').ok_or_else(|| format!("rr: -o {pair}: expected KEY=VALUE"))?;
                line.options.insert(key.to_owned(), value.to_owned());
            }
            "-s" | "--silent" | "-d" | "--debug" => {}
            flag if flag.starts_with('-') => return Ok(None),
            _ if line.verb.is_empty() => line.verb = word,
            // `rr reset http`: there is one plugin.
            _ => {}
        }
    }
    if line.verb.is_empty() {
        line.verb = "help".to_owned();
    }
    Ok(Some(line))
}

/// Returns the control socket that stands for an RPC address: `rr reset` finds it by the port.
fn control(line: &Line) -> PathBuf {
    let address = line.options.get("rpc.listen").map_or("tcp://127.0.0.1:6001", String::as_str);
    let plain: String =
        address.chars().map(|one| if one.is_ascii_alphanumeric() { one } else { '-' }).collect();
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    folder.join(format!("ringroad-rr-{plain}.sock"))
}

/// Quotes a text for TOML. A `$` would name a variable of the environment.
fn quoted(text: &str) -> String {
    Value::from(text.replace('$', "$$")).to_string()
}

/// Returns the configuration for a line of `rr serve`.
fn configuration(line: &Line, folder: &Path) -> Result<String, String> {
    let option = |key: &str| line.options.get(key).filter(|value| !value.is_empty());
    let command = option("server.command").ok_or("rr serve: -o server.command=… is missing")?;
    // Octane separates its arguments by commas; a shell's words are understood as well.
    let words: Vec<&str> =
        if command.contains(',') { command.split(',').collect() } else { command.split(' ').collect() };
    let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).map(quoted).collect();
    let number = |key: &str| -> Result<Option<u64>, String> {
        let Some(text) = option(key) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| format!("rr serve: -o {key}={text}: expected a number"))
    };
    let mut text = String::new();
    let address = option("http.address").map_or("127.0.0.1:8080", String::as_str);
    // `:8080` and `0.0.0.0:8080` are spelled alike in both.
    let mut put = |piece: String| {
        // A String takes everything.
        let _ = writeln!(text, "{piece}");
    };
    put(format!("listen = {}", quoted(address)));
    put(format!("control = {}", quoted(&control(line).to_string_lossy())));
    put("[[app]]\nname = \"rr\"\nprotocol = \"goridge\"".to_owned());
    put(format!("command = [{}]", words.join(", ")));
    put(format!("directory = {}", quoted(&folder.to_string_lossy())));
    if let Some(workers) = number("http.pool.num_workers")? {
        put(format!("workers = {workers}"));
    }
    if let Some(most) = number("http.pool.max_jobs")? {
        put(format!("max_requests = {most}"));
    }
    if let Some(span) = option("http.pool.supervisor.exec_ttl").filter(|span| !span.starts_with("0")) {
        put(format!("timeout = {}", quoted(span)));
    }
    put("[[route]]\npath = \"/\"\nkind = \"app\"\napp = \"rr\"".to_owned());
    if let Some(public) = option("http.static.dir") {
        let public = folder.join(public);
        if public.is_dir() {
            put(format!("root = {}", quoted(&public.to_string_lossy())));
            for (name, target) in links_out(&public) {
                // What is not there is asked of the application, as beside it.
                put("[[route]]\nkind = \"app\"\napp = \"rr\"".to_owned());
                put(format!("path = {}", quoted(&format!("/{name}/"))));
                put(format!("root = {}", quoted(&target.to_string_lossy())));
            }
        }
    }
    Ok(text)
}

/// Returns the links in a folder that lead to folders outside of it, with those: `php artisan storage:link`
/// makes such. A folder that is served follows none by itself.
fn links_out(public: &Path) -> Vec<(String, PathBuf)> {
    let Ok(whole) = public.canonicalize() else { return Vec::new() };
    let entries = std::fs::read_dir(&whole).into_iter().flatten().flatten();
    let mut links: Vec<(String, PathBuf)> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()))
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path().canonicalize().ok()?)))
        .filter(|(name, target)| {
            let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "-_.".contains(sign);
            !name.starts_with('.')
                && name.chars().all(is_plain)
                && target.is_dir()
                && !target.starts_with(&whole)
        })
        .collect();
    links.sort();
    links
}

fn begin(line: &Line) -> u8 {
    let fail = |text: &str| {
        say(text);
        USAGE
    };
    if let Some(file) = &line.file
        && std::fs::read_to_string(file).is_ok_and(|text| {
            text.lines().any(|line| !line.trim().is_empty() && !line.trim().starts_with('#'))
        })
    {
        let text =
            "rr: %: settings of RoadRunner's file are not understood: write them as -o KEY=VALUE (rr --help)";
        return fail(&text.replace('%', &file.display().to_string()));
    }
    let folder = line.folder.clone().unwrap_or_else(|| PathBuf::from("."));
    let folder = match folder.canonicalize() {
        Ok(folder) => folder,
        Err(why) => return fail(&format!("rr: {}: {why}", folder.display())),
    };
    let text = match configuration(line, &folder) {
        Ok(text) => text,
        Err(why) => return fail(&why),
    };
    let written = tempfile::Builder::new().prefix("ringroad-rr-").suffix(".toml").tempfile();
    let written = written.and_then(|mut file| file.write_all(text.as_bytes()).map(|()| file));
    let file = match written {
        Ok(file) => file,
        Err(why) => return fail(&format!("rr: write a configuration: {why}")),
    };
    let overrides = Overrides { log: Some(LogTo::new(Target::Stdout, Format::Json)), ..Overrides::default() };
    let source = Source::File(file.path().to_owned());
    let ended = serve::hold(&source, overrides, true, access, |event| {
        let line = json!({ "level": "info", "logger": "server", "msg": event.to_string() });
        // An output without a reader stops no server.
        let _ = writeln!(io::stdout().lock(), "{line}");
    });
    serve::code(ended)
}

fn printed(text: &str) -> ExitCode {
    match print(text) {
        Ok(()) => ExitCode::from(DONE),
        Err(why) => {
            say(&why);
            ExitCode::from(FAILED)
        }
    }
}

/// Writes lines of the access log as RoadRunner's.
fn access(bytes: &[u8]) -> io::Result<()> {
    let mut out = String::new();
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let Ok(told) = serde_json::from_slice::<Value>(line) else { continue };
        let field = |key: &str| told.get(key).cloned().unwrap_or_default();
        let seconds = field("duration_s").as_f64().unwrap_or(0.0);
        let line = json!({
            "level": "info",
            "ts": field("time"),
            "logger": "http",
            "msg": "http log",
            "status": field("status"),
            "method": field("method"),
            "URI": field("target"),
            "remote_address": field("remote"),
            "elapsed": format!("{:.3}ms", seconds * 1e3),
        });
        // A String takes everything.
        let _ = writeln!(out, "{line}");
    }
    io::stdout().lock().write_all(out.as_bytes())
}

fn reset(line: &Line) -> u8 {
    let path = control(line);
    let told = ask(&path, &json!({ "do": "reload" }));
    let refused = match &told {
        Ok(told) => told.get("error").and_then(Value::as_str).map(str::to_owned),
        Err(why) => Some(format!(
            "ask the server, on {}: {why} (is it running with this rpc.listen?)",
            path.display()
        )),
    };
    match refused {
        Some(why) => {
            why.lines().for_each(say);
            FAILED
        }
        None => DONE,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn line(text: &str) -> Line {
        parse(text.split(' ').map(str::to_owned)).unwrap().unwrap()
    }

    #[test]
    fn a_line_with_an_option_that_roadrunner_does_not_have_is_our_own() {
        let wanted = |text: &str| wanted(&text.split(' ').map(OsString::from).collect::<Vec<_>>());
        for own in
            ["/x/rr serve --driver epoll --listen 127.0.0.1:80 d", "rr serve -q d", "ringroad serve -o a=b"]
        {
            assert_eq!(wanted(own), None, "{own}");
        }
        for theirs in
            ["rr -o a=b serve", "/x/rr serve", "rr reset", "rr --version", "rr --help", "rr workers"]
        {
            assert!(matches!(wanted(theirs), Some(Ok(_))), "{theirs}");
        }
        for wrong in ["rr serve -o", "rr -o a serve"] {
            assert!(matches!(wanted(wrong), Some(Err(_))), "{wrong}");
        }
    }

    #[test]
    fn the_line_that_octane_writes_is_a_configuration() {
        let line = line(
            "-c .rr.yaml -o version=3 -o http.address=127.0.0.1:8000 -o \
             server.command=/usr/bin/php,./vendor/bin/roadrunner-worker -o http.pool.num_workers=0 -o \
             http.pool.max_jobs=500 -o rpc.listen=tcp://127.0.0.1:6001 -o http.pool.supervisor.exec_ttl=30s -o \
             http.static.dir=no-such-folder -o http.middleware=static -o logs.mode=production serve",
        );
        assert_eq!(line.verb, "serve");
        let text = configuration(&line, Path::new("/srv/site")).unwrap();
        for part in [
            "listen = \"127.0.0.1:8000\"\n",
            "protocol = \"goridge\"\n",
            "command = [\"/usr/bin/php\", \"./vendor/bin/roadrunner-worker\"]\n",
            "directory = \"/srv/site\"\n",
            "workers = 0\n",
            "max_requests = 500\n",
            "timeout = \"30s\"\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("root ="), "{text}");
    }

    #[test]
    fn a_link_of_the_public_folder_to_a_folder_outside_of_it_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().canonicalize().unwrap();
        for one in ["public/own", "storage/app/public"] {
            std::fs::create_dir_all(place.join(one)).unwrap();
        }
        std::fs::write(place.join("secret"), "").unwrap();
        for (name, target) in [
            ("storage", "../storage/app/public"),
            ("inner", "own"),
            ("file", "../secret"),
            (".hidden", "../storage"),
            ("none", "../none"),
            ("a b", "../storage"),
        ] {
            std::os::unix::fs::symlink(target, place.join("public").join(name)).unwrap();
        }
        let line = line("-o server.command=php,worker -o http.static.dir=public serve");
        let text = configuration(&line, &place).unwrap();
        let target = place.join("storage/app/public");
        assert!(
            text.ends_with(&format!("\npath = \"/storage/\"\nroot = \"{}\"\n", target.display())),
            "{text}"
        );
        assert_eq!(text.matches("[[route]]").count(), 2, "{text}");
    }

    #[test]
    fn both_commands_find_the_same_socket() {
        let serve = line("-o rpc.listen=tcp://127.0.0.1:7001 serve");
        let reset = line("reset -o rpc.listen=tcp://127.0.0.1:7001 -s");
        assert_eq!(reset.verb, "reset");
        assert_eq!(control(&serve), control(&reset));
        assert_ne!(control(&serve), control(&line("reset")));
    }

    #[test]
    fn mistakes_are_named() {
        assert!(parse(["-o", "x"].map(str::to_owned).into_iter()).unwrap_err().contains("KEY=VALUE"));
        let none = configuration(&line("serve"), Path::new("/")).unwrap_err();
        assert!(none.contains("server.command"), "{none}");
        assert!(wanted(&["/usr/bin/ringroad".into()]).is_none());
        assert_eq!(wanted(&["./rr".into(), "reset".into()]), Some(Ok(line("reset"))));
    }
}

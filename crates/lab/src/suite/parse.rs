//! A suite from its text: what may stand in the file, and every rule about it, each answered with file, line
//! and key.
//!
//! Keys are read as they stand ([`RawSuite`] and its parts), then checked and expanded into what a run needs.
//! Start at [`suite`].

use super::{ARGUMENTS, Client, Keep, Load, Protocol, READY_TIMEOUT_S, Ready, Server, Suite, Tree, Url};
use crate::dataset::Dataset;
use crate::error::SuiteError;
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use toml::Spanned;

/// Returns the suite `text` describes. `file` is what errors call it.
pub(super) fn suite(
    text: &str,
    file: &str,
    name: &str,
    folder: Option<PathBuf>,
) -> Result<Suite, SuiteError> {
    let at = Place { file, text };
    let raw: RawSuite = toml::from_str(text).map_err(|error| {
        let start = error.span().map(|span| span.start);
        SuiteError {
            file: file.to_owned(),
            line: start.map(|start| at.line(start)),
            key: start.and_then(|start| at.key(start)),
            message: in_words(error.message().trim_end()),
        }
    })?;
    check(raw, &at, name, folder)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSuite {
    title: String,
    #[serde(default = "half_a_second")]
    warmup_s: Spanned<f64>,
    duration_s: Spanned<f64>,
    #[serde(default = "third_of_a_second")]
    syscalls_s: Spanned<f64>,
    turn_s: Option<Spanned<f64>>,
    repeats: Spanned<u32>,
    baseline: Option<Spanned<String>>,
    #[serde(default)]
    control: bool,
    budget_s: Option<Spanned<f64>>,
    #[serde(default = "keep_all")]
    record: Vec<Keep>,
    #[serde(default)]
    server: Vec<RawServer>,
    #[serde(default)]
    load: Vec<RawLoad>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawServer {
    id: Spanned<String>,
    each: Option<Spanned<Vec<String>>>,
    driver: Option<String>,
    command: Option<Spanned<Vec<String>>>,
    ready: Option<Spanned<String>>,
    url: Option<Spanned<String>>,
    max_connections: Option<u32>,
    max_connections_reason: Option<String>,
    protocols: Vec<Protocol>,
    #[serde(default)]
    totals: bool,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<PathBuf>,
    ready_timeout_s: Option<Spanned<f64>>,
    hint: Option<String>,
    #[serde(default)]
    own_page: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLoad {
    id: Spanned<String>,
    protocol: Protocol,
    connections: Option<Spanned<Vec<u32>>>,
    tree: Option<Spanned<Tree>>,
    active_share: Option<Spanned<f64>>,
    #[serde(default)]
    reconnect: bool,
    #[serde(default = "one")]
    pipeline: Spanned<u32>,
    payload_bytes: Option<Spanned<u32>>,
    path: Option<Spanned<String>>,
    body: Option<String>,
    client: Option<Client>,
    timeout_s: Option<Spanned<f64>>,
    #[serde(default)]
    arguments: Vec<String>,
    #[serde(default = "one")]
    cores: Spanned<u32>,
    about: Option<String>,
}

fn half_a_second() -> Spanned<f64> {
    Spanned::new(0..0, 0.5)
}

fn third_of_a_second() -> Spanned<f64> {
    Spanned::new(0..0, 0.3)
}

fn one() -> Spanned<u32> {
    Spanned::new(0..0, 1)
}

fn keep_all() -> Vec<Keep> {
    vec![Keep::Syscalls, Keep::Memory, Keep::Histogram]
}

/// Returns what the parser reports, in the words of the file's format instead of the program's types.
fn in_words(message: &str) -> String {
    const TYPES: [(&str, &str); 9] = [
        ("a sequence", "a list, as in [64]"),
        ("a string", "a text in quotes"),
        ("a boolean", "true or false"),
        ("a map", "a table, as in { key = 1 }"),
        ("f64", "a number"),
        ("u32", "a whole number from 0"),
        ("u64", "a whole number from 0"),
        ("struct Tree", "a table, as in { dataset = \"mnist\" }"),
        ("path string", "a path in quotes"),
    ];
    let Some((found, expected)) = message.split_once(", expected ") else { return message.to_owned() };
    let Some((_, words)) = TYPES.iter().find(|(name, _)| *name == expected) else {
        return message.to_owned();
    };
    let found = ["invalid type: ", "invalid value: "]
        .iter()
        .find_map(|begin| found.strip_prefix(begin))
        .unwrap_or(found);
    format!("{found} stands here; expected: {words}")
}

/// Returns how many letters two words differ in, counted as insertions, deletions and replacements.
fn distance(one: &str, other: &str) -> usize {
    // A row of the table of distances between the beginnings of both words, from the row before.
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (nth, mine) in one.chars().enumerate() {
        let mut next = vec![nth + 1];
        for (pair, theirs) in row.windows(2).zip(other.chars()) {
            let &[diagonal, above] = pair else { continue };
            let left = next.last().copied().unwrap_or_default();
            next.push((diagonal + usize::from(mine != theirs)).min(above + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

/// Turns byte offsets into lines and mistakes into errors.
struct Place<'a> {
    file: &'a str,
    text: &'a str,
}

impl Place<'_> {
    fn line(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|b| *b == b'\n').count()
    }

    /// Returns the key of the value at this offset, where its line tells: `connections = 64`.
    fn key(&self, offset: usize) -> Option<String> {
        let before = self.text.get(..offset)?;
        let line = before.rsplit('\n').next()?;
        let key = line.split_once('=')?.0.trim();
        let table = before.lines().rev().find_map(|line| line.trim().strip_prefix("[[")?.strip_suffix("]]"));
        let is_key = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        is_key.then(|| table.map_or_else(|| key.to_owned(), |table| format!("{table}.{key}")))
    }

    fn error<T>(&self, value: &Spanned<T>, key: &str, message: impl Into<String>) -> SuiteError {
        SuiteError {
            file: self.file.to_owned(),
            line: Some(self.line(value.span().start)),
            key: Some(key.to_owned()),
            message: message.into(),
        }
    }

    fn whole(&self, key: &str, message: impl Into<String>) -> SuiteError {
        SuiteError {
            file: self.file.to_owned(),
            line: None,
            key: Some(key.to_owned()),
            message: message.into(),
        }
    }

    /// Returns a length of time that a run can have.
    fn seconds(&self, value: &Spanned<f64>, key: &str, least: f64) -> Result<f64, SuiteError> {
        /// A day: longer is a slip of the unit.
        const MOST: f64 = 86_400.0;
        let seconds = *value.get_ref();
        if (least..=MOST).contains(&seconds) {
            Ok(seconds)
        } else {
            Err(self.error(value, key, format!("{seconds} is not between {least} and {MOST} seconds")))
        }
    }
}

/// More connections than one client process can be asked for: the port range of a handful of source
/// addresses.
pub(super) const CONNECTIONS_MAX: u32 = 1_000_000;
/// More blocks than this would run for weeks.
const REPEATS_MAX: u32 = 10_000;
/// Deeper pipelines than this measure the client's buffers.
const PIPELINE_MAX: u32 = 1024;
/// Larger messages are a matter of throughput, not of requests.
const PAYLOAD_MAX: u32 = 1 << 20;
/// What may stand in a command.
const PLACEHOLDERS: [&str; 8] =
    ["{each}", "{ringroad}", "{protocol}", "{port}", "{addr}", "{source}", "{target}", ARGUMENTS];

fn check(raw: RawSuite, at: &Place<'_>, name: &str, folder: Option<PathBuf>) -> Result<Suite, SuiteError> {
    let warmup_s = at.seconds(&raw.warmup_s, "warmup_s", 0.0)?;
    let duration_s = at.seconds(&raw.duration_s, "duration_s", 0.01)?;
    let syscalls_s = at.seconds(&raw.syscalls_s, "syscalls_s", 0.0)?;
    let budget_s = raw.budget_s.as_ref().map(|s| at.seconds(s, "budget_s", 1.0)).transpose()?;
    if *raw.repeats.get_ref() == 0 {
        return Err(at.error(&raw.repeats, "repeats", "0 measures nothing; 6 is the least for an interval"));
    }
    if *raw.repeats.get_ref() > REPEATS_MAX {
        let message = format!("{} is more than {REPEATS_MAX}", raw.repeats.get_ref());
        return Err(at.error(&raw.repeats, "repeats", message));
    }
    if raw.server.is_empty() {
        return Err(
            at.whole("server", "there is none: add a [[server]] with id, command, ready and protocols")
        );
    }
    if raw.load.is_empty() {
        return Err(at.whole("load", "there is none: add a [[load]] with id, protocol and connections"));
    }
    let mut servers = Vec::new();
    let mut names = HashSet::new();
    for raw in raw.server {
        for server in check_server(&raw, at)? {
            if !names.insert(server.id.clone()) {
                return Err(at.error(
                    &raw.id,
                    "server.id",
                    format!("`{}` is taken; ids must differ", server.id),
                ));
            }
            servers.push(server);
        }
    }
    let mut loads = Vec::new();
    let mut names = HashSet::new();
    for raw in raw.load {
        for load in check_load(&raw, at)? {
            if !names.insert(load.id.clone()) {
                return Err(at.error(&raw.id, "load.id", format!("`{}` is taken; ids must differ", load.id)));
            }
            loads.push(load);
        }
    }
    if let Some(baseline) = &raw.baseline
        && !servers.iter().any(|server| server.id == *baseline.get_ref())
    {
        let known: Vec<&str> = servers.iter().map(|s| s.id.as_str()).collect();
        let message =
            format!("`{}` is not the id of a server; there are: {}", baseline.get_ref(), known.join(", "));
        return Err(at.error(baseline, "baseline", message));
    }
    let turn_s = raw.turn_s.as_ref().map(|turn_s| check_turns(turn_s, &loads, at)).transpose()?;
    if raw.control && raw.baseline.is_none() {
        return Err(at.whole("control", "an A/A control needs a `baseline` to run twice"));
    }
    Ok(Suite {
        name: name.to_owned(),
        title: raw.title,
        warmup_s,
        duration_s,
        syscalls_s,
        turn_s,
        repeats: raw.repeats.into_inner(),
        baseline: raw.baseline.map(Spanned::into_inner),
        control: raw.control,
        budget_s,
        keep: raw.record,
        servers,
        loads,
        folder,
    })
}

/// Returns what takes turns, and what cannot.
fn check_turns(turn_s: &Spanned<f64>, loads: &[Load], at: &Place<'_>) -> Result<f64, SuiteError> {
    let seconds = at.seconds(turn_s, "turn_s", 0.005)?;
    if let Some(load) = loads.iter().find(|load| load.client == Client::Wrk || load.tree.is_some()) {
        let message = format!("load {} cannot take turns: wrk and copiers run to their end", load.id);
        return Err(at.error(turn_s, "turn_s", message));
    }
    Ok(seconds)
}

fn check_server(raw: &RawServer, at: &Place<'_>) -> Result<Vec<Server>, SuiteError> {
    let id = raw.id.get_ref();
    let words: Vec<Option<&str>> = match &raw.each {
        None => vec![None],
        Some(each) if each.get_ref().is_empty() => {
            return Err(at.error(each, "server.each", "an empty list stands for no server"));
        }
        Some(each) if !id.contains("{each}") => {
            return Err(at.error(each, "server.each", "needs `{each}` in `id`, so that the servers differ"));
        }
        Some(each) => each.get_ref().iter().map(|word| Some(word.as_str())).collect(),
    };
    if let Some(url) = &raw.url {
        return Ok(vec![running(raw, url, at)?]);
    }
    let missing =
        |key: &str| at.error(&raw.id, key, "is missing (or give `url` for a server that already runs)");
    let command = raw.command.as_ref().ok_or_else(|| missing("server.command"))?;
    let ready = raw.ready.as_ref().ok_or_else(|| missing("server.ready"))?;
    if command.get_ref().is_empty() {
        return Err(at.error(command, "server.command", "is empty; give the program and its arguments"));
    }
    if raw.protocols.is_empty() {
        return Err(at.error(&raw.id, "server.protocols", "is empty; give \"echo\", \"http\" or both"));
    }
    for word in command.get_ref().iter().chain(raw.env.values()) {
        if let Some(unknown) = unknown_placeholder(word, &PLACEHOLDERS) {
            let message = format!("`{unknown}` is unknown; there are: {}", PLACEHOLDERS.join(" "));
            return Err(at.error(command, "server.command", message));
        }
        if word.contains(ARGUMENTS) && word != ARGUMENTS {
            let message =
                format!("{ARGUMENTS} stands for any number of words, so it must be a word of its own");
            return Err(at.error(command, "server.command", message));
        }
    }
    let ready_text = ready.get_ref();
    if let Some(unknown) = unknown_placeholder(ready_text, &["{each}", "{addr}"]) {
        return Err(at.error(ready, "server.ready", format!("`{unknown}` is unknown; there is: {{addr}}")));
    }
    if ready_text.trim().is_empty() {
        return Err(at.error(ready, "server.ready", "is empty; give a line it prints, or \"connect\""));
    }
    for word in ["connect", "end"] {
        if ready_text != word && distance(&ready_text.to_lowercase(), word) <= word.len() / 3 {
            let message = format!("a line `{ready_text}` would be waited for: did you mean \"{word}\"?");
            return Err(at.error(ready, "server.ready", message));
        }
    }
    let copies = raw.protocols.contains(&Protocol::Files);
    if copies != (ready_text == "end") || (copies && raw.protocols.len() > 1) {
        let message = "what copies files serves nothing else, and is ready at its \"end\"";
        return Err(at.error(ready, "server.ready", message));
    }
    let says = |what: &str| command.get_ref().iter().any(|word| word.contains(what));
    if copies && !(says("{source}") && says("{target}")) {
        let message = "nothing tells it what to copy: put {source} and {target} in the command";
        return Err(at.error(command, "server.command", message));
    }
    let given_address = command
        .get_ref()
        .iter()
        .chain(raw.env.values())
        .any(|w| w.contains("{addr}") || w.contains("{port}"));
    if !copies && !given_address && !ready_text.contains("{addr}") {
        let message = "nothing tells the address: put {port} or {addr} in `command`, or {addr} in `ready`";
        return Err(at.error(ready, "server.ready", message));
    }
    let ready_timeout_s = match &raw.ready_timeout_s {
        Some(value) => at.seconds(value, "server.ready_timeout_s", 0.01)?,
        None => READY_TIMEOUT_S,
    };
    let filled = |text: &str, word: Option<&str>| match word {
        Some(word) => text.replace("{each}", word),
        None => text.to_owned(),
    };
    Ok(words
        .into_iter()
        .map(|word| Server {
            id: filled(id, word),
            driver: raw.driver.as_deref().map(|driver| filled(driver, word)),
            command: command.get_ref().iter().map(|part| filled(part, word)).collect(),
            ready: match filled(ready_text, word) {
                connect if connect == "connect" => Ready::Connect,
                end if end == "end" => Ready::End,
                line => Ready::Line(line),
            },
            max_connections: raw.max_connections,
            max_connections_reason: raw.max_connections_reason.clone(),
            protocols: raw.protocols.clone(),
            totals: raw.totals,
            env: raw.env.iter().map(|(key, value)| (key.clone(), filled(value, word))).collect(),
            cwd: raw.cwd.clone(),
            ready_timeout_s,
            hint: raw.hint.clone(),
            own_page: raw.own_page,
            added: false,
            url: None,
        })
        .collect())
}

/// Returns a server that is neither started nor stopped.
fn running(raw: &RawServer, url: &Spanned<String>, at: &Place<'_>) -> Result<Server, SuiteError> {
    let parsed: Url = url.get_ref().parse().map_err(|how: String| at.error(url, "server.url", how))?;
    let started = raw.command.is_some() || raw.ready.is_some() || raw.each.is_some() || raw.totals;
    if started {
        let message = "a server that already runs has no command, ready, each or totals";
        return Err(at.error(url, "server.url", message));
    }
    if raw.protocols != [Protocol::Http] {
        return Err(at.error(
            url,
            "server.url",
            "a server that already runs speaks HTTP: protocols = [\"http\"]",
        ));
    }
    Ok(Server::running(raw.id.get_ref().clone(), parsed))
}

fn check_load(raw: &RawLoad, at: &Place<'_>) -> Result<Vec<Load>, SuiteError> {
    let connections = match (raw.protocol, &raw.connections) {
        (Protocol::Files, None) => vec![1],
        (Protocol::Files, Some(given)) => {
            return Err(at.error(given, "load.connections", "copying files makes none: leave it out"));
        }
        (_, None) => return Err(at.error(&raw.id, "load.connections", "is missing; give one count or more")),
        (_, Some(given)) if given.get_ref().is_empty() => {
            return Err(at.error(given, "load.connections", "is empty; give one count or more"));
        }
        (_, Some(given)) => {
            if let Some(count) = given.get_ref().iter().find(|count| !(1..=CONNECTIONS_MAX).contains(*count))
            {
                let message = format!("{count} is not between 1 and {CONNECTIONS_MAX}");
                return Err(at.error(given, "load.connections", message));
            }
            given.get_ref().clone()
        }
    };
    check_tree(raw, at)?;
    let pipeline = *raw.pipeline.get_ref();
    if !(1..=PIPELINE_MAX).contains(&pipeline) {
        return Err(at.error(
            &raw.pipeline,
            "load.pipeline",
            format!("{pipeline} is not 1 to {PIPELINE_MAX}"),
        ));
    }
    let payload_bytes = match (raw.protocol, &raw.payload_bytes) {
        (Protocol::Echo, None) => 64,
        (Protocol::Echo, Some(bytes)) if (1..=PAYLOAD_MAX).contains(bytes.get_ref()) => *bytes.get_ref(),
        (Protocol::Echo, Some(bytes)) => {
            let message = format!("{} is not between 1 and {PAYLOAD_MAX}", bytes.get_ref());
            return Err(at.error(bytes, "load.payload_bytes", message));
        }
        (Protocol::Http | Protocol::Files, None) => 0,
        (Protocol::Http, Some(bytes)) => {
            let message = "an HTTP load has no payload of its own; its answers decide";
            return Err(at.error(bytes, "load.payload_bytes", message));
        }
        (Protocol::Files, Some(bytes)) => {
            let message = "a tree has files of its own sizes; leave it out";
            return Err(at.error(bytes, "load.payload_bytes", message));
        }
    };
    let path = match &raw.path {
        None => "/".to_owned(),
        Some(path) => {
            let text = path.get_ref();
            if !text.starts_with('/') || text.bytes().any(|b| !(0x21..=0x7e).contains(&b)) {
                return Err(at.error(
                    path,
                    "load.path",
                    "must begin with / and be printable ASCII, no blanks",
                ));
            }
            text.clone()
        }
    };
    let share = match &raw.active_share {
        None => 1.0,
        Some(share) if *share.get_ref() > 0.0 && *share.get_ref() <= 1.0 => *share.get_ref(),
        Some(share) => {
            let message = format!("{} is no share: more than 0, at most 1", share.get_ref());
            return Err(at.error(share, "load.active_share", message));
        }
    };
    if raw.reconnect && (raw.protocol != Protocol::Http || pipeline != 1 || share < 1.0) {
        let message = "a connection per request is for HTTP, without pipeline, all of them active";
        return Err(at.error(&raw.id, "load.reconnect", message));
    }
    if raw.client == Some(Client::Wrk)
        && (raw.protocol != Protocol::Http || pipeline != 1 || share < 1.0 || raw.reconnect)
    {
        let message = "wrk speaks HTTP, one request in flight per connection, on all of them, and keeps them";
        return Err(at.error(&raw.id, "load.client", message));
    }
    if *raw.cores.get_ref() == 0 {
        return Err(at.error(&raw.cores, "load.cores", "a program cannot run on 0 CPUs"));
    }
    let about = raw.about.clone().or_else(|| match (raw.reconnect, raw.arguments.as_slice()) {
        (true, _) => Some("a connection per request".to_owned()),
        (false, []) => raw.tree.as_ref().map(|tree| {
            let Tree { dataset, scale, cold } = tree.get_ref();
            let part = if *scale == 1.0 { String::new() } else { format!(" at {scale}") };
            format!("{dataset}{part}, {}", if *cold { "cold" } else { "warm" })
        }),
        (false, words) => Some(words.join(" ")),
    });
    let timeout_s = match &raw.timeout_s {
        Some(value) => at.seconds(value, "load.timeout_s", 0.01)?,
        None => 5.0,
    };
    let loads: Vec<Load> = connections
        .iter()
        .map(|&connections| Load {
            id: match raw.protocol {
                Protocol::Files => raw.id.get_ref().clone(),
                _ => format!("{}-{connections}", raw.id.get_ref()),
            },
            tree: raw.tree.as_ref().map(|tree| tree.get_ref().clone()),
            protocol: raw.protocol,
            connections,
            active: ((f64::from(connections) * share).round() as u32).clamp(1, connections),
            reconnect: raw.reconnect,
            pipeline,
            payload_bytes,
            path: path.clone(),
            body: raw.body.clone(),
            client: raw.client.unwrap_or(Client::Load),
            timeout_s,
            arguments: raw.arguments.clone(),
            cores: *raw.cores.get_ref(),
            about: about.clone(),
        })
        .map(|load| match raw.client {
            None if !load.is_for_load() => Load { client: Client::Small, ..load },
            _ => load,
        })
        .collect();
    if raw.client == Some(Client::Load) && loads.iter().any(|load| !load.is_for_load()) {
        let message = "the load generator has at most 256 requests in flight on a connection, and keeps at most 16 MiB of \
                       them ready: with so large ones, fewer; \"small\" takes them all";
        return Err(at.error(&raw.id, "load.client", message));
    }
    Ok(loads)
}

/// Checks what a load of files copies, and that no other load does.
fn check_tree(raw: &RawLoad, at: &Place<'_>) -> Result<(), SuiteError> {
    match (raw.protocol, &raw.tree) {
        (Protocol::Files, None) => Err(at.error(&raw.id, "load.tree", "is missing: say what is copied")),
        (Protocol::Files, Some(tree)) => {
            let Tree { dataset, scale, .. } = tree.get_ref();
            if let Err(why) = dataset.parse::<Dataset>() {
                return Err(at.error(tree, "load.tree", why));
            }
            if !(*scale > 0.0 && *scale <= 1000.0) {
                return Err(at.error(
                    tree,
                    "load.tree",
                    format!("scale {scale} is not above 0, at most 1000"),
                ));
            }
            Ok(())
        }
        (_, Some(tree)) => Err(at.error(tree, "load.tree", "is for protocol \"files\" alone")),
        (_, None) => Ok(()),
    }
}

/// Returns the first `{word}` that is not one of `known`. Braces around anything but lower-case letters are
/// plain text, so that JSON arguments pass.
pub(super) fn unknown_placeholder<'a>(text: &'a str, known: &[&str]) -> Option<&'a str> {
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        rest = &rest[open..];
        let end = rest.find('}').map(|end| end + 1)?;
        let word = &rest[..end];
        let is_word = end > 2 && word[1..end - 1].bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        if is_word && !known.contains(&word) {
            return Some(word);
        }
        rest = &rest[1..];
    }
    None
}

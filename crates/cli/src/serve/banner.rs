//! What a person sees when a server begins: where, what, on which driver and why.

use ringroad_app::Launch;
use ringroad_serve::config::{Config, Kind, PhpTo, Route, Target};
use ringroad_serve::{Service, Source};
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::path::Path;

/// Prints it: on standard output, unless the access log goes there.
pub(super) fn print(service: &Service, config: &Config, source: &Source) {
    let taken = config.log.as_ref().is_some_and(|log| log.target == Target::Stdout);
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let terminal = if taken { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
    let text = text(service, config, source, Paint(terminal && !plain));
    // An output without a reader does not stop the server.
    let _ = if taken {
        io::stderr().lock().write_all(text.as_bytes())
    } else {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    };
}

#[derive(Clone, Copy)]
struct Paint(bool);

impl Paint {
    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn text(service: &Service, config: &Config, source: &Source, paint: Paint) -> String {
    let mut out = String::new();
    let what = match source {
        Source::File(path) => format!("what {} says", shown(path)),
        Source::App(app) => match &app.launch {
            Launch::Python { target, .. } => format!("the application {target}"),
            Launch::Php { file, .. } => format!("the application {}", shown(file)),
            Launch::Command { line, .. } => format!("the application `{}`", line.join(" ")),
        },
        Source::Folder { path, .. } => shown(&path.canonicalize().unwrap_or_else(|_| path.clone())),
    };
    // Writing to a string does not fail; here and below.
    let _ = writeln!(out, "{} serves {what}\n", paint.with("1", "Ringroad"));
    for url in service.urls() {
        let _ = writeln!(out, "  {}", paint.with("1;36", &url));
    }
    out.push('\n');
    if matches!(source, Source::File(_)) {
        let widest = config.routes.iter().map(|route| shown_route(route).len()).max().unwrap_or(0);
        for route in &config.routes {
            let _ = writeln!(
                out,
                "  {:widest$}  {}",
                shown_route(route),
                paint.with("2", &described(&route.kind))
            );
        }
        out.push('\n');
    }
    let crews = service.crews();
    for crew in &crews {
        let driver = paint.with("32", crew.driver().as_str());
        let _ = writeln!(out, "  driver   {driver}: {}", crew.why());
        for refusal in crew.choice.refused() {
            let _ = writeln!(out, "           {}", paint.with("2", &format!("not {refusal}")));
        }
    }
    match source {
        Source::App(app) => {
            let unit = if app.workers == 1 { "process" } else { "processes" };
            let _ = writeln!(out, "  workers  {} {unit}", app.workers);
        }
        _ if crews.len() > 1 => {
            let each: Vec<_> =
                crews.iter().map(|crew| format!("{} on {}", crew.workers, crew.driver())).collect();
            let _ = writeln!(out, "  workers  {}", each.join(", "));
        }
        _ => {
            let _ = writeln!(out, "  workers  {}", service.workers());
        }
    }
    if let Some(control) = &config.control {
        let _ = writeln!(out, "  control  {}", shown(control));
    }
    if let Some(log) = &config.log {
        let _ = writeln!(out, "  log      {}", log.target);
    }
    if let Source::Folder { path, autoindex: false } = source
        && !path.join("index.html").exists()
    {
        let hint = "There is no index.html here; --autoindex lists folders.";
        let _ = writeln!(out, "\n{hint}");
    }
    out.push_str("\nCtrl-C stops the server; requests in progress are completed.\n");
    out
}

fn described(kind: &Kind) -> String {
    match kind {
        Kind::Upload(upload) => format!("files put into {}", upload.root.path().display()),
        Kind::Static(files) => format!("files of {}", shown(files.root.path())),
        Kind::Respond(respond) => format!("answers {}", respond.status),
        Kind::Redirect(redirect) => {
            format!("to {} ({})", redirect.to, redirect.status.map_or(301, |status| status.code()))
        }
        Kind::Proxy(proxy) => match proxy.to.servers.as_slice() {
            [one] => format!("proxy to {}", one.address),
            several => format!("proxy to {} ({} servers)", proxy.to.name, several.len()),
        },
        Kind::App(app) => format!("application {}", app.app),
        Kind::Hub(hub) => format!("hub {}", hub.table.name),
        Kind::Php(php) => match &php.to {
            PhpTo::Server(server) => {
                format!("PHP of {} by {}", shown(php.files.root.path()), server.address())
            }
            PhpTo::App(app) => format!("PHP of {} by application {app}", shown(php.files.root.path())),
        },
        Kind::Health => "health".to_owned(),
        Kind::Status => "status of servers behind".to_owned(),
        Kind::Metrics(None) => "metrics".to_owned(),
        Kind::Metrics(Some(own)) => format!("metrics, on {own} alone"),
    }
}

/// Returns a route's hosts and path.
fn shown_route(route: &Route) -> String {
    format!("{}{}", route.when.hosts.join(","), route.when.path)
}

fn shown(path: &Path) -> String {
    crate::complaint::name(path)
}

//! What a person sees when a server begins: where, what, on which driver and why.

use ringroad_serve::config::{Config, Kind, Target};
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
    // A server is not stopped by nobody reading what it says.
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
        Source::Folder { path, .. } => shown(&path.canonicalize().unwrap_or_else(|_| path.clone())),
    };
    // Writing to a string does not fail; here and below.
    let _ = writeln!(out, "{} serves {what}\n", paint.with("1", "Ringroad"));
    for address in service.addresses() {
        let _ = writeln!(out, "  {}", paint.with("1;36", &format!("http://{address}/")));
    }
    out.push('\n');
    if matches!(source, Source::File(_)) {
        let widest = config.routes.iter().map(|route| route.path.len()).max().unwrap_or(0);
        for route in &config.routes {
            let _ = writeln!(out, "  {:widest$}  {}", route.path, paint.with("2", &described(&route.kind)));
        }
        out.push('\n');
    }
    let choice = service.choice();
    let driver = choice.driver();
    let _ = writeln!(out, "  driver   {}: {}", paint.with("32", driver.as_str()), choice.why());
    for refusal in choice.refused() {
        let _ = writeln!(out, "           {}", paint.with("2", &format!("not {refusal}")));
    }
    let _ = writeln!(out, "  workers  {}", service.workers());
    if let Some(log) = &config.log {
        let _ = writeln!(out, "  log      {}", log.target);
    }
    if let Source::Folder { path, autoindex: false } = source
        && !path.join("index.html").exists()
    {
        let hint = "There is no index.html here; --autoindex lists folders.";
        let _ = writeln!(out, "\n{hint}");
    }
    out.push_str("\nCtrl-C stops it; what has begun is finished.\n");
    out
}

fn described(kind: &Kind) -> String {
    match kind {
        Kind::Static(files) => format!("files of {}", shown(files.root.path())),
        Kind::Respond(respond) => format!("answers {}", respond.status),
        Kind::Redirect(redirect) => format!("to {} ({})", redirect.to, redirect.status.code()),
        Kind::Proxy(proxy) => format!("handed on to {}", proxy.to),
        Kind::Health => "health".to_owned(),
        Kind::Metrics(None) => "metrics".to_owned(),
        Kind::Metrics(Some(own)) => format!("metrics, on {own} alone"),
    }
}

fn shown(path: &Path) -> String {
    crate::complaint::name(path)
}

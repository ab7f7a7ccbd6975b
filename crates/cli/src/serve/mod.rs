//! `ringroad serve`: a server from a folder or a file, until a signal says stop.
//!
//! SIGTERM and SIGINT let what has begun finish, a second one ends it at once; SIGHUP reads the configuration
//! again, SIGUSR1 opens the log again. What is served and how is the library's (`ringroad_serve`); here is
//! what is said about it ([`banner`]).

mod banner;

use crate::complaint::{DONE, FAILED, USAGE, say, say_whole, why};
use crate::flags::{Common, ServeFlags};
use crate::foreign;
use crate::stopping::{arm_later, end_now, is_typed};
use ringroad_app::{Launch, Protocol, Settings, ask_php};
use ringroad_http::{ListenAt, ServerError};
use ringroad_serve::config::{Format, LogTo, Target};
use ringroad_serve::{Event, EventSink, Overrides, OwnTls, Service, Source, StartError, load};
use ringroad_tls::PairFiles;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How often it is looked whether a worker has ended by itself.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) fn run(flags: &ServeFlags, common: &Common) -> ExitCode {
    ExitCode::from(code(serve(flags, common)))
}

/// Returns the exit code of what has ended, and says why it failed.
pub(crate) fn code(ended: Result<u8, StartError>) -> u8 {
    match ended {
        Ok(code) => code,
        Err(StartError::Server(why @ ServerError::Driver(_))) => complain(&why.to_string(), USAGE),
        Err(why @ StartError::Folder(..)) => {
            let meant =
                if let StartError::Folder(path, _) = &why { foreign::folder_meant(path) } else { None };
            let meant = meant.map(|meant| format!(" ({meant})"));
            complain(&format!("{why}{}", meant.unwrap_or_default()), USAGE)
        }
        Err(why @ (StartError::Config(_) | StartError::Tls(_) | StartError::Overrides(_))) => {
            complain(&why.to_string(), USAGE)
        }
        Err(why) => complain(&why.to_string(), FAILED),
    }
}

fn complain(text: &str, code: u8) -> u8 {
    text.lines().for_each(say);
    code
}

/// What the loop below waits for.
enum Came {
    Signal(i32),
    Said(Event),
}

fn serve(flags: &ServeFlags, common: &Common) -> Result<u8, StartError> {
    let mut listen = flags.listen.clone();
    let source = match (&flags.config, &flags.app) {
        (Some(file), _) => Source::File(file.clone()),
        (None, Some(target)) => match application(flags, target, &mut listen) {
            Ok(app) => Source::App(Box::new(app)),
            Err(why) => return Ok(complain(&why, USAGE)),
        },
        (None, None) => Source::Folder {
            path: flags.folder.clone().unwrap_or_else(|| PathBuf::from(".")),
            autoindex: flags.autoindex || is_loopback(flags.listen.as_ref()),
        },
    };
    // With `-v` the requests are shown with their clients.
    let log = (common.verbose > 0).then(|| LogTo::new(Target::Stdout, Format::Combined));
    let overrides = Overrides {
        listen,
        tls: match (&flags.tls_cert, &flags.tls_key) {
            (Some(certificate), Some(key)) => {
                Some(OwnTls::Files(PairFiles { certificate: certificate.clone(), key: key.clone() }))
            }
            _ => flags.tls.as_ref().map(|_| OwnTls::Dev),
        },
        // With --app they are the application's.
        workers: flags.workers.map(usize::from).filter(|_| flags.app.is_none()),
        control: flags.control.clone(),
        reuse_port: flags.reuse_port,
        driver: common.driver,
        drivers: flags.drivers.clone().map(|drivers| drivers.0).unwrap_or_default(),
        log,
    };
    let config = load(&source, &overrides)?;
    if let (true, Some(file)) = (flags.check, &flags.config) {
        if !common.quiet {
            let routes = config.routes.len();
            let noun = if routes == 1 { "route" } else { "routes" };
            let keys = ringroad_serve::ONLY_AT_START.join("\n  ");
            let printed = crate::complaint::print(&format!(
                "{}: valid, {routes} {noun}\na reload (SIGHUP) puts a change in force, except of\n  {keys}\n",
                crate::complaint::name(file)
            ));
            if let Err(why) = printed {
                return Ok(complain(&why, FAILED));
            }
        }
        return Ok(DONE);
    }

    let quiet = common.quiet;
    let write = |bytes: &[u8]| io::stdout().lock().write_all(bytes);
    run_service(&source, overrides, config, quiet, write, |event| report(event, quiet))
}

/// Serves `source` until a signal says stop. Lines of a log that goes to standard output are given to
/// `write`, events to `report`.
///
/// # Errors
/// The server cannot be started.
pub(crate) fn hold(
    source: &Source,
    overrides: Overrides,
    quiet: bool,
    write: impl Fn(&[u8]) -> io::Result<()> + Send + Sync + 'static,
    report: impl Fn(&Event),
) -> Result<u8, StartError> {
    let config = load(source, &overrides)?;
    run_service(source, overrides, config, quiet, write, report)
}

fn run_service(
    source: &Source,
    overrides: Overrides,
    config: ringroad_serve::Config,
    quiet: bool,
    write: impl Fn(&[u8]) -> io::Result<()> + Send + Sync + 'static,
    report: impl Fn(&Event),
) -> Result<u8, StartError> {
    let (tell, told) = mpsc::channel();
    let said = tell.clone();
    // Before anything runs, so that a signal sent by the first client is not lost.
    let stopping = Arc::new(AtomicBool::new(false));
    if let Err(why) = listen_for_signals(&tell, &stopping) {
        return Ok(complain(&format!("registering for signals: {}", self::why(&why)), FAILED));
    }
    let voice = EventSink::new(move |event| drop(said.send(Came::Said(event))), write);
    let mut service = Service::start(source.clone(), overrides, config.clone(), voice)?;
    if !quiet {
        banner::print(&service, &config, source);
    }
    loop {
        match told.recv_timeout(LOOK) {
            Ok(Came::Said(Event::StopAsked)) => {
                // A signal beside it is a wish of its own.
                stopping.store(true, Ordering::SeqCst);
                break;
            }
            Ok(Came::Said(Event::MoveAsked(asked))) => service.move_asked(&asked),
            Ok(Came::Said(event)) => report(&event),
            Ok(Came::Signal(SIGHUP)) => service.reload(),
            Ok(Came::Signal(SIGUSR1)) => service.reopen_log(),
            Ok(Came::Signal(_)) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if service.has_failed() => {
                stopping.store(true, Ordering::SeqCst);
                break;
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    let stopped = stop(service, quiet);
    for came in told.try_iter() {
        if let Came::Said(event) = came {
            report(&event);
        }
    }
    Ok(match stopped {
        Ok(()) => DONE,
        Err(why) => complain(&why.to_string(), FAILED),
    })
}

/// Returns whether only this machine can connect, so that listing folders reveals nothing to others. Without
/// `--listen` the address is on loopback.
fn is_loopback(listen: Option<&ListenAt>) -> bool {
    match listen {
        None => true,
        Some(ListenAt::Tcp(address)) => address.ip().to_canonical().is_loopback(),
        Some(_) => false,
    }
}

/// Stops the server. If that takes longer than [`LOOK`], prints what it waits for.
fn stop(service: Service, quiet: bool) -> Result<(), ServerError> {
    let (drain, connections) = (service.drain(), service.connections());
    let (ended, has_ended) = mpsc::channel::<()>();
    let notice = thread::Builder::new().name("ringroad-stop".to_owned()).spawn(move || {
        let is_waiting = has_ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout);
        let left = if is_waiting && !quiet { connections() } else { 0 };
        if left > 0 {
            let unit = if left == 1 { "connection" } else { "connections" };
            say(&format!(
                "stopping: waiting at most {drain:?} for requests on {left} {unit}; \
                 a second Ctrl-C or SIGTERM ends the server now"
            ));
        }
    });
    let stopped = service.stop();
    drop(ended);
    // Without the thread there is no notice. Joined, it prints nothing after this returns.
    if let Ok(notice) = notice {
        let _ = notice.join();
    }
    stopped
}

/// Returns the application that the command line describes.
fn application(flags: &ServeFlags, target: &str, listen: &mut Option<ListenAt>) -> Result<Settings, String> {
    let protocol = match flags.protocol.as_deref() {
        Some("ringroad") => Some(Protocol::Ringroad),
        Some("http") => Some(Protocol::Http),
        Some("fastcgi") => Some(Protocol::FastCgi),
        Some("goridge") => Some(Protocol::Goridge),
        _ => None,
    };
    let launch = Launch::parse(target, protocol).map_err(|why| why.to_string())?;
    let mut settings = Settings::new("app", launch);
    if settings.launch.script().is_some() && settings.launch.protocol() == Protocol::Ringroad {
        // A program that is a server says where, and with how many workers.
        let server = ask_php(&settings)?;
        settings.workers = server.workers;
        settings.max_requests = server.max_requests;
        settings.dispatch = server.dispatch.unwrap_or(settings.dispatch);
        if listen.is_none() {
            let at = match server.host.strip_prefix("unix:") {
                Some(path) => format!("unix:{}", path.replacen("//", "/", 1)),
                None if server.host.contains(':') => format!("[{}]:{}", server.host, server.port),
                None => format!("{}:{}", server.host, server.port),
            };
            *listen = Some(ringroad_serve::config::listen_at(&at)?);
        }
    }
    if let Some(workers) = flags.workers.filter(|workers| *workers > 0) {
        settings.workers = usize::from(workers);
    }
    if let Some(root) = &flags.root_path {
        let root = root.trim_end_matches('/');
        if !root.starts_with('/') {
            return Err(format!("--root-path: expected a path as /shop, found {root:?}"));
        }
        root.clone_into(&mut settings.root_path);
    }
    settings.concurrency = flags.concurrency;
    settings.factory = flags.factory;
    settings.dev = flags.dev;
    Ok(settings)
}

fn report(event: &Event, quiet: bool) {
    if !(quiet
        && matches!(
            event,
            Event::Reloaded { .. }
                | Event::Refreshed(_)
                | Event::Moved { .. }
                | Event::CertificatesTaken
                | Event::CertificateObtained(_)
        ))
    {
        let print = if matches!(event, Event::App(_)) { say_whole } else { say };
        event.to_string().lines().for_each(print);
    }
}

/// Sends on each signal; while `stopping`, one that means stop has its default effect instead, which is the
/// end. The first that means stop sets it, when what follows is no longer the same wish.
fn listen_for_signals(tell: &mpsc::Sender<Came>, stopping: &Arc<AtomicBool>) -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(stopping))?;
    }
    let mut signals = SignalsInfo::<WithRawSiginfo>::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1])?;
    let (tell, stopping) = (tell.clone(), Arc::clone(stopping));
    thread::Builder::new().name("ringroad-signals".to_owned()).spawn(move || {
        let mut stops = false;
        for came in signals.forever() {
            if stops && is_typed(&came) {
                end_now(SIGINT);
            }
            let signal = came.si_signo;
            if !stops && [SIGINT, SIGTERM].contains(&signal) {
                stops = true;
                arm_later(&stopping);
            }
            // Gone: the process is about to end.
            if tell.send(Came::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

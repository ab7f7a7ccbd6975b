//! `ringroad serve`: a server from a folder or a file, until a signal says stop.
//!
//! SIGTERM and SIGINT let what has begun finish, a second one ends it at once; SIGHUP reads the configuration again.
//! What is served and how is the library's (`ringroad_serve`); here is what is said about it ([`banner`]).

mod banner;

use crate::complaint::{DONE, FAILED, USAGE, say, why};
use crate::flags::{Common, ServeFlags};
use ringroad_serve::config::{Format, LogTo, Target};
use ringroad_serve::{Event, Overrides, Service, Source, StartError, Voice, load};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
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
    ExitCode::from(match serve(flags, common) {
        Ok(code) => code,
        Err(StartError::Server(why @ ringroad_http::ServerError::Driver(_))) => {
            complain(&why.to_string(), USAGE)
        }
        Err(why @ (StartError::Config(_) | StartError::Folder(..))) => complain(&why.to_string(), USAGE),
        Err(why) => complain(&why.to_string(), FAILED),
    })
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
    let source = match &flags.config {
        Some(file) => Source::File(file.clone()),
        None => Source::Folder {
            path: flags.folder.clone().unwrap_or_else(|| PathBuf::from(".")),
            autoindex: flags.autoindex,
        },
    };
    // Who says `-v` wants to see who asks for what.
    let log = (common.verbose > 0).then_some(LogTo { target: Target::Stdout, format: Format::Combined });
    let overrides = Overrides {
        listen: flags.listen,
        workers: flags.workers.map(usize::from),
        reuse_port: flags.reuse_port,
        driver: common.driver,
        log,
    };
    let config = load(&source, &overrides)?;

    let (tell, told) = mpsc::channel();
    let said = tell.clone();
    // Before anything runs: whoever sends a signal as soon as it can connect is heard.
    let stopping = Arc::new(AtomicBool::new(false));
    if let Err(why) = listen_for_signals(&tell, &stopping) {
        return Ok(complain(&format!("registering for signals: {}", self::why(&why)), FAILED));
    }
    let voice = Voice::new(
        move |event| drop(said.send(Came::Said(event))),
        |bytes| io::stdout().lock().write_all(bytes),
    );
    let mut service = Service::start(source.clone(), overrides, config.clone(), voice)?;
    if !common.quiet {
        banner::print(&service, &config, &source);
    }
    loop {
        match told.recv_timeout(LOOK) {
            Ok(Came::Said(event)) => report(&event, common),
            Ok(Came::Signal(SIGHUP)) => service.reload(),
            Ok(Came::Signal(_)) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if service.has_failed() => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    stopping.store(true, Ordering::SeqCst);
    let stopped = service.stop();
    for came in told.try_iter() {
        if let Came::Said(event) = came {
            report(&event, common);
        }
    }
    Ok(match stopped {
        Ok(()) => DONE,
        Err(why) => complain(&why.to_string(), FAILED),
    })
}

fn report(event: &Event, common: &Common) {
    if !(common.quiet && matches!(event, Event::Reloaded { .. })) {
        event.to_string().lines().for_each(say);
    }
}

/// Sends on each signal; while `stopping`, one that means stop has its default effect instead, which is the end.
fn listen_for_signals(tell: &mpsc::Sender<Came>, stopping: &Arc<AtomicBool>) -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(stopping))?;
    }
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let tell = tell.clone();
    thread::Builder::new().name("ringroad-signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            // Gone: the process is about to end.
            if tell.send(Came::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

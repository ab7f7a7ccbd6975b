//! `ringroad cp`, and this program when it is called `cp`: files and trees copied as GNU cp does, and more.
//!
//! The `copy` library does the copying. This module turns a command line into its options ([`options`], read
//! by [`getopt`]), its events into text ([`talk`], in the voice of [`message`]), and its report into an exit
//! code. Start at [`run`].

mod getopt;
mod help;
mod message;
mod options;
mod progress;
mod quote;
mod resume;
mod talk;
mod words;

use crate::complaint::{FAILED, INTERRUPTED, why};
use crate::stopping::Watch;
use message::Voice;
use nix::sys::signal::{SigSet, Signal};
use options::{Environment, Request, Wish};
use resume::Standing;
use ringroad_copy::listing::{NotMade, Sum};
use ringroad_copy::{Control, Destination, Engine, Event, Missing, Observer, Report};
use ringroad_host::process;
use ringroad_measure::units::counted;
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// Returns the words of the verb if this line is a copy, and the caller: by the name the program was called,
/// or by the verb behind nothing but options that every verb understands.
pub(crate) fn wanted(mut words: impl Iterator<Item = OsString>) -> Option<(Caller, Vec<OsString>)> {
    let program = words.next().unwrap_or_default();
    if Path::new(&program).file_name() == Some(OsStr::new("cp")) {
        return Some((Caller::Cp, words.collect()));
    }
    let mut taken = Vec::new();
    while let Some(word) = words.next() {
        match word.to_str()? {
            "cp" => {
                taken.extend(words);
                return Some((Caller::Ringroad, taken));
            }
            "--driver" => {
                taken.push(word);
                taken.extend(words.next());
            }
            "--quiet" | "--verbose" => taken.push(word),
            text if text.starts_with("--driver=") => taken.push(word),
            "-q" => taken.push("--quiet".into()),
            text if text.starts_with("-v") && text.bytes().skip(1).all(|letter| letter == b'v') => {
                taken.push("--verbose".into());
            }
            _ => return None,
        }
    }
    None
}

/// Returns the help of `ringroad cp`, which is also the source of its completions and its manual page.
pub(crate) fn help() -> String {
    help::text(Voice::House)
}

/// The name under which this program was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    Cp,
    Ringroad,
}

/// Runs one command line and returns its exit code.
pub(crate) fn run(caller: Caller, words: Vec<OsString>) -> ExitCode {
    let mut environment = Environment::read();
    let voice = match caller {
        // The variables are about `ringroad cp` alone; GNU cp does not know them.
        Caller::Cp => {
            environment.driver = None;
            environment.divides = false;
            Voice::Gnu(environment.charset)
        }
        Caller::Ringroad => Voice::House,
    };
    let code = match options::parse(words.clone(), &environment, &mut |warning| {
        voice.say(&format!("warning: {warning}"))
    }) {
        Ok(Wish::Help) => {
            let columns = crate::terminal::columns(std::io::stdout()).unwrap_or(100);
            print(&help::fitted(&help::text(voice), columns), voice)
        }
        Ok(Wish::Version) => {
            print(&format!("{} (ringroad) {}\n", voice.program(), env!("CARGO_PKG_VERSION")), voice)
        }
        Ok(Wish::Copy(request)) => copy(&request, &words, voice),
        Ok(Wish::List(listing)) => list(&listing, voice),
        Err(usage) => voice.usage(&usage),
    };
    ExitCode::from(code)
}

/// Prints what could not be listed.
struct Complain(Voice);

impl Observer for Complain {
    fn event(&self, event: Event<'_>) {
        if let Event::Error(error) = event {
            self.0.say(&self.0.error(error));
        }
    }
}

fn list(listing: &options::Listing, voice: Voice) -> u8 {
    let control = Arc::new(Control::new());
    if let Err(error) = cancel_on_signals(&control, &Arc::default(), voice) {
        voice.say(&format!("registering for signals: {}", why(&error)));
        return FAILED;
    }
    let options::Listing { options, source, file, quiet } = listing;
    match ringroad_copy::listing::make(source, file, options, &Complain(voice), &control) {
        Ok(Sum { directories, several, entries, bytes }) => {
            let text = format!(
                "{}, {} ({}) and {} of files with several names in {}\n",
                counted(directories, "directory"),
                counted(entries, "entry"),
                counted(bytes, "byte"),
                counted(several, "name"),
                voice.name(file)
            );
            if *quiet { crate::complaint::DONE } else { print(&text, voice) }
        }
        Err(NotMade::Incomplete) => {
            let name = voice.name(file);
            voice.say(&format!(
                "{name} was not made, because the list would lack something (--exclude leaves it out)"
            ));
            FAILED
        }
        Err(NotMade::Cancelled) => INTERRUPTED,
        Err(NotMade::Refused(refusal)) => voice.refusal(&refusal),
    }
}

fn print(text: &str, voice: Voice) -> u8 {
    let mut out = crate::complaint::output();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => crate::complaint::DONE,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe && voice == Voice::House => {
            // A reader that closes the pipe has read enough.
            crate::complaint::DONE
        }
        Err(error) => {
            if ends_by_pipe(&error, voice) {
                end_by(SIGPIPE, voice);
            }
            voice.say(&format!("write error: {}", why(&error)));
            FAILED
        }
    }
}

/// Returns whether an error of writing is one by which GNU cp ends: by SIGPIPE, if the parent has not had it
/// ignored.
fn ends_by_pipe(error: &io::Error, voice: Voice) -> bool {
    error.raw_os_error() == Some(libc::EPIPE) && voice != Voice::House && ringroad_host::standard::pipe_ends()
}

fn copy(request: &Request, words: &[OsString], voice: Voice) -> u8 {
    if let Some(unheard) = unheard(request.options.engine, request.options.interposed) {
        voice.say(&format!("warning: {unheard}"));
    }
    let control = Arc::new(Control::new());
    let asking = Arc::new(AtomicBool::new(false));
    let signal = match cancel_on_signals(&control, &asking, voice) {
        Ok(signal) => signal,
        Err(error) => {
            voice.say(&format!("registering for signals: {}", why(&error)));
            return FAILED;
        }
    };
    let house = voice == Voice::House;
    let speaks_itself = request.quiet || request.json || request.verbose || request.options.interactive;
    let terminal = house && !request.quiet && !request.json && io::stderr().is_terminal();
    let bar = (terminal && !speaks_itself && !request.options.dry_run).then(progress::bar);
    if let (true, Some(standing), Some(source)) =
        (house && !request.quiet, request.standing, request.sources.first())
    {
        voice.say(&taken_for(standing, source, &request.destination, voice));
    }
    let talk = talk::Talk::new(voice, request, bar.clone(), asking);
    let talk = talk.told_of_readers(leave_without_reader(&control, &signal, voice));
    let over = progress::Over::default();
    let ended = std::thread::scope(|scope| {
        if bar.is_some() || request.json {
            // Where the system has no thread left, the copy goes on without.
            let watch = || progress::watch(&control, &talk, bar.as_ref(), &over);
            let _ = std::thread::Builder::new().spawn_scoped(scope, watch);
        }
        let ended =
            ringroad_copy::copy(&request.sources, &request.destination, &request.options, &talk, &control);
        over.tell();
        ended
    });
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    let report = match ended {
        Ok(report) => report,
        Err(refusal) => {
            let code = voice.refusal(&refusal);
            talk.refused(&refusal, code);
            // There is already an error for the exit code.
            let _ = talk.finish();
            return code;
        }
    };
    let mut code = voice.code(&report);
    if talk.declined() {
        code = code.max(FAILED);
    }
    talk.done(&report, code);
    if request.options.explain && !request.json {
        talk.line(explanation(&report).trim_end());
    }
    if house && !request.quiet && !request.json {
        if !report.is_success() {
            talk.complain(&summary(&report, resume::command(words, &request.options, &request.destination)));
            report.missing.iter().for_each(|missing| talk.complain(&lacks(missing, voice)));
        } else if request.options.dry_run {
            let columns = crate::terminal::columns(std::io::stdout());
            let line = progress::planned(&report.totals);
            talk.line(&crate::terminal::fitted(&line, columns, crate::terminal::Indent::At(2)));
        } else if terminal {
            talk.complain(&progress::done(&report.totals, report.elapsed));
        }
    }
    if let Err(error) = talk.finish() {
        if ends_by_pipe(&error, voice) {
            end_by(SIGPIPE, voice);
        }
        talk.complain(&format!("write error: {}", why(&error)));
        code = code.max(FAILED);
    }
    if report.cancelled && !house {
        end_by(signal.load(Ordering::Relaxed), voice);
    }
    code
}

/// Returns what the libraries of LD_PRELOAD do not hear of this copy. Nothing is said of what they do hear.
fn unheard(engine: Engine, interposed: bool) -> Option<&'static str> {
    match engine {
        _ if !interposed => None,
        _ if cfg!(target_feature = "crt-static") => Some(
            "LD_PRELOAD is set, and this program is static: its libraries do not hear of the copy, so owners, modes \
             and devices that fakeroot keeps are not copied (a program that is linked to libc copies them)",
        ),
        Engine::Ring | Engine::RingSplice => Some(
            "LD_PRELOAD is set, and its libraries do not hear of what a ring does (--engine threads does without)",
        ),
        Engine::Auto | Engine::Threads => None,
    }
}

/// Returns what `--resume` does with a directory that exists, and how to have the other.
fn taken_for(standing: Standing, source: &Path, destination: &Destination, voice: Voice) -> String {
    let name = voice.name(source);
    match destination {
        Destination::Into(folder) if standing == Standing::Place => {
            let (target, folder) =
                (voice.name(&folder.join(source.file_name().unwrap_or_default())), voice.name(folder));
            format!(
                "cp: {folder} is no interrupted copy of {name}: copying to {target} (-T copies to {folder} instead)"
            )
        }
        Destination::At(target) | Destination::Into(target) => {
            let target = voice.name(target);
            format!(
                "cp: {target} is an interrupted copy of {name}: going on there (-t {target} copies into it instead)"
            )
        }
    }
}

/// Returns the first signal stops the copy, which then cleans up; a later one ends this process where it
/// stands. Returns the number of the signal that came. A signal that the parent set to be ignored stays
/// ignored: under `nohup` a copy outlives its terminal.
///
/// Where the system has no thread left for this, signals end the process as they do by default.
///
/// The signals are blocked in every thread but the one that waits for them here. A thread that waits for a
/// hung file system is in uninterruptible sleep; if the kernel chose it for the signal, the handler would
/// never run.
///
/// The copy cannot end every wait: for an answer to a question, for a reader of a target FIFO, for a file
/// system that does not respond. The first is abandoned immediately, the others as described at [`let_end`].
fn cancel_on_signals(
    control: &Arc<Control>,
    asking: &Arc<AtomicBool>,
    voice: Voice,
) -> io::Result<Arc<AtomicI32>> {
    let number = Arc::new(AtomicI32::new(SIGINT));
    let scarce = || ringroad_copy::descriptors() < WATCHED_FROM;
    if scarce() && (process::raise_nofile().is_err() || scarce()) {
        // The watch takes two descriptors that the copy needs: a signal ends it at once, as GNU cp.
        return Ok(number);
    }
    let mut signals = vec![SIGINT, SIGTERM, SIGHUP];
    signals.retain(|signal| !process::ignores(*signal));
    let (control, asking, last) = (Arc::clone(control), Arc::clone(asking), Arc::clone(&number));
    let watch = Watch::begin(move |signal| {
        last.store(signal, Ordering::Relaxed);
        control.cancel();
        if !asking.load(Ordering::Relaxed) {
            // If the copy ends meanwhile, the process ends.
            let_end(&control);
        }
        end_by(signal, voice);
    });
    if watch.and_then(|watch| watch.over(&signals)).is_err() {
        // Without a thread or a pair of sockets a signal ends the copy at once.
        return Ok(number);
    }
    // The thread above was started before, so it takes them.
    let blocked: SigSet = signals.iter().filter_map(|signal| Signal::try_from(*signal).ok()).collect();
    blocked.thread_block()?;
    Ok(number)
}

/// Returns what ends a copy called `cp` when its output has lost its reader (`cp -v … | head`): as a signal
/// that is sent to it, by SIGPIPE in the end. What is copied in part is removed before.
fn leave_without_reader(
    control: &Arc<Control>,
    signal: &Arc<AtomicI32>,
    voice: Voice,
) -> impl Fn(&io::Error) -> bool + Send + Sync + use<> {
    let (control, signal) = (Arc::clone(control), Arc::clone(signal));
    let begun = AtomicBool::new(false);
    move |error| {
        let ends = ends_by_pipe(error, voice);
        if ends && !begun.swap(true, Ordering::Relaxed) {
            signal.store(SIGPIPE, Ordering::Relaxed);
            control.cancel();
            let hung = Arc::clone(&control);
            let wait = move || {
                let_end(&hung);
                end_by(SIGPIPE, voice);
            };
            if std::thread::Builder::new().spawn(wait).is_err() {
                end_by(SIGPIPE, voice);
            }
        }
        ends
    }
}

/// Number of descriptors from which on a copy is cancelled by signals.
const WATCHED_FROM: usize = 13;
/// Time limit for a cancelled copy to finish its current piece on a slow disk, and to clean up.
const PATIENCE: Duration = Duration::from_secs(10);
/// A copy without progress for this time counts as hung.
const STANDSTILL: Duration = Duration::from_secs(2);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Gives a cancelled copy time to end.
fn let_end(control: &Control) {
    let begun = Instant::now();
    let (mut seen, mut moved) = ((control.totals(), control.underway()), begun);
    while begun.elapsed() < PATIENCE && moved.elapsed() < STANDSTILL {
        std::thread::sleep(LOOK);
        let now = (control.totals(), control.underway());
        if now != seen {
            (seen, moved) = (now, Instant::now());
        }
    }
}

/// Ends the process as an interrupted one.
fn end_by(signal: i32, voice: Voice) {
    if voice == Voice::House {
        std::process::exit(i32::from(INTERRUPTED));
    }
    // The caller must see a program that was ended by the signal, as with GNU cp: so a shell loop ends.
    let _ = signal_hook::low_level::emulate_default_handler(signal);
}

/// Returns the engine and why, then a line per phase.
fn explanation(report: &Report) -> String {
    let choice = &report.choice;
    let mut text = format!("engine {}: {}\n", choice.engine.name(), choice.why);
    for (engine, reason) in &choice.refused {
        text.push_str(&format!("  not {}: {reason}\n", engine.name()));
    }
    text.push_str(&format!(
        "{} at most, {} in flight each; {:.3} s\n",
        counted(report.workers as u64, "worker"),
        choice.in_flight,
        report.elapsed.as_secs_f64()
    ));
    let totals = &report.totals;
    text.push_str(&format!(
        "{} found = {} copied + {} skipped + {} failed; {}\n",
        totals.scanned,
        totals.copied,
        totals.skipped,
        totals.failed,
        counted(totals.bytes, "byte")
    ));
    if !report.phases.is_empty() {
        text.push_str(&format!("{:<10} {:>10} {:>12} {:>10}\n", "phase", "time s", "calls", "µs/call"));
    }
    for phase in &report.phases {
        let time = phase.time.as_secs_f64();
        let each = if phase.calls == 0 { 0.0 } else { time * 1e6 / phase.calls as f64 };
        text.push_str(&format!("{:<10} {time:>10.3} {:>12} {each:>10.2}\n", phase.name, phase.calls));
    }
    text
}

/// Returns the line at the end of a copy that did not succeed in full.
fn summary(report: &Report, go_on: Option<String>) -> String {
    let totals = &report.totals;
    let mut text = format!(
        "cp: {} of {} copied, {} skipped, {} failed",
        totals.copied,
        counted(totals.scanned, "entry"),
        totals.skipped,
        totals.failed
    );
    if !totals.balance() {
        text.push_str(" (these do not add up: a mistake of this program, please report it)");
    }
    if report.cancelled {
        text.push_str("; interrupted");
        if let Some(line) = go_on {
            text.push_str(&format!("; to go on: {line}"));
        }
    }
    text
}

/// Returns what a file system of the destination did not take, as the last line.
fn lacks(missing: &Missing, voice: Voice) -> String {
    let (major, minor) = missing.numbers();
    let within = match missing.directories {
        0 => String::new(),
        directories => format!(" (with all that is in {})", counted(directories, "directory")),
    };
    let (entries, place) = (counted(missing.entries, "entry"), voice.name(&missing.place));
    format!(
        "cp: missing on the file system of {place} (device {major}:{minor}): {entries}{within}: {}",
        why(&missing.why())
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn wanted_of(line: &[&str]) -> Option<(Caller, Vec<String>)> {
        let (caller, words) = wanted(line.iter().map(OsString::from))?;
        Some((caller, words.into_iter().map(|word| word.into_string().unwrap()).collect()))
    }

    #[test]
    fn the_verb_is_found_behind_common_options_and_by_the_programs_name() {
        let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
        assert_eq!(wanted_of(&["/usr/bin/cp", "-q", "a"]), Some((Caller::Cp, words(&["-q", "a"]))));
        assert_eq!(wanted_of(&["ringroad", "cp", "a"]), Some((Caller::Ringroad, words(&["a"]))));
        let line = ["ringroad", "--driver", "threads", "-q", "-vv", "cp", "cp"];
        let expected = words(&["--driver", "threads", "--quiet", "--verbose", "cp"]);
        assert_eq!(wanted_of(&line), Some((Caller::Ringroad, expected)));
        assert_eq!(wanted_of(&["ringroad", "cat", "cp"]), None);
        assert_eq!(wanted_of(&["ringroad"]), None);
    }
}

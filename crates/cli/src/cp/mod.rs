//! `ringroad cp`, and this program when it is called `cp`: files and trees copied as GNU cp does, and more.
//!
//! The copying is in the `copy` library. Here a line becomes its options ([`options`], read by [`getopt`]), its
//! events become words ([`talk`], in the voice of [`message`]), its report an exit code. Start at [`run`].

mod getopt;
mod help;
mod message;
mod options;
mod progress;
mod quote;
mod talk;
mod words;

use crate::complaint::{FAILED, INTERRUPTED, why};
use message::Voice;
use options::{Environment, Request, Wish};
use ringroad_copy::{Control, Report};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

/// The words of the verb if this line is a copy, and who is to speak: by the name the program was called, or by
/// the verb behind nothing but options that every verb understands.
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

/// By which name this program was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    Cp,
    Ringroad,
}

/// Follows one line to its exit code.
pub(crate) fn run(caller: Caller, words: Vec<OsString>) -> ExitCode {
    let mut environment = Environment::read();
    let voice = match caller {
        // GNU cp never heard of this variable: it chooses for the verb alone.
        Caller::Cp => {
            environment.driver = None;
            Voice::Gnu(environment.charset)
        }
        Caller::Ringroad => Voice::House,
    };
    let code =
        match options::parse(words, &environment, &mut |warning| voice.say(&format!("warning: {warning}"))) {
            Ok(Wish::Help) => print(&help::text(voice), voice),
            Ok(Wish::Version) => {
                print(&format!("{} (ringroad) {}\n", voice.program(), env!("CARGO_PKG_VERSION")), voice)
            }
            Ok(Wish::Copy(request)) => copy(&request, voice),
            Err(usage) => voice.usage(&usage),
        };
    ExitCode::from(code)
}

fn print(text: &str, voice: Voice) -> u8 {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => crate::complaint::DONE,
        Err(error) => {
            voice.say(&format!("write error: {}", why(&error)));
            FAILED
        }
    }
}

fn copy(request: &Request, voice: Voice) -> u8 {
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
    let bar = (house && !speaks_itself && io::stderr().is_terminal()).then(progress::bar);
    let talk = talk::Talk::new(voice, request, bar.clone(), asking);
    let over = progress::Over::default();
    let ended = std::thread::scope(|scope| {
        if bar.is_some() || request.json {
            scope.spawn(|| progress::watch(&control, &talk, bar.as_ref(), &over));
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
            // There is an error to end with already.
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
    if house && !request.quiet && !request.json && !report.is_success() {
        talk.complain(&summary(&report));
    }
    if let Err(error) = talk.finish() {
        talk.complain(&format!("write error: {}", why(&error)));
        code = code.max(FAILED);
    }
    if report.cancelled && !house {
        end_by(signal.load(Ordering::Relaxed), voice);
    }
    code
}

/// The first signal stops the copy, which then cleans up; a second one ends this process where it stands.
/// The number returned is that of the signal that came. A signal that whoever started this ignores stays ignored: under
/// `nohup` a copy outlives its terminal.
///
/// Two waits are not the copy's to end: for an answer to a question, and for somebody to read from a FIFO that is
/// copied *to* or takes the manifest. The first is left at once, the second after [`PATIENCE`]; nothing is half-written in either.
fn cancel_on_signals(
    control: &Arc<Control>,
    asking: &Arc<AtomicBool>,
    voice: Voice,
) -> io::Result<Arc<AtomicI32>> {
    let (came, number) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI32::new(SIGINT)));
    let mut signals = vec![SIGINT, SIGTERM, SIGHUP];
    signals.retain(|signal| !ringroad_host::process::ignores(*signal));
    for &signal in &signals {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&came))?;
        signal_hook::flag::register(signal, Arc::clone(&came))?;
    }
    let mut waiting = signal_hook::iterator::Signals::new(&signals)?;
    let (control, asking, last) = (Arc::clone(control), Arc::clone(asking), Arc::clone(&number));
    std::thread::spawn(move || {
        for signal in waiting.forever() {
            last.store(signal, Ordering::Relaxed);
            control.cancel();
            if !asking.load(Ordering::Relaxed) {
                // The process ends meanwhile, if the copy does.
                std::thread::sleep(PATIENCE);
            }
            end_by(signal, voice);
        }
    });
    Ok(number)
}

/// How long a cancelled copy may take to end the piece it is at, on a slow disk, and to clean up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ends the process as an interrupted one.
fn end_by(signal: i32, voice: Voice) {
    if voice == Voice::House {
        std::process::exit(i32::from(INTERRUPTED));
    }
    // What called us must see a program ended by the signal, as it would with GNU cp: a shell loop ends.
    let _ = signal_hook::low_level::emulate_default_handler(signal);
}

/// The engine and why, then a line per phase.
fn explanation(report: &Report) -> String {
    let choice = &report.choice;
    let mut text = format!("engine {}: {}\n", choice.engine.name(), choice.why);
    for (engine, reason) in &choice.refused {
        text.push_str(&format!("  not {}: {reason}\n", engine.name()));
    }
    text.push_str(&format!(
        "{} workers at most, {} in flight each; {:.3} s\n",
        report.workers,
        choice.in_flight,
        report.elapsed.as_secs_f64()
    ));
    let totals = &report.totals;
    text.push_str(&format!(
        "{} found = {} copied + {} skipped + {} failed; {} bytes\n",
        totals.scanned, totals.copied, totals.skipped, totals.failed, totals.bytes
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

/// What came of it, when not all did.
fn summary(report: &Report) -> String {
    let totals = &report.totals;
    let mut text = format!(
        "cp: {} of {} entries copied, {} skipped, {} failed",
        totals.copied, totals.scanned, totals.skipped, totals.failed
    );
    if !totals.balance() {
        text.push_str(" (these do not add up: a mistake of this program, please report it)");
    }
    if report.cancelled {
        text.push_str("; interrupted (--resume goes on from here)");
    }
    text
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

//! The lab in one small program: a client, a server to measure, and a run of a suite without the command line
//! tool. The crate's tests use it as the child processes they measure.
//!
//! `tiny run SUITE` prints the record; `tiny client small OPTIONS` and `tiny server PROTOCOL ADDRESS` are
//! what it starts: the words of `lab client` and the output of `lab server` (ready line, totals line on
//! SIGTERM). Start at `main`.

use ringroad_lab::run::Totals;
use ringroad_lab::suite::Client;
use ringroad_lab::{Event, RunOptions, Suite, client, runner};
use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["client", "small", options] => {
            let report = client::run(&serde_json::from_str(options)?)?;
            println!("{}", serde_json::to_string(&report)?);
            Ok(())
        }
        ["server", protocol, address, quirk @ ..] => serve(protocol, address, quirk),
        ["run", suite] => run(suite),
        _ => Err("usage: tiny run SUITE | client small OPTIONS | server echo|http ADDRESS [QUIRK]".into()),
    }
}

fn run(suite: &str) -> Result<(), Box<dyn Error>> {
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&stop))?;
    let own = std::env::current_exe()?;
    let options = RunOptions {
        client: vec![own.to_string_lossy().into_owned(), "client".to_owned()],
        command: std::env::args().collect(),
        // The load generator is another program's.
        client_override: Some(Client::Small),
        ..RunOptions::of(own)
    };
    let mut tell = |event: &Event<'_>| {
        if let Event::RunDone { cell, run, caveats, done, total, .. } = event {
            let cpu = run.cpu_us_per_request.unwrap_or(f64::NAN);
            eprintln!("{done}/{total} {cell}: {cpu:.3} µs/request, {:.0}/s {caveats:?}", run.rps);
        }
    };
    let record = runner::run(&Suite::load(suite)?, &options, &mut tell, &stop)?;
    println!("{}", serde_json::to_string_pretty(&record)?);
    Ok(())
}

const ANSWER: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 20\r\n\r\n<h1>Hello World</h1>";

/// How long an answer takes. Without it client and server take all CPUs for as long as they are measured, and
/// tests run beside others.
const LEISURE: Duration = Duration::from_millis(1);

/// A thread per connection, which answers at leisure; enough to be measured. `eager` answers at once,
/// `miscount` adds one to its totals, `mute` prints none,
/// `die` exits with the first request, `unusable` exits with code 2, `closes` closes after each answer and
/// prints no totals, `impatient` closes a connection that is silent for 0.3 s, `narrow` has hardly a backlog
/// and takes its time to accept.
fn serve(protocol: &str, address: &str, quirk: &[&str]) -> Result<(), Box<dyn Error>> {
    let quirk = quirk.first().copied().unwrap_or_default().to_owned();
    if quirk == "unusable" {
        eprintln!("tiny: this way of doing I/O is switched off here");
        std::process::exit(2);
    }
    let counts: Arc<[AtomicU64; 4]> = Arc::default();
    let listener = TcpListener::bind(address)?;
    if quirk == "narrow" {
        // One waits to be accepted; what comes beside it is tried again by its kernel after a second.
        rustix::net::listen(&listener, 0)?;
    }
    let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM])?;
    println!("listening on {}", listener.local_addr()?);
    std::io::stdout().flush()?;
    let http = protocol == "http";
    let (at_end, at_end_quirk) = (Arc::clone(&counts), quirk.clone());
    let threads: Arc<Mutex<Vec<std::thread::JoinHandle<()>>>> = Arc::default();
    let at_end_threads = Arc::clone(&threads);
    std::thread::spawn(move || {
        signals.forever().next();
        // The clients have closed by now, so every connection's thread is ending and will have counted.
        for thread in
            at_end_threads.lock().map(|mut threads| std::mem::take(&mut *threads)).unwrap_or_default()
        {
            let _ = thread.join();
        }
        let count = |index: usize| at_end[index].load(Ordering::SeqCst);
        let extra = u64::from(at_end_quirk == "miscount");
        let totals = Totals {
            accepted: count(0),
            requests: count(1) + extra,
            bytes_in: count(2) + extra,
            bytes_out: count(3),
            syscalls: 0,
        };
        if !matches!(at_end_quirk.as_str(), "mute" | "closes") {
            println!("{}", serde_json::json!({ "totals": totals }));
        }
        std::process::exit(0);
    });
    for stream in listener.incoming() {
        if quirk == "narrow" {
            std::thread::sleep(Duration::from_millis(1500));
        }
        let (stream, counts, quirk) = (stream?, Arc::clone(&counts), quirk.clone());
        counts[0].fetch_add(1, Ordering::SeqCst);
        let thread = std::thread::spawn(move || {
            let _ = talk(stream, http, &counts, &quirk);
        });
        if let Ok(mut threads) = threads.lock() {
            threads.push(thread);
        }
    }
    Ok(())
}

fn talk(mut stream: TcpStream, http: bool, counts: &[AtomicU64; 4], quirk: &str) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    // A peer that neither sends nor closes must not keep the totals from being printed.
    let patience = if quirk == "impatient" { Duration::from_millis(300) } else { Duration::from_secs(10) };
    stream.set_read_timeout(Some(patience))?;
    let mut piece = [0; 16 * 1024];
    let mut carry = Vec::new();
    loop {
        let bytes = stream.read(&mut piece)?;
        if bytes == 0 {
            return Ok(());
        }
        if quirk == "die" {
            eprintln!("tiny: out of luck");
            std::process::exit(7);
        }
        counts[2].fetch_add(bytes as u64, Ordering::SeqCst);
        if quirk != "eager" {
            std::thread::sleep(LEISURE);
        }
        if !http {
            counts[3].fetch_add(bytes as u64, Ordering::SeqCst);
            stream.write_all(&piece[..bytes])?;
            continue;
        }
        carry.extend_from_slice(&piece[..bytes]);
        let mut answers = String::new();
        while let Some(end) = memchr::memmem::find(&carry, b"\r\n\r\n") {
            carry.drain(..end + 4);
            answers.push_str(ANSWER);
        }
        counts[1].fetch_add((answers.len() / ANSWER.len()) as u64, Ordering::SeqCst);
        counts[3].fetch_add(answers.len() as u64, Ordering::SeqCst);
        stream.write_all(answers.as_bytes())?;
        if quirk == "closes" && !answers.is_empty() {
            return Ok(());
        }
    }
}

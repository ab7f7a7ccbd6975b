//! Runs side by side: every server of a group is up with its client, and one at a time works, for a short
//! turn.
//!
//! A disturbance on a shared host lasts for seconds. Runs of a second, one after the other, meet it
//! unequally; turns of milliseconds share it (docs/adr/0021). Keeping the others' work out of a client's
//! figures is the [course](crate::client::course)'s part. A turn that takes too long ends its pair, so that
//! the others do not stand still until their connections time out. Start at [`Bench::run_by_turns`].

use crate::client::turns::{OVER, YOURS};
use crate::program::{Program, Start};
use crate::run::{Bench, ClientCommand, Failure, Measured, Subject, Watched};
use crate::suite::{Load, Server};
use ringroad_host::cpu::ProcessClock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A server and its client.
struct Pair {
    server: Subject,
    /// Until it has ended.
    client: Option<Program>,
    /// How long all its turns together may take.
    left: Duration,
    /// How long one of them may take.
    most: Duration,
    /// How the client was told to put the load on.
    command: ClientCommand,
}

/// What a turn may take longer than it should, seconds. While one program takes its time all others stand
/// still, and many close a connection that is silent for five seconds.
const TURN_SLACK_S: f64 = 2.0;
/// And for each connection, which is made in the first turn.
const TURN_SLACK_PER_CONNECTION_S: f64 = 0.0005;

impl Bench<'_> {
    /// Runs these servers under these loads, in turns of the suite's length. Returns, in the same order, when
    /// all processes are gone; what fails there is that one's failure, and the others go on.
    pub fn run_by_turns(&self, group: &[(&Server, &Load)]) -> Vec<Result<Measured, Failure>> {
        let others = group.len().saturating_sub(1);
        // A client stands still while all the others begin or end: connecting, warming up, counting calls,
        // draining.
        let others_s = others as f64 * (self.suite.warmup_s + self.suite.syscalls_s + 1.0);
        let mut pairs: Vec<Result<Pair, Failure>> =
            group.iter().map(|(server, load)| self.pair(server, load, others_s)).collect();
        let (started, own) = (Instant::now(), ProcessClock::own());
        let own_before = own.read().ok();
        let mut watched: Vec<Option<Watched>> = group.iter().map(|_| None).collect();
        loop {
            let mut any_left = false;
            for (pair, watched) in pairs.iter_mut().zip(&mut watched) {
                let Ok(running) = pair else { continue };
                match self.turn(running) {
                    Ok(()) if running.client.is_some() => any_left = true,
                    Ok(()) => {}
                    Err(failure) => *pair = Err(failure),
                }
                if let Ok(Pair { client, .. }) = pair
                    && let Some(ended) = client.take_if(|client| client.is_zombie())
                {
                    *watched = Some(Watched::of(ended));
                }
            }
            if !any_left {
                break;
            }
        }
        // What the harness used and how long it took is of all of them alike.
        let parts = u32::try_from(group.len().max(1)).unwrap_or(u32::MAX);
        let time = started.elapsed() / parts;
        let harness_cpu = own_before.zip(own.read().ok()).and_then(|(before, now)| now.checked_sub(before));
        let harness_cpu = harness_cpu.map(|cpu| cpu / parts);
        let ended = pairs.into_iter().zip(watched).zip(group);
        ended
            .map(|((pair, watched), (server, load))| {
                let pair = pair?;
                let Some(watched) = watched else { return Err(Failure::Interrupted) };
                let measured = self.reported(load, &watched.in_time(time, harness_cpu))?;
                let measured = pair.command.marked(measured);
                Ok(self.stopped(server, pair.server, load, measured))
            })
            .collect()
    }

    /// Starts a server, and its client, which waits for its first turn.
    fn pair(&self, server: &Server, load: &Load, others_s: f64) -> Result<Pair, Failure> {
        let (server_program, addr) = self.serve(server, load)?;
        let command = self.client(server, &server_program, addr, load, Some(others_s))?;
        let start = Start {
            words: command.words.clone(),
            cpus: self.cores.client.clone(),
            is_told: true,
            ..Start::default()
        };
        let client = Program::start(&start)?;
        let suite = self.suite;
        let most_s = TURN_SLACK_S
            + TURN_SLACK_PER_CONNECTION_S * f64::from(load.connections)
            + suite.turn_s.unwrap_or(0.0)
            // The first one warms up, the last one counts system calls.
            + suite.warmup_s.max(suite.syscalls_s);
        Ok(Pair {
            server: server_program,
            client: Some(client),
            left: Duration::from_secs_f64(command.most_s),
            most: Duration::from_secs_f64(most_s),
            command,
        })
    }

    /// One turn: until the client says that it is over, or ends.
    fn turn(&self, pair: &mut Pair) -> Result<(), Failure> {
        let Some(client) = &mut pair.client else { return Ok(()) };
        let begun = Instant::now();
        // One that does not listen any more has ended, or will be found out by the time it takes.
        let _ = client.tell(YOURS);
        while !client.is_zombie() && !client.has_said(OVER) {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Failure::Interrupted);
            }
            let spent = begun.elapsed();
            if spent >= pair.most.min(pair.left) {
                // Server and client end here, so that the others go on.
                let how = format!("a turn of it took more than {:.1} s", pair.most.as_secs_f64());
                return Err(Failure::Slow(how));
            }
            pair.server.wait_with(client);
        }
        pair.left = pair.left.saturating_sub(begun.elapsed());
        Ok(())
    }
}

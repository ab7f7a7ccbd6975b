//! Applies the gates to one run and to one cell. Thresholds and sentences are in `measure::caveat`.
//!
//! A run is judged by its own figures. A cell is judged by what it reports, medians, so that one disturbed
//! block of six does not condemn it. But a run that lost requests, counted wrong or failed does, because then
//! it is unknown what was measured. Start at [`of_run`] and [`of_cell`].

use crate::run::Measured;
use crate::suite::{Load, Protocol};
use ringroad_measure::record::{Errors, Limiter};
use ringroad_measure::{Caveat, Verdict, summary};

/// Returns what one run alone gives reason to doubt.
pub fn of_run(measured: &Measured, load: &Load) -> Vec<Caveat> {
    let run = &measured.run;
    let mut caveats = exact(measured, load);
    caveats.extend(Caveat::failures(run.errors, measured.sent));
    caveats.extend(Caveat::closed(run.closed, measured.sent));
    if run.completed == 0 {
        caveats.push(Caveat::NothingMeasured);
        return caveats;
    }
    caveats.extend(continuous(std::slice::from_ref(&measured), load));
    caveats
}

/// Returns what all runs of a cell together give reason to doubt; `failures` are runs that gave no figures,
/// as clauses.
pub fn of_cell(runs: &[&Measured], failures: &[String], load: &Load, shared_core: bool) -> Verdict {
    let mut verdict = Verdict::of(failures.iter().map(|how| Caveat::ServerFailed { how: how.clone() }));
    if runs.is_empty() {
        if failures.is_empty() {
            verdict.add(Caveat::NothingMeasured);
        }
        return verdict;
    }
    for measured in runs {
        for caveat in exact(measured, load) {
            verdict.add(caveat);
        }
    }
    let mut errors = Errors::default();
    runs.iter().for_each(|measured| errors.add(&measured.run.errors));
    let sent = runs.iter().map(|measured| measured.sent).sum();
    let mut caveats: Vec<Caveat> = Caveat::failures(errors, sent).into_iter().collect();
    let empty = runs.iter().filter(|measured| measured.run.completed == 0).count();
    if empty > 0 {
        caveats.push(match runs.len() {
            all if all == empty => Caveat::NothingMeasured,
            all => {
                Caveat::ServerFailed { how: format!("in {empty} of {all} runs no answer came in the window") }
            }
        });
    }
    let closed = runs.iter().map(|measured| measured.run.closed).sum();
    caveats.extend(Caveat::closed(closed, sent));
    let alone = || runs.iter().filter_map(|measured| measured.run.alone.clone());
    if let Some(why) = alone().next() {
        let count = |count| u32::try_from(count).unwrap_or(u32::MAX);
        caveats.extend(Caveat::ran_alone(count(alone().count()), count(runs.len()), why));
    }
    let measured: Vec<&Measured> = runs.iter().copied().filter(|m| m.run.completed > 0).collect();
    if !measured.is_empty() {
        caveats.extend(continuous(&measured, load));
        caveats.extend(Caveat::too_few_repeats(u32::try_from(measured.len()).unwrap_or(u32::MAX)));
        if let Some(cpu) = all(&measured, |m| m.run.cpu_us_per_request)
            && let Some((spread, middle)) = summary::mad(&cpu).zip(summary::median(&cpu))
            && middle > 0.0
        {
            caveats.extend(Caveat::unsteady(spread / middle));
        }
    }
    if shared_core {
        caveats.push(Caveat::SharedCore);
    }
    caveats.into_iter().for_each(|caveat| verdict.add(caveat));
    verdict
}

/// Returns what runs that are no cell's own say of counts, connections and the program.
pub(crate) fn exact_of(runs: &[&Measured], load: &Load) -> Vec<Caveat> {
    runs.iter().flat_map(|measured| exact(measured, load)).collect()
}

/// Returns what bounded the rate, by the medians over the runs; `None` where CPU use is not known.
pub fn limiter(runs: &[&Measured]) -> Option<Limiter> {
    use ringroad_measure::caveat::BUSY_SHARE;
    let server = middle(runs, |m| m.server_busy)?;
    let client = middle(runs, |m| m.run.client_cpu_share)?;
    Some(if server >= BUSY_SHARE {
        Limiter::Server
    } else if client >= BUSY_SHARE {
        Limiter::Client
    } else {
        Limiter::Neither
    })
}

/// Gates without tolerance: counts, connections, the program itself. One bad run is one too many.
fn exact(measured: &Measured, load: &Load) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    if let Some(how) = &measured.server_failed {
        caveats.push(Caveat::ServerFailed { how: how.clone() });
    }
    if let Some(served) = measured.served {
        caveats.extend(Caveat::not_served(measured.connections.unwrap_or(load.connections), served));
    }
    if let Some(totals) = &measured.totals {
        // What the client gave up waiting for, the server may have answered since or not: those are failures,
        // told as such.
        let given_up = measured.run.errors.timeout;
        let differ = |what, client: u64, server: u64, slack| {
            Caveat::counts_differ(what, client, server).filter(|_| client.abs_diff(server) > slack)
        };
        caveats.extend(match (load.protocol, measured.bytes) {
            (Protocol::Echo, Some((sent, received))) => {
                let slack = given_up * u64::from(load.payload_bytes);
                // What the server got and what it gave back, each against the client's other end.
                differ("bytes", sent, totals.bytes_in, slack)
                    .or_else(|| differ("bytes", received, totals.bytes_out, slack))
            }
            _ => {
                let slack = measured.count_slack + given_up;
                differ("requests", measured.run.client_count, totals.requests, slack)
            }
        });
    }
    caveats
}

/// Gates on figures, by the medians over the runs.
fn continuous(runs: &[&Measured], load: &Load) -> Vec<Caveat> {
    let fewer = runs.iter().find_map(|measured| measured.connections);
    let in_flight = f64::from(fewer.unwrap_or(load.active)) * f64::from(load.pipeline);
    let mut caveats = Vec::new();
    caveats.extend(fewer.map(|taken| Caveat::FewerConnections { taken, wanted: load.connections }));
    // Rate times latency is what `in_flight` of a run already holds.
    caveats.extend(middle(runs, |m| m.in_flight).and_then(|x| Caveat::littles_law(x, 1.0, in_flight)));
    // A copy is timed from its start to its end: no window was cut out of anything.
    if load.tree.is_none() {
        caveats.extend(middle(runs, |m| Some(m.run.duration_s)).and_then(Caveat::window_too_short));
    }
    if let Some((client, server)) =
        middle(runs, |m| m.run.client_cpu_share).zip(middle(runs, |m| m.server_busy))
    {
        caveats.extend(Caveat::client_bound(client, server));
    }
    caveats.extend(middle(runs, |m| m.run.client_wait_share).and_then(Caveat::client_starved));
    caveats.extend(middle(runs, |m| m.run.steal_share).and_then(Caveat::steal));
    if runs.iter().any(|m| m.run.cpu_us_per_request.is_none()) {
        caveats.push(Caveat::Unknown {
            what: "the program's CPU time".to_owned(),
            why: "its process clock could not be read in every run".to_owned(),
        });
    }
    caveats
}

/// Returns the median of a figure over the runs that have it.
pub(crate) fn middle(runs: &[&Measured], figure: impl Fn(&Measured) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = runs.iter().filter_map(|m| figure(m)).collect();
    summary::median(&values)
}

/// Returns a figure of every run; `None` if one has none.
pub(crate) fn all(runs: &[&Measured], figure: impl Fn(&Measured) -> Option<f64>) -> Option<Vec<f64>> {
    runs.iter().map(|m| figure(m)).collect()
}

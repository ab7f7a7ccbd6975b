//! May the numbers of a load be believed: the gates of `measure`, held against an outcome.
//!
//! A slow server is a result. What makes a result doubtful is the client: when it was late by itself, had no
//! time, or did not put on the load it says. Start at [`verdict`].

use crate::ask::named;
use crate::connection::NO_PORT;
use crate::plan::{Pace, Plan};
use crate::run::Outcome;
use ringroad_measure::Verdict;
use ringroad_measure::caveat::{Caveat, Level, WINDOW_MIN_S};
use ringroad_measure::record::Errors;
use ringroad_measure::units::counted;

/// Of what is due in open loop, so much has to be answered in the same time.
const ANSWERED_SHARE: f64 = 0.95;

/// Returns the verdict on an outcome.
pub fn verdict(plan: &Plan, outcome: &Outcome) -> Verdict {
    let mut verdict = Verdict::valid();
    let mut add = |caveat: Option<Caveat>| caveat.into_iter().for_each(|caveat| verdict.add(caveat));
    let Outcome { counts, tally, client, .. } = outcome;
    let refused = if matches!(plan.pace, Pace::Hold(_)) { None } else { all_refused(outcome) };
    let seconds = outcome.window.as_secs_f64();
    add(Caveat::window_too_short(seconds));
    if let Pace::Hold(hold) = plan.pace {
        // Connections that are lost and heartbeats that fail are what is looked for, not a reason to doubt
        // it.
        add((counts.held.due == 0).then_some(Caveat::NothingMeasured));
        add((outcome.window < hold.heartbeat).then(|| {
            let heartbeat = hold.heartbeat;
            Caveat::Other(format!(
                "connections were held for {seconds:.1} s with a heartbeat every {heartbeat:?}: not each of them was \
                 heard of, so hold them for several heartbeats."
            ))
        }));
    } else {
        // Answers that were not as expected came in the window, and are counted among the failures.
        let came = refused.is_some() || tally.refused > 0;
        add((tally.completed == 0 && !came).then_some(Caveat::NothingMeasured));
        // What never left counts as asked for: to leave it out would flatter a server that froze.
        let said = refused.is_some() && counts.errors.total() == counts.errors.status;
        // These never came to the server.
        let no_port = counts.failures.get(NO_PORT).copied().unwrap_or(0);
        let others = Errors { connect: counts.errors.connect.saturating_sub(no_port), ..counts.errors };
        add((no_port > 0).then(|| Caveat::Other(without_port(no_port))));
        add(Caveat::failures(others, counts.sent).filter(|_| !said));
        add(Caveat::unsent(counts.unsent, counts.unsent + counts.sent));
        let repeated = counts.broadcast.repeated;
        add((repeated > 0).then(|| {
            Caveat::Other(format!(
                "{} came to a connection that had got the message before: the server sends messages more than once, or a \
                 connection has joined more than once.",
                counted(repeated, "delivery")
            ))
        }));
    }
    // Seconds in any case, so that what several parts say of it differs in its numbers alone.
    let longest_s = tally.unanswered_ns as f64 / 1e9;
    add((tally.unanswered > 0).then(|| {
        Caveat::Other(format!(
            "{} got no answer: they count with the time that was waited for them, {longest_s:.3} s at most, so the \
             latencies are lower bounds. Find out what became of them, or raise --timeout to learn how long they take.",
            counted(tally.unanswered, "request")
        ))
    }));
    let missing = plan.connections.saturating_sub(outcome.connected);
    add((missing > 0).then(|| {
        Caveat::Other(format!(
            "{} of {} connections were made before the load began: it is the load of these, so raise what limits the \
             others (the server's backlog and descriptors, --connect-limit) or ask for fewer.",
            outcome.connected, plan.connections
        ))
    }));
    if !is_few(plan) && !matches!(plan.pace, Pace::Hold(_)) {
        // Of connections that send by stages, those that have come to.
        let wanted = match &plan.stages {
            Some(_) => outcome.asked,
            None => plan.connections - missing,
        };
        add(Caveat::not_served(wanted, outcome.served));
    }
    // It is counted in ticks of 10 ms: of a window of a few of them a share says nothing, and that is doubted
    // anyway.
    let stolen = client.steal_share.filter(|_| seconds >= WINDOW_MIN_S);
    add(stolen.and_then(Caveat::steal));
    add(Caveat::processes_lost(outcome.lost.join("; "), outcome.lost.len() as u32, plan.lost_max));
    let share = |time| client.cores(time).map(|cores| cores / f64::from(plan.workers()));
    add(share(client.wait).and_then(Caveat::client_starved));
    add(share(client.cpu).and_then(Caveat::client_busy));
    let response = &tally.latencies.response;
    match plan.pace {
        // Where connecting is in no latency, the law says nothing of a connection for each request; and where
        // the connections change, there is no number in flight to hold it against. A count is spread over
        // fewer and fewer connections at its end, whether it has a limit of time beside it or not.
        Pace::Closed
            if (!plan.one_request_per_connection || plan.until_closed)
                && plan.duration.is_some_and(|length| plan.count.is_none() || outcome.window >= length)
                && plan.stages.is_none() =>
        {
            let in_flight = f64::from(plan.active().saturating_sub(missing)) * f64::from(plan.pipeline);
            // All that was waited for in the window, good answers or not, and of what crosses an edge of it
            // the part within.
            let answers = tally.answers();
            let (rate, mean_s) = (answers as f64 / seconds, tally.awaited_ns / answers.max(1) as f64 / 1e9);
            add((answers > 0).then(|| Caveat::littles_law(rate, mean_s, in_flight)).flatten());
        }
        Pace::Closed => {}
        Pace::Open { .. } | Pace::Hold(_) => {
            // A count has an end of its own, which no second is due after.
            if let Pace::Open { per_second, .. } = plan.pace
                && plan.count.is_none()
            {
                // Each message of a broadcast is due at all of its receivers.
                let each = plan.broadcast.as_ref().map_or(1, |_| counts.broadcast.receivers());
                add(behind(per_second * each as f64, tally.completed, seconds));
            }
            let late = tally.latencies.late.as_ref();
            let late_ns = |q| late.and_then(|late| late.quantile_ns(q)).map(|ns| ns as f64 / 1e3);
            let median = response.quantile_ns(0.5).map(|ns| ns as f64 / 1e3);
            if let (Some(p50), Some(p99), Some(of)) = (late_ns(0.5), late_ns(0.99), median) {
                add(Caveat::generator_late(p50, p99, of));
            }
        }
    }
    add(outcome.interrupted.then(|| {
        Caveat::Other(format!("the run was stopped after {seconds:.1} s of measured time: use it as such."))
    }));
    if let Some(failures) = Caveat::failures(counts.errors, counts.sent)
        && counts.failures.contains_key(NO_PORT)
        && failures.level() == Level::Invalid
    {
        verdict.level = Level::Invalid;
    }
    if let Some(refused) = refused {
        // Where nothing was answered as asked for, no other reason is as bad.
        verdict.level = Level::Invalid;
        verdict.reasons.insert(0, Caveat::Other(refused));
    }
    verdict
}

/// Returns what all answers were, if they came and none of the whole run was good.
fn all_refused(outcome: &Outcome) -> Option<String> {
    let Outcome { counts, .. } = outcome;
    let (most, _) = counts.statuses.iter().max_by_key(|(_, count)| **count)?;
    if counts.completed > 0 || counts.errors.status == 0 {
        return None;
    }
    let advice = advice(*most, counts.location.as_deref());
    Some(match counts.statuses.len() {
        1 => format!("every answer was {}: {advice}.", named(*most)),
        _ => format!("no answer had an expected status, most were {}: {advice}.", named(*most)),
    })
}

/// Returns what connects mean that found no port, and what to do.
fn without_port(count: u64) -> String {
    format!(
        "{} found no free local port for this server: that is a limit of this machine, not of the server. A port that \
         was used stays taken for a minute where this side closed first. Use more source addresses (--source), widen \
         net.ipv4.ip_local_port_range, or keep connections open.",
        counted(count, "connect")
    )
}

/// Returns what to do about a status that was not expected.
pub fn advice(status: u16, location: Option<&str>) -> String {
    match (status, location) {
        (300..=399, Some(location)) => {
            format!("it leads to {}, so load that, or follow it with -L", location.escape_debug())
        }
        (400, _) => {
            "check the request, and whether this port expects http:// or https:// (--expect-status 400 accepts it)".to_owned()
        }
        (401 | 403, _) => format!("log in with -a USER:PASSWORD, -H or --cookie (--expect-status {status} accepts it)"),
        (404, _) => "check the path (--expect-status 404 accepts it)".to_owned(),
        (405, _) => "check the method, -X (--expect-status 405 accepts it)".to_owned(),
        (500..=599, _) => format!("read the server's log (--expect-status {status} accepts it)"),
        _ => format!("check the request (--expect-status {status} accepts it)"),
    }
}

/// Returns the answers did not keep up with what was due: then the backlog grew to the end.
fn behind(per_second: f64, completed: u64, seconds: f64) -> Option<Caveat> {
    let due = per_second * seconds;
    let answered = completed as f64 / due;
    // A few are always on their way at the edges, and arrivals by chance are a few more or less.
    (due >= 100.0 && completed > 0 && answered < ANSWERED_SHARE).then(|| {
        Caveat::Other(format!(
            "only {:.0} % of what was due was answered meanwhile, so the backlog grew to the end: these latencies say how \
             long the run was, not how slow an answer is. Lower the rate, or search for it (--knee).",
            100.0 * answered
        ))
    })
}

/// So few requests that not every connection need get one.
fn is_few(plan: &Plan) -> bool {
    if plan.broadcast.is_some() {
        return false;
    }
    let wanted = u64::from(plan.connections).saturating_mul(2);
    let due = match plan.pace {
        Pace::Closed | Pace::Hold(_) => None,
        Pace::Open { per_second, .. } => {
            plan.duration.map(|length| (per_second * length.as_secs_f64()) as u64)
        }
    };
    [plan.count, due].into_iter().flatten().any(|count| count < wanted)
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::hold::Hold;
    use crate::plan::Message;
    use crate::run::Client;
    use crate::schedule::Arrivals;
    use crate::tally::{Counts, Tally};
    use std::time::Duration;

    fn plan() -> Plan {
        Plan::new("tcp://localhost:7".parse().unwrap(), vec![Message::echo(b"x".to_vec()).unwrap()])
    }

    /// Ten connections, a thousand requests each of 10 ms in ten seconds: Little is content.
    pub(crate) fn good(open: bool) -> Outcome {
        let mut tally = Tally::new(open);
        tally.completed = 10_000;
        tally.awaited_ns = 10_000_000.0 * 10_000.0;
        tally.latencies.response.record_n(10_000_000, 10_000);
        if let Some(late) = &mut tally.latencies.late {
            late.record_n(10_000, 10_000);
        }
        Outcome {
            addresses: Vec::new(),
            connected: 10,
            asked: 10,
            served: 10,
            open_at_end: 10,
            idle_at_end: 0,
            counts: Counts { sent: 11_000, completed: 11_000, answers: 11_000, ..Counts::default() },
            tally,
            window: Duration::from_secs(10),
            series: Vec::new(),
            stages: Vec::new(),
            handshakes: None,
            urls: Vec::new(),
            client: Client {
                span: Duration::from_secs(10),
                cpu: Some(Duration::from_secs(4)),
                wait: Some(Duration::from_millis(10)),
                steal_share: Some(0.0),
                system_calls: 0,
            },
            interrupted: false,
            lost: Vec::new(),
        }
    }

    pub(crate) fn open() -> Plan {
        Plan { pace: Pace::Open { per_second: 1000.0, arrivals: Arrivals::Constant }, ..plan() }
    }

    #[test]
    fn a_quiet_run_is_valid() {
        assert_eq!(verdict(&plan(), &good(false)), Verdict::valid());
        assert_eq!(verdict(&open(), &good(true)), Verdict::valid());
    }

    #[test]
    fn each_doubt_is_said_and_as_bad_as_it_is() {
        type Change = fn(&mut Outcome);
        let cases: [(&str, Level, Change); 10] = [
            ("the backlog grew", Level::Suspect, |outcome| outcome.tally.completed = 9_400),
            ("Not one answer", Level::Invalid, |outcome| outcome.tally = Tally::new(true)),
            ("failed", Level::Suspect, |outcome| {
                outcome.counts.errors = Errors { reset: 1, ..Errors::default() }
            }),
            ("failed", Level::Invalid, |outcome| {
                outcome.counts.errors = Errors { status: 1000, ..Errors::default() }
            }),
            ("never had a connection", Level::Suspect, |outcome| outcome.counts.unsent = 1),
            ("never had a connection", Level::Invalid, |outcome| outcome.counts.unsent = 1_000),
            ("got an answer", Level::Invalid, |outcome| outcome.served = 9),
            ("waited for a CPU", Level::Suspect, |outcome| {
                outcome.client.wait = Some(Duration::from_secs(1))
            }),
            ("its own speed", Level::Suspect, |outcome| outcome.client.cpu = Some(Duration::from_secs(10))),
            ("stopped", Level::Suspect, |outcome| outcome.interrupted = true),
        ];
        for (words, level, change) in cases {
            let mut outcome = good(true);
            change(&mut outcome);
            let verdict = verdict(&open(), &outcome);
            let said = verdict.to_string();
            assert_eq!(verdict.level, level, "{said}");
            assert!(said.to_lowercase().contains(&words.to_lowercase()), "{words}: {said}");
        }
    }

    #[test]
    fn answers_of_another_status_than_expected_are_answers() {
        let mut outcome = good(true);
        // Good ones before the window, and bad ones in it.
        outcome.tally = Tally::new(true);
        outcome.counts = Counts { sent: 1_000, completed: 30, answers: 1_000, ..Counts::default() };
        assert!(verdict(&open(), &outcome).to_string().contains("not one answer came"));
        outcome.counts.errors.status = 970;
        outcome.counts.statuses = [(200, 30), (503, 970)].into();
        assert!(verdict(&open(), &outcome).to_string().contains("not one answer came"), "all came before it");
        outcome.tally.refused = 970;
        let verdict = verdict(&open(), &outcome);
        assert_eq!(verdict.level, Level::Invalid);
        let said = verdict.to_string();
        assert!(said.contains("970 of 1000 requests failed") && !said.contains("not one answer"), "{said}");
    }

    #[test]
    fn one_stolen_tick_of_a_short_window_does_not_make_it_invalid() {
        let mut outcome = good(true);
        outcome.client.steal_share = Some(0.5);
        assert_eq!(verdict(&open(), &outcome).level, Level::Invalid);
        outcome.window = Duration::from_millis(20);
        outcome.client = Client { steal_share: outcome.client.steal_share, ..Client::default() };
        assert_eq!(verdict(&open(), &outcome).level, Level::Suspect);
    }

    #[test]
    fn a_generator_that_was_late_by_itself_is_told_apart_from_a_server_that_was_slow() {
        let late = |ns| {
            let mut outcome = good(true);
            outcome.tally.latencies.late.as_mut().unwrap().record_n(ns, 20_000);
            verdict(&open(), &outcome).level
        };
        assert_eq!(late(10_000), Level::Valid);
        assert_eq!(late(2_000_000), Level::Suspect, "more than a tenth of the median");
        assert_eq!(late(8_000_000), Level::Invalid, "most of the median is our own");
        // The same lag, but all of it waiting for a connection that the server keeps busy.
        let mut slow = good(true);
        slow.tally.latencies.lag.as_mut().unwrap().record_n(8_000_000, 20_000);
        assert_eq!(verdict(&open(), &slow).level, Level::Valid);
    }

    #[test]
    fn what_becomes_of_held_connections_is_a_result_and_no_doubt() {
        let hold = Hold { heartbeat: Duration::from_secs(5), retry_limit: None };
        let plan = Plan { pace: Pace::Hold(hold), ..plan() };
        let mut outcome = good(true);
        outcome.counts.errors.connect = 5_000;
        (outcome.counts.held.due, outcome.counts.held.away) = (10_000, 9_000);
        outcome.served = 0;
        assert_eq!(verdict(&plan, &outcome), Verdict::valid());
        outcome.window = Duration::from_secs(4);
        assert_eq!(verdict(&plan, &outcome).level, Level::Suspect);
        outcome.counts.held.due = 0;
        assert_eq!(verdict(&plan, &outcome).level, Level::Invalid);
    }

    #[test]
    fn connects_without_a_free_port_are_this_machines_and_no_fault_of_the_server() {
        let mut outcome = good(false);
        outcome.counts.errors.connect = 500;
        outcome.counts.failures.insert(NO_PORT.to_owned(), 500);
        let said = verdict(&plan(), &outcome);
        assert_eq!(said.level, Level::Invalid, "{said}");
        assert!(said.to_string().contains("500 connects found no free local port"), "{said}");
        assert!(!said.to_string().contains("backlog"), "{said}");
        // What else failed is told as ever, without them.
        outcome.counts.errors.connect = 501;
        let said = verdict(&plan(), &outcome).to_string();
        assert!(said.contains("no free local port") && said.contains("connect 1)"), "{said}");
    }

    #[test]
    fn a_limit_of_time_that_a_count_did_not_reach_changes_no_verdict() {
        let mut outcome = good(false);
        // Of the last requests most connections have none.
        outcome.tally.awaited_ns /= 2.0;
        let counted = |length: Option<u64>| Plan {
            count: Some(11_000),
            duration: length.map(Duration::from_secs),
            ..plan()
        };
        let alone = verdict(&counted(None), &outcome);
        assert_eq!(alone, Verdict::valid());
        assert_eq!(verdict(&counted(Some(20)), &outcome), alone);
        assert_eq!(verdict(&counted(Some(10)), &outcome).level, Level::Invalid, "the time ended it");
    }

    #[test]
    fn rate_times_latency_must_be_what_was_in_flight() {
        let mut outcome = good(false);
        outcome.tally.awaited_ns /= 2.0;
        assert_eq!(verdict(&plan(), &outcome).level, Level::Invalid);
        let churn = Plan { one_request_per_connection: true, ..plan() };
        assert_eq!(verdict(&churn, &outcome).level, Level::Valid);
    }
}

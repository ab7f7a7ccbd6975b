//! The exit code of `--hold`: a server that does not keep long-lived connections is a failure.

use ringroad_load::hold::{Health, diagnose};
use ringroad_load::plan::Pace;
use ringroad_load::{Outcome, Plan};

/// Returns what is wrong with the endpoint, if it was held and something is.
pub(super) fn sick(plan: &Plan, outcome: &Outcome) -> Option<String> {
    if !matches!(plan.pace, Pace::Hold(_)) {
        return None;
    }
    let (health, findings) = diagnose(&outcome.counts.held, outcome.window);
    // What is merely not normal is told in the summary.
    (health >= Health::Unhealthy)
        .then(|| format!("hold, on {}: {health}: {}", plan.target, findings.join("; ")))
}

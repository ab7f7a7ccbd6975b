//! The findings as one JSON object, for scripts. Fields are added, never renamed.

use super::Findings;
use super::fixes::{self, Fix};
use serde_json::{Map, Value, json};

/// Returns the object, as text.
pub(super) fn object(findings: &Findings, fixes: &[Fix]) -> String {
    let Findings { facts, gate, drivers, choice, capacity, bugs } = findings;
    let drivers: Vec<Value> = drivers
        .iter()
        .map(|(name, outcome)| {
            let refusal = outcome.err();
            json!({
                "name": name.as_str(),
                "usable": outcome.is_ok(),
                "reason": refusal.map(|refusal| &refusal.reason),
                "fix": refusal.and_then(|refusal| refusal.fix.as_ref()),
                "trial_ms": outcome.ok().map(|evidence| evidence.took.as_secs_f64() * 1e3),
            })
        })
        .collect();
    let refused = |choice: &ringroad_engine::choose::Choice| -> Vec<Value> {
        let refusals = choice.refused().iter();
        refusals.map(|refusal| json!({"name": refusal.driver.as_str(), "reason": refusal.reason})).collect()
    };
    let ring = findings.ring();
    let opcodes: Map<String, Value> = ring
        .map(|ring| ring.opcodes.table().map(|(name, known)| (name.to_owned(), known.into())).collect())
        .unwrap_or_default();
    let bounds: Vec<Value> = capacity
        .bounds
        .iter()
        .map(|bound| json!({"what": bound.what, "connections": bound.connections, "fix": bound.fix}))
        .collect();
    let bugs: Vec<Value> = bugs
        .iter()
        .map(|bug| json!({"what": bug.what, "source": bug.source, "answer": bug.answer}))
        .collect();
    let limits = &facts.limits;
    let object = json!({
        "schema": "ringroad.doctor/1",
        "version": env!("CARGO_PKG_VERSION"),
        "summary": fixes::headline(findings, fixes),
        "fixes": fixes
            .iter()
            .map(|fix| json!({"what": fix.what, "commands": fix.commands, "note": fix.note}))
            .collect::<Vec<_>>(),
        "kernel": facts.kernel.as_deref().unwrap_or("unknown"),
        "arch": facts.arch,
        "chosen": choice.as_ref().ok().map(|choice| choice.driver().as_str()),
        "why": match choice {
            Ok(choice) => choice.why(),
            Err(unusable) => unusable.to_string(),
        },
        "refused": choice.as_ref().map(refused).unwrap_or_default(),
        "drivers": drivers,
        "limits": {
            "nofile_soft": limits.nofile_soft,
            "nofile_hard": limits.nofile_hard,
            "memlock_bytes": limits.memlock_soft_bytes,
            "nproc": limits.nproc_soft,
            "cgroup": facts.cgroup,
            "somaxconn": facts.sysctls.somaxconn,
            "io_uring_disabled": gate.disabled,
            "io_uring_group": gate.group,
            "seccomp_mode": gate.seccomp_mode,
            "no_new_privs": facts.no_new_privs,
            "security_modules": gate.security_modules,
            "container": gate.container,
        },
        "connections_max": capacity.connections_max(),
        "connections_bounds": bounds,
        "connections_outgoing_per_address": capacity.outgoing,
        "features": ring.map(|ring| ring.features.names().collect::<Vec<_>>()).unwrap_or_default(),
        "opcodes": opcodes,
        "bugs": bugs,
    });
    // A value made of strings and numbers can be written.
    serde_json::to_string_pretty(&object).unwrap_or_default() + "\n"
}

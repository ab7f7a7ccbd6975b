//! A seccomp profile in Docker's format, with the three calls of io_uring allowed.
//!
//! A profile is a default action and a list of rules, each with names and an action; the first that names a
//! call decides about it in most readers, the last in some. So the calls are taken out of every other rule
//! and get one of their own. Nothing else is changed, and fields that are not known here are kept.

use crate::complaint::{name, say, why};
use serde_json::{Value, json};
use std::io::{self, IsTerminal, Read};
use std::path::Path;

const CALLS: [&str; 3] = ["io_uring_setup", "io_uring_enter", "io_uring_register"];

/// Returns the profile in `path` (`-` is standard input) with the calls let through, as text.
pub(super) fn allowed(path: &Path) -> Result<String, String> {
    let on = if path == Path::new("-") { "standard input".to_owned() } else { name(path) };
    let mut text = String::new();
    let read = if path == Path::new("-") {
        if io::stdin().is_terminal() {
            say("the profile is read from the terminal; Ctrl-D ends it");
        }
        io::stdin().lock().read_to_string(&mut text).map(drop)
    } else {
        ringroad_host::input::read_any_text(path).map(|read| text = read)
    };
    read.map_err(|error| format!("read, on {on}: {}", why(&error)))?;
    let profile =
        serde_json::from_str(&text).map_err(|error| format!("seccomp profile, on {on}: {error}"))?;
    let profile = allow(profile).map_err(|what| {
        format!("seccomp profile, on {on}: {what} (the form is Docker's: defaultAction and syscalls, a list of rules)")
    })?;
    serde_json::to_string_pretty(&profile).map(|text| text + "\n").map_err(|error| error.to_string())
}

fn allow(mut profile: Value) -> Result<Value, &'static str> {
    let top = profile.as_object_mut().ok_or("not an object")?;
    if !top.get("defaultAction").is_some_and(Value::is_string) {
        return Err("no defaultAction");
    }
    let rules = top.entry("syscalls").or_insert_with(|| json!([]));
    let rules = rules.as_array_mut().ok_or("syscalls is no list")?;
    let ours = |word: &Value| word.as_str().is_some_and(|word| CALLS.contains(&word));
    for rule in rules.iter_mut() {
        let rule = rule.as_object_mut().ok_or("a rule is no object")?;
        // The older form names one call per rule.
        if rule.get("name").is_some_and(ours) {
            rule.insert("names".to_owned(), json!([]));
            rule.remove("name");
        } else if let Some(names) = rule.get_mut("names") {
            let names = names.as_array_mut().ok_or("the names of a rule are no list")?;
            names.retain(|name| !ours(name));
        }
    }
    rules.retain(|rule| rule.get("names").and_then(Value::as_array).is_none_or(|names| !names.is_empty()));
    rules.push(json!({ "names": CALLS, "action": "SCMP_ACT_ALLOW" }));
    Ok(profile)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_calls_are_taken_out_of_every_rule_and_let_through_by_one_of_their_own() {
        let profile = json!({
            "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1, "archMap": [{"architecture": "SCMP_ARCH_X86_64"}],
            "syscalls": [
                {"names": ["read", "io_uring_enter"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_X"]}},
                {"names": CALLS, "action": "SCMP_ACT_KILL"},
                {"name": "io_uring_setup", "action": "SCMP_ACT_ERRNO"},
                {"name": "write", "action": "SCMP_ACT_ALLOW"},
            ],
        });
        let expected = json!({
            "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1, "archMap": [{"architecture": "SCMP_ARCH_X86_64"}],
            "syscalls": [
                {"names": ["read"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_X"]}},
                {"name": "write", "action": "SCMP_ACT_ALLOW"},
                {"names": CALLS, "action": "SCMP_ACT_ALLOW"},
            ],
        });
        assert_eq!(allow(profile).unwrap(), expected);
        assert_eq!(allow(expected.clone()).unwrap(), expected, "done twice is done once");
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        for other in
            [json!([]), json!({}), json!({"defaultAction": 1}), json!({"defaultAction": "X", "syscalls": {}})]
        {
            assert!(allow(other.clone()).is_err(), "{other}");
        }
    }
}

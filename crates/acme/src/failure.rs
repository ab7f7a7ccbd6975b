//! Why a certificate could not be had, and how long the authority wants to be left alone.

use serde::Deserialize;
use std::fmt;
use std::time::Duration;

/// Why a certificate could not be had.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What kind of failure it is.
    pub kind: FailureKind,
    /// What was attempted, and what came of it.
    pub what: String,
    /// How long the authority wants to be left alone.
    pub retry_after: Option<Duration>,
}

/// The kind of a [`Failure`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// The authority cannot be reached, or answers what is no ACME.
    Connection,
    /// The authority refused, with this type of problem, without the prefix that all have
    /// (`urn:ietf:params:acme:error:`).
    Problem(String),
    /// A name could not be proved.
    Challenge,
    /// The server, its state folder or its settings are in the way.
    Here,
}

impl Failure {
    pub(crate) fn connection(what: impl Into<String>) -> Failure {
        Failure { kind: FailureKind::Connection, what: what.into(), retry_after: None }
    }

    pub(crate) fn here(what: impl Into<String>) -> Failure {
        Failure { kind: FailureKind::Here, what: what.into(), retry_after: None }
    }

    pub(crate) fn is(&self, problem: &str) -> bool {
        matches!(&self.kind, FailureKind::Problem(kind) if kind == problem)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Failure {}

/// A problem document (RFC 9457) as authorities send it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Problem {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) detail: String,
    pub(crate) subproblems: Vec<Subproblem>,
}

/// What is wrong with one of several names.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Subproblem {
    detail: String,
    identifier: Identifier,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Identifier {
    value: String,
}

impl Problem {
    /// Returns the type without the prefix that all of ACME have.
    pub(crate) fn short(&self) -> &str {
        self.kind.strip_prefix("urn:ietf:params:acme:error:").unwrap_or(&self.kind)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", printable(self.short()), printable(&self.detail))?;
        for one in self.subproblems.iter().take(8) {
            write!(f, "; {}: {}", printable(&one.identifier.value), printable(&one.detail))?;
        }
        Ok(())
    }
}

/// Returns a text of the authority as it may be in a log: in one line, and not endless.
fn printable(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { ' ' } else { one }).take(500).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_problem_is_one_line_with_its_names() {
        let text = r#"{"type":"urn:ietf:params:acme:error:rejectedIdentifier","detail":"two\nnames",
            "subproblems":[{"type":"x","detail":"no","identifier":{"type":"dns","value":"a.test"}}]}"#;
        let problem: Problem = serde_json::from_str(text).unwrap();
        assert_eq!(problem.to_string(), "rejectedIdentifier: two names; a.test: no");
        assert_eq!(serde_json::from_str::<Problem>("{}").unwrap().short(), "");
    }
}

//! One order: names are proved, a request for a certificate is signed by the authority, and fetched.

use crate::authority::{Account, Answer};
use crate::failure::{Failure, FailureKind, Problem};
use crate::key::base64url;
use crate::settings::ChallengeKind;
use crate::site::{Challenge, Site};
use ringroad_engine::time;
use ringroad_tls::request_certificate;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long the authority may take for a step.
const PATIENCE: Duration = Duration::from_secs(5 * 60);
/// Bounds of the time between two looks at a step.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));
/// Longest token, far beyond what authorities use.
const TOKEN_BYTES_MAX: usize = 256;

/// Problems of an order that names a certificate which it replaces: it has been replaced already, or the
/// authority does not know it, or not as this account's.
const REPLACES_NOT: [&str; 3] = ["alreadyReplaced", "malformed", "unauthorized"];

/// What is ordered.
pub(crate) struct Wanted<'a> {
    pub(crate) names: &'a [String],
    pub(crate) kind: ChallengeKind,
    pub(crate) profile: Option<&'a str>,
    /// The certificate that the new one replaces, as the renewal information identifies it.
    pub(crate) replaces: Option<String>,
}

/// A certificate with its key.
pub(crate) struct Obtained {
    pub(crate) chain_pem: String,
    pub(crate) key_pem: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Order {
    status: Step,
    #[serde(default)]
    authorizations: Vec<String>,
    finalize: String,
    certificate: Option<String>,
    error: Option<Problem>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Authorization {
    status: Step,
    identifier: Identifier,
    #[serde(default)]
    challenges: Vec<Offered>,
}

#[derive(Debug, Deserialize)]
struct Identifier {
    value: String,
}

#[derive(Debug, Deserialize)]
struct Offered {
    #[serde(rename = "type")]
    kind: String,
    url: String,
    #[serde(default)]
    token: String,
    error: Option<Problem>,
}

/// How far an order or a proof is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Step {
    Pending,
    Ready,
    Processing,
    Valid,
    #[serde(other)]
    Ended,
}

/// Answers a challenge until it is dropped.
struct Answering<'s> {
    site: &'s dyn Site,
    challenge: Challenge,
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.site.forget(&self.challenge);
    }
}

/// Obtains a certificate.
pub(crate) async fn obtain(
    account: &Account<'_>,
    wanted: &Wanted<'_>,
    site: &dyn Site,
) -> Result<Obtained, Failure> {
    let placed = place(account, wanted).await?;
    let order: Order = placed.json()?;
    let Some(url) = placed.location else {
        return Err(Failure::connection("the authority's answer to an order has no URL of it"));
    };
    prove(account, &order, wanted, site).await?;
    let order = settle::<Order>(account, &url, |order| order.status == Step::Pending).await?;
    let request = request_certificate(wanted.names).map_err(Failure::here)?;
    if order.status == Step::Ready {
        account.send(&order.finalize, &json!({ "csr": base64url(&request.der) })).await?;
    } else {
        return Err(ended("the order", order.error.as_ref()));
    }
    let pending = |order: &Order| matches!(order.status, Step::Processing | Step::Ready | Step::Pending);
    let order = settle::<Order>(account, &url, pending).await?;
    match (order.status, order.certificate) {
        (Step::Valid, Some(certificate)) => {
            let chain_pem = account.read(&certificate).await?.text()?;
            Ok(Obtained { chain_pem, key_pem: request.key_pem })
        }
        _ => Err(ended("the order", order.error.as_ref())),
    }
}

/// Places the order. An authority that does not take what is said of the certificate before gets the order
/// without that.
async fn place(account: &Account<'_>, wanted: &Wanted<'_>) -> Result<Answer, Failure> {
    let identifier = |name: &String| {
        let kind = if name.parse::<IpAddr>().is_ok() { "ip" } else { "dns" };
        json!({ "type": kind, "value": name })
    };
    let mut order = serde_json::Map::new();
    order.insert("identifiers".to_owned(), wanted.names.iter().map(identifier).collect());
    if let Some(profile) = wanted.profile {
        order.insert("profile".to_owned(), Value::from(profile));
    }
    if let Some(replaces) = wanted.replaces.as_ref().filter(|_| account.authority.has_renewal_information()) {
        let mut replacing = order.clone();
        replacing.insert("replaces".to_owned(), Value::from(replaces.as_str()));
        match account.order(&Value::from(replacing)).await {
            Err(why) if REPLACES_NOT.iter().any(|problem| why.is(problem)) => {}
            placed => return placed,
        }
    }
    account.order(&Value::from(order)).await
}

/// Proves every name of the order.
async fn prove(
    account: &Account<'_>,
    order: &Order,
    wanted: &Wanted<'_>,
    site: &dyn Site,
) -> Result<(), Failure> {
    // All are answered at the same time.
    let mut answering = Vec::new();
    for url in &order.authorizations {
        let authorization: Authorization = account.read(url).await?.json()?;
        if authorization.status == Step::Valid {
            continue;
        }
        let name = authorization.identifier.value;
        let of_name = |what: &str| Failure {
            kind: FailureKind::Challenge,
            what: format!("proof, on {name}: {what}"),
            retry_after: None,
        };
        let Some(offered) = authorization.challenges.iter().find(|one| one.kind == wanted.kind.as_str())
        else {
            let offers: Vec<_> = authorization.challenges.iter().map(|one| one.kind.as_str()).collect();
            let what = format!("the authority offers {}, not {}", offers.join(", "), wanted.kind.as_str());
            return Err(of_name(&what));
        };
        if !is_token(&offered.token) {
            return Err(of_name("the authority's token has characters that none may have"));
        }
        let challenge = Challenge {
            kind: wanted.kind,
            token: offered.token.clone(),
            authorization: account.key.authorization(&offered.token),
            name: name.clone(),
        };
        site.answer(&challenge).map_err(|why| of_name(&why))?;
        answering.push((url, Answering { site, challenge }));
        account.send(&offered.url, &json!({})).await?;
    }
    for (url, answering) in answering {
        let pending = |one: &Authorization| one.status == Step::Pending;
        let authorization = settle::<Authorization>(account, url, pending).await?;
        if authorization.status != Step::Valid {
            let error = authorization.challenges.iter().find_map(|one| one.error.as_ref());
            return Err(ended(&format!("the proof of {}", answering.challenge.name), error));
        }
    }
    Ok(())
}

/// Returns the failure of a step that has ended otherwise than by success.
fn ended(what: &str, error: Option<&Problem>) -> Failure {
    let why = error.map_or_else(|| "it gives no reason".to_owned(), Problem::to_string);
    Failure {
        kind: FailureKind::Challenge,
        what: format!("the authority ends {what}: {why}"),
        retry_after: None,
    }
}

/// Reads until something is not pending any more.
async fn settle<T: DeserializeOwned>(
    account: &Account<'_>,
    url: &str,
    is_pending: impl Fn(&T) -> bool,
) -> Result<T, Failure> {
    let began = Instant::now();
    let mut pause = PAUSE.0;
    loop {
        let answer = account.read(url).await?;
        let read = answer.json::<T>()?;
        if !is_pending(&read) {
            return Ok(read);
        }
        if began.elapsed() > PATIENCE {
            let minutes = PATIENCE.as_secs() / 60;
            return Err(Failure::connection(format!(
                "the authority, on {url}: not done after {minutes} min"
            )));
        }
        time::sleep(answer.retry_after.unwrap_or(pause).clamp(PAUSE.0, PAUSE.1)).await;
        pause = (pause * 2).min(Duration::from_secs(10));
    }
}

/// Returns whether a text may be a token (RFC 8555 §8.3): it becomes part of a path.
fn is_token(text: &str) -> bool {
    let is_one_of = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !text.is_empty() && text.len() <= TOKEN_BYTES_MAX && text.bytes().all(is_one_of)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_has_no_character_that_means_something_in_a_path() {
        assert!(is_token("evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr_oA"));
        for no in ["", "..", "a/b", "a%2f", "a b", "ä", &"x".repeat(300)] {
            assert!(!is_token(no), "{no}");
        }
    }

    #[test]
    fn an_unknown_step_is_an_end_and_not_waited_for() {
        let order: Order = serde_json::from_str(r#"{"status":"revoked","finalize":"x"}"#).unwrap();
        assert_eq!(order.status, Step::Ended);
        assert!(serde_json::from_str::<Order>(r#"{"status":"valid"}"#).is_err());
    }
}

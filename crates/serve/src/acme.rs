//! What this server does for certificates of ACME: it answers the authority's challenges, and takes what the
//! keeper (`ringroad_acme`) obtains.

use crate::event::Event;
use crate::service::Shared;
use ringroad_acme::{Challenge, ChallengeKind, Event as Obtaining, Site};
use ringroad_http::{Method, Request, Response};
use ringroad_tls::Pair;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};

/// Where authorities look for the answers to HTTP-01 challenges (RFC 8555 §8.3), on port 80.
pub(crate) const CHALLENGES: &str = "/.well-known/acme-challenge/";

/// The answers to HTTP-01 challenges that are under way, by token.
#[derive(Default)]
pub(crate) struct Answers {
    /// How many there are, so that ordinary requests take no lock.
    count: AtomicUsize,
    by_token: RwLock<HashMap<String, Arc<str>>>,
}

impl Answers {
    /// Returns the response to a request that is an authority's for one of the challenges. Other requests
    /// below that path are for routes: another ACME client may put files there.
    pub(crate) fn response(&self, request: &Request) -> Option<Response> {
        if self.count.load(Ordering::Relaxed) == 0 || !matches!(request.method(), Method::Get | Method::Head)
        {
            return None;
        }
        let token = request.path().strip_prefix(CHALLENGES)?;
        let answer = self.by_token.read().unwrap_or_else(PoisonError::into_inner).get(token).cloned()?;
        let response =
            Response::new(answer.as_bytes().to_vec()).header("Content-Type", "application/octet-stream");
        response.and_then(|response| response.header("Cache-Control", "no-store")).ok()
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<String, Arc<str>>)) {
        let mut all = self.by_token.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut all);
        self.count.store(all.len(), Ordering::Relaxed);
    }
}

/// The server, as the keeper of its certificates sees it. The keeper does not keep it alive.
struct ThisServer(Weak<Shared>);

/// Returns the server, for a keeper.
pub(crate) fn site(shared: &Arc<Shared>) -> Arc<dyn Site> {
    Arc::new(ThisServer(Arc::downgrade(shared)))
}

impl Site for ThisServer {
    fn answer(&self, challenge: &Challenge) -> Result<(), String> {
        let shared = self.0.upgrade().ok_or("the server ends")?;
        match challenge.kind {
            ChallengeKind::Http01 => shared.challenges.change(|all| {
                all.insert(challenge.token.clone(), challenge.authorization.as_str().into());
            }),
            ChallengeKind::TlsAlpn01 => {
                let pair = challenge.pair()?;
                let tls = shared.tls().ok_or("no address speaks TLS")?;
                tls.set_challenge(&challenge.server_name(), Some(pair)).map_err(|why| why.to_string())?;
            }
        }
        Ok(())
    }

    fn forget(&self, challenge: &Challenge) {
        let Some(shared) = self.0.upgrade() else { return };
        match challenge.kind {
            ChallengeKind::Http01 => shared.challenges.change(|all| drop(all.remove(&challenge.token))),
            ChallengeKind::TlsAlpn01 => {
                if let Some(tls) = shared.tls() {
                    // To take one back cannot fail.
                    let _ = tls.set_challenge(&challenge.server_name(), None);
                }
            }
        }
    }

    fn install(&self, pairs: Vec<Pair>) -> Result<(), String> {
        let shared = self.0.upgrade().ok_or("the server ends")?;
        shared.install(pairs).map_err(|why| why.to_string())
    }

    fn report(&self, event: Obtaining) {
        if let Some(shared) = self.0.upgrade() {
            shared.events.report(match event {
                Obtaining::Failed { .. } | Obtaining::NotKept { .. } => Event::CertificateNotObtained(event),
                event => Event::CertificateObtained(event),
            });
        }
    }
}

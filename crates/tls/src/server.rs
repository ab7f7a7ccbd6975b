//! The server's side: certificates by name, client certificates, and tickets. They can be replaced as a whole
//! while the server runs.
//!
//! Sessions are made from a snapshot, behind a lock that is held only while a pointer is cloned.
//! [`Server::refresh`] checks the files again and swaps the snapshot. Sessions that have begun keep the old
//! one. The ticketer moves from snapshot to snapshot, so that clients resume across reloads. It is replaced
//! if the rules for client certificates change, because a ticket carries a client that was verified under the
//! old ones.

use crate::certificates::{self, BadPair, CertificateInfo, Pair, Place, Store, Usable, pem_words};
use crate::error::TlsError;
use crate::names::Names;
use crate::session::Session;
use crate::tickets::{self, Derived, SECRET_BYTES_MIN};
use ringroad_host::input;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::{
    ClientHello, ProducesTickets, ResolvesServerCert, UnbufferedServerConnection, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, SignatureAlgorithm};
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

/// Settings of a server's TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerSettings {
    /// Where certificates come from.
    pub places: Vec<Place>,
    /// Answer to a client that asks for a name without a certificate, or for no name.
    pub unknown_name: UnknownName,
    /// The application protocols it accepts (ALPN), in order of preference.
    pub alpn: Vec<Vec<u8>>,
    /// Client certificates; `None` if they are not requested.
    pub client: Option<ClientAuth>,
    /// Source of the ticket keys.
    pub tickets: Tickets,
    /// Certificates are given later ([`Server::set_given`]). An empty set at the start is then no error, and
    /// handshakes are refused until there is one.
    pub awaits: bool,
}

impl ServerSettings {
    /// Certificates from these places, for HTTP/1.1.
    pub fn new(places: Vec<Place>) -> ServerSettings {
        ServerSettings {
            places,
            unknown_name: UnknownName::First,
            alpn: vec![crate::ALPN_HTTP11.to_vec()],
            client: None,
            tickets: Tickets::Memory,
            awaits: false,
        }
    }
}

/// Answer to a client that asks for a name without a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownName {
    /// The first certificate.
    #[default]
    First,
    /// A refusal: the handshake fails.
    Refuse,
}

/// Settings of client certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuth {
    /// A PEM file with the authorities that sign the certificates of clients.
    pub authorities: PathBuf,
    /// Whether a client without a certificate is refused.
    pub required: bool,
    /// PEM or DER files with revoked certificates (CRLs). If there is any, each authority of a client's chain
    /// needs a list that has not expired.
    pub revoked: Vec<PathBuf>,
}

/// Source of the ticket keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tickets {
    /// Random keys of this process.
    #[default]
    Memory,
    /// Derived from a file with at least 32 bytes that several machines share.
    File(PathBuf),
    /// None: no session is resumed.
    Off,
}

/// Makes sessions for accepted connections. All workers share one.
pub struct Server {
    current: RwLock<Arc<Snapshot>>,
    store: Mutex<Kept>,
    challenges: Arc<Challenges>,
}

/// The configuration that sessions are made with.
struct Snapshot {
    config: Arc<ServerConfig>,
    /// The same configuration, with HTTP/2 before the other protocols.
    with_http2: Arc<ServerConfig>,
    certificates: Vec<CertificateInfo>,
}

/// State that a refresh compares with.
struct Kept {
    settings: ServerSettings,
    store: Store,
    /// Pairs that were given in memory.
    given: Vec<Arc<Usable>>,
    ticketer: Option<Arc<dyn ProducesTickets>>,
    client: Option<ClientFiles>,
    secret: Option<Vec<u8>>,
    /// Unusable files of client certificates and ticket keys, as the last refresh found them.
    told: Vec<BadPair>,
    expired: Vec<Expired>,
}

/// The contents of the files for client certificates.
#[derive(Clone, PartialEq, Eq)]
struct ClientFiles {
    authorities: Vec<u8>,
    revoked: Vec<Vec<u8>>,
    required: bool,
    /// When each file with revoked certificates expires, if it has an expiry.
    ends: Vec<Option<SystemTime>>,
}

/// A file with a certificate or list that has expired and is still in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The file.
    pub file: PathBuf,
    /// What has expired, and the consequence.
    pub what: &'static str,
}

impl fmt::Display for Expired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "certificate, on {}: {}", self.file.display(), self.what)
    }
}

/// Result of a refresh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refreshed {
    /// Whether new sessions are made with a different configuration.
    pub changed: bool,
    /// Files that cannot be used; their previous contents stay in force.
    pub bad: Vec<BadPair>,
}

impl Server {
    /// Reads all files. Pairs in `given` come before those of the places.
    ///
    /// # Errors
    /// A file that was named by itself cannot be used, or there is no usable certificate. Bad pairs in
    /// folders are not an error: they are in the second value.
    pub fn new(settings: ServerSettings, given: Vec<Pair>) -> Result<(Server, Vec<BadPair>), TlsError> {
        let (kept, bad) = Kept::new(settings, usable(given)?, None)?;
        let challenges = Arc::new(Challenges::default());
        let snapshot = RwLock::new(Arc::new(kept.snapshot(&challenges)?));
        Ok((Server { current: snapshot, store: Mutex::new(kept), challenges }, bad))
    }

    /// Replaces the settings for new sessions. Clients resume across the change, unless the rules for client
    /// certificates or the source of the ticket keys change.
    ///
    /// # Errors
    /// As [`new`](Self::new). Nothing changes then.
    pub fn change(&self, settings: ServerSettings, given: Vec<Pair>) -> Result<Vec<BadPair>, TlsError> {
        self.take(settings, Some(usable(given)?))
    }

    /// Replaces the settings, and keeps the pairs that were given in memory, such as those of ACME.
    ///
    /// # Errors
    /// As [`new`](Self::new). Nothing changes then.
    pub fn change_settings(&self, settings: ServerSettings) -> Result<Vec<BadPair>, TlsError> {
        self.take(settings, None)
    }

    fn take(
        &self,
        settings: ServerSettings,
        given: Option<Vec<Arc<Usable>>>,
    ) -> Result<Vec<BadPair>, TlsError> {
        let mut kept = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let given = given.unwrap_or_else(|| kept.given.clone());
        let (new, bad) = Kept::new(settings, given, Some(&kept))?;
        let snapshot = new.snapshot(&self.challenges)?;
        *kept = new;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
        Ok(bad)
    }

    /// Checks all files again. Usable changes are in force for new sessions.
    pub fn refresh(&self) -> Refreshed {
        let mut kept = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let settings = kept.settings.clone();
        let needed = kept.given.is_empty() && !settings.awaits;
        let looked = kept.store.look(SystemTime::now(), needed);
        let mut refreshed = Refreshed { changed: looked.changed, bad: looked.bad };
        let mut wrong = Vec::new();
        if let Some(auth) = &settings.client {
            match ClientFiles::read(auth, kept.client.as_ref()) {
                Ok(None) => {}
                Ok(Some(files)) => match files.is_older_than(kept.client.as_ref(), auth, SystemTime::now()) {
                    Some(bad) => wrong.push(bad),
                    None => {
                        kept.client = Some(files);
                        let (secret, client) = (kept.secret.clone(), kept.client.clone());
                        // New keys, so that no session resumes that was verified under other rules. If they
                        // cannot be made, no session resumes.
                        kept.ticketer =
                            ticketer(&settings.tickets, secret, None, client.as_ref()).unwrap_or_default();
                        refreshed.changed = true;
                    }
                },
                Err(bad) => wrong.push(bad),
            }
        }
        if let Tickets::File(file) = &settings.tickets {
            match read_secret(file) {
                Ok(secret) if kept.secret.as_ref() != Some(&secret) => {
                    let before = kept.secret.replace(secret.clone());
                    let client = kept.client.clone();
                    if let Ok(new) = ticketer(&settings.tickets, Some(secret), before, client.as_ref()) {
                        kept.ticketer = new;
                    }
                    refreshed.changed = true;
                }
                Ok(_) => {}
                Err(bad) => wrong.push(bad),
            }
        }
        refreshed.bad.extend(wrong.iter().filter(|bad| !kept.told.contains(bad)).cloned());
        kept.told = wrong;
        if refreshed.changed {
            match kept.snapshot(&self.challenges) {
                Ok(snapshot) => {
                    *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
                }
                Err(why) => {
                    refreshed.changed = false;
                    let file = settings.places.first().map(|place| match place {
                        Place::Pair(files) => files.certificate.clone(),
                        Place::Folder(folder) => folder.clone(),
                    });
                    refreshed.bad.push(BadPair { file: file.unwrap_or_default(), why: why.to_string() });
                }
            }
        }
        refreshed
    }

    /// Replaces the pairs that were given in memory, such as those of ACME.
    ///
    /// # Errors
    /// A pair cannot be used. Nothing changes then.
    pub fn set_given(&self, given: Vec<Pair>) -> Result<(), TlsError> {
        let usable = usable(given)?;
        let mut kept = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut kept.given, usable);
        match kept.snapshot(&self.challenges) {
            Ok(snapshot) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
                Ok(())
            }
            Err(why) => {
                kept.given = before;
                Err(why)
            }
        }
    }

    /// Sets the pair that answers the TLS-ALPN-01 challenge of this name (RFC 8737); `None` removes it.
    ///
    /// # Errors
    /// The pair cannot be used.
    pub fn set_challenge(&self, name: &str, pair: Option<Pair>) -> Result<(), TlsError> {
        let key = pair.map(certificates::challenge_key).transpose().map_err(TlsError::settings)?;
        let mut all = self.challenges.0.write().unwrap_or_else(PoisonError::into_inner);
        match key {
            Some(key) => drop(all.insert(name.to_ascii_lowercase(), Arc::new(key))),
            None => drop(all.remove(&name.to_ascii_lowercase())),
        }
        Ok(())
    }

    /// Returns what has expired and is still in force. Each item is returned once.
    pub fn newly_expired(&self, now: SystemTime) -> Vec<Expired> {
        let mut all = Vec::new();
        for info in self.certificates().iter().filter(|info| info.seconds_left(now) <= 0) {
            let what = "it has expired, so clients refuse it";
            all.extend(info.file.clone().map(|file| Expired { file, what }));
        }
        let mut kept = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(auth), Some(files)) = (&kept.settings.client, &kept.client) {
            for (file, end) in auth.revoked.iter().zip(&files.ends) {
                if end.is_some_and(|end| end <= now) {
                    let what = "the list of revoked certificates has expired, so clients with certificates of its \
                                authority are refused";
                    all.push(Expired { file: file.clone(), what });
                }
            }
        }
        let before = std::mem::replace(&mut kept.expired, all.clone());
        all.retain(|one| !before.contains(one));
        all
    }

    /// Returns the certificates that are in force.
    pub fn certificates(&self) -> Vec<CertificateInfo> {
        self.snapshot().certificates.clone()
    }

    /// Returns the settings.
    pub fn settings(&self) -> ServerSettings {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).settings.clone()
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins a session for a connection that was accepted.
    ///
    /// # Errors
    /// rustls refuses the configuration.
    pub fn begin(&self) -> Result<Session, TlsError> {
        let session = UnbufferedServerConnection::new(Arc::clone(&self.snapshot().config));
        session.map(Session::server).map_err(|why| TlsError::of(&why, false))
    }

    /// Begins a session that also accepts HTTP/2, preferred to the protocols of the settings.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn begin_with_http2(&self) -> Result<Session, TlsError> {
        let session = UnbufferedServerConnection::new(Arc::clone(&self.snapshot().with_http2));
        session.map(Session::server).map_err(|why| TlsError::of(&why, false))
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("settings", &self.settings()).finish_non_exhaustive()
    }
}

/// Makes pairs usable that were given in memory.
fn usable(pairs: Vec<Pair>) -> Result<Vec<Arc<Usable>>, TlsError> {
    let one = |pair| certificates::usable(pair, None).map(Arc::new).map_err(TlsError::settings);
    pairs.into_iter().map(one).collect()
}

impl Kept {
    fn new(
        settings: ServerSettings,
        given: Vec<Arc<Usable>>,
        before: Option<&Kept>,
    ) -> Result<(Kept, Vec<BadPair>), TlsError> {
        let mut store = Store::new(settings.places.clone(), before.map(|before| &before.store));
        let looked = store.look(SystemTime::now(), false);
        let named = |bad: &BadPair| {
            settings.places.iter().any(|place| match place {
                Place::Pair(files) => files.certificate == bad.file || files.key == bad.file,
                Place::Folder(folder) => *folder == bad.file,
            })
        };
        if let Some(bad) = looked.bad.iter().find(|bad| named(bad)) {
            return Err(TlsError::settings(bad.to_string()));
        }
        let told = |bad: BadPair| TlsError::settings(bad.to_string());
        let client = settings.client.as_ref().map(|client| ClientFiles::read(client, None));
        let client = client.transpose().map_err(told)?.flatten();
        let secret = match &settings.tickets {
            Tickets::File(file) => Some(read_secret(file).map_err(told)?),
            _ => None,
        };
        let same = before.filter(|before| {
            before.settings.tickets == settings.tickets && before.client == client && before.secret == secret
        });
        let ticketer = match same {
            Some(before) => before.ticketer.clone(),
            None => ticketer(&settings.tickets, secret.clone(), None, client.as_ref())?,
        };
        let kept =
            Kept { settings, store, given, ticketer, client, secret, told: Vec::new(), expired: Vec::new() };
        if !kept.settings.awaits && kept.given.is_empty() && kept.store.usable().is_empty() {
            let why = looked.bad.iter().map(|bad| format!("; {bad}")).collect::<String>();
            return Err(TlsError::settings(format!("there is no certificate that can be used{why}")));
        }
        Ok((kept, looked.bad))
    }

    fn snapshot(&self, challenges: &Arc<Challenges>) -> Result<Snapshot, TlsError> {
        let all: Vec<Arc<Usable>> = self.given.iter().cloned().chain(self.store.usable()).collect();
        if all.is_empty() && !self.settings.awaits {
            return Err(TlsError::settings("there is no certificate that can be used"));
        }
        let builder = ServerConfig::builder_with_provider(crate::provider())
            .with_safe_default_protocol_versions()
            .map_err(|why| TlsError::of(&why, false))?;
        let builder = match &self.client {
            None => builder.with_no_client_auth(),
            Some(files) => builder.with_client_cert_verifier(files.verifier().map_err(TlsError::settings)?),
        };
        let table = Arc::new(Table::new(&all, self.settings.unknown_name, Arc::clone(challenges)));
        let alpn = self.settings.alpn.clone();
        let resolver =
            |alpn: &[Vec<u8>]| Arc::new(Resolver { table: Arc::clone(&table), alpn: alpn.to_vec() });
        let mut config = builder.with_cert_resolver(resolver(&alpn));
        config.alpn_protocols = [&alpn[..], &[crate::ALPN_ACME.to_vec()]].concat();
        match &self.ticketer {
            Some(ticketer) => {
                config.ticketer = Arc::clone(ticketer);
                // Tickets hold the whole session, so the server stores none.
                config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
            }
            None => {
                config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
                config.send_tls13_tickets = 0;
            }
        }
        let certificates = all.iter().map(|usable| usable.info.clone()).collect();
        let mut with_http2 = config.clone();
        with_http2.alpn_protocols.insert(0, crate::ALPN_H2.to_vec());
        with_http2.cert_resolver = resolver(&[&[crate::ALPN_H2.to_vec()], &alpn[..]].concat());
        Ok(Snapshot { config: Arc::new(config), with_http2: Arc::new(with_http2), certificates })
    }
}

fn ticketer(
    tickets: &Tickets,
    secret: Option<Vec<u8>>,
    before: Option<Vec<u8>>,
    client: Option<&ClientFiles>,
) -> Result<Option<Arc<dyn ProducesTickets>>, TlsError> {
    Ok(match (tickets, secret) {
        (Tickets::Off, _) => None,
        (Tickets::File(_), Some(secret)) => {
            let context = client.map_or_else(Vec::new, ClientFiles::digest);
            Some(Arc::new(Derived::new(secret, before, context)))
        }
        _ => Some(tickets::random()?),
    })
}

fn read_secret(file: &std::path::Path) -> Result<Vec<u8>, BadPair> {
    let bad = |why: String| BadPair { file: file.to_owned(), why };
    let bytes = input::read(file).map_err(|why| bad(why.to_string()))?;
    if bytes.len() < SECRET_BYTES_MIN {
        let why = format!(
            "keys of tickets are derived from at least {SECRET_BYTES_MIN} random bytes, and it has {} (make some with \
             `openssl rand 48`)",
            bytes.len()
        );
        return Err(bad(why));
    }
    Ok(bytes)
}

impl ClientFiles {
    /// Reads the files; `None` if they are as they were `before`.
    fn read(settings: &ClientAuth, before: Option<&ClientFiles>) -> Result<Option<ClientFiles>, BadPair> {
        let read = |file: &PathBuf| {
            input::read(file).map_err(|why| BadPair { file: file.clone(), why: why.to_string() })
        };
        let mut files = ClientFiles {
            authorities: read(&settings.authorities)?,
            revoked: settings.revoked.iter().map(read).collect::<Result<_, _>>()?,
            required: settings.required,
            ends: Vec::new(),
        };
        // Lists may have millions of lines, so they are parsed only when they are new.
        if before.is_some_and(|before| {
            before.authorities == files.authorities
                && before.revoked == files.revoked
                && before.required == files.required
        }) {
            return Ok(None);
        }
        for (file, bytes) in settings.revoked.iter().zip(&files.revoked) {
            let all = lists(bytes).map_err(|why| BadPair { file: file.clone(), why })?;
            files.ends.push(all.iter().filter_map(list_ends).min());
        }
        files.verifier().map_err(|why| BadPair { file: settings.authorities.clone(), why })?;
        Ok(Some(files))
    }

    /// Returns a list that has expired and would replace one that has not.
    fn is_older_than(
        &self,
        before: Option<&ClientFiles>,
        settings: &ClientAuth,
        now: SystemTime,
    ) -> Option<BadPair> {
        let has_ended = |end: &Option<SystemTime>| end.is_some_and(|end| end <= now);
        let each = settings.revoked.iter().zip(&self.ends).zip(&before?.ends);
        let mut worse = each.filter(|((_, new), before)| has_ended(new) && !has_ended(before));
        worse.next().map(|((file, _), _)| BadPair {
            file: file.clone(),
            why: "the list of revoked certificates has expired".to_owned(),
        })
    }

    fn verifier(&self) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, String> {
        let mut roots = RootCertStore::empty();
        for certificate in rustls::pki_types::CertificateDer::pem_slice_iter(&self.authorities) {
            let certificate = certificate
                .map_err(|why| format!("certificates in PEM are expected ({})", pem_words(&why)))?;
            roots.add(certificate).map_err(|why| format!("not the certificate of an authority ({why})"))?;
        }
        if roots.is_empty() {
            return Err("there is no certificate of an authority in it".to_owned());
        }
        let mut all = Vec::new();
        for bytes in &self.revoked {
            all.extend(lists(bytes)?);
        }
        let mut builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crate::provider()).with_crls(all);
        // An expired list lacks certificates that were revoked after its expiry.
        builder = builder.enforce_revocation_expiration();
        if !self.required {
            builder = builder.allow_unauthenticated();
        }
        builder.build().map_err(|why| format!("revocation lists: {why}"))
    }

    fn digest(&self) -> Vec<u8> {
        let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
        context.update(&[u8::from(self.required)]);
        for bytes in std::iter::once(&self.authorities).chain(&self.revoked) {
            context.update(&(bytes.len() as u64).to_be_bytes());
            context.update(bytes);
        }
        context.finish().as_ref().to_vec()
    }
}

/// Returns the lists of revoked certificates in a file, at least one.
fn lists(bytes: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(bytes).collect();
    let mut all = read.map_err(|why| format!("a revocation list is expected ({})", pem_words(&why)))?;
    if all.is_empty() {
        // Authorities publish them as DER.
        all.push(CertificateRevocationListDer::from(bytes.to_vec()));
    }
    for list in &all {
        let parsed = webpki::OwnedCertRevocationList::from_der(list);
        parsed.map_err(|why| format!("a revocation list in PEM or DER is expected ({why})"))?;
    }
    Ok(all)
}

/// Returns when a list expires, if it does.
fn list_ends(list: &CertificateRevocationListDer<'_>) -> Option<SystemTime> {
    let (_, parsed) = x509_parser::parse_x509_crl(list).ok()?;
    parsed.next_update().map(|end| certificates::time(end.timestamp()))
}

/// Keys that answer challenges, by name.
#[derive(Default)]
struct Challenges(RwLock<HashMap<String, Arc<CertifiedKey>>>);

/// Certificates by name.
struct Table {
    exact: HashMap<String, Vec<Choice>>,
    /// Certificates of `*.NAME`, by `NAME`.
    starred: HashMap<String, Vec<Choice>>,
    first: Vec<Choice>,
    challenges: Arc<Challenges>,
}

#[derive(Clone)]
struct Choice {
    key: Arc<CertifiedKey>,
    names: Arc<Names>,
    expires: SystemTime,
}

impl Table {
    fn new(all: &[Arc<Usable>], unknown: UnknownName, challenges: Arc<Challenges>) -> Table {
        let mut table =
            Table { exact: HashMap::new(), starred: HashMap::new(), first: Vec::new(), challenges };
        let choice = |usable: &Usable| Choice {
            key: Arc::clone(&usable.key),
            names: Arc::clone(&usable.info.names),
            expires: usable.info.expires,
        };
        for usable in all {
            for name in usable.info.names.dns() {
                let (map, name) = match name.strip_prefix("*.") {
                    Some(rest) => (&mut table.starred, rest),
                    None => (&mut table.exact, name),
                };
                map.entry(name.to_owned()).or_default().push(choice(usable));
            }
        }
        // ECDSA signatures cost a tenth of RSA ones, so ECDSA keys come first for clients that support them.
        let cheap = |choice: &Choice| choice.key.key.algorithm() == SignatureAlgorithm::RSA;
        table.exact.values_mut().chain(table.starred.values_mut()).for_each(|all| all.sort_by_key(cheap));
        if unknown == UnknownName::First
            && let Some(first) = all.first()
        {
            // Another key for the same names may suit a client that does not support this one.
            let same = all.iter().filter(|usable| usable.info.names == first.info.names);
            table.first = same.map(|usable| choice(usable)).collect();
        }
        table
    }

    fn choose<'t>(&'t self, hello: &ClientHello<'_>) -> Option<&'t Choice> {
        let of_name = hello.server_name().and_then(|name| {
            let name = name.to_ascii_lowercase();
            let exact = self.exact.get(&name);
            exact.or_else(|| self.starred.get(name.split_once('.')?.1))
        });
        let all = of_name.unwrap_or(&self.first);
        let suits = |choice: &&Choice| choice.key.key.choose_scheme(hello.signature_schemes()).is_some();
        // Expired certificates come last: a certificate may have been renewed under another name and left
        // there.
        let now = SystemTime::now();
        let lives = |choice: &&Choice| choice.expires > now;
        let living = all.iter().filter(lives).find(suits);
        living.or_else(|| all.iter().find(suits)).or_else(|| all.first())
    }
}

/// Chooses certificates for sessions that speak these protocols.
struct Resolver {
    table: Arc<Table>,
    alpn: Vec<Vec<u8>>,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_ascii_lowercase);
        let offers = |protocol: &[u8]| hello.alpn().is_some_and(|mut all| all.any(|one| one == protocol));
        if offers(crate::ALPN_ACME) {
            // An authority offers no other protocol (RFC 8737 §3).
            if hello.alpn().is_some_and(|all| all.count() == 1) {
                let all = self.table.challenges.0.read().unwrap_or_else(PoisonError::into_inner);
                return all.get(name.as_deref().unwrap_or_default()).cloned();
            }
            // The protocol is for challenges only (§4). It would be chosen if the client offers none of ours.
            if !self.alpn.iter().any(|protocol| offers(protocol)) {
                return None;
            }
        }
        let choice = self.table.choose(&hello)?;
        hello::tell(hello::Hello {
            server_name: name.map(String::into_boxed_str),
            covered: Some(Arc::clone(&choice.names)),
        });
        Some(Arc::clone(&choice.key))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resolver({:?})", self.table)
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({} names)", self.exact.len() + self.starred.len())
    }
}

/// What a client asked for, on its way from rustls's certificate resolver to the session.
///
/// The resolver is called within the session's `process`, on the same thread. The session takes the note
/// right after that, so the note cannot belong to another session.
pub(crate) mod hello {
    use super::{Arc, Names};
    use std::cell::Cell;

    /// A client's first message.
    pub(crate) struct Hello {
        pub(crate) server_name: Option<Box<str>>,
        pub(crate) covered: Option<Arc<Names>>,
    }

    thread_local! {
        static LAST: Cell<Option<Hello>> = const { Cell::new(None) };
    }

    pub(super) fn tell(hello: Hello) {
        LAST.set(Some(hello));
    }

    pub(crate) fn take() -> Option<Hello> {
        LAST.take()
    }
}

//! The authority: its directory, its nonces, an account with it, and the requests that the account signs.
//!
//! A request needs a nonce, which is that of the last answer or asked for. One that the authority does not
//! take any more is replaced, and the request repeated (RFC 8555 §6.5).

use crate::failure::{Failure, FailureKind, Problem};
use crate::key::{AccountKey, SignedBy};
use crate::settings::Settings;
use crate::state::{AccountFile, Folder};
use ringroad_http::{Client, ClientResponse, Method, Status};
use ringroad_tls::{Client as TlsClient, ClientSettings, Trust, certificates_from_pem};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::time::{Duration, SystemTime};

/// Most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Times that a request is sent with another nonce.
const NONCES_MAX: usize = 5;

/// What the authority calls its places.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Directory {
    new_nonce: String,
    new_account: String,
    new_order: String,
    renewal_info: Option<String>,
    #[serde(default)]
    meta: Meta,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    external_account_required: bool,
    profiles: serde_json::Map<String, Value>,
}

/// An authority, with its directory read.
pub(crate) struct Authority {
    client: Client,
    directory: Directory,
    /// The directory's URL is `https://`: so are all others.
    is_secure: bool,
    nonce: RefCell<Option<String>>,
}

/// What the authority answered.
pub(crate) struct Answer {
    pub(crate) location: Option<String>,
    pub(crate) retry_after: Option<Duration>,
    body: Vec<u8>,
    url: String,
}

impl Answer {
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body).map_err(|why| {
            Failure::connection(format!(
                "the authority's answer, on {}: not what ACME expects ({why})",
                self.url
            ))
        })
    }

    /// Returns the answer as it came.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.body
    }

    pub(crate) fn text(self) -> Result<String, Failure> {
        let Answer { url, .. } = self;
        String::from_utf8(self.body)
            .map_err(|_| Failure::connection(format!("the authority's answer, on {url}: not a text")))
    }
}

/// Returns whether TLS is spoken there; schemes have no case (RFC 3986 §3.1).
fn is_https(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("https"))
}

impl Authority {
    /// Reads the directory.
    pub(crate) async fn reach(settings: &Settings) -> Result<Authority, Failure> {
        let mut client = Client::new();
        if let Some(file) = &settings.ca {
            let of_file = |why: String| Failure::here(format!("read, on {}: {why}", file.display()));
            let pem = ringroad_host::input::read(file).map_err(|why| of_file(why.to_string()))?;
            let trusted = certificates_from_pem(&pem).map_err(|why| of_file(why.to_string()))?;
            let tls = TlsClient::new(ClientSettings::new(Trust::Given(trusted)));
            client = client.tls(&tls.map_err(|why| of_file(why.to_string()))?);
        }
        let url = &settings.directory;
        let answer = exchange(&client, Method::Get, url, None).await?;
        if !answer.is_good {
            return Err(refused(url, &answer));
        }
        let directory: Directory = Answer::of(answer, url).json()?;
        if let Some(profile) = &settings.profile
            && !directory.meta.profiles.contains_key(profile)
        {
            let known: Vec<_> = directory.meta.profiles.keys().map(String::as_str).take(16).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let what = format!("profile {profile:?}: the authority has no such profile (it has {known})");
            return Err(Failure::here(what));
        }
        let is_secure = is_https(url);
        Ok(Authority { client, directory, is_secure, nonce: RefCell::default() })
    }

    /// Returns the URL of a certificate's renewal information, if the authority has any.
    fn renewal_url(&self, id: &str) -> Option<String> {
        self.directory.renewal_info.as_ref().map(|base| format!("{}/{id}", base.trim_end_matches('/')))
    }

    pub(crate) fn has_renewal_information(&self) -> bool {
        self.directory.renewal_info.is_some()
    }

    /// Returns the renewal information of a certificate (RFC 9773 §4.1), which needs no account.
    pub(crate) async fn renewal(&self, id: &str) -> Option<Result<Answer, Failure>> {
        let url = self.renewal_url(id)?;
        Some(async { self.plain(Method::Get, &url).await.map(|answer| Answer::of(answer, &url)) }.await)
    }

    async fn plain(&self, method: Method, url: &str) -> Result<Raw, Failure> {
        self.check(url)?;
        let answer = exchange(&self.client, method, url, None).await?;
        if answer.is_good { Ok(answer) } else { Err(refused(url, &answer)) }
    }

    /// Refuses a URL by which what is signed would go in the clear.
    fn check(&self, url: &str) -> Result<(), Failure> {
        if self.is_secure && !is_https(url) {
            return Err(Failure::connection(format!("the authority names {url}, which is not https://")));
        }
        Ok(())
    }

    async fn fresh_nonce(&self) -> Result<String, Failure> {
        if let Some(nonce) = self.nonce.take() {
            return Ok(nonce);
        }
        let url = &self.directory.new_nonce;
        let answer = self.plain(Method::Head, url).await?;
        answer.nonce.ok_or_else(|| Failure::connection(format!("the authority's answer, on {url}: no nonce")))
    }

    async fn signed(
        &self,
        key: &AccountKey,
        by: &SignedBy<'_>,
        url: &str,
        payload: Option<&Value>,
    ) -> Result<Answer, Failure> {
        self.check(url)?;
        let mut left = NONCES_MAX;
        loop {
            let nonce = self.fresh_nonce().await?;
            let body = key.sign(url, &nonce, by, payload).map_err(Failure::here)?;
            let answer = exchange(&self.client, Method::Post, url, Some(body)).await?;
            self.nonce.replace(answer.nonce.clone());
            if answer.is_good {
                return Ok(Answer::of(answer, url));
            }
            let failure = refused(url, &answer);
            left -= 1;
            if !failure.is("badNonce") || left == 0 {
                return Err(failure);
            }
        }
    }
}

/// An account with an authority.
pub(crate) struct Account<'a> {
    pub(crate) authority: &'a Authority,
    pub(crate) key: AccountKey,
    url: String,
}

impl<'a> Account<'a> {
    /// Returns the account of the state folder, or a new one.
    pub(crate) async fn enter(
        authority: &'a Authority,
        settings: &Settings,
        folder: &Folder,
    ) -> Result<Account<'a>, Failure> {
        let here = |why: String| Failure::here(why);
        let contact = settings.contact.clone();
        let known = folder.account().map_err(here)?;
        let (key, url, same) = match known {
            Some(known) => {
                let key = known.key().map_err(here)?;
                (key, known.url, known.contact == contact)
            }
            None => {
                let key = AccountKey::generate().map_err(here)?;
                // Kept before it is used: an account with a key that is lost would be of no use.
                folder.save_account(&AccountFile::new(&key, None, None)).map_err(here)?;
                (key, None, true)
            }
        };
        let contacts: Vec<_> = contact.iter().map(|address| format!("mailto:{address}")).collect();
        let url = match url {
            Some(url) if same => return Ok(Account { authority, key, url }),
            Some(url) => {
                let by = SignedBy::Account(&url);
                authority.signed(&key, &by, &url, Some(&json!({ "contact": contacts }))).await?;
                url
            }
            None => {
                let at = &authority.directory.new_account;
                let mut wanted = json!({ "termsOfServiceAgreed": true, "contact": contacts });
                match &settings.external {
                    Some(external) => {
                        if let Some(fields) = wanted.as_object_mut() {
                            fields.insert("externalAccountBinding".to_owned(), key.bound_to(external, at));
                        }
                    }
                    None if authority.directory.meta.external_account_required => {
                        let why = "the authority wants an account of its own besides: `external`, with the \
                                   `kid` and `key` that it gives out";
                        return Err(Failure::here(why));
                    }
                    None => {}
                }
                let answer = authority.signed(&key, &SignedBy::Key, at, Some(&wanted)).await?;
                answer.location.ok_or_else(|| {
                    Failure::connection(format!("the authority's answer, on {at}: no URL of the account"))
                })?
            }
        };
        folder.save_account(&AccountFile::new(&key, Some(url.clone()), contact)).map_err(here)?;
        Ok(Account { authority, key, url })
    }

    /// Sends a request that the account signs.
    pub(crate) async fn send(&self, url: &str, payload: &Value) -> Result<Answer, Failure> {
        self.authority.signed(&self.key, &SignedBy::Account(&self.url), url, Some(payload)).await
    }

    /// Reads what only the account may read.
    pub(crate) async fn read(&self, url: &str) -> Result<Answer, Failure> {
        self.authority.signed(&self.key, &SignedBy::Account(&self.url), url, None).await
    }

    /// Orders a certificate.
    pub(crate) async fn order(&self, wanted: &Value) -> Result<Answer, Failure> {
        self.send(&self.authority.directory.new_order, wanted).await
    }
}

/// An answer as it came.
struct Raw {
    status: Status,
    is_good: bool,
    nonce: Option<String>,
    location: Option<String>,
    retry_after: Option<Duration>,
    body: Vec<u8>,
}

impl Answer {
    fn of(raw: Raw, url: &str) -> Answer {
        Answer { location: raw.location, retry_after: raw.retry_after, body: raw.body, url: url.to_owned() }
    }
}

async fn exchange(client: &Client, method: Method, url: &str, body: Option<String>) -> Result<Raw, Failure> {
    let failed = |why: String| Failure::connection(format!("the authority, on {url}: {why}"));
    let agent = concat!("ringroad/", env!("CARGO_PKG_VERSION"));
    let mut request = client.request(method, url).header("User-Agent", agent).header("Accept-Language", "en");
    if let Some(body) = body {
        request = request.header("Content-Type", "application/jose+json").body(body);
    }
    let mut response = request.send().await.map_err(|why| failed(why.to_string()))?;
    let body = response.bytes(ANSWER_BYTES_MAX).await.map_err(|why| failed(why.to_string()))?;
    let text = |name: &str| response.header(name).map(str::to_owned);
    let status = response.status();
    Ok(Raw {
        is_good: matches!(status.code(), 200..=299),
        status,
        nonce: text("replay-nonce"),
        location: text("location"),
        retry_after: retry_after(&response),
        body,
    })
}

/// Returns how long the authority asks to wait, in either of the forms of RFC 9110 §10.2.3.
fn retry_after(response: &ClientResponse) -> Option<Duration> {
    let text = response.header("retry-after")?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let until = httpdate::parse_http_date(text).ok()?;
            Some(until.duration_since(SystemTime::now()).unwrap_or_default())
        }
    }
}

/// Returns what the authority says by a status that is an error.
fn refused(url: &str, answer: &Raw) -> Failure {
    let status = answer.status.code();
    let (kind, what) = match serde_json::from_slice::<Problem>(&answer.body) {
        Ok(problem) if !problem.kind.is_empty() => {
            (FailureKind::Problem(problem.short().to_owned()), problem.to_string())
        }
        _ => (FailureKind::Connection, "it gives no reason".to_owned()),
    };
    let what = format!("the authority refuses, on {url}: status {status}, {what}");
    Failure { kind, what, retry_after: answer.retry_after }
}

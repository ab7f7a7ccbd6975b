//! How servers of a group are spoken to: TLS and its certificates, HTTP/1.1 or HTTP/2.

use super::keys;
use ringroad_settings::{Section, Value, value};
use ringroad_tls::{ALPN_H2, ALPN_HTTP11, Client, ClientSettings, Pair, Trust, certificates_from_pem};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// How servers of a group are spoken to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Speaks {
    /// TLS, where its servers are `https://`.
    pub tls: Option<UpstreamTls>,
    /// HTTP/2: chosen by TLS, or by prior knowledge where there is none.
    pub http2: bool,
}

/// TLS towards servers. Two are equal if they come from the same settings and the same bytes of files.
#[derive(Clone)]
pub struct UpstreamTls {
    /// Offers HTTP/1.1.
    pub http1: Client,
    /// Offers HTTP/2.
    pub http2: Client,
    /// The name that certificates are to be for, instead of the server's own.
    pub name: Option<String>,
    /// A number that follows from the settings and the bytes of files: connections that were made with others
    /// are not used.
    pub way: u64,
}

impl PartialEq for UpstreamTls {
    fn eq(&self, other: &UpstreamTls) -> bool {
        self.way == other.way
    }
}

impl Eq for UpstreamTls {}

impl fmt::Debug for UpstreamTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamTls").field("name", &self.name).field("way", &self.way).finish()
    }
}

impl Speaks {
    /// Returns a number that two ways of speaking have in common only if they are the same: part of the key
    /// of kept connections.
    pub(crate) fn way(&self) -> u64 {
        self.tls.as_ref().map_or(0, |tls| tls.way)
    }

    /// Reads the keys that groups and proxy routes share; without them, and without TLS, HTTP/1.1 is spoken.
    pub(super) fn read(section: &Section<'_>) -> Asked {
        let http2 = section.read("http2", value::truth).unwrap_or(false);
        let tls = section.table("tls").map(read_tls);
        Asked { http2, tls }
    }
}

/// What the keys ask for, before it is known whether servers are `https://`.
#[derive(Clone)]
pub(super) struct Asked {
    http2: bool,
    /// The inner `None`: it is wrong, which is noted.
    tls: Option<Option<Written>>,
}

/// What a `tls` table says.
#[derive(Clone, Default)]
struct Written {
    authorities: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    name: Option<String>,
}

impl Asked {
    /// What it means for servers that are all `https://` or all not, or what is wrong and on which key.
    pub(super) fn of(self, is_secure: bool) -> Result<Speaks, (&'static str, String)> {
        let Asked { http2, tls } = self;
        if !is_secure {
            return match tls {
                Some(_) => Err(("tls", "its servers are not https://: write them so".to_owned())),
                None => Ok(Speaks { tls: None, http2 }),
            };
        }
        let written = match tls {
            Some(None) => return Ok(Speaks { tls: None, http2 }),
            written => written.flatten().unwrap_or_default(),
        };
        match written.client() {
            Ok(tls) => Ok(Speaks { tls: Some(tls), http2 }),
            Err(why) => Err(("tls", why)),
        }
    }
}

impl Written {
    fn client(self) -> Result<UpstreamTls, String> {
        let mut hasher = DefaultHasher::new();
        (&self.authorities, &self.identity, &self.name).hash(&mut hasher);
        // 0 is the number of no TLS.
        let way = hasher.finish() | 1;
        let of_settings = |why: ringroad_tls::TlsError| why.detail().to_owned();
        let identity = match &self.identity {
            Some((certificate, key)) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                Some(Pair::from_pem(&text(certificate), &text(key))?)
            }
            None => None,
        };
        let client = match (&self.authorities, identity) {
            (None, None) => Client::system().map_err(of_settings)?,
            (authorities, identity) => {
                let trust = match authorities {
                    Some(pem) => Trust::Given(certificates_from_pem(pem).map_err(of_settings)?),
                    None => Trust::Roots(ringroad_tls::system_certificates().0),
                };
                let settings = ClientSettings { identity, ..ClientSettings::new(trust) };
                Client::new(settings).map_err(of_settings)?
            }
        };
        Ok(UpstreamTls {
            http1: client.with_alpn(&[ALPN_HTTP11]),
            http2: client.with_alpn(&[ALPN_H2]),
            name: self.name,
            way,
        })
    }
}

fn read_tls(mut section: Section<'_>) -> Option<Written> {
    section.describe(&keys::UPSTREAM_TLS);
    let content = |value: &Value<'_>| section.file(&value::text(value)?);
    let authorities = section.read("ca", |value| {
        let pem = content(value)?;
        certificates_from_pem(&pem).map_err(|why| why.detail().to_owned())?;
        Ok(pem)
    });
    let certificate = section.read("certificate", content);
    let key = section.read("key", content);
    let name = section.read("name", |value| {
        let name = value::text(value)?;
        Client::is_name(&name)
            .then_some(name.clone())
            .ok_or_else(|| format!("expected a DNS name or an address, as \"app.internal\", found {name:?}"))
    });
    section.read("verify", |value| match value::truth(value)? {
        true => Ok(()),
        false => Err(
            "certificates of servers are always verified: give the server's own certificate, or its authority, as \
             `ca`, and the name in it as `name`"
                .to_owned(),
        ),
    });
    let wants_pair = section.has("certificate") || section.has("key");
    for key in ["certificate", "key"] {
        if wants_pair && !section.has(key) {
            section.mistake(key, "missing: a client's certificate and its key go together");
        }
    }
    // What cannot be read is a mistake already, and nothing may be left out in its place.
    let is_whole = (!section.has("ca") || authorities.is_some())
        && (!section.has("name") || name.is_some())
        && wants_pair == (certificate.is_some() && key.is_some());
    section.finish();
    is_whole.then(|| Written { authorities, identity: certificate.zip(key), name })
}

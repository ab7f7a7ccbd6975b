//! `[nats.NAME]`: where a server is and how a client makes itself known.

use super::Nats;
use crate::pipe::Address;
use crate::tls::{self, Tls};
use percent_encoding::percent_decode_str;
use ringroad_settings::{Key, Section, Table, value};
use std::fmt;
use std::time::Duration;

/// The keys of `[nats.NAME]`.
pub static TABLE: Table = Table {
    name: "[nats.NAME]",
    meaning: "A server of NATS (2 or newer) that hubs name in `store`. It hands messages on at most once and keeps none.",
    keys: &[
        Key {
            name: "to",
            form: "`\"HOST:PORT\"`, `\"nats://HOST:PORT\"` or `\"tls://HOST:PORT\"`",
            default: "",
            meaning: "The server. Where the server asks for TLS it is used with the plain forms as well.",
        },
        Key {
            name: "connect_timeout",
            form: "time",
            default: "1s",
            meaning: "How long connecting may take, with TLS and authentication.",
        },
        Key { name: "user", form: "text", default: "-", meaning: "The user." },
        Key {
            name: "password",
            form: "text, as `\"$NATS_PASSWORD\"`",
            default: "-",
            meaning: "The user's password.",
        },
        Key {
            name: "token",
            form: "text, as `\"$NATS_TOKEN\"`",
            default: "-",
            meaning: "The token, where the server knows its clients by one.",
        },
        Key {
            name: "ca",
            form: "file",
            default: "the system's",
            meaning: "Certificates (PEM) that sign the server's.",
        },
    ],
};

/// How a server is reached.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where it listens.
    pub to: Address,
    /// How its certificate is verified.
    pub tls: Tls,
    /// A server without TLS is refused.
    pub needs_tls: bool,
    /// The user.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<String>,
    /// The token.
    pub token: Option<String>,
    /// How long connecting may take, with TLS and authentication.
    pub connect_timeout: Duration,
    /// Bytes of messages that may wait to be sent.
    pub queue_bytes: usize,
}

impl Settings {
    /// Returns the settings of an address, with the defaults.
    ///
    /// # Errors
    /// Says what was expected.
    pub fn parse(to: &str) -> Result<Settings, String> {
        let text = if to.contains("://") { to.to_owned() } else { format!("nats://{to}") };
        let url: url::Url = text.parse().map_err(|why: url::ParseError| wrong(to, &why.to_string()))?;
        let needs_tls = match url.scheme() {
            "nats" => false,
            "tls" => true,
            _ => return Err(wrong(to, "an unknown scheme")),
        };
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let host = decoded(url.host_str().unwrap_or_default()).trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(wrong(to, "the host is missing"));
        }
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err(wrong(to, "expected nothing behind the port"));
        }
        let (name, password) = (decoded(url.username()), url.password().map(decoded));
        // A name without a password is a token, as other clients of NATS read it.
        let (user, token) = match (name.is_empty(), &password) {
            (true, _) => (None, None),
            (false, Some(_)) => (Some(name), None),
            (false, None) => (None, Some(name)),
        };
        Ok(Settings {
            to: Address::Tcp(host.clone(), url.port().unwrap_or(4222)),
            tls: Tls { name: host, authorities: None },
            needs_tls,
            user,
            password,
            token,
            connect_timeout: Duration::from_secs(1),
            queue_bytes: 16 << 20,
        })
    }
}

fn wrong(to: &str, why: &str) -> String {
    format!("expected \"HOST:PORT\", \"nats://HOST:PORT\" or \"tls://HOST:PORT\", found {to:?}: {why}")
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without password and token.
        write!(f, "{}{}", if self.needs_tls { "tls://" } else { "" }, self.to)
    }
}

/// Reads `[nats.NAME]`; `None` if it is wrong, which is noted.
pub fn read(name: &str, mut section: Section<'_>) -> Option<Nats> {
    section.describe(&TABLE);
    let settings = section
        .require("to", "a server, as \"127.0.0.1:4222\"", |value| Settings::parse(&value::text(value)?));
    let connect_timeout =
        section.read("connect_timeout", |value| value::span(value, Duration::from_millis(1)));
    let user = section.read("user", value::text);
    let password = section.read("password", value::text);
    let token = section.read("token", value::text);
    let authorities = tls::read_authorities(&section);
    if section.has("user") != section.has("password") {
        section.mistake("user", "expected with `password`, and only with it");
    }
    if section.has("user") && section.has("token") {
        section.mistake("token", "expected `user` and `password`, or `token`");
    }
    let made = settings.and_then(|mut settings| {
        settings.connect_timeout = connect_timeout.unwrap_or(settings.connect_timeout);
        settings.user = user.or(settings.user);
        settings.password = password.or(settings.password);
        settings.token = token.or(settings.token);
        settings.tls.authorities = authorities;
        Nats::new(name, settings).map_err(|why| section.mistake("to", why.detail())).ok()
    });
    section.finish();
    made
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_server_is_written_as_an_address_or_a_url() {
        let parsed = |text: &str| Settings::parse(text).unwrap();
        assert_eq!(parsed("127.0.0.1:5000").to, Address::Tcp("127.0.0.1".to_owned(), 5000));
        assert_eq!(parsed("bus").to.to_string(), "bus:4222");
        assert!(!parsed("nats://bus").needs_tls && parsed("tls://bus").needs_tls);
        let all = parsed("tls://ann:p%40ss@bus.example:5000");
        assert_eq!((all.user.as_deref(), all.password.as_deref()), (Some("ann"), Some("p@ss")));
        assert_eq!((all.token.as_deref(), all.tls.name.as_str()), (None, "bus.example"));
        assert!(!format!("{all:?}").contains("p@ss"));
        assert_eq!(parsed("nats://secret@bus").token.as_deref(), Some("secret"));
        for wrong in ["", "http://a", "nats://", "nats://a/x", "nats://a:port", "nats://a?x=1"] {
            assert!(Settings::parse(wrong).is_err(), "{wrong}");
        }
    }
}

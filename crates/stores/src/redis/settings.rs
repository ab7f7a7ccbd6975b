//! `[redis.NAME]`: where a server is and how it is asked.

use super::Redis;
use crate::pipe::Address;
use crate::tls::{self, Tls};
use percent_encoding::percent_decode_str;
use ringroad_settings::{Key, Section, Table, value};
use std::fmt;
use std::time::Duration;

/// The keys of `[redis.NAME]`.
pub static TABLE: Table = Table {
    name: "[redis.NAME]",
    meaning: "A server of Redis (6 or newer) or Valkey that features name in `store`. Each worker has one connection to it. \
        No request waits for it longer than `timeout`.",
    keys: &[
        Key {
            name: "to",
            form: "`\"HOST:PORT\"`, `\"redis://HOST:PORT/DATABASE\"`, `\"rediss://…\"` (TLS) or `\"unix:PATH\"`",
            default: "",
            meaning: "The server.",
        },
        Key { name: "timeout", form: "time", default: "20ms", meaning: "How long a command may take." },
        Key {
            name: "connect_timeout",
            form: "time",
            default: "1s",
            meaning: "How long connecting may take, with TLS and authentication. Commands do not wait that long.",
        },
        Key {
            name: "user",
            form: "text",
            default: "-",
            meaning: "The user (ACL). Without it the password is that of the default user.",
        },
        Key {
            name: "password",
            form: "text, as `\"$REDIS_PASSWORD\"`",
            default: "-",
            meaning: "The password.",
        },
        Key { name: "database", form: "0 or more", default: "0", meaning: "The number of the database." },
        Key {
            name: "queue",
            form: "1 to 1048576",
            default: "4096",
            meaning: "Commands of one worker that wait for their answers. One more fails at once.",
        },
        Key {
            name: "ca",
            form: "file",
            default: "the system's",
            meaning: "Certificates (PEM) that sign the server's, for `rediss://`.",
        },
    ],
};

/// How a server is reached and asked.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where it listens.
    pub to: Address,
    /// TLS, if it is spoken.
    pub tls: Option<Tls>,
    /// The user (ACL).
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// The number of the database.
    pub database: u32,
    /// How long a command may take.
    pub timeout: Duration,
    /// How long connecting may take, with TLS and authentication.
    pub connect_timeout: Duration,
    /// Commands of one client that may wait for their answers.
    pub queue: usize,
    /// Bytes of commands of one client that may wait to be sent.
    pub queue_bytes: usize,
}

impl Settings {
    /// Returns the settings of an address, with the defaults.
    ///
    /// # Errors
    /// Says what was expected.
    pub fn parse(to: &str) -> Result<Settings, String> {
        let mut settings = Settings {
            to: Address::Tcp(String::new(), 6379),
            tls: None,
            user: None,
            password: None,
            database: 0,
            timeout: Duration::from_millis(20),
            connect_timeout: Duration::from_secs(1),
            queue: 4096,
            queue_bytes: 16 << 20,
        };
        if let Some(path) = to.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                return Err(wrong(to, "the path is missing"));
            }
            settings.to = Address::Unix(path.into());
            return Ok(settings);
        }
        let text = if to.contains("://") { to.to_owned() } else { format!("redis://{to}") };
        let url: url::Url = text.parse().map_err(|why: url::ParseError| wrong(to, &why.to_string()))?;
        let is_secure = match url.scheme() {
            "redis" => false,
            "rediss" => true,
            _ => return Err(wrong(to, "an unknown scheme")),
        };
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let host = decoded(url.host_str().unwrap_or_default()).trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(wrong(to, "the host is missing"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong(to, "parameters are keys of the table"));
        }
        let database = url.path().trim_matches('/');
        if !database.is_empty() {
            settings.database = database.parse().map_err(|_| wrong(to, "the database is a number"))?;
        }
        settings.user = Some(decoded(url.username())).filter(|user| !user.is_empty());
        settings.password = url.password().map(decoded);
        settings.tls = is_secure.then(|| Tls { name: host.clone(), authorities: None });
        settings.to = Address::Tcp(host, url.port().unwrap_or(6379));
        Ok(settings)
    }
}

fn wrong(to: &str, why: &str) -> String {
    format!(
        "expected \"HOST:PORT\", \"redis://HOST:PORT\", \"rediss://HOST:PORT\" or \"unix:PATH\", found {to:?}: {why}"
    )
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the password.
        write!(f, "{}{}/{}", if self.tls.is_some() { "rediss://" } else { "" }, self.to, self.database)
    }
}

/// Reads `[redis.NAME]`; `None` if it is wrong, which is noted.
pub fn read(name: &str, mut section: Section<'_>) -> Option<Redis> {
    section.describe(&TABLE);
    let settings = section.require("to", "a server, as \"127.0.0.1:6379\"", |value| {
        let mut settings = Settings::parse(&value::text(value)?)?;
        if let Address::Unix(path) = &mut settings.to {
            *path = section.path(&path.to_string_lossy());
        }
        Ok(settings)
    });
    let least = Duration::from_millis(1);
    let timeout = section.read("timeout", |value| value::span(value, least));
    let connect_timeout = section.read("connect_timeout", |value| value::span(value, least));
    let user = section.read("user", value::text);
    let password = section.read("password", value::text);
    let database = section.read("database", |value| value::count(value, 0, u64::from(u32::MAX)));
    let queue = section.read("queue", |value| value::count(value, 1, 1 << 20));
    let authorities = tls::read_authorities(&section);
    if user.is_some() && !section.has("password") {
        section.mistake("user", "expected with `password`");
    }
    let is_plain = settings.as_ref().is_some_and(|settings| settings.tls.is_none());
    if is_plain && section.has("ca") {
        section.mistake("ca", "the server is not asked over TLS: write `to` as rediss://");
    }
    let settings = settings.map(|mut settings| {
        settings.timeout = timeout.unwrap_or(settings.timeout);
        settings.connect_timeout = connect_timeout.unwrap_or(settings.connect_timeout);
        settings.user = user.or(settings.user);
        settings.password = password.or(settings.password);
        settings.database = database.map_or(settings.database, |number| number as u32);
        settings.queue = queue.map_or(settings.queue, |count| count as usize);
        if let Some(tls) = &mut settings.tls {
            tls.authorities = authorities;
        }
        settings
    });
    let made = settings.and_then(|settings| {
        let made = Redis::new(name, settings);
        made.map_err(|why| section.mistake("to", why.detail())).ok()
    });
    section.finish();
    made
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_server_is_written_as_an_address_a_url_or_a_path() {
        let parsed = |text: &str| Settings::parse(text).unwrap();
        assert_eq!(parsed("127.0.0.1:6379").to, Address::Tcp("127.0.0.1".to_owned(), 6379));
        assert_eq!(parsed("cache").to.to_string(), "cache:6379");
        assert_eq!(parsed("redis://[::1]:7000").to.to_string(), "[::1]:7000");
        assert_eq!(parsed("unix:/run/redis.sock").to, Address::Unix("/run/redis.sock".into()));
        let all = parsed("rediss://ann:p%40ss@db.example:6380/3");
        assert_eq!((all.user.as_deref(), all.password.as_deref()), (Some("ann"), Some("p@ss")));
        assert_eq!((all.database, all.tls.as_ref().unwrap().name.as_str()), (3, "db.example"));
        assert!(!format!("{all:?}").contains("p@ss"));
        for wrong in ["", "unix:", "http://a", "redis://", "redis://a/x", "redis://a:port", "redis://a?db=1"]
        {
            assert!(Settings::parse(wrong).is_err(), "{wrong}");
        }
    }
}

//! Where the server listens, and what it speaks there.

use super::keys;
use ringroad_http::{ListenAt, Network};
use ringroad_settings::{Section, Value, value};
use std::fmt;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address, path or passed socket.
    pub at: ListenAt,
    /// Connections begin with a TLS handshake; with the certificates of `[tls]`.
    pub tls: bool,
    /// HTTP/2 is spoken as well: with clients that choose it in the handshake, or by prior knowledge where
    /// `[http2]` permits that.
    pub http2: bool,
    /// Connections from these networks begin with a PROXY header.
    pub proxy_protocol: Vec<Network>,
    /// Requests are sent to the same place on `https://`, with this port.
    pub redirect_https: Option<u16>,
    /// It is for all of IPv6 and takes no IPv4 connections: another address is for those.
    pub only_v6: bool,
}

impl Listen {
    /// Makes a listener of plain HTTP at this address.
    pub fn plain(at: ListenAt) -> Listen {
        Listen {
            at,
            tls: false,
            http2: true,
            proxy_protocol: Vec::new(),
            redirect_https: None,
            only_v6: false,
        }
    }
}

impl Listen {
    /// Returns whether the same is spoken at another address.
    pub(crate) fn speaks_as(&self, other: &Listen) -> bool {
        let speaks = |listen: &Listen| (listen.tls, listen.http2, listen.redirect_https);
        speaks(self) == speaks(other) && self.proxy_protocol == other.proxy_protocol
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.at.fmt(f)
    }
}

/// Reads the text of an address as every place that takes one understands it: `8080`, `:8080`, `[::1]:80`,
/// `unix:PATH`, `systemd`, `systemd:NAME`.
///
/// # Errors
/// Says what was expected.
pub fn listen_at(text: &str) -> Result<ListenAt, String> {
    if let Some(address) = value::address_of(text) {
        return Ok(ListenAt::Tcp(address));
    }
    if text.starts_with("unix:@") {
        return Err(no_abstract(text));
    }
    let read = text.parse();
    // An address with a zone that is no interface has a reason of its own.
    if let (Err(why), true) = (&read, text.starts_with('[') && text.contains('%')) {
        return Err(format!("{why}, found {text:?}"));
    }
    read.map_err(|_| {
        format!(
            "expected an address with its port, as \"127.0.0.1:8080\", \"[::1]:8080\" or \":8080\", or \
             \"unix:PATH\", \"systemd\" or \"systemd:NAME\", found {text:?}"
        )
    })
}

/// Refuses a Unix socket without a file, as other programs write it: a file of that name would be another
/// one.
pub(super) fn no_abstract(text: &str) -> String {
    format!(
        "expected the file of a Unix socket, as \"unix:PATH\" (abstract sockets are not supported), found {text:?}"
    )
}

fn at(value: &Value<'_>, section: &Section<'_>) -> Result<ListenAt, String> {
    Ok(match value.as_str() {
        Some(text) => match listen_at(text)? {
            ListenAt::Unix(path) => ListenAt::Unix(section.folder().join(path)),
            at => at,
        },
        None => ListenAt::Tcp(value::address(value)?),
    })
}

/// Reads `listen`; `None` if it is not written or wrong, which is noted.
pub(super) fn read(top: &Section<'_>) -> Option<Vec<Listen>> {
    let is_single = top.read("listen", |value| match value.as_array() {
        Some(all) if all.is_empty() => Err("expected addresses to listen on, found an empty list".to_owned()),
        all => Ok(all.is_none() && !value.is_table()),
    })?;
    if is_single {
        return top.read("listen", |value| at(value, top)).map(|at| vec![Listen::plain(at)]);
    }
    let all = top.list("listen", |value, table| {
        let Some(mut table) = table else { return Ok(Some(Listen::plain(at(value, top)?))) };
        table.describe(&keys::LISTEN);
        let address = table.require("address", "an address, as \":443\"", |value| at(value, &table));
        let tls = table.read("tls", value::truth).unwrap_or(false);
        let http2 = table.read("http2", value::truth);
        if http2 == Some(true) && !tls {
            table.mistake("http2", "HTTP/2 is chosen in the TLS handshake: it needs tls = true");
        }
        let networks = |value: &Value<'_>| {
            let networks = value::some(value, "networks of balancers", value::network)?;
            // Both understand the same text.
            networks
                .iter()
                .map(|network| network.to_string().parse::<Network>())
                .collect::<Result<Vec<_>, _>>()
        };
        let proxy_protocol = table.read("proxy_protocol", networks).unwrap_or_default();
        let redirect_https = table.read("redirect_https", |value| match value.as_bool() {
            Some(true) => Ok(Some(443)),
            Some(false) => Ok(None),
            None => value::count(value, 1, 65_535)
                .map(|port| Some(port as u16))
                .map_err(|_| value::found("true, false or the port of https", value)),
        });
        if tls && matches!(redirect_https, Some(Some(_))) {
            table.mistake("redirect_https", "this address speaks TLS itself: write it at the one on port 80");
        }
        table.finish();
        Ok(address.map(|at| Listen {
            at,
            tls,
            http2: http2.unwrap_or(true),
            proxy_protocol,
            redirect_https: redirect_https.flatten(),
            only_v6: false,
        }))
    })?;
    let again = |one: &(usize, &Listen)| all.iter().take(one.0).any(|before| before.at == one.1.at);
    let any_port = |listen: &Listen| matches!(listen.at, ListenAt::Tcp(address) if address.port() == 0);
    if let Some((_, twice)) = all.iter().enumerate().find(|one| again(one) && !any_port(one.1)) {
        top.mistake("listen", format!("{twice} is there twice"));
    }
    Some(all)
}

//! `[tls] acme`: certificates that are obtained from an authority.

use super::keys;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ringroad_acme::{ChallengeKind, DEFAULT_DIRECTORY, External, Settings};
use ringroad_settings::{Section, Value, value};
use ringroad_tls::Client;
use std::net::IpAddr;
use std::time::Duration;

/// Most names of one certificate, as Let's Encrypt has it.
const NAMES_MAX: usize = 100;

/// Reads `acme`; `None` if it is wrong, which is noted. `has_plain`: some address is without TLS.
pub(super) fn read(mut section: Section<'_>, has_plain: bool) -> Option<Settings> {
    section.describe(&keys::TLS_ACME);
    let certificates = section.require("names", "names, as [\"example.org\"]", names);
    let agreed = section.require("terms_agreed", "true: you agree to the authority's terms", |value| {
        match value::truth(value)? {
            true => Ok(()),
            false => Err("without your agreement to its terms the authority gives no certificate".to_owned()),
        }
    });
    let state = section.require("state", "a folder, as \"/var/lib/ringroad/acme\"", |value| {
        Ok(section.path(&value::text(value)?))
    });
    let contact = section.read("contact", contact);
    let directory = section.read("directory", directory).unwrap_or_else(|| DEFAULT_DIRECTORY.to_owned());
    let kinds = [("http-01", ChallengeKind::Http01), ("tls-alpn-01", ChallengeKind::TlsAlpn01)];
    let challenge = section.read("challenge", |value| value::one_of(value, &kinds));
    if challenge == Some(ChallengeKind::Http01) && !has_plain {
        let what = "the authority asks on port 80: an address without TLS is needed, as \":80\" in `listen`";
        section.mistake("challenge", what);
    }
    let by_default = if has_plain { ChallengeKind::Http01 } else { ChallengeKind::TlsAlpn01 };
    let ca = section.read("ca", |value| {
        let name = value::text(value)?;
        let pem = section.file(&name)?;
        ringroad_tls::certificates_from_pem(&pem).map_err(|why| why.detail().to_owned())?;
        Ok(section.path(&name))
    });
    let external = section.table("external").and_then(|mut section| {
        section.describe(&keys::TLS_ACME_EXTERNAL);
        let kid = section.require("kid", "the identifier of the key", value::text);
        let key = section.require("key", "the key, in base64url", |value| {
            BASE64_URL_SAFE_NO_PAD
                .decode(value::text(value)?.trim_end_matches('='))
                .map_err(|why| format!("expected base64url ({why})"))
        });
        section.finish();
        kid.zip(key).map(|(kid, key)| External { kid, key })
    });
    let profile = section.read("profile", value::text);
    let retry = section.read("retry", |value| value::span(value, Duration::from_millis(1)));
    section.finish();
    agreed?;
    Some(Settings {
        certificates: certificates?,
        contact,
        directory,
        state: state?,
        challenge: challenge.unwrap_or(by_default),
        ca,
        external,
        profile,
        retry: retry.unwrap_or(Duration::from_secs(5 * 60)),
    })
}

/// Returns the certificates of `names`: one of the names that are written directly, one of each list in the
/// list.
fn names(value: &Value<'_>) -> Result<Vec<Vec<String>>, String> {
    let expected = "names, as [\"example.org\"], or lists of them";
    let entries = match value.as_array() {
        Some(entries) => entries,
        None => return Ok(vec![vec![name(value)?]]),
    };
    let (mut direct, mut all) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry.get_ref().as_array() {
            Some(inner) => {
                all.push(inner.iter().map(|one| name(one.get_ref())).collect::<Result<Vec<_>, _>>()?)
            }
            None => direct.push(name(entry.get_ref())?),
        }
    }
    if !direct.is_empty() {
        all.insert(0, direct);
    }
    if all.is_empty() || all.iter().any(Vec::is_empty) {
        return Err(format!("expected {expected}, found an empty list"));
    }
    if let Some(names) = all.iter().find(|names| names.len() > NAMES_MAX) {
        return Err(format!("a certificate has {} names, and {NAMES_MAX} are the most", names.len()));
    }
    let mut once = all.concat();
    once.sort();
    if let Some(twice) = once.windows(2).find(|pair| pair.first() == pair.last()).and_then(<[_]>::first) {
        return Err(format!("{twice} is there twice"));
    }
    Ok(all)
}

fn name(value: &Value<'_>) -> Result<String, String> {
    let name = value::text(value)?.to_ascii_lowercase();
    if name.starts_with("*.") {
        let why = "a star is proved by DNS alone: write the names, or give the certificate as a file";
        return Err(format!("{name}: {why}"));
    }
    if name.parse::<IpAddr>().is_ok() {
        return Ok(name);
    }
    let is_name = Client::is_name(&name) && name.contains('.') && !name.ends_with('.');
    is_name.then_some(()).ok_or_else(|| {
        format!("expected a DNS name or an address, as \"www.example.org\", found {name:?}")
    })?;
    Ok(name)
}

fn contact(value: &Value<'_>) -> Result<String, String> {
    let text = value::text(value)?;
    let address = text.strip_prefix("mailto:").unwrap_or(&text);
    let is_address =
        address.split_once('@').is_some_and(|(user, host)| !user.is_empty() && host.contains('.'))
            && address.bytes().all(|byte| byte.is_ascii_graphic() && !b",?<>".contains(&byte));
    if is_address {
        Ok(address.to_owned())
    } else {
        Err(format!("expected one mail address, as \"admin@example.org\", found {text:?}"))
    }
}

fn directory(value: &Value<'_>) -> Result<String, String> {
    let url = value::text(value)?;
    let host = |rest: &str| {
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let end = authority.rfind(':').filter(|at| !authority.get(*at..).unwrap_or_default().contains(']'));
        let host = end.and_then(|at| authority.get(..at)).unwrap_or(authority);
        host.trim_matches(['[', ']']).to_owned()
    };
    let is_here = |host: &str| {
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
    };
    let parts = url.split_once("://").map(|(scheme, rest)| (scheme.to_ascii_lowercase(), rest));
    match parts.as_ref().map(|(scheme, rest)| (&**scheme, *rest)) {
        Some(("https", rest)) if Client::is_name(&host(rest)) => Ok(url),
        Some(("http", rest)) if is_here(&host(rest)) => Ok(url),
        Some(("http", _)) => {
            Err("expected https://: what is signed must not be changed on its way".to_owned())
        }
        _ => Err(format!("expected the URL of a directory, as {DEFAULT_DIRECTORY:?}, found {url:?}")),
    }
}

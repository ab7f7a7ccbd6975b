//! `[tls]`: certificates, client certificates, tickets, and how many handshakes at once.

use super::{acme, keys};
use ringroad_settings::{Section, Value, value};
use ringroad_tls::{ClientAuth, PairFiles, Place, ServerSettings, Tickets, UnknownName};
use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// TLS settings of addresses with `tls = true`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Certificates, and rules for certificates of clients.
    pub settings: ServerSettings,
    /// Certificates that are obtained from an authority.
    pub acme: Option<ringroad_acme::Settings>,
    /// The server makes a certificate at start that no other program trusts: for development.
    pub dev: bool,
    /// Maximum number of concurrent handshakes of each worker.
    pub handshakes: NonZeroUsize,
    /// How long a handshake may take.
    pub handshake_timeout: Duration,
    /// The header line that tells upstream servers the subject of a verified client.
    pub subject_header: Option<String>,
}

impl Tls {
    /// Makes settings with these certificates.
    pub fn of(places: Vec<Place>) -> Tls {
        Tls {
            settings: ServerSettings::new(places),
            acme: None,
            dev: false,
            handshakes: NonZeroUsize::new(64).unwrap_or(NonZeroUsize::MIN),
            handshake_timeout: Duration::from_secs(10),
            subject_header: None,
        }
    }
}

/// Reads `[tls]`. `has_plain`: some address is without TLS.
pub(super) fn read(mut section: Section<'_>, has_plain: bool) -> Tls {
    section.describe(&keys::TLS);
    let mut places = Vec::new();
    if section.has("certificates") {
        let read = section.list("certificates", |value, table| {
            let Some(mut table) = table else { return place(section.path(&value::text(value)?)).map(Some) };
            table.describe(&keys::CERTIFICATE);
            let path = |value: &Value<'_>| Ok(section.path(&value::text(value)?));
            let certificate = table.require("certificate", "a PEM file", path);
            let key = table.require("key", "a PEM file", path);
            table.finish();
            Ok(certificate.zip(key).map(|(certificate, key)| Place::Pair(PairFiles { certificate, key })))
        });
        places.extend(read.unwrap_or_default());
    } else if !section.has("acme") {
        section.mistake("certificates", "missing: expected files or folders, as [\"certs/\"], or `acme`");
    }
    let mut tls = Tls::of(places);
    tls.acme = section.table("acme").and_then(|section| acme::read(section, has_plain));
    tls.settings.awaits = tls.acme.is_some();
    let unknown = [("first", UnknownName::First), ("refuse", UnknownName::Refuse)];
    if let Some(unknown) = section.read("unknown_name", |value| value::one_of(value, &unknown)) {
        tls.settings.unknown_name = unknown;
    }
    let tickets = section.read("tickets", |value| {
        Ok(match value::text(value)?.as_str() {
            "memory" => Tickets::Memory,
            "off" => Tickets::Off,
            file => Tickets::File(section.path(file)),
        })
    });
    tls.settings.tickets = tickets.unwrap_or_default();
    let handshakes = section.read("handshakes", |value| value::count(value, 1, 65_536));
    if let Some(handshakes) = handshakes.and_then(|count| NonZeroUsize::new(count as usize)) {
        tls.handshakes = handshakes;
    }
    if let Some(span) = section.read("handshake_timeout", |value| value::span(value, Duration::from_secs(1)))
    {
        tls.handshake_timeout = span;
    }
    if let Some(mut client) = section.table("client") {
        client.describe(&keys::TLS_CLIENT);
        let path = |value: &Value<'_>| Ok(section.path(&value::text(value)?));
        let authorities = client.require("ca", "a PEM file with authorities", path);
        let need = [("required", true), ("optional", false)];
        let required = client.read("need", |value| value::one_of(value, &need)).unwrap_or(true);
        let revoked =
            client.read("revoked", |value| value::some(value, "files with revoked certificates", path));
        tls.subject_header = client.read("header", ringroad_gate::words::header_name);
        client.finish();
        let revoked = revoked.unwrap_or_default();
        tls.settings.client = authorities.map(|authorities| ClientAuth { authorities, required, revoked });
    }
    section.finish();
    tls
}

/// Returns a folder, or a file with a chain: its key is in the file beside it that ends in `.key`, or in
/// itself.
fn place(path: PathBuf) -> Result<Place, String> {
    let about = fs::metadata(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    if about.is_dir() {
        return Ok(Place::Folder(path));
    }
    if !about.is_file() {
        return Err(format!("{}: neither a file nor a folder", path.display()));
    }
    // One that is there and cannot be read is the key nevertheless: reading it tells why.
    let beside = path.with_extension("key");
    let key = if beside.symlink_metadata().is_ok() { beside } else { path.clone() };
    Ok(Place::Pair(PairFiles { certificate: path, key }))
}

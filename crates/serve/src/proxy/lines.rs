//! Header lines between two hops: those that are passed on, and those that are written here.

use super::location::{self, Places};
use super::upstream::Head;
use super::{Handing, ProxyRoute};
use crate::answer::Context;
use ringroad_gate::client::{push_address, push_forwarded, told, told_host};
use ringroad_gate::flow::HOP_NAMES_MAX;
use ringroad_gate::words;
use ringroad_http::{EncodeError, Field, FieldBlock, Fields, Method, Request, Response, Status, Version};
use ringroad_policy::fresh::is_safe;
use ringroad_wire::Encoder;
use ringroad_wire::ws::handshake::accept_key;

/// Lines that belong to one connection (RFC 9110 §7.6.1, §11.7), and those that the encoder writes.
const OF_THE_HOP: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Header lines that are passed on only from trusted clients, or are written anew. `Proxy` becomes the
/// variable HTTP_PROXY in CGI programs, which is then taken for a setting (CVE-2016-5385).
const OF_THE_CLIENT: &[&str] = &[
    "forwarded",
    "proxy",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-real-ip",
    "x-request-id",
];

/// The one protocol that is handed through. Others stay here: what a tunnel carries passes by the routes, and
/// a server behind that accepted an offer of HTTP/2 would answer there whatever it is asked (RFC 9113 §3.1
/// removed that offer).
pub(super) const WEBSOCKET: &str = "websocket";

/// The name of this server in `Via`.
const NAME: &str = "ringroad";

/// This server's element of `Via` (RFC 9110 §7.6.3).
const OWN_VIA: &str = "1.1 ringroad";

/// The `Host` for a request that has come without one.
pub(super) const NO_HOST: &str = "localhost";

/// Bytes that most values written here fit into.
const WRITTEN: usize = 128;

/// The reason why a request is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotHandedOn {
    /// It cannot be written as a request.
    Unwritable,
    /// `Connection` names too many lines.
    TooManyNamed,
    /// A loop: `Via` has this server's name twice.
    Loop,
}

/// Returns whether a request offers to speak WebSocket (RFC 6455 §4.1), and nothing else.
pub(super) fn offers_websocket(request: &Request) -> bool {
    let alone = is_websocket(request.headers());
    alone && request.head().upgrade() && request.method() == Method::Get
}

/// Returns whether `Upgrade` has this protocol, once and alone.
pub(super) fn is_websocket(fields: Fields<'_>) -> bool {
    let mut offers = fields.get_all("upgrade");
    let is_it = |value: &[u8]| value.trim_ascii().eq_ignore_ascii_case(WEBSOCKET.as_bytes());
    offers.next().is_some_and(is_it) && offers.next().is_none()
}

/// Returns whether an answer to an offer of WebSocket answers its key (RFC 6455 §4.2.2). A client of HTTP/1.1
/// checks it itself. One of HTTP/2 sent none and sees none, so that the key is this server's.
pub(super) fn answers_key(request: &Request, answer: Fields<'_>) -> bool {
    if request.version() != Version::Http2 {
        return true;
    }
    let accept = answer.get("sec-websocket-accept").map(<[u8]>::trim_ascii);
    request.header("sec-websocket-key").is_some_and(|key| accept == Some(accept_key(key).as_bytes()))
}

/// Returns whether the client takes lines behind a body (RFC 9110 §10.1.4).
pub(super) fn takes_trailers(request: &Request) -> bool {
    let words =
        |value: &'_ [u8]| value.split(|byte| *byte == b',').any(|word| word.trim_ascii() == b"trailers");
    request.headers().get_all("te").any(words)
}

fn is_one_of(name: &[u8], names: &[&str]) -> bool {
    names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// Returns whether only this server says this, or a line of this name may pass for one of those. To a program
/// that gets lines as variables (CGI, WSGI) `_` and `-` are one, to some also other signs.
pub(super) fn is_of_this_server(name: &[u8], subject: Option<&str>) -> bool {
    let all = OF_THE_CLIENT.iter().copied().chain(subject);
    name.contains(&b'_') || all.into_iter().any(|line| words::passes_for(name, line))
}

/// Names that `Connection` lists as lines of its hop. Most messages have none, or `keep-alive`, which is of
/// the hop whether it is named or not.
#[derive(Default)]
pub(super) struct Named<'f>(Vec<&'f [u8]>);

impl Named<'_> {
    fn has(&self, name: &[u8]) -> bool {
        self.0.iter().any(|one| one.eq_ignore_ascii_case(name))
    }
}

/// Reads `Connection`. `None`: it names more than [`HOP_NAMES_MAX`] lines. Each costs a comparison with every
/// line.
fn named(fields: Fields<'_>) -> Option<Named<'_>> {
    let words = fields.get_all("connection").flat_map(|value| value.split(|byte| *byte == b','));
    let mut named = Vec::new();
    for (before, name) in words.map(<[u8]>::trim_ascii).filter(|word| !word.is_empty()).enumerate() {
        if before == HOP_NAMES_MAX {
            return None;
        }
        if !name.eq_ignore_ascii_case(b"keep-alive") {
            named.push(name);
        }
    }
    Some(Named(named))
}

const MAX_FORWARDS: &str = "max-forwards";

/// Returns how many more servers an OPTIONS request may be passed on to (RFC 9110 §7.6.2), if it says so. For
/// other methods the line means nothing.
pub(super) fn hops_left(request: &Request) -> Option<u64> {
    if request.method() != Method::Options {
        return None;
    }
    request.header(MAX_FORWARDS)?.trim().parse().ok()
}

/// Returns the values of a line that may come several times, as one list.
fn list(fields: Fields<'_>, name: &str) -> Option<String> {
    let all: Vec<_> = fields.get_all(name).filter_map(|value| str::from_utf8(value).ok()).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// Writes the head of a request to the server behind, with an offer of WebSocket or without. `subject` is the
/// line that tells the client's verified name, and that no client may send.
pub(super) fn request<'a>(
    out: &'a mut Vec<u8>,
    route: &ProxyRoute,
    request: &Request,
    target: &str,
    websocket: bool,
    asking: &Context,
    subject: Option<&str>,
) -> Result<Encoder<'a>, NotHandedOn> {
    let settings = route.settings();
    let authority = request.authority();
    let host = settings.host.as_deref().or(authority).unwrap_or(NO_HOST);
    let fields = request.headers();
    // Those that it names are gone: what still has such a name was written here.
    if named(fields).is_none() {
        return Err(NotHandedOn::TooManyNamed);
    }
    let via = list(fields, "via");
    if via.as_deref().is_some_and(|via| via.matches(NAME).count() >= 2) {
        return Err(NotHandedOn::Loop);
    }
    write(out, request, target, host, authority, settings.trust_forwarded, via, websocket, asking, subject)
        .ok_or(NotHandedOn::Unwritable)
}

#[allow(clippy::too_many_arguments, reason = "what one head is made of, in one place")]
fn write<'a>(
    out: &'a mut Vec<u8>,
    request: &Request,
    target: &str,
    host: &str,
    authority: Option<&str>,
    trusted_route: bool,
    via: Option<String>,
    websocket: bool,
    asking: &Context,
    subject: Option<&str>,
) -> Option<Encoder<'a>> {
    let fields = request.headers();
    let mut head = Encoder::request_named(out, request.method_name(), target, host).ok()?;
    let hops = hops_left(request);
    for field in fields.iter() {
        let ours = is_of_this_server(field.name, subject)
            || (hops.is_some() && field.name.eq_ignore_ascii_case(MAX_FORWARDS.as_bytes()))
            || is_one_of(field.name, OF_THE_HOP);
        if !ours {
            head.field(field.name, field.value).ok()?;
        }
    }
    // One piece of memory for what is put together here.
    let mut text = Vec::with_capacity(WRITTEN);
    let trusted = trusted_route || asking.comes_by_proxy();
    let told = |name: &str| told(fields, name).filter(|_| trusted);
    // The list that came with the request, if it is to be believed, to which one element is added.
    let before = |text: &mut Vec<u8>, name: &str| {
        text.clear();
        let values = fields.get_all(name).filter(|value| trusted && !value.is_empty());
        for value in values.filter(|value| str::from_utf8(value).is_ok()) {
            text.extend_from_slice(value);
            text.extend_from_slice(b", ");
        }
    };
    let peer = request.peer_addr().map(|peer| peer.ip().to_canonical());
    if let Some(peer) = peer {
        before(&mut text, "x-forwarded-for");
        push_address(&mut text, peer);
        head.field("X-Forwarded-For", &text).ok()?;
    }
    if let Some(client) = asking.client() {
        text.clear();
        push_address(&mut text, client);
        head.field("X-Real-IP", &text).ok()?;
    }
    // The one that is understood here, by which answers are kept.
    if let Some(host) = told_host(fields).filter(|_| trusted).or(authority) {
        head.field("X-Forwarded-Host", host).ok()?;
    }
    if let Some(name) = subject
        && let Some(tls) = request.connection().and_then(|info| info.tls)
        && let Some(subject) = &tls.client_subject
    {
        head.field(name, &**subject).ok()?;
    }
    if let Some(port) = told("x-forwarded-port") {
        head.field("X-Forwarded-Port", port).ok()?;
    }
    let proto = told("x-forwarded-proto").unwrap_or(request.scheme());
    head.field("X-Forwarded-Proto", proto).ok()?;
    before(&mut text, "forwarded");
    push_forwarded(&mut text, peer, authority, proto);
    head.field("Forwarded", &text).ok()?;
    head.field("X-Request-Id", asking.id()).ok()?;
    if let Some(hops) = hops {
        head.field("Max-Forwards", hops.saturating_sub(1).to_string()).ok()?;
    }
    match via {
        Some(via) => head.field("Via", format!("{via}, {OWN_VIA}")).ok()?,
        None => head.field("Via", OWN_VIA).ok()?,
    };
    if websocket {
        head.upgrade(WEBSOCKET).ok()?;
    }
    Some(head)
}

/// Longest head before an answer that is passed on.
const INTERIM_BYTES_MAX: usize = 8 * 1024;

/// Passes on what a server says before its answer (103 Early Hints and other 1xx), without lines of its hop.
/// `100 Continue` is of its hop, too: this server says it to its client itself. A head that is too long is
/// left out, as any hop may leave out any.
pub(super) fn inform(request: &Request, status: Status, fields: Fields<'_>) {
    if let Some(named) = named(fields) {
        inform_of(request, status, fields.iter(), &named);
    }
}

/// The same of lines without a `Connection` among them.
pub(super) fn inform_of<'f>(
    request: &Request,
    status: Status,
    lines: impl Iterator<Item = Field<'f>>,
    named: &Named<'_>,
) {
    let mut passed = FieldBlock::new();
    for line in lines {
        if is_one_of(line.name, OF_THE_HOP) || named.has(line.name) {
            continue;
        }
        // Refused are lines of framing, of which such a head has none.
        let _ = passed.push(line.name, line.value);
        if passed.bytes().len() > INTERIM_BYTES_MAX {
            return;
        }
    }
    request.inform(status.code(), passed);
}

/// Returns where the server of an answer is for itself, and here.
fn places<'r>(handing: &Handing<'r>) -> Option<Places<'r>> {
    let Handing { route, request, asking, target } = *handing;
    Places::of(route.settings(), request, asking.original(), asking.route_path().len(), target)
}

/// Notes the places here of what the answer to a change names, for the cache.
fn note_void(fields: Fields<'_>, places: &Places<'_>, asking: &Context) {
    for name in ["location", "content-location"] {
        let here = fields.get(name).and_then(|value| places.here(value));
        here.into_iter().for_each(|target| asking.note_void(target));
    }
}

/// Returns the head of an answer from behind, as ours. The date is the library's, which has a clock of its
/// own, unless a step reckons with the origin's.
pub(super) fn response(
    head: &Head,
    handing: &Handing<'_>,
    response: Response,
) -> Result<Response, EncodeError> {
    let (mut response, route) = (response, handing.route);
    let fields = head.fields();
    if route.route.steps.ask_again()
        && let Some(date) = fields.get("date")
    {
        response = response.header("Date", date)?;
    }
    // An answer that names too many lines loses those lines' protection, not the answer.
    let named = named(fields).unwrap_or_default();
    let own = || route.route.steps.lines();
    let replaced = |name: &[u8]| own().any(|(own, _)| name.eq_ignore_ascii_case(own.as_bytes()));
    // 407 means nothing without its challenges (RFC 9110 §15.5.8).
    let is_challenge = |name: &[u8]| {
        head.status() == Status::PROXY_AUTHENTICATION_REQUIRED
            && name.eq_ignore_ascii_case(b"proxy-authenticate")
    };
    let names_places = fields.iter().any(|field| location::is_of_a_place(field.name));
    let places = if names_places { places(handing) } else { None };
    if let Some(places) = &places
        && !is_safe(handing.request.method_name())
    {
        note_void(fields, places, handing.asking);
    }
    let places = places.filter(|_| route.settings().map_locations);
    for field in fields.iter() {
        let ours = (is_one_of(field.name, OF_THE_HOP) && !is_challenge(field.name))
            || field.name.eq_ignore_ascii_case(b"date");
        if !ours && !replaced(field.name) && !named.has(field.name) {
            response = match places.as_ref().and_then(|places| places.mapped(field.name, field.value)) {
                Some(place) => response.header(field.name, place)?,
                None => response.header(field.name, field.value)?,
            };
        }
    }
    for (name, value) in own() {
        response = response.header(name, value)?;
    }
    words::with_upgrade(response, fields.iter().map(|field| (field.name, field.value)))
}

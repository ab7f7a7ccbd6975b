//! One connection's TLS: the peer's bytes in, plaintext and records out.
//!
//! Records are decrypted in the caller's buffer. The session keeps only the beginning of an incomplete
//! record, so a session that waits between records holds no buffer. Start at [`Session::receive`].

use crate::error::TlsError;
use crate::info::{HandshakeKind, Info, ProtocolVersion};
use crate::server::hello::{self, Hello};
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Maximum plaintext of one record in bytes (RFC 8446 §5.1).
const RECORD_BYTES: usize = 16 * 1024;

/// Upper bound for the bytes of a record besides its plaintext, in any version and cipher suite.
const RECORD_EXTRA: usize = 64;

/// The TLS state of one connection.
pub struct Session {
    side: Side,
    /// The beginning of an incomplete record; empty if there is none.
    held: Vec<u8>,
    hello: Option<Box<Hello>>,
    /// The peer has sent `close_notify`.
    ended: bool,
    closed: bool,
    /// The session has failed: rustls is not called any more.
    failed: bool,
}

enum Side {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

/// Records to be sent. Their memory can be reused without being cleared, so that sealing does not zero a
/// buffer that it then overwrites.
#[derive(Debug, Default)]
pub struct Output {
    /// INVARIANT: `end <= bytes.len()`.
    bytes: Vec<u8>,
    end: usize,
}

impl Output {
    /// Returns an empty output in the memory of `bytes`.
    pub fn reusing(bytes: Vec<u8>) -> Output {
        Output { bytes, end: 0 }
    }

    /// Returns the number of bytes to be sent.
    pub fn len(&self) -> usize {
        self.end
    }

    /// Returns whether there is nothing to be sent.
    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.end).unwrap_or_default()
    }

    /// Returns the bytes, for sending.
    pub fn into_vec(mut self) -> Vec<u8> {
        self.bytes.truncate(self.end);
        self.bytes
    }

    /// Appends bytes that are sealed already.
    pub fn append(&mut self, bytes: &[u8]) {
        let room = self.room(bytes.len());
        room.copy_from_slice(bytes);
        self.end += bytes.len();
    }

    fn room(&mut self, bytes: usize) -> &mut [u8] {
        let needed = self.end + bytes;
        if self.bytes.len() < needed {
            self.bytes.resize(needed, 0);
        }
        self.bytes.get_mut(self.end..needed).unwrap_or_default()
    }
}

thread_local! {
    /// Spare memory for records that arrive in several pieces.
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Maximum number of spare buffers that a thread keeps.
const SPARE_MAX: usize = 4;

/// How [`drive`] ended.
enum Driven {
    /// All complete records of the peer are consumed.
    Read,
    /// Handshake messages are awaited.
    Blocked,
    /// Both sides have ended.
    Closed,
}

/// The common interface of both sides, for which rustls has no trait.
trait Records {
    type Data;
    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
    fn common(&self) -> &rustls::CommonState;
}

impl Records for UnbufferedServerConnection {
    type Data = ServerConnectionData;
    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(input)
    }
    fn common(&self) -> &rustls::CommonState {
        self
    }
}

impl Records for UnbufferedClientConnection {
    type Data = ClientConnectionData;
    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(input)
    }
    fn common(&self) -> &rustls::CommonState {
        self
    }
}

/// Consumes complete records at the front of `input`, `used` bytes in all.
fn drive<R: Records>(
    records: &mut R,
    input: &mut [u8],
    used: &mut usize,
    ended: &mut bool,
    plain: &mut Vec<u8>,
    out: &mut Output,
) -> Result<Driven, rustls::Error> {
    loop {
        let rest = input.get_mut(*used..).unwrap_or_default();
        let UnbufferedStatus { mut discard, state } = records.process(rest);
        let mut driven = None;
        match state.inspect_err(|_| *used += discard)? {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    let record = record?;
                    plain.extend_from_slice(record.payload);
                    discard += record.discard;
                }
            }
            ConnectionState::EncodeTlsData(mut data) => {
                if let Err(EncodeError::InsufficientSize(needs)) = data.encode(&mut []) {
                    let room = out.room(needs.required_size);
                    out.end += data.encode(room).map_err(|why| rustls::Error::General(why.to_string()))?;
                }
            }
            // The caller sends `out` in order, so for rustls these bytes are sent.
            ConnectionState::TransmitTlsData(data) => data.done(),
            ConnectionState::PeerClosed => *ended = true,
            ConnectionState::Closed => driven = Some(Driven::Closed),
            ConnectionState::WriteTraffic(_) => driven = Some(Driven::Read),
            ConnectionState::BlockedHandshake => driven = Some(Driven::Blocked),
            // Early data, which the settings never accept.
            _ => return Err(rustls::Error::General("unexpected early data".to_owned())),
        }
        *used += discard;
        if let Some(driven) = driven {
            return Ok(driven);
        }
    }
}

/// Writes the alert after an error. `rest` is what the error has left of the peer's bytes.
///
/// Continues only while rustls has something to write. Otherwise it would parse the same bytes again, fail
/// again, and panic because it sends one fatal alert at most.
fn last_words<R: Records>(records: &mut R, rest: &mut [u8], out: &mut Output) {
    while records.common().wants_write() {
        let ConnectionState::EncodeTlsData(mut data) = (match records.process(rest).state {
            Ok(state) => state,
            Err(_) => return,
        }) else {
            return;
        };
        if let Err(EncodeError::InsufficientSize(needs)) = data.encode(&mut []) {
            let room = out.room(needs.required_size);
            match data.encode(room) {
                Ok(bytes) => out.end += bytes,
                Err(_) => return,
            }
        }
    }
}

/// Seals `bytes`; with `None` appends `close_notify`. `held` is what was received and is not consumed: rustls
/// keeps positions in it, and panics if it is missing.
fn seal_with<R: Records>(
    records: &mut R,
    held: &mut Vec<u8>,
    bytes: Option<&[u8]>,
    ended: &mut bool,
    out: &mut Output,
) -> Result<bool, rustls::Error> {
    loop {
        let UnbufferedStatus { discard, state } = records.process(held);
        match state? {
            ConnectionState::WriteTraffic(mut traffic) => {
                let length = bytes.map_or(0, <[u8]>::len);
                let records = length.div_ceil(RECORD_BYTES).max(1);
                // A key update may come with it.
                let mut room = length + (records + 2) * RECORD_EXTRA;
                loop {
                    let target = out.room(room);
                    let sealed = match bytes {
                        Some(bytes) => traffic.encrypt(bytes, target),
                        None => traffic.queue_close_notify(target),
                    };
                    match sealed {
                        Ok(bytes) => {
                            out.end += bytes;
                            return Ok(true);
                        }
                        Err(EncryptError::InsufficientSize(needs)) if needs.required_size > room => {
                            room = needs.required_size;
                        }
                        Err(why) => return Err(rustls::Error::General(why.to_string())),
                    }
                }
            }
            ConnectionState::EncodeTlsData(mut data) => {
                if let Err(EncodeError::InsufficientSize(needs)) = data.encode(&mut []) {
                    let room = out.room(needs.required_size);
                    out.end += data.encode(room).map_err(|why| rustls::Error::General(why.to_string()))?;
                }
            }
            ConnectionState::TransmitTlsData(data) => data.done(),
            ConnectionState::PeerClosed => *ended = true,
            _ => return Ok(false),
        }
        held.drain(..discard);
    }
}

macro_rules! each_side {
    ($side:expr, $records:ident => $do:expr) => {
        match $side {
            Side::Server($records) => {
                let $records = &mut **$records;
                $do
            }
            Side::Client($records) => {
                let $records = &mut **$records;
                $do
            }
        }
    };
}

impl Session {
    pub(crate) fn server(connection: UnbufferedServerConnection) -> Session {
        Session::new(Side::Server(Box::new(connection)))
    }

    pub(crate) fn client(connection: UnbufferedClientConnection) -> Session {
        Session::new(Side::Client(Box::new(connection)))
    }

    fn new(side: Side) -> Session {
        Session { side, held: Vec::new(), hello: None, ended: false, closed: false, failed: false }
    }

    /// Consumes all of the peer's bytes. Appends plaintext to `plain`, and bytes to be sent (mostly of the
    /// handshake) to `out`. The bytes in `input` are overwritten. A client begins with no bytes.
    ///
    /// # Errors
    /// The bytes are not TLS, the peer is not accepted, or it breaks the protocol. Plaintext from before the
    /// error is in `plain`; `out` has the alert, which should be sent. The session cannot be used afterwards.
    pub fn receive(
        &mut self,
        input: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Output,
    ) -> Result<(), TlsError> {
        if self.held.is_empty() {
            let used = self.take_in(input, plain, out)?;
            if let Some(rest) = input.get(used..)
                && !rest.is_empty()
                && !self.ended
            {
                self.held = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
                self.held.extend_from_slice(rest);
            }
            return Ok(());
        }
        let mut held = std::mem::take(&mut self.held);
        held.extend_from_slice(input);
        let taken = self.take_in(&mut held, plain, out);
        let used = taken.as_ref().map_or(held.len(), |used| *used);
        held.drain(..used);
        if held.is_empty() || self.ended {
            held.clear();
            SPARE.with_borrow_mut(|spare| {
                if spare.len() < SPARE_MAX {
                    spare.push(held);
                }
            });
        } else {
            self.held = held;
        }
        taken.map(|_| ())
    }

    fn take_in(
        &mut self,
        input: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Output,
    ) -> Result<usize, TlsError> {
        if self.failed {
            return Err(TlsError::settings("the session has failed before"));
        }
        let handshaking = self.is_handshaking();
        let mut used = 0;
        let ended = &mut self.ended;
        let driven = each_side!(&mut self.side, records => {
            let driven = drive(records, input, &mut used, ended, plain, out);
            if driven.is_err() {
                last_words(records, input.get_mut(used..).unwrap_or_default(), out);
            }
            driven
        });
        if handshaking && let Some(hello) = hello::take() {
            self.hello = Some(Box::new(hello));
        }
        match driven {
            Ok(Driven::Closed) => self.closed = true,
            Ok(Driven::Read | Driven::Blocked) => {}
            Err(why) => {
                self.failed = true;
                return Err(TlsError::of(&why, handshaking));
            }
        }
        Ok(used)
    }

    /// Appends records with `bytes` to `out`.
    ///
    /// # Errors
    /// The handshake has not completed, or the session has failed or is closed.
    pub fn seal(&mut self, bytes: &[u8], out: &mut Output) -> Result<(), TlsError> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.failed || self.closed {
            return Err(TlsError::settings("nothing can be sent on this session any more"));
        }
        let (held, ended) = (&mut self.held, &mut self.ended);
        let sealed = each_side!(&mut self.side, records => seal_with(records, held, Some(bytes), ended, out));
        match sealed {
            Ok(true) => Ok(()),
            Ok(false) => Err(TlsError::settings("nothing can be sent on this session at this point")),
            Err(why) => {
                self.failed = true;
                Err(TlsError::of(&why, false))
            }
        }
    }

    /// Appends the end of this side's data (`close_notify`) to `out`, once. Appends nothing before the end of
    /// the handshake, and on a session that has failed.
    pub fn close(&mut self, out: &mut Output) {
        if std::mem::replace(&mut self.closed, true) || self.failed || self.is_handshaking() {
            return;
        }
        let (held, ended) = (&mut self.held, &mut self.ended);
        // On an error the session has failed before, and its alert was written.
        let _ = each_side!(&mut self.side, records => seal_with(records, held, None, ended, out));
    }

    /// Returns whether the handshake has not completed yet.
    pub fn is_handshaking(&self) -> bool {
        match &self.side {
            Side::Server(records) => records.is_handshaking(),
            Side::Client(records) => records.is_handshaking(),
        }
    }

    /// Returns whether the peer has ended its data (`close_notify`). Without that, the data may be truncated
    /// at the end of the connection: an attacker on the path can close it.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns how many bytes of an incomplete record are held.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Returns whether the session was resumed; `false` before the end of the handshake.
    pub fn is_resumed(&self) -> bool {
        self.common().handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }

    fn common(&self) -> &rustls::CommonState {
        match &self.side {
            Side::Server(records) => records.deref().deref(),
            Side::Client(records) => records.deref().deref(),
        }
    }

    /// Returns the agreed parameters; `None` before the end of the handshake. Call it once: it drops what it
    /// was made from.
    pub fn take_info(&mut self) -> Option<Info> {
        if self.is_handshaking() {
            return None;
        }
        let hello = self.hello.take();
        let common = self.common();
        let version = match common.protocol_version()? {
            rustls::ProtocolVersion::TLSv1_2 => ProtocolVersion::Tls12,
            _ => ProtocolVersion::Tls13,
        };
        let resumed = self.is_resumed();
        let is_server = matches!(self.side, Side::Server(_));
        let subject =
            common.peer_certificates().filter(|_| is_server).and_then(<[_]>::first).and_then(subject);
        let (server_name, covered) = hello.map_or((None, None), |hello| (hello.server_name, hello.covered));
        Some(Info {
            version,
            cipher: common
                .negotiated_cipher_suite()
                .and_then(|suite| suite.suite().as_str())
                .unwrap_or("unknown"),
            kind: if resumed { HandshakeKind::Resumed } else { HandshakeKind::Full },
            server_name,
            alpn: common.alpn_protocol().map(Box::from),
            client_subject: subject,
            covered,
        })
    }
}

/// Returns the subject of a certificate as text.
fn subject(certificate: &CertificateDer<'_>) -> Option<Box<str>> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(crate::subject::text(parsed.subject()))
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let side = if matches!(self.side, Side::Server(_)) { "server" } else { "client" };
        f.debug_struct("Session")
            .field("side", &side)
            .field("is_handshaking", &self.is_handshaking())
            .finish()
    }
}

impl Deref for Output {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl DerefMut for Output {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(..self.end).unwrap_or_default()
    }
}

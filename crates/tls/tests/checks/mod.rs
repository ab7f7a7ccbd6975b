//! Properties of sessions that hold for any bytes of a peer, and of readers that hold for any file.
//!
//! The fuzz targets `tls-bytes`, `tls-talk` and `tls-files` of `fuzz/` are these functions; the tests replay
//! their corpus.

use ringroad_tls::{
    CertificateDer, Client, ClientSettings, Output, Pair, Server, ServerSettings, Session, Tickets, Trust,
    certificates_from_pem, examine, self_signed,
};
use std::sync::OnceLock;

struct Sides {
    pair: Pair,
    server: Server,
    client: Client,
}

fn sides() -> &'static Sides {
    static SIDES: OnceLock<Sides> = OnceLock::new();
    SIDES.get_or_init(|| {
        let pair = self_signed(["a.test".to_owned()]).unwrap();
        // Tickets of a secret: they are opened by our own code.
        let secret = std::env::temp_dir().join(format!("ringroad-tls-checks-{}", std::process::id()));
        std::fs::write(&secret, [7; 32]).unwrap();
        let mut settings = ServerSettings::new(Vec::new());
        settings.tickets = Tickets::File(secret.clone());
        let (server, bad) = Server::new(settings, vec![pair.clone()]).unwrap();
        std::fs::remove_file(secret).unwrap();
        assert!(bad.is_empty());
        let client = Client::new(ClientSettings::new(Trust::Any)).unwrap();
        Sides { pair, server, client }
    })
}

/// Shows bytes to a session in pieces; whether all of them were taken, and the plaintext.
fn shown(mut session: Session, bytes: &[u8], piece: usize) -> (bool, Vec<u8>) {
    let (mut plain, mut out) = (Vec::new(), Output::default());
    let mut good = true;
    for piece in bytes.chunks(piece) {
        good &= session.receive(&mut piece.to_vec(), &mut plain, &mut out).is_ok();
        if !good {
            // It is of no further use, and says so.
            assert!(session.receive(&mut [0], &mut plain, &mut out).is_err());
            assert!(session.seal(b"x", &mut out).is_err());
            break;
        }
        // An incomplete record is all that is held: the largest has 16 KiB and what seals it.
        assert!(session.held() <= 5 + 16 * 1024 + 2048 || session.is_handshaking());
    }
    session.close(&mut out);
    (good, plain)
}

/// Any bytes of a client and of a server: how they are cut changes nothing.
pub(crate) fn bytes(bytes: &[u8]) {
    let sides = sides();
    let piece = usize::from(bytes.first().copied().unwrap_or_default()) + 1;
    let client = || {
        let mut session = sides.client.begin("a.test").unwrap();
        session.receive(&mut [], &mut Vec::new(), &mut Output::default()).unwrap();
        session
    };
    let server = || sides.server.begin().unwrap();
    assert_eq!(shown(server(), bytes, bytes.len().max(1)), shown(server(), bytes, piece));
    assert_eq!(shown(client(), bytes, bytes.len().max(1)), shown(client(), bytes, piece));
}

/// How bytes on their way are changed: four bytes of the input for each change.
fn change(flight: &mut Vec<u8>, order: &[u8; 4]) {
    let [kind, high, low, value] = *order;
    if flight.is_empty() {
        return;
    }
    let at = usize::from(u16::from_be_bytes([high, low])) % flight.len();
    match kind % 6 {
        0 => flight[at] ^= value.max(1),
        1 => drop(flight.remove(at)),
        2 => flight.insert(at, value),
        3 => flight.truncate(at),
        4 => {
            let end = (at + usize::from(value)).min(flight.len());
            let again = flight[at..end].to_vec();
            flight.extend(again);
        }
        // As it was.
        _ => {}
    }
}

/// A talk of two sessions, the bytes of which are changed on their way: what comes out of one is what went
/// into the other, or its beginning.
pub(crate) fn talk(bytes: &[u8]) {
    let sides = sides();
    let (first, orders) = bytes.split_first().unwrap_or((&0, &[]));
    let mut orders = orders.chunks_exact(4).map(|order| <&[u8; 4]>::try_from(order).unwrap());
    // The second session of a client has a ticket to show.
    for is_second in [false, true] {
        let mut client = sides.client.begin("a.test").unwrap();
        let mut server = sides.server.begin().unwrap();
        let mut to_client = Vec::new();
        let mut heard = (Vec::new(), Vec::new());
        let mut said = (Vec::new(), Vec::new());
        for turn in 0..6_u8 {
            let mut out = Output::default();
            let mut all = client.receive(&mut to_client, &mut heard.0, &mut out).is_ok();
            if all && !client.is_handshaking() {
                let words = vec![turn; usize::from(*first) * usize::from(turn) * 40];
                client.seal(&words, &mut out).unwrap();
                said.0.extend(words);
            }
            let mut to_server = out.into_vec();
            if is_second || first % 2 == 0 {
                orders.next().into_iter().for_each(|order| change(&mut to_server, order));
            }
            let mut out = Output::default();
            all &= server.receive(&mut to_server, &mut heard.1, &mut out).is_ok();
            if all && !server.is_handshaking() {
                let words = vec![100 + turn; usize::from(*first) * 7];
                server.seal(&words, &mut out).unwrap();
                said.1.extend(words);
            }
            to_client = out.into_vec();
            if is_second || first % 2 == 0 {
                orders.next().into_iter().for_each(|order| change(&mut to_client, order));
            }
            assert!(said.1.starts_with(&heard.0), "the client hears what was not said");
            assert!(said.0.starts_with(&heard.1), "the server hears what was not said");
            if !all {
                break;
            }
        }
        client.close(&mut Output::default());
        server.close(&mut Output::default());
    }
}

/// Any bytes as a file with certificates, as one with a key, and as a certificate.
pub(crate) fn files(bytes: &[u8]) {
    let _ = certificates_from_pem(bytes);
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(pair) = Pair::from_pem(text, text)
    {
        let _ = examine(&pair);
    }
    let chain = vec![CertificateDer::from(bytes.to_vec())];
    if let Ok(issued) = examine(&Pair { chain, key: sides().pair.key.clone_key() }) {
        // It is of this very key, whatever else it says.
        assert!(issued.names.dns().all(|name| !name.is_empty()));
    }
}

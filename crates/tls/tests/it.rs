//! Sessions of both sides against each other, with certificates made here.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod checks;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};
use ringroad_tls::{
    Client, ClientAuth, ClientSettings, HandshakeKind, Info, Output, Pair, PairFiles, Place, ProtocolVersion,
    Server, ServerSettings, Session, Tickets, TlsError, TlsErrorKind, Trust, UnknownName,
};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

/// An authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        Authority { issuer: Issuer::new(parameters, key), certificate }
    }

    /// An authority that this one vouches for.
    fn intermediate(&self, name: &str) -> Authority {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        Authority { issuer: Issuer::new(parameters, key), certificate }
    }

    /// A certificate and its key, in PEM.
    fn sign(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut parameters = CertificateParams::new(names).unwrap();
        change(&mut parameters);
        let key = KeyPair::generate().unwrap();
        (parameters.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn pair(&self, names: &[&str]) -> Pair {
        let (chain, key) = self.sign(names, |_| ());
        Pair::from_pem(&chain, &key).unwrap()
    }

    fn trust(&self) -> Trust {
        Trust::Given(vec![self.certificate.der().clone()])
    }

    fn client(&self) -> Client {
        Client::new(ClientSettings::new(self.trust())).unwrap()
    }

    fn revokes(&self, serial: u64) -> String {
        self.revokes_until(serial, SystemTime::now() + Duration::from_secs(3600))
    }

    fn revokes_until(&self, serial: u64, end: SystemTime) -> String {
        let now = end - Duration::from_secs(3600);
        let parameters = CertificateRevocationListParams {
            this_update: now.into(),
            next_update: end.into(),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                serial_number: SerialNumber::from(serial),
                revocation_time: now.into(),
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        parameters.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

fn server(settings: ServerSettings, given: Vec<Pair>) -> Server {
    Server::new(settings, given).unwrap().0
}

/// Two sessions, and the bytes on their way.
struct Talk {
    client: Session,
    server: Session,
    /// Bytes are handed over in pieces of this size.
    piece: usize,
}

/// What became of a talk's side.
type Side = Result<Vec<u8>, TlsError>;

impl Talk {
    fn new(client: &Client, server: &Server, host: &str, piece: usize) -> Talk {
        Talk { client: client.begin(host).unwrap(), server: server.begin().unwrap(), piece }
    }

    /// Hands bytes over until neither side has more, and gives out what each has understood.
    fn run(&mut self, from_client: Output, from_server: Output) -> (Side, Side) {
        let (mut to_server, mut to_client) = (from_client.into_vec(), from_server.into_vec());
        let (mut at_client, mut at_server) = (Ok(Vec::new()), Ok(Vec::new()));
        while !to_server.is_empty() || !to_client.is_empty() {
            to_client.extend(take_in(
                &mut self.server,
                &mut at_server,
                std::mem::take(&mut to_server),
                self.piece,
            ));
            to_server.extend(take_in(
                &mut self.client,
                &mut at_client,
                std::mem::take(&mut to_client),
                self.piece,
            ));
        }
        (at_client, at_server)
    }

    /// The handshake: what the client makes of it, and what the server does.
    fn shake(&mut self) -> (Side, Side) {
        let mut first = Output::default();
        self.client.receive(&mut [], &mut Vec::new(), &mut first).unwrap();
        self.run(first, Output::default())
    }

    fn must_shake(&mut self) -> (Info, Info) {
        let (client, server) = self.shake();
        client.unwrap();
        server.unwrap();
        (self.client.take_info().unwrap(), self.server.take_info().unwrap())
    }
}

/// Hands bytes to a session in pieces; what it answers. One that has failed hears no more.
fn take_in(session: &mut Session, said: &mut Side, mut bytes: Vec<u8>, piece: usize) -> Vec<u8> {
    let mut out = Output::default();
    for piece in bytes.chunks_mut(piece) {
        let Ok(plain) = said else { break };
        if let Err(why) = session.receive(piece, plain, &mut out) {
            *said = Err(why);
        }
    }
    out.into_vec()
}

fn error(side: Side) -> TlsErrorKind {
    side.expect_err("a refusal").kind()
}

fn in_folder(folder: &Path) -> ServerSettings {
    ServerSettings::new(vec![Place::Folder(folder.to_owned())])
}

fn put(folder: &Path, name: &str, (chain, key): &(String, String)) {
    fs::write(folder.join(format!("{name}.key")), key).unwrap();
    fs::write(folder.join(format!("{name}.pem")), chain).unwrap();
}

#[test]
fn both_sides_understand_each_other_however_the_bytes_are_cut() {
    let authority = Authority::new("test");
    let server = server(ServerSettings::new(Vec::new()), vec![authority.pair(&["a.test"])]);
    for piece in [1, 7, 600, 5000, 100_000] {
        let mut talk = Talk::new(&authority.client(), &server, "a.test", piece);
        let (client, info) = talk.must_shake();
        assert_eq!((client.version, info.version), (ProtocolVersion::Tls13, ProtocolVersion::Tls13));
        assert_eq!(info.server_name.as_deref(), Some("a.test"));
        assert_eq!(info.alpn.as_deref(), Some(b"http/1.1".as_slice()));
        let large: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
        let (mut one, mut other) = (Output::default(), Output::default());
        talk.client.seal(&large, &mut one).unwrap();
        talk.server.seal(b"hello", &mut other).unwrap();
        talk.server.seal(&[], &mut other).unwrap();
        let (at_client, at_server) = talk.run(one, other);
        assert_eq!(at_client.unwrap(), b"hello");
        assert!(at_server.unwrap() == large, "piece {piece}");
        assert_eq!((talk.client.held(), talk.server.held()), (0, 0));
    }
}

#[test]
fn an_end_without_a_word_is_told_from_one_with_it() {
    let authority = Authority::new("test");
    let server = server(ServerSettings::new(Vec::new()), vec![authority.pair(&["a.test"])]);
    let mut talk = Talk::new(&authority.client(), &server, "a.test", 1000);
    talk.must_shake();
    let mut out = Output::default();
    talk.server.seal(b"the last", &mut out).unwrap();
    assert_eq!(talk.run(Output::default(), out).0.unwrap(), b"the last");
    assert!(!talk.client.has_ended());
    let mut out = Output::default();
    talk.server.close(&mut out);
    assert!(!out.is_empty());
    let length = out.len();
    talk.server.close(&mut out);
    assert_eq!(out.len(), length, "it is said once");
    talk.run(Output::default(), out).0.unwrap();
    assert!(talk.client.has_ended() && !talk.server.has_ended());
    // What the other side still has to say it may say.
    let mut out = Output::default();
    talk.client.seal(b"thanks", &mut out).unwrap();
    assert_eq!(talk.run(out, Output::default()).1.unwrap(), b"thanks");
    assert!(talk.server.seal(b"more", &mut Output::default()).is_err(), "nothing behind the last word");
}

#[test]
fn a_changed_record_is_refused_and_the_peer_gets_an_alert() {
    let authority = Authority::new("test");
    let server = server(ServerSettings::new(Vec::new()), vec![authority.pair(&["a.test"])]);
    let mut talk = Talk::new(&authority.client(), &server, "a.test", 1000);
    talk.must_shake();
    let mut out = Output::default();
    talk.client.seal(b"pay 10", &mut out).unwrap();
    let last = out.len() - 1;
    out[last] ^= 1;
    let (at_client, at_server) = talk.run(out, Output::default());
    assert_eq!(error(at_server), TlsErrorKind::Protocol);
    assert_eq!(error(at_client), TlsErrorKind::Alert);
}

#[test]
fn plain_http_on_a_tls_port_is_named_as_that() {
    let authority = Authority::new("test");
    let server = server(ServerSettings::new(Vec::new()), vec![authority.pair(&["a.test"])]);
    let mut session = server.begin().unwrap();
    let mut bytes = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n".to_vec();
    let why = session.receive(&mut bytes, &mut Vec::new(), &mut Output::default()).unwrap_err();
    assert_eq!(why.kind(), TlsErrorKind::NotTls, "{why}");
}

#[test]
fn the_certificate_is_chosen_by_the_name_that_the_client_asks_for() {
    let authority = Authority::new("test");
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "a", &authority.sign(&["a.test"], |_| ()));
    put(folder.path(), "star", &authority.sign(&["*.star.test"], |_| ()));
    fs::create_dir(folder.path().join("c.test")).unwrap();
    let (chain, key) = authority.sign(&["c.test"], |_| ());
    fs::write(folder.path().join("c.test/fullchain.pem"), chain).unwrap();
    fs::write(folder.path().join("c.test/privkey.pem"), key).unwrap();
    let (chain, key) = authority.sign(&["one-file.test"], |_| ());
    fs::write(folder.path().join("one.pem"), format!("{chain}{key}")).unwrap();
    // An authority's certificate is no pair, and no mistake either.
    fs::write(folder.path().join("authority.pem"), authority.certificate.pem()).unwrap();
    let mut settings = in_folder(folder.path());
    let (chosen, bad) = Server::new(settings.clone(), Vec::new()).unwrap();
    assert_eq!((bad, chosen.certificates().len()), (Vec::new(), 4));
    for name in ["a.test", "A.TEST", "x.star.test", "c.test", "one-file.test"] {
        let (_, info) = Talk::new(&authority.client(), &chosen, name, 9000).must_shake();
        assert!(info.covered.as_ref().unwrap().covers(name), "{name}");
    }
    // Another name gets the first one, which its client does not accept.
    for name in ["b.test", "x.y.star.test", "star.test"] {
        let (client, _) = Talk::new(&authority.client(), &chosen, name, 9000).shake();
        assert_eq!(error(client), TlsErrorKind::WrongName, "{name}");
    }
    settings.unknown_name = UnknownName::Refuse;
    let refusing = server(settings, Vec::new());
    let (client, at_server) = Talk::new(&authority.client(), &refusing, "b.test", 9000).shake();
    assert_eq!((error(client), error(at_server)), (TlsErrorKind::Alert, TlsErrorKind::NoCertificateForName));
}

#[test]
fn a_request_belongs_on_the_connection_if_its_host_is_covered() {
    let authority = Authority::new("test");
    let server = server(ServerSettings::new(Vec::new()), vec![authority.pair(&["a.test", "b.test"])]);
    let (_, info) = Talk::new(&authority.client(), &server, "a.test", 9000).must_shake();
    assert!(info.covers("a.test") && info.covers("B.test") && info.covers("a.test."));
    assert!(!info.covers("c.test") && !info.covers("127.0.0.1"));
    let any = Client::new(ClientSettings::new(Trust::Any)).unwrap();
    // Without a name: by its address.
    let (_, info) = Talk::new(&any, &server, "127.0.0.1", 9000).must_shake();
    assert_eq!(info.server_name, None);
    assert!(
        info.covers("127.0.0.1") && info.covers("[::1]") && info.covers("a.test") && !info.covers("c.test")
    );
    // By a name that the certificate is not for, which the client accepts.
    let (_, info) = Talk::new(&any, &server, "dev.test", 9000).must_shake();
    assert!(info.covers("dev.test") && !info.covers("c.test"));
}

#[test]
fn certificates_that_ought_not_to_be_accepted_are_not() {
    let (authority, other) = (Authority::new("test"), Authority::new("other"));
    let long_ago = SystemTime::now() - Duration::from_secs(86_400 * 10);
    let expired = authority.sign(&["a.test"], |of| {
        of.not_before = (long_ago - Duration::from_secs(86_400)).into();
        of.not_after = long_ago.into();
    });
    let expired = Pair::from_pem(&expired.0, &expired.1).unwrap();
    let itself = authority.sign(&["a.test"], |of| of.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    let itself = Pair::from_pem(&itself.0, &itself.1).unwrap();
    for (pair, name, kind) in [
        (expired, "a.test", TlsErrorKind::NotValidNow),
        (authority.pair(&["b.test"]), "a.test", TlsErrorKind::WrongName),
        (other.pair(&["a.test"]), "a.test", TlsErrorKind::UnknownIssuer),
        (itself, "a.test", TlsErrorKind::Authority),
        (ringroad_tls::self_signed(["a.test".to_owned()]).unwrap(), "a.test", TlsErrorKind::UnknownIssuer),
    ] {
        let server = server(ServerSettings::new(Vec::new()), vec![pair]);
        let (client, at_server) = Talk::new(&authority.client(), &server, name, 9000).shake();
        assert_eq!((error(client), error(at_server)), (kind, TlsErrorKind::Alert));
    }
}

#[test]
fn a_certificate_without_its_intermediate_is_refused_and_with_it_accepted() {
    let root = Authority::new("root");
    let middle = root.intermediate("middle");
    let (leaf, key) = middle.sign(&["a.test"], |_| ());
    let shake = |chain: &str| {
        let pair = Pair::from_pem(chain, &key).unwrap();
        let server = server(ServerSettings::new(Vec::new()), vec![pair]);
        Talk::new(&root.client(), &server, "a.test", 9000).shake()
    };
    let (client, at_server) = shake(&leaf);
    assert_eq!((error(client), error(at_server)), (TlsErrorKind::UnknownIssuer, TlsErrorKind::Alert));
    let (client, at_server) = shake(&(leaf.clone() + &middle.certificate.pem()));
    client.and(at_server).unwrap();
}

#[test]
fn new_certificates_are_taken_without_a_restart_and_bad_ones_change_nothing() {
    let authority = Authority::new("test");
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "a", &authority.sign(&["a.test"], |_| ()));
    let server = server(in_folder(folder.path()), Vec::new());
    assert!(!server.refresh().changed, "nothing has changed");
    let in_force = |server: &Server| -> Vec<String> {
        server.certificates().into_iter().map(|info| info.name).collect()
    };
    // The halves of another pair: its certificate with the old key.
    let new = authority.sign(&["new.test"], |_| ());
    fs::write(folder.path().join("a.pem"), &new.0).unwrap();
    let refreshed = server.refresh();
    assert!(!refreshed.changed);
    assert_eq!(refreshed.bad.len(), 1);
    assert!(refreshed.bad[0].to_string().contains("a.key"), "{}", refreshed.bad[0]);
    assert!(server.refresh().bad.is_empty(), "the same is told once");
    assert_eq!(in_force(&server), ["a.test"]);
    Talk::new(&authority.client(), &server, "a.test", 9000).must_shake();
    fs::write(folder.path().join("a.key"), &new.1).unwrap();
    assert!(server.refresh().changed);
    assert_eq!(in_force(&server), ["new.test"]);
    // One more, one that is not a certificate, one that has expired, and the first one removed.
    put(folder.path(), "b", &authority.sign(&["b.test"], |_| ()));
    fs::write(folder.path().join("c.pem"), "nothing").unwrap();
    fs::write(folder.path().join("c.key"), "nothing").unwrap();
    let refreshed = server.refresh();
    assert!(refreshed.changed && refreshed.bad.len() == 1, "{refreshed:?}");
    assert_eq!(in_force(&server), ["new.test", "b.test"]);
    let expired = authority.sign(&["b.test"], |of| {
        of.not_before = (SystemTime::now() - Duration::from_secs(200_000)).into();
        of.not_after = (SystemTime::now() - Duration::from_secs(100_000)).into();
    });
    put(folder.path(), "b", &expired);
    let refreshed = server.refresh();
    assert!(!refreshed.changed && refreshed.bad.len() == 1, "{refreshed:?}");
    Talk::new(&authority.client(), &server, "b.test", 9000).must_shake();
    fs::remove_file(folder.path().join("a.pem")).unwrap();
    assert!(server.refresh().changed);
    assert_eq!(in_force(&server), ["b.test"]);
    // The last one goes: a server without a certificate serves no client, so it stays.
    fs::remove_file(folder.path().join("b.pem")).unwrap();
    let refreshed = server.refresh();
    assert!(!refreshed.changed && !refreshed.bad.is_empty(), "{refreshed:?}");
    Talk::new(&authority.client(), &server, "b.test", 9000).must_shake();
}

#[test]
fn a_pair_in_a_folder_that_may_not_be_looked_at_is_told_and_the_one_before_stays() {
    let (authority, folder) = (Authority::new("test"), tempfile::tempdir().unwrap());
    let at = |name: &str| folder.path().join(name);
    let loops = |name: &str| {
        let _ = fs::remove_file(at(name));
        std::os::unix::fs::symlink(at(name), at(name)).unwrap();
    };
    let certbot = authority.sign(&["certbot.test"], |_| ());
    fs::create_dir(at("live")).unwrap();
    fs::write(at("live/fullchain.pem"), &certbot.0).unwrap();
    fs::write(at("live/privkey.pem"), &certbot.1).unwrap();
    for name in ["a", "b"] {
        put(folder.path(), name, &authority.sign(&[&format!("{name}.test")], |_| ()));
    }
    let both = authority.sign(&["c.test"], |_| ());
    fs::write(at("c.pem"), both.0 + &both.1).unwrap();
    let server = server(in_folder(folder.path()), Vec::new());
    assert_eq!(server.certificates().len(), 4);
    // A loop of links stands for permissions, which root does not lack.
    for name in ["live/privkey.pem", "a.key", "c.pem"] {
        loops(name);
    }
    let refreshed = server.refresh();
    assert!(!refreshed.changed && refreshed.bad.len() == 3, "{refreshed:?}");
    for name in ["a.test", "b.test", "c.test", "certbot.test"] {
        Talk::new(&authority.client(), &server, name, 9000).must_shake();
    }
    assert!(server.refresh().bad.is_empty(), "the same is told once");
    let (begun, bad) = Server::new(in_folder(folder.path()), Vec::new()).unwrap();
    assert_eq!((begun.certificates().len(), bad.len()), (1, 3));
    for name in ["live/fullchain.pem", "a.pem", "c.pem"] {
        fs::remove_file(at(name)).unwrap();
    }
    assert!(server.refresh().changed);
    assert_eq!(server.certificates().len(), 1, "what has gone is not used");
}

#[test]
fn a_pair_that_has_lost_its_key_stays_and_a_certificate_that_never_had_one_is_told() {
    let (authority, folder) = (Authority::new("test"), tempfile::tempdir().unwrap());
    let at = |name: &str| folder.path().join(name);
    for name in ["a", "b"] {
        put(folder.path(), name, &authority.sign(&[&format!("{name}.test")], |_| ()));
    }
    let server = server(in_folder(folder.path()), Vec::new());
    // As of a program that removes the key before it writes the new one.
    fs::remove_file(at("b.key")).unwrap();
    let refreshed = server.refresh();
    assert!(!refreshed.changed, "{refreshed:?}");
    assert!(refreshed.bad.len() == 1 && refreshed.bad[0].file == at("b.key"), "{refreshed:?}");
    Talk::new(&authority.client(), &server, "b.test", 9000).must_shake();
    assert!(server.refresh().bad.is_empty(), "the same is told once");
    // The settings change meanwhile: what was usable stays.
    let mut other = in_folder(folder.path());
    other.unknown_name = UnknownName::Refuse;
    server.change(other, Vec::new()).unwrap();
    Talk::new(&authority.client(), &server, "b.test", 9000).must_shake();
    let new = authority.sign(&["b.test"], |_| ());
    put(folder.path(), "b", &new);
    assert!(server.refresh().changed);
    // An authority's certificate needs no key here; a server's does.
    fs::write(at("authority.pem"), authority.certificate.pem()).unwrap();
    fs::write(at("alone.pem"), authority.sign(&["c.test"], |_| ()).0).unwrap();
    let refreshed = server.refresh();
    let files: Vec<_> = refreshed.bad.iter().map(|bad| bad.file.clone()).collect();
    assert_eq!(files, [at("alone.pem")], "{refreshed:?}");
    assert!(server.refresh().bad.is_empty(), "the same is told once");
}

#[test]
fn the_folder_of_an_acme_client_is_a_place_by_itself() {
    let (authority, folder) = (Authority::new("test"), tempfile::tempdir().unwrap());
    let at = |name: &str| folder.path().join(name);
    let (chain, key) = authority.sign(&["a.test"], |_| ());
    fs::write(at("cert.pem"), &chain).unwrap();
    fs::write(at("chain.pem"), authority.certificate.pem()).unwrap();
    fs::write(at("fullchain.pem"), &chain).unwrap();
    fs::write(at("privkey.pem"), &key).unwrap();
    let (server, bad) = Server::new(in_folder(folder.path()), Vec::new()).unwrap();
    assert_eq!((server.certificates().len(), bad), (1, Vec::new()));
    Talk::new(&authority.client(), &server, "a.test", 9000).must_shake();
}

#[test]
fn a_certificate_that_has_expired_is_not_chosen_where_another_has_not() {
    let (authority, folder) = (Authority::new("test"), tempfile::tempdir().unwrap());
    let expired = authority.sign(&["a.test"], |of| {
        of.not_before = (SystemTime::now() - Duration::from_secs(200_000)).into();
        of.not_after = (SystemTime::now() - Duration::from_secs(100_000)).into();
    });
    put(folder.path(), "2025", &expired);
    let only = server(in_folder(folder.path()), Vec::new());
    let told = only.newly_expired(SystemTime::now());
    assert!(told.len() == 1 && told[0].file.ends_with("2025.pem"), "{told:?}");
    assert!(only.newly_expired(SystemTime::now()).is_empty(), "the same is told once");
    put(folder.path(), "2026", &authority.sign(&["a.test"], |_| ()));
    assert!(only.refresh().changed);
    Talk::new(&authority.client(), &only, "a.test", 9000).must_shake();
}

#[test]
fn a_chain_that_no_client_accepts_and_half_of_a_file_are_refused_in_words() {
    let (authority, folder) = (Authority::new("test"), tempfile::tempdir().unwrap());
    let (chain, key) = authority.sign(&["a.test"], |_| ());
    let bad = |chain: &str, key: &str| {
        put(folder.path(), "a", &(chain.to_owned(), key.to_owned()));
        let files = PairFiles { certificate: folder.path().join("a.pem"), key: folder.path().join("a.key") };
        Server::new(ServerSettings::new(vec![Place::Pair(files)]), Vec::new()).unwrap_err().to_string()
    };
    let why = bad(&chain.repeat(300), &key);
    assert!(why.contains("a chain of 300 certificates"), "{why}");
    for why in [bad(&chain, &key[..key.len() / 2]), bad(&chain[..chain.len() / 2], &key)] {
        assert!(why.contains("perhaps it is still being written"), "{why}");
    }
    assert!(bad(&chain, "nothing").contains("none was found"));
}

#[test]
fn lists_of_revoked_certificates_are_told_by_their_file_and_expire() {
    let (authority, folder) = (Authority::new("test"), tempfile::tempdir().unwrap());
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("certs")).unwrap();
    put(&at("certs"), "a", &authority.sign(&["a.test"], |_| ()));
    fs::write(at("clients.pem"), authority.certificate.pem()).unwrap();
    fs::write(at("list"), authority.revokes(1)).unwrap();
    let mut settings = in_folder(&at("certs"));
    settings.client =
        Some(ClientAuth { authorities: at("clients.pem"), required: true, revoked: vec![at("list")] });
    let server = server(settings.clone(), Vec::new());
    let (chain, key) = authority.sign(&[], |of| of.serial_number = Some(SerialNumber::from(77_u64)));
    let identity = Some(Pair::from_pem(&chain, &key).unwrap());
    let ann = Client::new(ClientSettings { identity, ..ClientSettings::new(authority.trust()) }).unwrap();
    let shake = |server: &Server| Talk::new(&ann, server, "a.test", 9000).shake().1;
    shake(&server).unwrap();
    // Empty, cut, and one that has expired in place of one that has not: the one before stays.
    let now = SystemTime::now();
    let expired = authority.revokes_until(1, now - Duration::from_secs(60));
    for (text, word) in [
        ("", "revocation list"),
        (&authority.revokes(1)[..100], "written"),
        (expired.as_str(), "has expired"),
    ] {
        fs::write(at("list"), text).unwrap();
        let refreshed = server.refresh();
        assert!(!refreshed.changed && refreshed.bad.len() == 1, "{refreshed:?}");
        assert_eq!(refreshed.bad[0].file, at("list"), "{refreshed:?}");
        assert!(refreshed.bad[0].why.contains(word), "{refreshed:?}");
        shake(&server).unwrap();
    }
    assert!(server.newly_expired(now).is_empty());
    // There was no other: its clients are refused, which is told.
    let begun = Server::new(settings, Vec::new()).unwrap().0;
    assert_eq!(error(shake(&begun)), TlsErrorKind::ListExpired);
    let told = begun.newly_expired(now);
    assert!(told.len() == 1 && told[0].file == at("list"), "{told:?}");
    // A new list counts also while the last certificate has gone.
    fs::remove_dir_all(at("certs")).unwrap();
    fs::create_dir(at("certs")).unwrap();
    assert!(!server.refresh().changed);
    fs::write(at("list"), authority.revokes(77)).unwrap();
    assert!(server.refresh().changed);
    assert_eq!(error(shake(&server)), TlsErrorKind::Revoked);
    assert!(!server.refresh().changed);
}

#[test]
fn a_server_does_not_begin_with_files_that_cannot_be_used() {
    let (authority, folder) = (Authority::new("test"), tempfile::tempdir().unwrap());
    let at = |name: &str| folder.path().join(name);
    put(folder.path(), "a", &authority.sign(&["a.test"], |_| ()));
    put(folder.path(), "b", &authority.sign(&["b.test"], |_| ()));
    assert!(Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
    let pair = |certificate: &str, key: &str| {
        let files = PairFiles { certificate: at(certificate), key: at(key) };
        Server::new(ServerSettings::new(vec![Place::Pair(files)]), Vec::new()).map(|_| ())
    };
    pair("a.pem", "a.key").unwrap();
    for (certificate, key, word) in [
        ("a.pem", "b.key", "b.key"),
        ("no.pem", "a.key", "no.pem"),
        ("a.pem", "no.key", "no.key"),
        ("a.key", "a.key", "a.key"),
        // Neither a FIFO nor a device is read.
        ("a.pem", "fifo", "fifo: a FIFO or pipe"),
        ("fifo", "a.key", "fifo: a FIFO or pipe"),
        ("/dev/zero", "a.key", "/dev/zero: a device"),
    ] {
        let why = pair(certificate, key).unwrap_err().to_string();
        assert!(why.contains(word), "{why}");
    }
    // In a folder the others are used.
    fs::write(at("b.key"), "nothing").unwrap();
    let (server, bad) = Server::new(in_folder(folder.path()), Vec::new()).unwrap();
    assert_eq!((server.certificates().len(), bad.len()), (1, 1));
    assert!(Server::new(ServerSettings::new(Vec::new()), Vec::new()).is_err(), "no certificate at all");
}

#[test]
fn a_session_is_resumed_across_a_new_certificate() {
    let authority = Authority::new("test");
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "a", &authority.sign(&["a.test"], |_| ()));
    let server = server(in_folder(folder.path()), Vec::new());
    let client = authority.client();
    let kind = |server: &Server| {
        let (at_client, at_server) = Talk::new(&client, server, "a.test", 9000).must_shake();
        assert_eq!(at_client.kind, at_server.kind);
        assert_eq!(at_server.server_name.as_deref(), Some("a.test"), "also where it is resumed");
        at_server.kind
    };
    assert_eq!((kind(&server), kind(&server)), (HandshakeKind::Full, HandshakeKind::Resumed));
    put(folder.path(), "a", &authority.sign(&["a.test"], |_| ()));
    assert!(server.refresh().changed);
    assert_eq!(kind(&server), HandshakeKind::Resumed);
}

#[test]
fn two_servers_with_the_same_ticket_file_resume_each_others_sessions() {
    let authority = Authority::new("test");
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("tickets");
    fs::write(&secret, [7; 48]).unwrap();
    let mut settings = ServerSettings::new(Vec::new());
    settings.tickets = Tickets::File(secret.clone());
    let pair = authority.pair(&["a.test"]);
    let (one, other) =
        (server(settings.clone(), vec![pair.clone()]), server(settings.clone(), vec![pair.clone()]));
    let client = authority.client();
    let kind = |server: &Server| Talk::new(&client, server, "a.test", 9000).must_shake().1.kind;
    assert_eq!((kind(&one), kind(&other)), (HandshakeKind::Full, HandshakeKind::Resumed));
    // Another secret: the one before is good for one change.
    fs::write(&secret, [8; 48]).unwrap();
    assert!(one.refresh().changed && other.refresh().changed);
    assert_eq!(kind(&one), HandshakeKind::Resumed);
    fs::write(&secret, "short").unwrap();
    let refreshed = one.refresh();
    assert!(!refreshed.changed && refreshed.bad.len() == 1);
    assert!(Server::new(settings.clone(), vec![pair.clone()]).is_err());
    settings.tickets = Tickets::Off;
    let off = server(settings, vec![pair]);
    let client = authority.client();
    let kind = |server: &Server| Talk::new(&client, server, "a.test", 9000).must_shake().1.kind;
    assert_eq!((kind(&off), kind(&off)), (HandshakeKind::Full, HandshakeKind::Full));
}

#[test]
fn client_certificates_are_asked_for_verified_and_revoked() {
    let (authority, other) = (Authority::new("test"), Authority::new("other"));
    let folder = tempfile::tempdir().unwrap();
    let (roots, list) = (folder.path().join("clients.pem"), folder.path().join("revoked.pem"));
    fs::write(&roots, authority.certificate.pem()).unwrap();
    let mut settings = ServerSettings::new(Vec::new());
    settings.client = Some(ClientAuth { authorities: roots.clone(), required: true, revoked: Vec::new() });
    let pair = authority.pair(&["a.test"]);
    let identity = |authority: &Authority, serial: u64| {
        let (chain, key) = authority.sign(&[], |of| {
            of.distinguished_name.push(DnType::CommonName, "Ann, Smith=x");
            of.distinguished_name.push(DnType::OrganizationName, "Ex\u{e4}mple");
            of.serial_number = Some(SerialNumber::from(serial));
        });
        Pair::from_pem(&chain, &key).unwrap()
    };
    let client = |identity: Option<Pair>| {
        Client::new(ClientSettings { identity, ..ClientSettings::new(authority.trust()) }).unwrap()
    };
    let required = server(settings.clone(), vec![pair.clone()]);
    let shake = |server: &Server, client: &Client| Talk::new(client, server, "a.test", 9000).shake().1;
    assert_eq!(error(shake(&required, &client(None))), TlsErrorKind::NoCertificate);
    let stranger = client(Some(identity(&other, 1)));
    assert_eq!(error(shake(&required, &stranger)), TlsErrorKind::UnknownIssuer);
    let ann = client(Some(identity(&authority, 77)));
    let (_, info) = Talk::new(&ann, &required, "a.test", 9000).must_shake();
    let subject = info.client_subject.unwrap();
    assert!(subject.contains("CN=Ann\\, Smith=x") && subject.contains("O=Ex\\C3\\A4mple"), "{subject}");
    let (_, info) = Talk::new(&ann, &required, "a.test", 9000).must_shake();
    assert_eq!(info.kind, HandshakeKind::Resumed);
    assert!(info.client_subject.is_some(), "a resumed session names its client too");
    // Without need.
    settings.client = Some(ClientAuth { authorities: roots.clone(), required: false, revoked: Vec::new() });
    let optional = server(settings.clone(), vec![pair.clone()]);
    let (_, info) = Talk::new(&client(None), &optional, "a.test", 9000).must_shake();
    assert_eq!(info.client_subject, None);
    assert_eq!(error(shake(&optional, &stranger)), TlsErrorKind::UnknownIssuer);
    // Revoked while the server runs: also the session that could be resumed is refused.
    fs::write(&list, authority.revokes(1)).unwrap();
    settings.client = Some(ClientAuth { authorities: roots, required: true, revoked: vec![list.clone()] });
    let server = server(settings, vec![pair]);
    Talk::new(&ann, &server, "a.test", 9000).must_shake();
    let (_, info) = Talk::new(&ann, &server, "a.test", 9000).must_shake();
    assert_eq!(info.kind, HandshakeKind::Resumed);
    fs::write(&list, "nothing").unwrap();
    let refreshed = server.refresh();
    assert!(!refreshed.changed && refreshed.bad.len() == 1, "{refreshed:?}");
    fs::write(&list, authority.revokes(77)).unwrap();
    assert!(server.refresh().changed);
    assert_eq!(error(shake(&server, &ann)), TlsErrorKind::Revoked);
}

#[test]
fn a_challenge_is_answered_on_its_protocol_and_nowhere_else() {
    let authority = Authority::new("test");
    let server = server(ServerSettings::new(Vec::new()), vec![authority.pair(&["a.test"])]);
    let acme = Client::new(ClientSettings::new(Trust::Any)).unwrap().with_alpn(&[ringroad_tls::ALPN_ACME]);
    let shake = |name: &str| Talk::new(&acme, &server, name, 9000).shake().1;
    assert_eq!(error(shake("a.test")), TlsErrorKind::NoCertificateForName);
    // The certificate of an answer has a critical extension, which this client's verifier does not know.
    server.set_challenge("b.test", Some(ringroad_tls::challenge_pair("b.test", &[7; 32]).unwrap())).unwrap();
    server.set_challenge("a.test", Some(ringroad_tls::self_signed(["a.test".to_owned()]).unwrap())).unwrap();
    let (info, _) = Talk::new(&acme, &server, "a.test", 9000).must_shake();
    assert_eq!(info.alpn.as_deref(), Some(ringroad_tls::ALPN_ACME));
    // Clients that do not ask for it get the site's certificate.
    Talk::new(&authority.client(), &server, "a.test", 9000).must_shake();
    // An authority offers nothing else: beside a protocol of the site's, that is chosen; beside others, none.
    let offering = |protocols: &[&[u8]]| authority.client().with_alpn(protocols);
    let (acme, http, h2) = (ringroad_tls::ALPN_ACME, ringroad_tls::ALPN_HTTP11, ringroad_tls::ALPN_H2);
    for protocols in [&[acme, http][..], &[http, acme], &[acme, b"other", h2, http]] {
        let (info, _) = Talk::new(&offering(protocols), &server, "a.test", 9000).must_shake();
        assert_eq!(info.alpn.as_deref(), Some(http));
    }
    for protocols in [&[acme, &b"other"[..]][..], &[acme, acme], &[h2, acme]] {
        let refused = Talk::new(&offering(protocols), &server, "a.test", 9000).shake().1;
        assert_eq!(error(refused), TlsErrorKind::NoCertificateForName);
    }
    server.set_challenge("a.test", None).unwrap();
    assert_eq!(error(shake("a.test")), TlsErrorKind::NoCertificateForName);
}

#[test]
fn a_server_that_awaits_certificates_refuses_handshakes_until_there_is_one() {
    let authority = Authority::new("test");
    let mut settings = ServerSettings::new(Vec::new());
    settings.awaits = true;
    assert!(Server::new(ServerSettings::new(Vec::new()), Vec::new()).is_err());
    let server = server(settings.clone(), Vec::new());
    let refused = Talk::new(&authority.client(), &server, "a.test", 9000).shake().1;
    assert_eq!(error(refused), TlsErrorKind::NoCertificateForName);
    server.set_given(vec![authority.pair(&["a.test"])]).unwrap();
    Talk::new(&authority.client(), &server, "a.test", 9000).must_shake();
    server.change(settings, Vec::new()).unwrap();
    assert!(server.certificates().is_empty());
}

#[test]
fn a_request_has_its_names_and_an_issued_certificate_tells_its_time_and_issuer() {
    let names = ["a.test".to_owned(), "192.0.2.1".to_owned()];
    let request = ringroad_tls::request_certificate(&names).unwrap();
    let mut request_read = rcgen::CertificateSigningRequestParams::from_der(&request.der.into()).unwrap();
    assert_eq!(request_read.params.subject_alt_names.len(), 2);
    let begins = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    request_read.params.not_before = begins.into();
    request_read.params.use_authority_key_identifier_extension = true;
    let authority = Authority::new("test");
    let chain = request_read.signed_by(&authority.issuer).unwrap().pem();
    let issued = ringroad_tls::examine(&Pair::from_pem(&chain, &request.key_pem).unwrap()).unwrap();
    assert!(names.iter().all(|name| issued.names.covers(name)));
    assert!(issued.begins == begins && issued.authority_key_id.is_some() && !issued.serial.is_empty());
    // The key of another request is not that of the certificate.
    let other = ringroad_tls::request_certificate(&names).unwrap();
    let why = ringroad_tls::examine(&Pair::from_pem(&chain, &other.key_pem).unwrap()).unwrap_err();
    assert!(why.contains("not that of the certificate"), "{why}");
}

/// Bytes that are no session of a sane peer: cut, changed and repeated at every place.
#[test]
fn no_bytes_of_a_peer_make_a_session_panic() {
    let authority = Authority::new("test");
    let server = server(ServerSettings::new(Vec::new()), vec![authority.pair(&["a.test"])]);
    let mut first = Output::default();
    authority.client().begin("a.test").unwrap().receive(&mut [], &mut Vec::new(), &mut first).unwrap();
    let hello = first.into_vec();
    for at in (0..hello.len()).step_by(7).chain(0..80) {
        for change in [1, 0xff] {
            let mut changed = hello.clone();
            changed[at] ^= change;
            let mut session = server.begin().unwrap();
            let mut out = Output::default();
            for piece in changed.chunks_mut(301) {
                let received = session.receive(piece, &mut Vec::new(), &mut out);
                // Whatever became of it, sending and closing are no reason to panic either.
                let _ = session.seal(b"x", &mut out);
                if received.is_err() {
                    break;
                }
            }
            session.close(&mut out);
        }
        let mut session = server.begin().unwrap();
        let mut cut = hello[..at].to_vec();
        let _ = session.receive(&mut cut, &mut Vec::new(), &mut Output::default());
        let _ = session.receive(&mut hello.clone(), &mut Vec::new(), &mut Output::default());
        session.close(&mut Output::default());
    }
    // A message that is spread over two records, with something to be sent between them.
    let (mut one, mut other) = (hello.clone(), hello[..5].to_vec());
    let half = (hello.len() - 5) / 2;
    one.truncate(5 + half);
    one[3..5].copy_from_slice(&(half as u16).to_be_bytes());
    other[3..5].copy_from_slice(&((hello.len() - 5 - half) as u16).to_be_bytes());
    other.extend_from_slice(&hello[5 + half..]);
    let mut session = server.begin().unwrap();
    let mut out = Output::default();
    session.receive(&mut one, &mut Vec::new(), &mut out).unwrap();
    assert!(session.seal(b"too early", &mut out).is_err());
    session.receive(&mut other, &mut Vec::new(), &mut out).unwrap();
    assert!(!out.is_empty(), "the server answers the hello");
}

#[test]
fn the_corpus_of_fuzz_targets_passes() {
    for (target, check) in
        [("tls-bytes", checks::bytes as fn(&[u8])), ("tls-talk", checks::talk), ("tls-files", checks::files)]
    {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let inputs: Vec<_> = fs::read_dir(folder).unwrap().collect();
        assert!(inputs.len() >= 4, "{target}: {} inputs", inputs.len());
        inputs.into_iter().for_each(|input| check(&fs::read(input.unwrap().path()).unwrap()));
    }
}

/// Changes drawn at random, as the fuzz target draws them.
#[test]
fn what_comes_out_of_a_session_is_what_went_into_the_other_whatever_happens_on_the_way() {
    let mut seed = 1_u64;
    for _ in 0..300 {
        let bytes: Vec<u8> = (0..41)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (seed >> 56) as u8
            })
            .collect();
        checks::talk(&bytes);
    }
}

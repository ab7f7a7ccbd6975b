//! `ringroad serve` that gets new certificates again and again under load: no request fails, and nothing is
//! kept of what was replaced. `xtask/tls-tools.sh reloads` does the same a hundred times with the release
//! build; docs/results/tls.md has its figures.

use crate::over::Over;
use crate::serve::{Serving, drivers};
use crate::support::{ringroad, until};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Reloads before the first measurement, and between it and the second.
const ROUNDS: (u32, u32) = (4, 16);

/// Resident memory may grow by so much: allocators keep some, and a page cache of the program fills. What a
/// reload leaves behind would have to be a fourth of a megabyte to be more.
const GROWTH_KIB: u64 = 4096;

/// Descriptors may be so many more: the threads driver takes some when it first has that much to do at once.
/// A reload that leaves one behind makes as many as there are rounds.
const MORE_DESCRIPTORS: usize = 4;

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    trust: Arc<ClientConfig>,
}

impl Authority {
    fn new() -> Authority {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let trust = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Authority { issuer: Issuer::new(parameters, key), trust: Arc::new(trust) }
    }

    /// Puts a new certificate with its key at `path`, in one step.
    fn put(&self, path: &Path) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        let certificate = certificate.signed_by(&key, &self.issuer).unwrap();
        let beside = path.with_extension("new");
        std::fs::write(&beside, certificate.pem() + &key.serialize_pem()).unwrap();
        std::fs::rename(beside, path).unwrap();
    }
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

fn connect(address: SocketAddr, trust: &Arc<ClientConfig>) -> Tls {
    let name = ServerName::try_from("a.test").unwrap();
    let session = ClientConnection::new(Arc::clone(trust), name).unwrap();
    StreamOwned::new(session, crate::serve::connect(address))
}

/// Asks once; the answer must be the page.
fn ask(stream: &mut Tls) {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"here") {
        let mut buffer = [0; 1024];
        let bytes = stream.read(&mut buffer).unwrap();
        assert!(bytes > 0, "the connection ended after {:?}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&buffer[..bytes]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{:?}", String::from_utf8_lossy(&answer));
}

/// Gives the server new certificates while clients ask, one of them on one connection.
fn reload(serving: &Serving, secure: SocketAddr, authority: &Authority, file: &Path, rounds: u32) {
    let (over, asked) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 3]);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        for (number, count) in asked.iter().enumerate() {
            let (over, trust) = (&over, &authority.trust);
            scope.spawn(move || {
                let mut stream = connect(secure, trust);
                while !over.load(Ordering::Relaxed) {
                    ask(&mut stream);
                    let asked = count.fetch_add(1, Ordering::Relaxed) + 1;
                    // A connection has 10,000 requests.
                    if number > 0 || asked.is_multiple_of(5000) {
                        stream = connect(secure, trust);
                    }
                }
            });
        }
        for _ in 0..rounds {
            authority.put(file);
            serving.signal(rustix::process::Signal::HUP);
            loop {
                let line = serving.error().expect("a line that the certificates are in force");
                assert!(!line.contains("stays in force") && !line.contains("stays in use"), "{line}");
                if line.ends_with("certificates: read again, in force") {
                    break;
                }
            }
        }
        until("all clients have asked", || asked.iter().all(|count| count.load(Ordering::Relaxed) > 5));
    });
}

/// Resident memory in KiB, and open descriptors, once the latter stand still.
fn measure(serving: &Serving) -> (u64, usize) {
    let folder = format!("/proc/{}", serving.id());
    let mut descriptors = usize::MAX;
    until("the number of descriptors stands still", || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let now = std::fs::read_dir(format!("{folder}/fd")).unwrap().count();
        std::mem::replace(&mut descriptors, now) == now
    });
    let status = std::fs::read_to_string(format!("{folder}/status")).unwrap();
    let resident = status.split("VmRSS:").nth(1).unwrap().split_whitespace().next().unwrap();
    (resident.parse().unwrap(), descriptors)
}

#[test]
fn many_new_certificates_under_load_fail_no_request_and_leave_nothing_behind() {
    for driver in drivers() {
        let folder = tempfile::tempdir().unwrap();
        let (file, config) = (folder.path().join("live.pem"), folder.path().join("site.toml"));
        let authority = Authority::new();
        authority.put(&file);
        let text = "listen = [\"127.0.0.1:0\", { address = \"127.0.0.1:0\", tls = true }]\nworkers = 1\n\
             [tls]\ncertificates = \"live.pem\"\n[[route]]\npath = \"/\"\nkind = \"respond\"\nbody = \"here\"\n";
        std::fs::write(&config, text).unwrap();
        let command = ["serve", "--driver", driver, "--config", config.to_str().unwrap()];
        let serving = Serving::of(&mut ringroad(command));
        let url = serving.said.iter().find_map(|line| line.trim().strip_prefix("https://")).unwrap();
        let secure = url.trim_end_matches('/').parse().unwrap();
        reload(&serving, secure, &authority, &file, ROUNDS.0);
        let before = measure(&serving);
        reload(&serving, secure, &authority, &file, ROUNDS.1);
        // Connections that the clients have closed are noticed soon, and not at once.
        let mut after = (0, usize::MAX);
        until("hardly more descriptors are open than before", || {
            after = measure(&serving);
            after.1 <= before.1 + MORE_DESCRIPTORS
        });
        assert!(after.0 <= before.0 + GROWTH_KIB, "{driver}: {before:?} before, {after:?} after");
    }
}

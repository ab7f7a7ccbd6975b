//! TLS of the tool: with curl and OpenSSL's client, certificates that change while it serves, redirects,
//! names.

use crate::over::Over;
use crate::support::{Client, HANG, Site, start, wait_until, write};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use ringroad_engine::DriverName;
use ringroad_serve::{Event, Overrides, OwnTls, Source, load};
use ringroad_tls::{Client as TlsClient, ClientSettings, Output, Pair, Session, Trust};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// An authority, and what it signs.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        Authority::called("Test authority")
    }

    pub(crate) fn called(name: &str) -> Authority {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        Authority { issuer: Issuer::new(parameters, key), certificate }
    }

    /// Puts a pair into `folder`, and the authority's own certificate beside it.
    pub(crate) fn put(&self, folder: &Path, name: &str, names: &[&str]) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut parameters = CertificateParams::new(names).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        write(folder, &format!("{name}.key"), key.serialize_pem());
        write(folder, &format!("{name}.pem"), certificate.pem());
        write(folder, "authority.crt.txt", self.certificate.pem());
    }

    /// Puts a new certificate with its key into one file of `folder`, in one step.
    fn replace(&self, folder: &Path, names: &[&str]) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer).unwrap();
        write(folder, "a.new", certificate.pem() + &key.serialize_pem());
        std::fs::rename(folder.join("a.new"), folder.join("a.pem")).unwrap();
    }

    /// Its own certificate.
    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// A pair for these names.
    pub(crate) fn pair(&self, names: &[&str]) -> Pair {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let names = CertificateParams::new(names).unwrap().subject_alt_names;
        self.sign(|parameters| parameters.subject_alt_names = names)
    }

    /// A pair with parameters that `change` sets.
    pub(crate) fn sign(&self, change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        change(&mut parameters);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        Pair::from_pem(&certificate.pem(), &key.serialize_pem()).unwrap()
    }

    /// The certificate that a request asks for, and its own, as PEM.
    pub(crate) fn sign_request(&self, request: rcgen::CertificateSigningRequestParams) -> String {
        request.signed_by(&self.issuer).unwrap().pem() + &self.certificate.pem()
    }

    pub(crate) fn client(&self) -> TlsClient {
        let trust = Trust::Given(vec![self.certificate.der().clone()]);
        TlsClient::new(ClientSettings::new(trust)).unwrap()
    }
}

/// A client over TLS that waits for what it wants.
pub(crate) struct Tls {
    stream: TcpStream,
    session: Session,
    plain: Vec<u8>,
}

impl Tls {
    pub(crate) fn connect(address: SocketAddr, client: &TlsClient, name: &str) -> Option<Tls> {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        let mut tls = Tls { stream, session: client.begin(name).unwrap(), plain: Vec::new() };
        tls.take_in(&mut [])?;
        while tls.session.is_handshaking() {
            tls.more()?;
        }
        Some(tls)
    }

    fn take_in(&mut self, bytes: &mut [u8]) -> Option<()> {
        let mut out = Output::default();
        let received = self.session.receive(bytes, &mut self.plain, &mut out);
        let _ = self.stream.write_all(&out);
        received.ok()
    }

    fn more(&mut self) -> Option<()> {
        let mut buffer = [0; 20_000];
        match self.stream.read(&mut buffer) {
            Ok(bytes) if bytes > 0 => self.take_in(&mut buffer[..bytes]),
            // As in `Client`.
            Err(why) if why.kind() == ErrorKind::Interrupted => Some(()),
            _ => None,
        }
    }

    /// The head and body of the answer to a request.
    fn ask(&mut self, text: &str) -> Option<String> {
        let mut out = Output::default();
        self.session.seal(text.as_bytes(), &mut out).unwrap();
        self.stream.write_all(&out).ok()?;
        loop {
            let text = String::from_utf8_lossy(&self.plain).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
                if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                    self.plain.clear();
                    return Some(text);
                }
            }
            self.more()?;
        }
    }

    pub(crate) fn get(&mut self, host: &str, path: &str) -> Option<String> {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    }
}

const ROUTES: &str = "[[route]]\npath = \"/\"\nkind = \"static\"\nroot = \"www\"\n\
     [[route]]\npath = \"/hello\"\nkind = \"respond\"\nbody = \"hello\"\n\
     [[route]]\npath = \"/metrics\"\nkind = \"metrics\"\n\
     [[route]]\npath = \"/to/\"\nkind = \"redirect\"\nto = \"{scheme}://elsewhere/\"\n";

/// A site with TLS on its second address.
fn site(driver: DriverName, authority: &Authority, tls: &str, more: &str) -> Site {
    site_with(driver, tls, more, |folder| authority.put(folder, "a", &["a.test", "localhost", "127.0.0.1"]))
}

/// A site with the certificates that `put` puts into its folder for them.
fn site_with(driver: DriverName, tls: &str, more: &str, put: impl FnOnce(&Path)) -> Site {
    let listen = format!(
        "@listen = [\"127.0.0.1:0\", {{ address = \"127.0.0.1:0\", tls = true }}]\n[tls]\n\
         certificates = [\"certs/\"]\n{tls}\n{ROUTES}{more}"
    );
    start(driver, &listen, |folder| {
        put(&folder.join("certs"));
        write(folder, "www/large", vec![b'x'; 3_000_000]);
    })
}

fn secure(site: &Site) -> SocketAddr {
    site.service.addresses().nth(1).unwrap()
}

drivers!(curl_and_openssl_are_answered, |driver: DriverName| {
    let authority = Authority::new();
    let site = site(driver, &authority, "", "");
    let address = secure(&site);
    let roots = site.path("certs/authority.crt.txt");
    let curl = |more: &[&str], path: &str| {
        let resolve = format!("a.test:{}:127.0.0.1", address.port());
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "100", "--resolve", &resolve, "--cacert"]).arg(&roots).args(more);
        let output = command.arg(format!("https://a.test:{}{path}", address.port())).output().unwrap();
        (output.status.success(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for versions in [["--tlsv1.2", "--tls-max", "1.2"], ["--tlsv1.3", "--tls-max", "1.3"]] {
        let (ok, body, why) = curl(&versions, "/hello");
        assert!(ok && body == b"hello", "{why}");
        let (ok, body, why) = curl(&versions, "/large");
        assert!(ok && body == vec![b'x'; 3_000_000], "{why}");
    }
    assert!(!curl(&["--tls-max", "1.1"], "/hello").0, "TLS 1.1 is not spoken");
    // A session is resumed, by its ticket.
    let saved = site.path("session");
    let openssl = |way: &str| {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &address.to_string(), "-servername", "a.test", "-CAfile"]);
        command.arg(&roots).args(["-verify_return_error", "-ign_eof", way]).arg(&saved);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let request = b"GET /hello HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
        child.stdin.take().unwrap().write_all(request).unwrap();
        String::from_utf8_lossy(&child.wait_with_output().unwrap().stdout).into_owned()
    };
    let first = openssl("-sess_out");
    assert!(first.contains("hello") && first.contains("New, TLSv1.3"), "{first}");
    let second = openssl("-sess_in");
    assert!(second.contains("hello") && second.contains("Reused, TLSv1.3"), "{second}");
});

drivers!(a_client_that_offers_http2_gets_it_unless_it_is_off, |driver: DriverName| {
    let authority = Authority::new();
    let listen = "@listen = [{ address = \"127.0.0.1:0\", tls = true }, { address = \"127.0.0.1:0\", tls = true, http2 = false }]";
    let site = start(driver, &format!("{listen}\n[tls]\ncertificates = [\"certs/\"]\n{ROUTES}"), |folder| {
        authority.put(&folder.join("certs"), "a", &["localhost", "127.0.0.1"]);
        write(folder, "www/large", vec![b'x'; 300_000]);
    });
    let spoken = |address: SocketAddr, path: &str| {
        let mut command = Command::new("curl");
        command.args([
            "-sS",
            "--max-time",
            "100",
            "--http2",
            "-w",
            " %{http_version} %{size_download}",
            "--cacert",
        ]);
        let output =
            command.arg(site.path("certs/authority.crt.txt")).arg(format!("https://{address}{path}"));
        let text = String::from_utf8_lossy(&output.output().unwrap().stdout).into_owned();
        text.rsplit_once(path.trim_matches('/')).map_or(text.clone(), |(_, end)| end.to_owned())
    };
    let addresses: Vec<_> = site.service.addresses().collect();
    assert_eq!(spoken(addresses[0], "/hello"), " 2 5");
    assert!(spoken(addresses[0], "/large").ends_with(" 2 300000"));
    assert_eq!(spoken(addresses[1], "/hello"), " 1.1 5");
});

drivers!(http2_is_off_everywhere_where_the_file_says_so, |driver: DriverName| {
    let authority = Authority::new();
    let top = "@http2 = false\nlisten = { address = \"127.0.0.1:0\", tls = true }";
    let site = start(driver, &format!("{top}\n[tls]\ncertificates = [\"certs/\"]\n{ROUTES}"), |folder| {
        authority.put(&folder.join("certs"), "a", &["127.0.0.1"]);
        write(folder, "www/large", "x");
    });
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "100", "--http2", "-w", " %{http_version}", "--cacert"]);
    let url = format!("https://{}/hello", site.address());
    let output = command.arg(site.path("certs/authority.crt.txt")).arg(url).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello 1.1");
});

drivers!(a_name_that_the_certificate_does_not_cover_is_misdirected, |driver: DriverName| {
    let authority = Authority::new();
    let site = site(driver, &authority, "", "");
    let mut client = Tls::connect(secure(&site), &authority.client(), "a.test").unwrap();
    assert!(client.get("a.test", "/hello").unwrap().starts_with("HTTP/1.1 200"));
    assert!(client.get("other.test", "/hello").unwrap().starts_with("HTTP/1.1 421"));
    assert!(client.get("localhost:8443", "/hello").unwrap().starts_with("HTTP/1.1 200"));
    // The scheme is known to what names it.
    assert!(client.get("a.test", "/to/").unwrap().contains("Location: https://elsewhere/"));
    assert_eq!(site.client().get("/to/").header("Location"), Some("http://elsewhere/"));
});

drivers!(the_plain_port_redirects_to_https_except_for_challenges, |driver: DriverName| {
    let listen = "listen = { address = \"127.0.0.1:0\", redirect_https = 8443 }";
    let route = "[[route]]\npath = \"/\"\nkind = \"respond\"\nbody = \"plain\"\n";
    let site = start(driver, &format!("@{listen}\n{route}"), |_| {});
    let mut client = site.client();
    let reply = client.send("GET /a?b=c HTTP/1.1\r\nHost: example.test:80\r\n\r\n").reply();
    assert_eq!((reply.status, reply.header("Location")), (301, Some("https://example.test:8443/a?b=c")));
    assert_eq!(client.get("/.well-known/acme-challenge/token").text(), "plain");
    // As proxies ask, and without a path.
    for (target, place) in [
        ("http://example.test/a?b=c", "https://example.test:8443/a?b=c"),
        ("http://example.test?b", "https://example.test:8443/?b"),
        ("/a/./b/../c?", "https://example.test:8443/a/c?"),
    ] {
        let reply = client.send(format!("GET {target} HTTP/1.1\r\nHost: example.test\r\n\r\n")).reply();
        assert_eq!((reply.status, reply.header("Location")), (301, Some(place)), "{target}");
    }
    let reply = client.send("OPTIONS * HTTP/1.1\r\nHost: example.test\r\n\r\n").reply();
    assert_eq!((reply.status, reply.header("Location")), (308, Some("https://example.test:8443/")));
    // There is no https:// address without a host.
    let reply = site.client().send("GET /a HTTP/1.0\r\n\r\n").reply();
    assert_eq!((reply.status, reply.header("Location")), (400, None));
});

drivers!(what_a_trusted_proxy_has_taken_over_tls_is_not_sent_there_again, |driver: DriverName| {
    for (proxies, proto, status) in [
        ("127.0.0.1", "https", 200),
        ("127.0.0.1", "HTTPS", 200),
        ("127.0.0.1", "http", 301),
        ("127.0.0.1", "https, http", 301),
        // Any client can write the line.
        ("192.0.2.1", "https", 301),
    ] {
        let listen = "listen = { address = \"127.0.0.1:0\", redirect_https = true }";
        let route = "[[route]]\npath = \"/\"\nkind = \"respond\"\nbody = \"plain\"\n";
        let rules = format!("@{listen}\nclient_ip = {{ proxies = [\"{proxies}\"] }}\n{route}");
        let site = start(driver, &rules, |_| {});
        let reply = site.client().ask("GET", "/a", &[("X-Forwarded-Proto", proto)]);
        assert_eq!(reply.status, status, "{proxies} {proto}");
    }
});

#[test]
fn the_way_to_https_leads_to_the_host_that_a_trusted_proxy_was_asked_for() {
    for (proxies, place) in [("127.0.0.1", "https://a.example/a"), ("192.0.2.1", "https://example.org/a")] {
        let listen = "listen = { address = \"127.0.0.1:0\", redirect_https = true }";
        let route = "[[route]]\npath = \"/\"\nkind = \"respond\"\nbody = \"plain\"\n";
        let rules = format!("@{listen}\nclient_ip = {{ proxies = [\"{proxies}\"] }}\n{route}");
        let site = start(DriverName::Epoll, &rules, |_| {});
        let reply = site.client().ask("GET", "/a", &[("X-Forwarded-Host", "a.example:80")]);
        assert_eq!((reply.status, reply.header("Location")), (301, Some(place)));
    }
}

drivers!(new_certificates_are_taken_under_load_and_no_request_fails, |driver: DriverName| {
    let authority = Authority::new();
    // The server looks by itself as well, at any time: it must not find half of a pair.
    let mut site = site_with(driver, "", "", |folder| authority.replace(folder, &["a.test"]));
    let (address, client) = (secure(&site), authority.client());
    let (over, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _over = Over(&over);
        for worker in 0..3 {
            let (client, over, asked) = (&client, &over, &asked);
            scope.spawn(move || {
                let mut kept = Tls::connect(address, client, "a.test").unwrap();
                while !over.load(Ordering::Relaxed) {
                    let answer = match worker {
                        // On one connection, and on a new one each time.
                        0 => kept.get("a.test", "/hello"),
                        _ => Tls::connect(address, client, "a.test").unwrap().get("a.test", "/hello"),
                    };
                    let answer = answer.unwrap();
                    assert!(answer.ends_with("hello"));
                    // A connection has 10,000 requests.
                    if worker == 0 && answer.contains("Connection: close") {
                        kept = Tls::connect(address, client, "a.test").unwrap();
                    }
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..30 {
            authority.replace(&site.path("certs"), &["a.test"]);
            site.service.reload();
            loop {
                let event = site.event();
                assert!(!matches!(event, Event::CertificateRefused(_) | Event::ReloadFailed(_)), "{event}");
                if matches!(event, Event::CertificatesTaken) {
                    break;
                }
            }
        }
        wait_until("all workers have asked", || asked.load(Ordering::Relaxed) > 30);
    });
    // A pair that does not fit together: told, and what was there stays.
    write(site.folder.path(), "certs/a.key", "nothing");
    site.service.reload();
    let refused = std::iter::from_fn(|| Some(site.event()))
        .find(|event| matches!(event, Event::CertificateRefused(_) | Event::ReloadFailed(_)));
    assert!(refused.unwrap().to_string().contains("a.key"));
    assert!(Tls::connect(address, &client, "a.test").unwrap().get("a.test", "/hello").is_some());
});

drivers!(handshakes_and_expiry_are_measured, |driver: DriverName| {
    let authority = Authority::new();
    let site = site(driver, &authority, "", "");
    let client = authority.client();
    for _ in 0..2 {
        Tls::connect(secure(&site), &client, "a.test").unwrap().get("a.test", "/hello").unwrap();
    }
    let mut plain = TcpStream::connect(secure(&site)).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let _ = plain.read_to_end(&mut Vec::new());
    wait_until("all is counted", || {
        let text = site.client().get("/metrics").text().to_owned();
        let of = |kind: &str| format!("kind=\"{kind}\",version=\"1.3\",result=\"ok\"}} 1");
        text.contains(&of("full")) && text.contains(&of("resumed")) && text.contains("result=\"failed\"} 1")
    });
    let text = site.client().get("/metrics").text().to_owned();
    assert!(text.contains("ringroad_tls_certificate_expiry_seconds{name=\"a.test\",file=\""), "{text}");
    assert!(
        text.contains("ringroad_tls_handshakes_waiting{")
            && text.contains("ringroad_tls_handshake_seconds_count{")
    );
});

drivers!(upstream_servers_learn_the_verified_subject_and_clients_cannot_say_it, |driver: DriverName| {
    let authority = Authority::new();
    let behind = crate::support::start(
        driver,
        "[[route]]\npath = \"/\"\nkind = \"redirect\"\nto = \"/{header.X-Subject}/{header.X-Forwarded-Proto}\"\nstatus = 302\n",
        |_| {},
    );
    let proxy =
        format!("[[route]]\npath = \"/p/\"\nkind = \"proxy\"\nto = \"http://{}/\"\n", behind.address());
    let tls = "client = { ca = \"certs/authority.crt.txt\", need = \"optional\", header = \"X-Subject\" }";
    // What decides on the site itself, and what is asked for it, gets the same line.
    let here =
        "[[route]]\npath = \"/here\"\nkind = \"redirect\"\nto = \"/<{header.X-Subject}>\"\nstatus = 302\n";
    let limits = "[limits]\nheader_count = 255\n";
    let site = site(driver, &authority, tls, &(proxy + here + limits));
    authority.put(&site.path("mine"), "ann", &[]);
    let read = |name: &str| std::fs::read_to_string(site.path(name)).unwrap();
    let identity = Pair::from_pem(&read("mine/ann.pem"), &read("mine/ann.key")).unwrap();
    let trust = Trust::Given(vec![authority.certificate.der().clone()]);
    let ann =
        TlsClient::new(ClientSettings { identity: Some(identity), ..ClientSettings::new(trust) }).unwrap();
    let forged = "GET /p/ HTTP/1.1\r\nHost: a.test\r\nX-Subject: CN=root\r\n\r\n";
    let answer = Tls::connect(secure(&site), &ann, "a.test").unwrap().ask(forged).unwrap();
    assert!(
        answer.contains("Location: /CN=ann/https") || answer.contains("Location: /CN%3Dann/https"),
        "{answer}"
    );
    let forged_here =
        "GET /here HTTP/1.1\r\nHost: a.test\r\nX-Subject: CN=root\r\nx_subject: CN=root\r\n\r\n";
    let answer = Tls::connect(secure(&site), &ann, "a.test").unwrap().ask(forged_here).unwrap();
    assert!(answer.contains("ann") && !answer.contains("root"), "{answer}");
    // It cannot be kept from being said either.
    let named = "GET /here HTTP/1.1\r\nHost: a.test\r\nConnection: X-Subject\r\n\r\n";
    let answer = Tls::connect(secure(&site), &ann, "a.test").unwrap().ask(named).unwrap();
    assert!(answer.contains("ann"), "{answer}");
    let full = format!("GET /p/ HTTP/1.1\r\nHost: a.test\r\n{}\r\n", "X-A: b\r\n".repeat(254));
    let answer = Tls::connect(secure(&site), &ann, "a.test").unwrap().ask(&full).unwrap();
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let answer = Tls::connect(secure(&site), &authority.client(), "a.test").unwrap().ask(forged_here);
    assert!(!answer.unwrap().contains("root"));
    // Without a certificate, and without TLS.
    let answer = Tls::connect(secure(&site), &authority.client(), "a.test").unwrap().ask(forged).unwrap();
    assert!(answer.contains("Location: /https") && !answer.contains("root"), "{answer}");
    let reply = site.client().ask("GET", "/p/", &[("X-Subject", "CN=root")]);
    assert!(!reply.head.contains("root"), "{}", reply.head);
});

drivers!(a_unix_socket_is_listened_on, |driver: DriverName| {
    let route = "[[route]]\npath = \"/\"\nkind = \"respond\"\nbody = \"hello\"\n";
    let site = start(driver, &format!("@listen = \"unix:site.sock\"\n{route}"), |_| {});
    let stream = std::os::unix::net::UnixStream::connect(site.path("site.sock")).unwrap();
    let mut client = Client::of_any(std::os::fd::OwnedFd::from(stream).into());
    assert_eq!(client.get("/").text(), "hello");
    assert_eq!(site.service.addresses().count(), 0);
    assert!(site.service.urls().next().unwrap().ends_with("site.sock"));
});

drivers!(a_balancer_tells_the_clients_address, |driver: DriverName| {
    let listen = "listen = [{ address = \"127.0.0.1:0\", proxy_protocol = [\"127.0.0.0/8\"] }]";
    let route = "[[route]]\npath = \"/\"\nkind = \"redirect\"\nto = \"/{client}\"\n";
    let site = start(driver, &format!("@{listen}\n{route}"), |_| {});
    let mut client = site.client();
    client.send("PROXY TCP4 192.0.2.9 192.0.2.1 1234 80\r\n");
    assert_eq!(client.get("/").header("Location"), Some("/192.0.2.9"));
});

#[test]
fn mistakes_of_tls_are_told_with_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let told = |text: &str| {
        let file = folder.path().join("site.toml");
        std::fs::write(&file, format!("{text}\n[[route]]\npath = \"/\"\nkind = \"health\"\n")).unwrap();
        load(&Source::File(file), &Overrides::default()).unwrap_err().to_string()
    };
    for (text, word) in [
        ("listen = { address = \":0\", tls = true }", "there are no certificates"),
        ("[tls]", "tls.certificates: missing"),
        ("[tls]\ncertificates = \"nowhere\"", "No such file or directory"),
        ("[tls]\ncertificates = \"/dev/null\"", "neither a file nor a folder"),
        ("[tls]\ncertificates = \".\"", "no certificate that can be used"),
        ("[tls]\ncertificates = \".\"\nclient = { need = \"maybe\" }", "tls.client.ca: missing"),
        ("[tls]\ncertificates = \".\"\ntickets = \"nowhere\"", "nowhere"),
        ("listen = { address = \"x\" }", "expected an address"),
        ("listen = [\":1\", { address = \":1\" }]", "there twice"),
        ("listen = { address = \":0\", tls = true, redirect_https = true }", "speaks TLS itself"),
        ("listen = { address = \":0\", http2 = true }", "needs tls = true"),
        ("listen = { address = \":0\", ssl = true }", "not a key here"),
    ] {
        let why = told(text);
        assert!(why.contains(word), "{text}: {why}");
    }
}

#[test]
fn the_key_beside_a_certificate_is_its_key_also_when_it_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("site.toml");
    let text = "listen = { address = \":0\", tls = true }\n[tls]\ncertificates = \"a.pem\"\n\
        [[route]]\npath = \"/\"\nkind = \"health\"\n";
    std::fs::write(&config, text).unwrap();
    Authority::new().put(folder.path(), "a", &["a.test"]);
    std::fs::remove_file(folder.path().join("a.key")).unwrap();
    std::os::unix::fs::symlink("moved-away.key", folder.path().join("a.key")).unwrap();
    let why = load(&Source::File(config), &Overrides::default()).unwrap_err().to_string();
    assert!(why.contains("a.key: No such file or directory"), "{why}");
}

#[test]
fn a_certificate_for_development_needs_no_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("index.html"), "page").unwrap();
    let source = Source::Folder { path: folder.path().to_owned(), autoindex: false };
    let overrides = Overrides {
        listen: Some("127.0.0.1:0".parse().unwrap()),
        tls: Some(OwnTls::Dev),
        ..Overrides::default()
    };
    let config = load(&source, &overrides).unwrap();
    let events = ringroad_serve::EventSink::new(|_| (), |_| Ok(()));
    let mut service = ringroad_serve::Service::start(source, overrides, config, events).unwrap();
    assert!(service.urls().next().unwrap().starts_with("https://127.0.0.1:"));
    let any = TlsClient::new(ClientSettings::new(Trust::Any)).unwrap();
    let address = service.addresses().next().unwrap();
    let ask = || Tls::connect(address, &any, "localhost").unwrap().get("localhost", "/");
    assert!(ask().unwrap().ends_with("page"));
    let before = service.certificates();
    service.reload();
    assert_eq!(service.certificates(), before, "a reload makes no other one");
    assert!(ask().unwrap().ends_with("page"));
}

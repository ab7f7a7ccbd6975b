//! Certificates of ACME: with an authority of the tests' own, which fails where a test wants it to, and with
//! Pebble, which is strict.

use crate::ports::held;
use crate::support::{Client, HANG, Site, behind, configure, start, wait_until, write};
use crate::tls::{Authority, Tls};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rcgen::CertificateSigningRequestParams;
use ringroad_engine::DriverName;
use ringroad_serve::{Event, Overrides, Source, load};
use ringroad_tls::{Client as TlsClient, ClientSettings, Trust};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What the tests' authority does, and what it was asked.
#[derive(Default)]
struct Conduct {
    /// Where HTTP-01 challenges are looked for; until it is known, they are pending.
    site: Option<SocketAddr>,
    /// So many requests are refused for their nonce.
    bad_nonces: u32,
    /// So many orders are refused as too many.
    rate_limited: u32,
    /// So many challenges fail, whatever is answered.
    invalid: u32,
    /// So many looks at an order find it pending.
    pending: u32,
    /// So many orders are refused because the account is not known.
    forgotten: u32,
    /// How old certificates are when they are issued.
    age: Duration,
    /// The window of renewal information, from now on.
    window: Option<(SystemTime, SystemTime)>,
    /// A folder that is taken away when a certificate is fetched, and a file put in its place.
    breaks: Option<PathBuf>,
    nonces: Vec<String>,
    accounts: u32,
    orders: Vec<Value>,
    /// By the number of the order: the names, and the chain once it is issued.
    issued: HashMap<usize, String>,
    /// Numbers of orders with all names proved.
    proved: Vec<usize>,
}

/// An ACME server.
struct Acme {
    address: SocketAddr,
    conduct: Arc<Mutex<Conduct>>,
    authority: Arc<Authority>,
}

impl Acme {
    fn start() -> Acme {
        let conduct = Arc::new(Mutex::new(Conduct::default()));
        let authority = Arc::new(Authority::new());
        let (own, signs) = (Arc::clone(&conduct), Arc::clone(&authority));
        let (address, _) = behind(move |client| {
            while let Some(head) = client.until(b"\r\n\r\n") {
                let head = String::from_utf8(head).unwrap();
                let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
                let body = client.exactly(length.map_or(0, |length| length.parse().unwrap())).unwrap();
                let host = head.lines().find_map(|line| line.strip_prefix("Host: ")).unwrap().to_owned();
                let (status, lines, answer) = answer(&own, &signs, &host, &head, &body);
                let nonce = {
                    let mut conduct = own.lock().unwrap();
                    let nonce = format!("nonce-{}", conduct.nonces.len());
                    conduct.nonces.push(nonce.clone());
                    nonce
                };
                let length = if head.starts_with("HEAD") { 0 } else { answer.len() };
                client.send(format!(
                    "HTTP/1.1 {status} x\r\nReplay-Nonce: {nonce}\r\n{lines}Content-Length: {length}\r\n\r\n{answer}"
                ));
            }
        });
        Acme { address, conduct, authority }
    }

    fn set(&self, change: impl FnOnce(&mut Conduct)) {
        change(&mut self.conduct.lock().unwrap());
    }

    fn orders(&self) -> Vec<Value> {
        self.conduct.lock().unwrap().orders.clone()
    }
}

fn refusal(status: u16, kind: &str) -> (u16, String, String) {
    let problem =
        json!({ "type": format!("urn:ietf:params:acme:error:{kind}"), "detail": "as the test wants" });
    (status, "Retry-After: 0\r\n".to_owned(), problem.to_string())
}

/// Takes one from a count, if there is one.
fn take(count: &mut u32) -> bool {
    let is_some = *count > 0;
    *count -= u32::from(is_some);
    is_some
}

fn answer(
    conduct: &Mutex<Conduct>,
    authority: &Authority,
    host: &str,
    head: &str,
    body: &[u8],
) -> (u16, String, String) {
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let at = |path: &str| format!("http://{host}{path}");
    let ok = |value: Value| (200, "Retry-After: 0\r\n".to_owned(), value.to_string());
    if method != "POST" {
        let conduct = conduct.lock().unwrap();
        return match path {
            "/dir" => {
                ok(json!({ "newNonce": at("/nonce"), "newAccount": at("/account"), "newOrder": at("/orders"),
                "renewalInfo": at("/renewal") }))
            }
            "/nonce" => (200, String::new(), String::new()),
            _ => {
                assert!(path.starts_with("/renewal/") && path.contains('.'), "{path}");
                let text = |time: SystemTime| {
                    let time = time::OffsetDateTime::from(time);
                    time.format(&time::format_description::well_known::Rfc3339).unwrap()
                };
                match conduct.window {
                    Some((start, end)) => {
                        ok(json!({ "suggestedWindow": { "start": text(start), "end": text(end) } }))
                    }
                    None => refusal(404, "malformed"),
                }
            }
        };
    }
    let jws: Value = serde_json::from_slice(body).unwrap();
    let part = |name: &str| BASE64_URL_SAFE_NO_PAD.decode(jws[name].as_str().unwrap()).unwrap();
    let protected: Value = serde_json::from_slice(&part("protected")).unwrap();
    let payload: Value = serde_json::from_slice(&part("payload")).unwrap_or_default();
    assert_eq!(protected["url"], at(path), "the request is signed for another place");
    assert_eq!(protected["jwk"].is_null(), path != "/account", "{protected}");
    let mut conduct = conduct.lock().unwrap();
    let nonce = protected["nonce"].as_str().unwrap().to_owned();
    let known = conduct.nonces.iter().position(|one| *one == nonce);
    let known = known.map(|known| conduct.nonces[known] = String::new());
    if take(&mut conduct.bad_nonces) || known.is_none() {
        return refusal(400, "badNonce");
    }
    let order = |conduct: &mut Conduct, number: usize| {
        let status = match () {
            () if conduct.issued.contains_key(&number) => "valid",
            () if conduct.proved.contains(&number) && !take(&mut conduct.pending) => "ready",
            () => "pending",
        };
        json!({ "status": status, "authorizations": [at(&format!("/authz/{number}"))],
            "finalize": at(&format!("/finalize/{number}")), "certificate": at(&format!("/cert/{number}")) })
    };
    let number = || path.rsplit('/').next().unwrap().parse::<usize>().unwrap();
    match path.split('/').nth(1).unwrap() {
        "account" => {
            assert_eq!(payload["termsOfServiceAgreed"], true);
            conduct.accounts += 1;
            (201, format!("Location: {}\r\n", at("/me")), "{}".to_owned())
        }
        "orders" => {
            assert_eq!(protected["kid"], at("/me"));
            if take(&mut conduct.forgotten) {
                return refusal(400, "accountDoesNotExist");
            }
            if take(&mut conduct.rate_limited) {
                return refusal(429, "rateLimited");
            }
            conduct.orders.push(payload);
            let number = conduct.orders.len() - 1;
            let (place, text) = (at(&format!("/order/{number}")), order(&mut conduct, number).to_string());
            (201, format!("Location: {place}\r\n"), text)
        }
        "order" => ok(order(&mut conduct, number())),
        "authz" => {
            let number = number();
            let proved = conduct.proved.contains(&number);
            let failed = conduct.issued.get(&number).is_some_and(|text| text == "failed");
            let status = if failed {
                "invalid"
            } else if proved {
                "valid"
            } else {
                "pending"
            };
            let error =
                failed.then(|| json!({ "type": "urn:ietf:params:acme:error:unauthorized", "detail": "no" }));
            let name = conduct.orders[number]["identifiers"][0]["value"].clone();
            let challenge = json!({ "type": "http-01", "token": format!("token-{number}"), "status": status,
                "url": at(&format!("/challenge/{number}")), "error": error });
            ok(json!({ "status": status, "identifier": { "value": name }, "challenges": [challenge] }))
        }
        "challenge" => {
            let number = number();
            if take(&mut conduct.invalid) {
                conduct.issued.insert(number, "failed".to_owned());
            } else {
                let site = conduct.site.unwrap();
                let token = format!("token-{number}");
                let reply = Client::new(site).get(&format!("/.well-known/acme-challenge/{token}"));
                assert_eq!((reply.status, reply.text().split('.').next()), (200, Some(token.as_str())));
                conduct.proved.push(number);
            }
            ok(json!({}))
        }
        "finalize" => {
            let csr = BASE64_URL_SAFE_NO_PAD.decode(payload["csr"].as_str().unwrap()).unwrap();
            let mut csr = CertificateSigningRequestParams::from_der(&csr.into()).unwrap();
            let begins = SystemTime::now() - conduct.age;
            csr.params.not_before = begins.into();
            csr.params.not_after = (begins + 90 * DAY).into();
            csr.params.use_authority_key_identifier_extension = true;
            let number = number();
            conduct.issued.insert(number, authority.sign_request(csr));
            ok(order(&mut conduct, number))
        }
        _ => {
            if let Some(folder) = conduct.breaks.take() {
                std::fs::rename(&folder, folder.with_extension("away")).unwrap();
                std::fs::write(&folder, "").unwrap();
            }
            (200, String::new(), conduct.issued[&number()].clone())
        }
    }
}

const ROUTES: &str = "[[route]]\npath = \"/\"\nkind = \"respond\"\nbody = \"hello\"\n\
     [[route]]\npath = \"/metrics\"\nkind = \"metrics\"\n";

/// The configuration of a site with a plain address and one with TLS, and certificates of `acme`.
fn text(names: &str, directory: &str, state: &Path, more: &str) -> String {
    let state = state.display();
    format!(
        "@listen = [{{ address = \"127.0.0.1:0\", redirect_https = true }}, \
         {{ address = \"127.0.0.1:0\", tls = true }}, \"127.0.0.1:0\"]\n[tls.acme]\nnames = {names}\n\
         terms_agreed = true\ndirectory = \"{directory}\"\nstate = \"{state}\"\nretry = \"10ms\"\n{more}\n{ROUTES}"
    )
}

impl Acme {
    fn site(&self, driver: DriverName, names: &str, state: &Path) -> Site {
        let directory = format!("http://{}/dir", self.address);
        // The authority looks for the answer where the site is, which is known once it runs.
        let mut held = self.conduct.lock().unwrap();
        let site = start(driver, &text(names, &directory, state, ""), |_| {});
        held.site = Some(site.address());
        site
    }

    fn client(&self) -> TlsClient {
        self.authority.client()
    }
}

fn secure(site: &Site) -> SocketAddr {
    site.service.addresses().nth(1).unwrap()
}

/// The next event about a certificate.
fn told(site: &Site) -> Event {
    loop {
        let event = site.event();
        if matches!(event, Event::CertificateObtained(_) | Event::CertificateNotObtained(_)) {
            return event;
        }
    }
}

fn obtained(site: &Site) -> String {
    match told(site) {
        Event::CertificateObtained(event) => event.to_string(),
        other => panic!("{other}"),
    }
}

fn is_answered(site: &Site, acme: &Acme, name: &str) -> bool {
    Tls::connect(secure(site), &acme.client(), name)
        .is_some_and(|mut tls| tls.get(name, "/").is_some_and(|answer| answer.ends_with("hello")))
}

drivers!(a_certificate_is_obtained_kept_and_taken_up_again, |driver: DriverName| {
    let (acme, state) = (Acme::start(), tempfile::tempdir().unwrap());
    // A nonce is not taken, and the order takes a while.
    acme.set(|conduct| {
        conduct.bad_nonces = 2;
        conduct.pending = 2;
    });
    let site = acme.site(driver, "[\"A.test\"]", state.path());
    let line = obtained(&site);
    assert!(line.contains("a.test: obtained, valid until"), "{line}");
    assert!(is_answered(&site, &acme, "a.test"));
    // An answer is there as long as its challenge is.
    let mut client = site.client();
    assert_eq!(client.get("/.well-known/acme-challenge/token-0").text(), "hello");
    let plain = site.service.addresses().nth(2).unwrap();
    let metrics = Client::new(plain).get("/metrics").text().to_owned();
    assert!(
        metrics.contains("ringroad_acme_orders_total{name=\"a.test\",result=\"obtained\"} 1")
            && metrics.contains("ringroad_acme_failures{name=\"a.test\"} 0")
            && metrics.contains("ringroad_tls_certificate_expiry_seconds{name=\"a.test\"}"),
        "{metrics}"
    );
    site.service.stop().unwrap();
    let order = acme.orders();
    assert_eq!((order.len(), &order[0]["identifiers"]), (1, &json!([{ "type": "dns", "value": "a.test" }])));
    // The certificate is there from the first handshake on; the authority wants it renewed already.
    acme.set(|conduct| {
        conduct.window = Some((SystemTime::now() - DAY, SystemTime::now() - DAY / 2));
    });
    let site = acme.site(driver, "[\"a.test\"]", state.path());
    assert!(is_answered(&site, &acme, "a.test"));
    obtained(&site);
    assert!(is_answered(&site, &acme, "a.test"));
    site.service.stop().unwrap();
    let orders = acme.orders();
    assert!(orders.len() == 2 && orders[1]["replaces"].as_str().unwrap().contains('.'), "{orders:?}");
    assert_eq!(acme.conduct.lock().unwrap().accounts, 1, "the account is kept");
});

drivers!(a_certificate_stays_in_force_while_its_renewal_fails, |driver: DriverName| {
    let (acme, state) = (Acme::start(), tempfile::tempdir().unwrap());
    // It is renewed as soon as the server starts again.
    acme.set(|conduct| conduct.age = 61 * DAY);
    let site = acme.site(driver, "[[\"a.test\"], [\"b.test\"]]", state.path());
    obtained(&site);
    obtained(&site);
    site.service.stop().unwrap();
    acme.set(|conduct| {
        conduct.age = Duration::ZERO;
        conduct.invalid = 3;
        conduct.forgotten = 1;
        conduct.rate_limited = 2;
    });
    let site = acme.site(driver, "[[\"a.test\"], [\"b.test\"]]", state.path());
    let (mut failed, mut got) = (Vec::new(), 0);
    while got < 2 {
        match told(&site) {
            Event::CertificateNotObtained(event) => failed.push(event.to_string()),
            _ => got += 1,
        }
        assert!(is_answered(&site, &acme, "a.test") && is_answered(&site, &acme, "b.test"));
    }
    let count = |word: &str| failed.iter().filter(|line| line.contains(word)).count();
    assert_eq!((count("rateLimited"), count("unauthorized")), (2, 3), "{failed:?}");
    assert_eq!(count("stays in force"), 5, "{failed:?}");
    assert_eq!(acme.conduct.lock().unwrap().accounts, 2, "an account that is gone is made anew");
    site.service.stop().unwrap();
});

drivers!(
    a_reload_adds_names_and_until_they_are_proved_handshakes_for_them_are_refused,
    |driver: DriverName| {
        let (acme, state) = (Acme::start(), tempfile::tempdir().unwrap());
        acme.set(|conduct| conduct.invalid = u32::MAX);
        let mut site = acme.site(driver, "[\"a.test\"]", state.path());
        assert!(matches!(told(&site), Event::CertificateNotObtained(_)));
        // There is no certificate at all.
        assert!(Tls::connect(secure(&site), &acme.client(), "a.test").is_none());
        acme.set(|conduct| conduct.invalid = 0);
        while !matches!(told(&site), Event::CertificateObtained(_)) {}
        let directory = format!("http://{}/dir", acme.address);
        acme.set(|conduct| conduct.invalid = 1);
        // Other names are another certificate; the one of before stands in.
        configure(site.folder.path(), &text("[\"a.test\", \"new.test\"]", &directory, state.path(), ""));
        site.service.reload();
        while let Event::CertificateNotObtained(_) = told(&site) {
            assert!(is_answered(&site, &acme, "a.test"));
        }
        assert!(is_answered(&site, &acme, "a.test") && is_answered(&site, &acme, "new.test"));
        // A reload that changes nothing asks for nothing.
        let orders = acme.orders().len();
        site.service.reload();
        assert!(is_answered(&site, &acme, "new.test"));
        site.service.stop().unwrap();
        assert_eq!(acme.orders().len(), orders);
    }
);

drivers!(a_certificate_that_cannot_be_kept_is_in_force_and_no_other_is_asked_for, |driver: DriverName| {
    let (acme, folder) = (Acme::start(), tempfile::tempdir().unwrap());
    let state = folder.path().join("acme");
    acme.set(|conduct| conduct.breaks = Some(state.clone()));
    let site = acme.site(driver, "[\"a.test\"]", &state);
    obtained(&site);
    match told(&site) {
        Event::CertificateNotObtained(event) => {
            assert!(event.to_string().contains("a.test: not kept, "), "{event}");
        }
        other => panic!("{other}"),
    }
    assert!(is_answered(&site, &acme, "a.test"));
    site.service.stop().unwrap();
    assert_eq!(acme.orders().len(), 1);
});

drivers!(a_reload_keeps_a_certificate_in_force_whose_folder_has_gone, |driver: DriverName| {
    let (acme, folder) = (Acme::start(), tempfile::tempdir().unwrap());
    let state = folder.path().join("acme");
    let mut site = acme.site(driver, "[\"a.test\"]", &state);
    obtained(&site);
    std::fs::remove_dir_all(&state).unwrap();
    let directory = format!("http://{}/dir", acme.address);
    configure(
        site.folder.path(),
        &text("[\"a.test\"]", &directory, &state, "[tls]\nunknown_name = \"refuse\""),
    );
    site.service.reload();
    while !matches!(site.event(), Event::Reloaded { .. }) {}
    assert!(is_answered(&site, &acme, "a.test"));
    assert!(Tls::connect(secure(&site), &acme.client(), "other.test").is_none(), "by the new settings");
    site.service.stop().unwrap();
    assert_eq!(acme.orders().len(), 1);
});

drivers!(a_certificate_that_is_broken_at_the_start_is_reported_as_not_used, |driver: DriverName| {
    let (acme, state) = (Acme::start(), tempfile::tempdir().unwrap());
    let site = acme.site(driver, "[\"a.test\"]", state.path());
    obtained(&site);
    site.service.stop().unwrap();
    let authority = std::fs::read_dir(state.path()).unwrap().next().unwrap().unwrap().path();
    for file in std::fs::read_dir(authority).unwrap().map(|entry| entry.unwrap().path()) {
        if file.extension().is_some_and(|end| end == "pem") {
            std::fs::write(file, "half").unwrap();
        }
    }
    let site = acme.site(driver, "[\"a.test\"]", state.path());
    let line = site.event().to_string();
    assert!(line.contains(".pem: ") && line.ends_with(" (it is not used)"), "{line}");
    obtained(&site);
    assert!(is_answered(&site, &acme, "a.test"));
    site.service.stop().unwrap();
});

#[test]
fn mistakes_of_acme_are_told_with_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let told = |acme: &str, listen: &str| {
        let file = folder.path().join("site.toml");
        let route = "[[route]]\npath = \"/\"\nkind = \"health\"\n";
        std::fs::write(&file, format!("listen = {listen}\n[tls]\nacme = {{ {acme} }}\n{route}")).unwrap();
        load(&Source::File(file), &Overrides::default()).map(|_| ()).map_err(|why| why.to_string())
    };
    let both = "[\":0\", { address = \":0\", tls = true }]";
    let good = "names = [\"a.test\"], terms_agreed = true, state = \"s\"";
    assert_eq!(told(good, both), Ok(()));
    assert!(!folder.path().join("s").exists(), "a check makes no folder");
    for (acme, word) in [
        ("terms_agreed = true, state = \"s\"", "tls.acme.names: missing"),
        ("names = [\"a.test\"], state = \"s\"", "tls.acme.terms_agreed: missing"),
        ("names = [\"a.test\"], terms_agreed = false, state = \"s\"", "without your agreement"),
        ("names = [\"a.test\"], terms_agreed = true", "tls.acme.state: missing"),
        ("names = [\"*.a.test\"], terms_agreed = true, state = \"s\"", "a star is proved by DNS"),
        ("names = [\"a b\"], terms_agreed = true, state = \"s\"", "expected a DNS name"),
        ("names = [[\"a.test\"], [\"a.test\"]], terms_agreed = true, state = \"s\"", "there twice"),
        ("names = [[]], terms_agreed = true, state = \"s\"", "an empty list"),
        (&format!("{good}, directory = \"http://a.test/d\""), "expected https://"),
        (&format!("{good}, contact = \"me\""), "expected one mail address"),
        (&format!("{good}, challenge = \"dns-01\""), "tls-alpn-01"),
        (&format!("{good}, external = {{ kid = \"k\" }}"), "tls.acme.external.key: missing"),
        (&format!("{good}, external = {{ kid = \"k\", key = \"!\" }}"), "expected base64url"),
        (&format!("{good}, ca = \"nowhere\""), "nowhere"),
    ] {
        let why = told(acme, both).unwrap_err();
        assert!(why.contains(word), "{acme}: {why}");
    }
    let why =
        told(&format!("{good}, challenge = \"http-01\""), "{ address = \":0\", tls = true }").unwrap_err();
    assert!(why.contains("asks on port 80"), "{why}");
}

/// Answers every question about a name with this machine's address. Pebble asks over TCP.
fn name_server() -> SocketAddr {
    let (address, _) = behind(|client| {
        while let Some(length) = client.exactly(2) {
            let length = u16::from_be_bytes(length.try_into().unwrap());
            let question = client.exactly(length.into()).unwrap();
            // The head has 12 bytes; the name ends with a zero, then come its type and class.
            let end = 12 + question[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
            let is_address = question[end - 4..end - 2] == [0, 1];
            let mut answer = question[..end].to_vec();
            answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
            if is_address {
                answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
            }
            client.send((answer.len() as u16).to_be_bytes()).send(answer);
        }
    });
    address
}

/// A program that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pebble() -> Option<PathBuf> {
    let home = std::env::var("HOME").unwrap_or_default();
    let paths = std::env::var("PATH").unwrap_or_default();
    let found = paths.split(':').map(str::to_owned).chain([format!("{home}/go/bin")]);
    found.map(|folder| Path::new(&folder).join("pebble")).find(|file| file.is_file())
}

/// Has a certificate issued by Pebble.
fn by_pebble(driver: DriverName, challenge: &str, names: &str, external: bool) {
    let Some(program) = pebble() else {
        eprintln!(
            "skipped: pebble is not installed (go install github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.1)"
        );
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let own = Authority::new();
    own.put(folder.path(), "pebble", &["localhost", "127.0.0.1"]);
    let ((listen, _listen), (management, _management)) = (held(), held());
    let ca = folder.path().join("authority.crt.txt");
    let mut more =
        format!("challenge = \"{challenge}\"\nca = \"{}\"\ncontact = \"admin@example.org\"", ca.display());
    if external {
        more += "\nexternal = { kid = \"kid-1\", key = \"zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W\" }";
    }
    let directory = format!("https://{listen}/dir");
    let site = start(driver, &text(names, &directory, &folder.path().join("state"), &more), |_| {});
    let plain = site.address();
    let dns = name_server();
    let settings = json!({ "pebble": {
        "listenAddress": listen.to_string(), "managementListenAddress": management.to_string(),
        "certificate": folder.path().join("pebble.pem"), "privateKey": folder.path().join("pebble.key"),
        "httpPort": plain.port(), "tlsPort": secure(&site).port(), "ocspResponderURL": "",
        "externalAccountBindingRequired": external,
        "externalAccountMACKeys": { "kid-1": "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W" },
        "retryAfter": { "authz": 1, "order": 1 },
        "profiles": { "default": { "description": "x", "validityPeriod": 7_776_000 } },
    } });
    write(folder.path(), "pebble.json", settings.to_string());
    let log = std::fs::File::create(folder.path().join("log")).unwrap();
    let child = Command::new(program)
        .args(["-strict", "-dnsserver", &dns.to_string(), "-config"])
        .arg(folder.path().join("pebble.json"))
        .envs([("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_WFE_NONCEREJECT", "20"), ("PEBBLE_AUTHZREUSE", "0")])
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let _pebble = Running(child);
    // It is there later than the server: until then nothing is obtained.
    let mut last = String::new();
    let began = std::time::Instant::now();
    loop {
        assert!(
            began.elapsed() < HANG,
            "{last}\n{}",
            std::fs::read_to_string(folder.path().join("log")).unwrap_or_default()
        );
        match told(&site) {
            Event::CertificateNotObtained(event) => {
                last = event.to_string();
                println!("{last}");
            }
            _ => break,
        }
    }
    let mut root = Vec::new();
    wait_until("pebble gives its root", || {
        let url = format!("https://{management}/roots/0");
        let output = Command::new("curl").args(["-sk", "--max-time", "100", &url]).output().unwrap();
        root = output.stdout;
        root.starts_with(b"-----BEGIN")
    });
    let trust = Trust::Roots(ringroad_tls::certificates_from_pem(&root).unwrap());
    let client = TlsClient::new(ClientSettings::new(trust)).unwrap();
    let mut tls = Tls::connect(secure(&site), &client, "acme.example.org").unwrap();
    assert!(tls.get("acme.example.org", "/").unwrap().ends_with("hello"));
    site.service.stop().unwrap();
}

drivers!(pebble_issues_by_http_01, |driver: DriverName| {
    by_pebble(driver, "http-01", "[\"acme.example.org\", \"www.example.org\", \"127.0.0.1\"]", false);
});

drivers!(pebble_issues_by_tls_alpn_01_for_an_account_of_its_own, |driver: DriverName| {
    by_pebble(driver, "tls-alpn-01", "[\"acme.example.org\", \"127.0.0.1\"]", true);
});

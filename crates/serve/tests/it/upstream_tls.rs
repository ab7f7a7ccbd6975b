//! Servers behind that speak TLS: which certificates are accepted, the client's own, what the log says.

use crate::support::{Site, start, write};
use crate::tls::Authority;
use rcgen::{CertificateParams, KeyPair};
use ringroad_engine::DriverName;
use ringroad_engine::choose::Wish;
use ringroad_http::{Handle, Request, Server, any};
use ringroad_serve::{Event, Overrides, Source, load};
use ringroad_tls::{ClientAuth, Pair, Server as TlsServer, ServerSettings};
use std::path::Path;
use std::sync::Arc;

/// A server with this pair, which tells its peer's subject and the line `X-Forwarded-Proto`.
fn server(driver: DriverName, pair: Pair, client: Option<ClientAuth>, http2: bool) -> Handle {
    let mut settings = ServerSettings::new(Vec::new());
    settings.client = client;
    let tls = Arc::new(TlsServer::new(settings, vec![pair]).unwrap().0);
    let mut server = Server::new();
    if http2 {
        server = server.http2(ringroad_http::Http2::default());
    }
    let told = any(async |request: Request| {
        let subject = request.connection().and_then(|info| info.tls.clone()?.client_subject.clone());
        let subject = subject.as_deref().unwrap_or("-").to_owned();
        format!("{subject} {:?} {}", request.version(), request.header("x-forwarded-proto").unwrap_or("-"))
    });
    server.bind("127.0.0.1:0").unwrap().driver(Wish::Named(driver)).tls(tls).route("/", told).start().unwrap()
}

fn proxy(driver: DriverName, behind: &Handle, more: &str, prepare: impl FnOnce(&Path)) -> Site {
    let address = behind.bound().tcp().unwrap();
    let routes = format!("[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"https://{address}\"\n{more}\n");
    start(driver, &routes, prepare)
}

/// What the log says of the next request, which fails with 502.
fn refused(site: &Site) -> String {
    let reply = site.client().get("/");
    assert_eq!(reply.status, 502, "{}", reply.text());
    assert!(
        reply.text().contains("no secure connection") || reply.text().contains("did not answer"),
        "{}",
        reply.text()
    );
    match site.event() {
        Event::Fault { why, .. } => why,
        other => panic!("{other}"),
    }
}

drivers!(servers_behind_are_verified_and_their_connections_kept, |driver: DriverName| {
    let authority = Authority::new();
    let behind = server(driver, authority.pair(&["127.0.0.1"]), None, false);
    let site = proxy(driver, &behind, "tls = { ca = \"ca.pem\" }", |folder| {
        write(folder, "ca.pem", authority.pem());
    });
    let mut client = site.client();
    for _ in 0..5 {
        assert_eq!(client.get("/").text(), "- Http11 http");
    }
    assert_eq!(behind.counters().accepted, 1);
});

drivers!(a_certificate_that_is_not_accepted_is_told_with_what_to_do, |driver: DriverName| {
    let (authority, other) = (Authority::new(), Authority::called("Another authority"));
    let expired = authority.sign(|parameters| {
        parameters.subject_alt_names =
            CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().subject_alt_names;
        parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(2020, 2, 1);
    });
    let trusting = |behind: &Handle, more: &str| {
        proxy(driver, behind, &format!("tls = {{ ca = \"ca.pem\"{more} }}"), |folder| {
            write(folder, "ca.pem", authority.pem());
        })
    };
    let why = refused(&trusting(&server(driver, expired, None, false), ""));
    assert!(why.contains("expired") && why.contains("renew"), "{why}");

    let wrong_name = server(driver, authority.pair(&["app.internal"]), None, false);
    let why = refused(&trusting(&wrong_name, ""));
    assert!(why.contains("app.internal") && why.contains("\"127.0.0.1\" was asked for"), "{why}");
    let named = trusting(&wrong_name, ", name = \"app.internal\"");
    assert_eq!(named.client().get("/").status, 200);

    let unknown = server(driver, other.pair(&["127.0.0.1"]), None, false);
    let why = refused(&trusting(&unknown, ""));
    assert!(why.contains("UnknownIssuer") && why.contains("give its authority"), "{why}");
    // Without a key of its own, the system's authorities count.
    if ringroad_tls::Client::system().is_ok() {
        let why = refused(&proxy(driver, &unknown, "", |_| {}));
        assert!(why.contains("UnknownIssuer"), "{why}");
    }
    // A certificate that is trusted itself needs no authority.
    let own = KeyPair::generate().unwrap();
    let own_certificate =
        CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&own).unwrap();
    let pair = Pair::from_pem(&own_certificate.pem(), &own.serialize_pem()).unwrap();
    let alone = server(driver, pair, None, false);
    let site = proxy(driver, &alone, "tls = { ca = \"own.pem\" }", |folder| {
        write(folder, "own.pem", own_certificate.pem());
    });
    assert_eq!(site.client().get("/").status, 200);
});

drivers!(a_server_that_wants_a_certificate_gets_it_or_is_told_of_in_the_log, |driver: DriverName| {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "ca.pem", authority.pem());
    let auth = ClientAuth { authorities: folder.path().join("ca.pem"), required: true, revoked: Vec::new() };
    let behind = server(driver, authority.pair(&["127.0.0.1"]), Some(auth), false);
    let without = proxy(driver, &behind, "tls = { ca = \"ca.pem\" }", |folder| {
        write(folder, "ca.pem", authority.pem());
    });
    let why = refused(&without);
    assert!(why.contains("CertificateRequired") && why.contains("tls = { certificate, key }"), "{why}");
    let own = "tls = { ca = \"ca.pem\", certificate = \"mine/me.pem\", key = \"mine/me.key\" }";
    let with = proxy(driver, &behind, own, |folder| {
        write(folder, "ca.pem", authority.pem());
        authority.put(&folder.join("mine"), "me", &[]);
    });
    assert_eq!(with.client().get("/").text(), "CN=me Http11 http");
});

#[test]
fn settings_of_tls_towards_servers_are_checked() {
    let authority = Authority::new();
    let told = |routes: &str| {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "ca.pem", authority.pem());
        write(folder.path(), "empty.pem", "");
        let file = crate::support::configure(folder.path(), routes);
        load(&Source::File(file), &Overrides::default()).unwrap_err().to_string()
    };
    let route = |more: &str| told(&format!("[[route]]\npath = \"/\"\nkind = \"proxy\"\n{more}\n"));
    for (more, expected) in [
        ("to = \"https://a\"\ntls = { verify = false }", "always verified"),
        ("to = \"http://a\"\ntls = { ca = \"ca.pem\" }", "not https://"),
        ("to = \"https://a\"\ntls = { ca = \"empty.pem\" }", "found none"),
        ("to = \"https://a\"\ntls = { certificate = \"ca.pem\" }", "go together"),
        ("to = \"https://a\"\ntls = { name = \"a b\" }", "expected a DNS name"),
        ("to = \"https://a\"\ntls = { sni = \"a\" }", "sni"),
    ] {
        let why = route(more);
        assert!(why.contains(expected), "{more}: {why}");
    }
    let why = told(
        "[upstream.u]\nservers = [\"http://a\", \"https://b\"]\n[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"upstream:u\"\n",
    );
    assert!(why.contains("make two groups"), "{why}");
}

drivers!(a_group_of_https_servers_speaks_http_2_where_that_is_asked_for, |driver: DriverName| {
    let authority = Authority::new();
    let new = server(driver, authority.pair(&["127.0.0.1"]), None, true);
    let old = server(driver, authority.pair(&["127.0.0.1"]), None, false);
    let site = |behind: &Handle| {
        let group = format!(
            "[upstream.u]\nservers = [\"https://{}\"]\nhttp2 = true\ntls = {{ ca = \"ca.pem\" }}\n\
             [[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"upstream:u\"\n",
            behind.bound().tcp().unwrap()
        );
        start(driver, &group, |folder| write(folder, "ca.pem", authority.pem()))
    };
    let both = site(&new);
    assert_eq!(both.client().get("/").text(), "- Http2 http");
    assert_eq!(both.client().get("/").text(), "- Http2 http");
    assert_eq!(new.counters().accepted, 1);
    let why = refused(&site(&old));
    assert!(why.contains("HTTP/2") || why.contains("NoApplicationProtocol"), "{why}");
});

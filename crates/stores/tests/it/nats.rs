//! NATS: messages between connections, authentication, TLS, servers that go and come back or are none.

use crate::nats_server::NatsServer;
use crate::server::{HANG, on_runtime};
use ringroad_engine::spawn;
use ringroad_stores::nats::{Connection, Event, Nats, NatsError, Settings, Tls};
use std::io::Write;
use std::net::TcpListener;

fn settings(to: &str) -> Settings {
    Settings { connect_timeout: HANG, ..Settings::parse(to).unwrap() }
}

fn nats(settings: Settings) -> Nats {
    Nats::new("main", settings).unwrap()
}

async fn connected(connection: &mut Connection) {
    while connection.next().await != Event::Connected {}
}

fn message(payload: &str) -> Event {
    Event::Message { subject: "news.a".to_owned(), payload: payload.into() }
}

drivers!(a_message_reaches_other_connections_in_order_and_not_its_own, |driver| {
    let Some(server) = NatsServer::start(&[]) else { return };
    on_runtime(driver, async move {
        let nats = nats(settings(&server.address().to_string()));
        let (mut one, mut other) = (nats.connection(&["news.a", "back"]), nats.connection(&["news.a"]));
        let publisher = one.publisher();
        assert_eq!(publisher.publish("news.a", b"early"), Err(NatsError::NotConnected));
        connected(&mut one).await;
        connected(&mut other).await;
        let answers = other.publisher();
        // Sends what is published.
        let reader = spawn(async move { one.next().await });
        let long = "x".repeat(300_000);
        publisher.publish("news.a", b"first\r\nPING\r\n").unwrap();
        publisher.publish("news.a", b"").unwrap();
        publisher.publish("news.b", b"not wanted").unwrap();
        publisher.publish("news.a", long.as_bytes()).unwrap();
        assert_eq!(publisher.publish("news.a", &vec![0; 2 << 20]), Err(NatsError::TooLong));
        for expected in ["first\r\nPING\r\n", "", &long] {
            assert_eq!(other.next().await, message(expected));
        }
        answers.publish("back", b"done").unwrap();
        let sender = spawn(async move { other.next().await });
        let told = reader.await.unwrap();
        assert_eq!(told, Event::Message { subject: "back".to_owned(), payload: b"done".to_vec() });
        drop(sender);
    });
});

drivers!(a_server_that_was_killed_is_told_and_used_again_when_it_is_back, |driver| {
    let Some(mut server) = NatsServer::start(&[]) else { return };
    on_runtime(driver, async move {
        let nats = nats(settings(&server.address().to_string()));
        let (mut one, mut other) = (nats.connection(&["news.a"]), nats.connection(&["news.a"]));
        connected(&mut one).await;
        connected(&mut other).await;
        server.kill();
        assert!(matches!(one.next().await, Event::Lost(_)));
        assert_eq!(one.publisher().publish("news.a", b"lost"), Err(NatsError::NotConnected));
        server.start_again();
        connected(&mut one).await;
        connected(&mut other).await;
        one.publisher().publish("news.a", b"again").unwrap();
        let sender = spawn(async move { one.next().await });
        assert_eq!(other.next().await, message("again"));
        drop(sender);
    });
});

drivers!(a_client_is_known_by_its_password_or_its_token, |driver| {
    for (options, right, wrong) in [
        (&["--user", "ann", "--pass", "p@ss"], "ann:p%40ss@", "ann:other@"),
        (&["--auth", "s3cret", "--name", "x"], "s3cret@", ""),
    ] {
        let Some(server) = NatsServer::start(options) else { return };
        on_runtime(driver, async move {
            let to = server.address();
            connected(&mut nats(settings(&format!("nats://{right}{to}"))).connection(&["a"])).await;
            let mut refused = nats(settings(&format!("nats://{wrong}{to}"))).connection(&["a"]);
            let told = refused.next().await;
            let is_refused = matches!(&told, Event::Lost(why) if why.contains("Authorization Violation"));
            assert!(is_refused, "{told:?}");
        });
    }
});

drivers!(a_server_that_asks_for_tls_is_spoken_to_over_it, |driver| {
    let key = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (cert, secret) = (folder.path().join("cert"), folder.path().join("key"));
    std::fs::write(&cert, key.cert.pem()).unwrap();
    std::fs::write(&secret, key.signing_key.serialize_pem()).unwrap();
    let (cert, secret) = (cert.to_str().unwrap(), secret.to_str().unwrap());
    let Some(server) = NatsServer::start(&["--tls", "--tlscert", cert, "--tlskey", secret]) else { return };
    on_runtime(driver, async move {
        let to = server.address();
        let own = Tls { name: "127.0.0.1".to_owned(), authorities: Some(key.cert.pem().into_bytes()) };
        for scheme in ["nats", "tls"] {
            let trusting = Settings { tls: own.clone(), ..settings(&format!("{scheme}://{to}")) };
            connected(&mut nats(trusting).connection(&["a"])).await;
        }
        let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let other = Tls { authorities: Some(other.cert.pem().into_bytes()), ..own };
        let mut refused = nats(Settings { tls: other, ..settings(&to.to_string()) }).connection(&["a"]);
        assert!(matches!(refused.next().await, Event::Lost(_)));
    });
});

/// A server of a test that says this to each client.
fn saying(text: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.write_all(text.as_bytes());
            // Held open until the client goes.
            std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
        }
    });
    address
}

drivers!(what_is_no_server_of_nats_or_has_no_tls_is_told, |driver| {
    on_runtime(driver, async move {
        for (text, to, expected) in [
            ("SSH-2.0-x\r\n", "nats://", "a line is no operation"),
            ("PING\r\n", "nats://", "does not begin with INFO"),
            ("INFO {\r\n", "nats://", "its INFO is no JSON"),
            ("INFO {}\r\n", "tls://", "does not offer TLS"),
            ("INFO {}\r\n-ERR 'maximum connections exceeded'\r\n", "nats://", "maximum connections exceeded"),
        ] {
            let mut connection = nats(settings(&format!("{to}{}", saying(text)))).connection(&["a"]);
            let told = connection.next().await;
            assert!(matches!(&told, Event::Lost(why) if why.contains(expected)), "{told:?} {expected}");
        }
    });
});

//! Commands and their answers.

use crate::server::{Server, fake, on_runtime, redis, with_servers};
use ringroad_engine::DriverName;
use ringroad_stores::redis::{RedisError, Reply, Script, Settings, Tls};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;

drivers!(commands_are_answered_in_their_order_over_one_connection, |driver| {
    with_servers(driver, &[], |server| async move {
        let redis = redis(server.settings());
        let client = redis.client();
        let pushes: Vec<_> = (0..1000)
            .map(|number| client.command(&["RPUSH".to_owned(), "list".to_owned(), format!("{number}")]))
            .collect();
        // Another of the same thread is the same client.
        let same = redis.client();
        let length = same.command(&["LLEN", "list"]);
        for (at, push) in pushes.into_iter().enumerate() {
            assert_eq!(push.await.unwrap(), Reply::Integer(at as i64 + 1));
        }
        assert_eq!(length.await.unwrap().integer(), Some(1000));
        let big = vec![b'x'; 3 << 20];
        client.command(&[b"SET", &b"big"[..], &big]).await.unwrap();
        assert_eq!(client.command(&["GET", "big"]).await.unwrap().bytes(), Some(&big[..]));
        assert_eq!(client.command(&["GET", "none"]).await.unwrap(), Reply::Null);
        let wrong = client.command(&["INCR", "list"]).await.unwrap_err();
        assert_eq!(wrong.code(), Some("WRONGTYPE"));
        assert_eq!(redis.counters().connected.load(Ordering::Relaxed), 1);
        assert_eq!(redis.counters().answered.load(Ordering::Relaxed), 1005);
    });
});

drivers!(an_answer_that_nothing_waits_for_does_not_shift_the_others, |driver| {
    with_servers(driver, &[], |server| async move {
        let client = redis(server.settings()).client();
        for number in 0..50 {
            let text = number.to_string();
            drop(client.command(&["ECHO", "not awaited"]));
            let answer = client.command(&["ECHO", &text]).await.unwrap();
            assert_eq!(answer.bytes(), Some(text.as_bytes()));
        }
    });
});

drivers!(a_script_is_sent_once_and_again_after_the_server_has_forgotten_it, |driver| {
    with_servers(driver, &[], |server| async move {
        let client = redis(server.settings()).client();
        let script = Script::new("return {KEYS[1], ARGV[1] + 1}");
        let expected = Reply::Array(vec![Reply::Bytes(b"k".to_vec()), Reply::Integer(42)]);
        for _ in 0..2 {
            for _ in 0..3 {
                assert_eq!(client.eval(&script, &[b"k"], &[b"41"]).await.unwrap(), expected);
            }
            client.command(&["SCRIPT", "FLUSH"]).await.unwrap();
        }
        let wrong = Script::new("return redis.error_reply('MINE no')");
        assert_eq!(client.eval(&wrong, &[], &[]).await.unwrap_err().code(), Some("MINE"));
    });
});

drivers!(a_password_and_a_database_are_used_and_a_wrong_password_is_told, |driver| {
    with_servers(driver, &["--requirepass", "secret"], |server| async move {
        let settings = Settings { password: Some("secret".to_owned()), database: 3, ..server.settings() };
        let client = redis(settings.clone()).client();
        client.command(&["SET", "k", "v"]).await.unwrap();
        let other = redis(Settings { database: 0, ..settings.clone() }).client();
        assert_eq!(other.command(&["GET", "k"]).await.unwrap(), Reply::Null);
        let wrong = redis(Settings { password: Some("guess".to_owned()), ..settings }).client();
        match wrong.command(&["GET", "k"]).await {
            Err(RedisError::Lost(why)) => assert!(why.contains("WRONGPASS"), "{why}"),
            other => panic!("{other:?}"),
        }
    });
});

drivers!(a_server_that_knows_no_hello_is_spoken_to_as_before, |driver| {
    let (_, settings) = fake(|mut peer| {
        assert_eq!(peer.command().unwrap()[0], "HELLO");
        peer.answer("-ERR unknown command 'HELLO', with args beginning with: '3' \r\n");
        assert_eq!(peer.command().unwrap(), ["AUTH", "secret"]);
        peer.answer("+OK\r\n");
        assert_eq!(peer.command().unwrap(), ["SELECT", "2"]);
        peer.answer("+OK\r\n");
        assert_eq!(peer.command().unwrap(), ["PING"]);
        peer.answer("+PONG\r\n");
    });
    on_runtime(driver, async move {
        let settings = Settings { password: Some("secret".to_owned()), database: 2, ..settings };
        assert_eq!(redis(settings).client().command(&["PING"]).await.unwrap().bytes(), Some(&b"PONG"[..]));
    });
});

/// A port to listen at, and an open connection of it: as long as that is there, no other process is given the
/// port. A server that says so (SO_REUSEADDR) may listen there beside it.
fn held_port() -> (u16, [TcpStream; 2]) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = TcpStream::connect(address).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    (address.port(), [client, accepted])
}

#[test]
fn a_server_is_reached_over_tls_and_one_with_another_certificate_is_not() {
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let certificate = write("cert.pem", key.cert.pem());
    let secret = write("key.pem", key.signing_key.serialize_pem());
    for program in crate::server::PROGRAMS {
        let (port, _held) = held_port();
        let port = port.to_string();
        let options = [
            "--tls-port",
            &port,
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &secret,
            "--tls-auth-clients",
            "no",
            "--tls-ca-cert-file",
            &certificate,
        ];
        let Some(server) = Server::start(program, &options) else { continue };
        on_runtime(DriverName::Epoll, async {
            let mut settings = Settings::parse(&format!("rediss://127.0.0.1:{port}")).unwrap();
            settings.timeout = crate::server::HANG;
            settings.connect_timeout = crate::server::HANG;
            let own = Tls { name: "127.0.0.1".to_owned(), authorities: Some(key.cert.pem().into_bytes()) };
            let trusting = Settings { tls: Some(own), ..settings.clone() };
            let answer = redis(trusting).client().command(&["ECHO", "over TLS"]).await;
            assert_eq!(answer.unwrap().bytes(), Some(&b"over TLS"[..]));
            let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
            let other =
                Tls { name: "127.0.0.1".to_owned(), authorities: Some(other.cert.pem().into_bytes()) };
            let answer = redis(Settings { tls: Some(other), ..settings }).client().command(&["PING"]).await;
            assert!(matches!(answer, Err(RedisError::Lost(_))), "{answer:?}");
        });
        drop(server);
    }
}

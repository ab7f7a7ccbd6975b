//! Handlers around handlers.

use crate::support::{Client, start};
use ringroad_engine::time::sleep;
use ringroad_engine::{DriverName, sync};
use ringroad_http::{Handler, Request, Response, Server, State, WithState, get, wrap};
use std::sync::mpsc;
use std::time::Duration;

async fn hello(_: Request) -> &'static str {
    "hello"
}

drivers!(a_handler_that_takes_too_long_is_dropped_and_answered_503, |driver: DriverName| {
    let (told, heard) = mpsc::channel();
    let slow = move |_: Request| {
        struct Told(mpsc::Sender<()>);
        impl Drop for Told {
            fn drop(&mut self) {
                self.0.send(()).unwrap();
            }
        }
        let told = Told(told.clone());
        async move {
            let _told = told;
            std::future::pending::<()>().await;
        }
    };
    let server = Server::new()
        .route("/slow", get(wrap::timeout(Duration::from_millis(20), slow)))
        .route("/", get(wrap::timeout(Duration::from_secs(60), hello)));
    let server = start(driver, server);
    let mut client = Client::new(server.address());
    assert_eq!(client.get("/slow").status, 503);
    heard.recv().unwrap();
    assert_eq!(client.get("/").text(), "hello");
});

drivers!(no_more_requests_than_allowed_are_with_a_handler_at_a_time, |driver: DriverName| {
    let (go, wait) = sync::bounded::<()>(10);
    let (told, heard) = mpsc::channel();
    let held = move |_: Request| {
        told.send(()).unwrap();
        let wait = wait.clone();
        async move {
            wait.recv().await.unwrap();
            "through"
        }
    };
    let server = start(driver, Server::new().workers(2).route("/", get(wrap::limit(2, held))));
    let mut inside: Vec<_> = (0..2).map(|_| Client::new(server.address())).collect();
    for client in &mut inside {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        heard.recv().unwrap();
    }
    let mut third = Client::new(server.address());
    let reply = third.get("/");
    assert_eq!(reply.status, 503, "{}", reply.text());
    for _ in 0..2 {
        go.try_send(()).unwrap();
    }
    for client in &mut inside {
        assert_eq!(client.reply().text(), "through");
    }
    go.try_send(()).unwrap();
    assert_eq!(third.get("/").text(), "through");
});

drivers!(every_answer_is_told_to_the_log, |driver: DriverName| {
    let (told, heard) = mpsc::channel();
    let sink = move |record: wrap::Record| told.send(record).unwrap();
    let slow = |_: Request| async {
        sleep(Duration::from_millis(5)).await;
        ringroad_http::Status::ACCEPTED
    };
    let server = Server::new().route("/{*all}", get(wrap::log(sink, slow)));
    let server = start(driver, server);
    assert_eq!(Client::new(server.address()).get("/a?b").status, 202);
    let record = heard.recv().unwrap();
    assert_eq!((record.target.as_str(), record.status.code()), ("/a?b", 202));
    assert!(record.took >= Duration::from_millis(5));
});

/// As a user would write one.
fn tagged<S: 'static, K, H: Handler<S, K>>(handler: H) -> impl Handler<S, WithState> {
    move |request: Request, state: State<S>| {
        let answer = handler.call(request, &state);
        async move { Response::header(answer.await, "X-Tag", "yes") }
    }
}

drivers!(anybody_can_write_a_wrapper, |driver: DriverName| {
    let server = start(driver, Server::new().route("/", get(tagged(tagged(hello)))));
    let reply = Client::new(server.address()).get("/");
    assert_eq!((reply.text(), reply.head.matches("X-Tag: yes").count()), ("hello", 2));
});

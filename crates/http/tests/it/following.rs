//! What our client does by itself: redirects, repeats and cookies.

use crate::support::start;
use ringroad_engine::{DriverName, Runtime};
use ringroad_http::{
    Body, Client, ClientError, CookieJar, FailedAt, Method, Request, Response, Retries, Server, Status, any,
    get,
};
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn run<F: Future>(driver: DriverName, future: F) -> F::Output {
    Runtime::new(driver).unwrap().block_on(future).unwrap()
}

fn quick(count: u32) -> Retries {
    let mut retries = Retries::new(count);
    (retries.base, retries.longest) = (Duration::from_micros(10), Duration::from_millis(1));
    retries
}

/// Says what came: method, path with query, credentials, body.
async fn echo(mut request: Request) -> Response {
    let body = request.bytes(1000).await.unwrap();
    let auth = request.header("authorization").unwrap_or("-");
    let kind = request.header("content-type").unwrap_or("-");
    let target = request.head().target();
    let method = request.method_name();
    Response::text(format!("{method} {target} {auth} {kind} {}", String::from_utf8_lossy(&body)))
}

drivers!(redirects_are_followed_as_browsers_do, |driver: DriverName| {
    let other = start(driver, Server::new().route("/{*all}", any(echo)));
    let elsewhere = format!("http://{}/there", other.address());
    let to = move |request: Request| {
        let elsewhere = elsewhere.clone();
        async move {
            let code: u16 = request.param("code").unwrap().parse().unwrap();
            let target = match request.query() {
                Some("away") => elsewhere,
                Some("loop") => format!("/to/{code}?loop"),
                Some("none") => return Response::empty(Status::new(code).unwrap()),
                _ => "../end?x=1#part".to_owned(),
            };
            let response = Response::text("moved").status(Status::new(code).unwrap());
            response.header("Location", target).unwrap()
        }
    };
    let server = start(driver, Server::new().route("/to/{code}", any(to)).route("/{*all}", any(echo)));
    let base = format!("http://{}", server.address());
    run(driver, async {
        let client = Client::new().redirects(3);
        let ask = async |method: Method, path: &str| {
            let request = client.request(method, &format!("{base}{path}")).bearer_auth("t").body("text");
            request.header("Content-Type", "text/plain").send().await
        };
        let text = async |method, path: &str| ask(method, path).await.unwrap().text().await.unwrap();
        for code in [301, 302, 303] {
            let path = format!("/to/{code}");
            assert_eq!(text(Method::Post, &path).await, "GET /end?x=1 Bearer t - ");
        }
        for code in [307, 308] {
            let path = format!("/to/{code}");
            assert_eq!(text(Method::Post, &path).await, "POST /end?x=1 Bearer t text/plain text");
        }
        assert_eq!(text(Method::Put, "/to/302").await, "PUT /end?x=1 Bearer t text/plain text");
        // Another port is another origin: the token stays here.
        assert_eq!(text(Method::Post, "/to/307?away").await, "POST /there - text/plain text");
        let response = ask(Method::Get, "/to/302?none").await.unwrap();
        assert_eq!(response.status(), Status::FOUND);
        let why = ask(Method::Put, "/to/302?loop").await.unwrap_err().to_string();
        assert!(why.contains("more than 3 redirects"), "{why}");
        // A stream is sent once.
        let (sender, receiver) = ringroad_engine::sync::bounded::<&'static str>(1);
        sender.try_send("text").unwrap();
        drop(sender);
        let request = client.post(&format!("{base}/to/307")).body(Body::stream(receiver));
        assert_eq!(request.send().await.unwrap().status(), Status::TEMPORARY_REDIRECT);
        // Nothing is followed by a client that was not told to.
        let response = Client::new().get(&format!("{base}/to/302")).send().await.unwrap();
        assert_eq!(response.status(), Status::FOUND);
    });
});

drivers!(what_may_be_repeated_is_repeated, |driver: DriverName| {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let busy = move |_: Request| {
        let call = counted.fetch_add(1, Ordering::Relaxed);
        async move {
            if call % 3 < 2 {
                let busy = Response::text("busy").status(Status::SERVICE_UNAVAILABLE);
                return busy.header("Retry-After", "3600").unwrap();
            }
            Response::text(call.to_string())
        }
    };
    let server = start(driver, Server::new().route("/", any(busy)));
    let url = format!("http://{}/", server.address());
    run(driver, async {
        let client = Client::new().retries(quick(2));
        let mut response = client.get(&url).send().await.unwrap();
        assert_eq!((response.status(), response.text().await.unwrap().as_str()), (Status::OK, "2"));
        // One try: a POST may have had an effect.
        assert_eq!(client.post(&url).send().await.unwrap().status(), Status::SERVICE_UNAVAILABLE);
        let once = Client::new().retries(quick(0));
        assert_eq!(once.get(&url).send().await.unwrap().status(), Status::SERVICE_UNAVAILABLE);
        assert_eq!(calls.load(Ordering::Relaxed), 5);
    });
});

drivers!(a_connection_that_ends_without_an_answer_is_tried_again, |driver: DriverName| {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let mut seen = Vec::new();
        for turn in 0..4 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                assert_eq!(stream.read(&mut byte).unwrap(), 1);
                request.push(byte[0]);
            }
            seen.push(String::from_utf8(request).unwrap().split(' ').next().unwrap().to_owned());
            if turn == 1 {
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
                    .unwrap();
            }
        }
        seen
    });
    run(driver, async {
        let client = Client::new().retries(quick(1));
        assert_eq!(client.get(&url).send().await.unwrap().text().await.unwrap(), "ok");
        let failure = client.post(&url).send().await.unwrap_err();
        assert_eq!(failure.at, FailedAt::Head);
        let failure = Client::new().get(&url).send().await.unwrap_err();
        assert!(matches!(failure.why, ClientError::Closed | ClientError::Connection(_)), "{failure}");
    });
    assert_eq!(server.join().unwrap(), ["GET", "GET", "POST", "GET"]);
});

drivers!(cookies_are_kept_and_sent, |driver: DriverName| {
    let set = async |request: Request| {
        let name = request.param("name").unwrap().into_owned();
        Response::redirect(Status::SEE_OTHER, "/show")
            .and_then(|response| response.header("Set-Cookie", format!("{name}=1; Path=/")))
    };
    let show = async |request: Request| request.header("cookie").unwrap_or("none").to_owned();
    let server = start(driver, Server::new().route("/set/{name}", get(set)).route("/show", get(show)));
    let base = format!("http://{}", server.address());
    run(driver, async {
        let jar = CookieJar::new();
        let client = Client::new().redirects(1).cookies(&jar);
        let text = async |path: &str| {
            let mut response = client.get(&format!("{base}{path}")).send().await.unwrap();
            response.text().await.unwrap()
        };
        assert_eq!(text("/show").await, "none");
        assert_eq!(text("/set/a").await, "a=1");
        assert_eq!(text("/set/b").await, "a=1; b=1");
        assert_eq!(jar.len(), 2);
        let mut response =
            client.get(&format!("{base}/show")).header("Cookie", "own=1").send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "own=1");
        jar.clear();
        assert_eq!(text("/show").await, "none");
    });
});

drivers!(values_go_out_and_come_back, |driver: DriverName| {
    #[derive(Debug, Deserialize, PartialEq, Serialize)]
    struct Note {
        text: String,
        page: u32,
    }
    let server = start(driver, Server::new().route("/{*all}", any(echo)));
    let url = format!("http://{}/x", server.address());
    run(driver, async {
        let note = Note { text: "a b".into(), page: 3 };
        let client = Client::new();
        let request = client.post(&format!("{url}?q=1#part")).query(&note).unwrap().json(&note).unwrap();
        let text = request.basic_auth("ada", "pw").send().await.unwrap().text().await.unwrap();
        let json = "{\"text\":\"a b\",\"page\":3}";
        assert_eq!(text, format!("POST /x?q=1&text=a+b&page=3 Basic YWRhOnB3 application/json {json}"));
        let request = client.post(&url).form(&note).unwrap();
        let text = request.send().await.unwrap().text().await.unwrap();
        assert_eq!(text, "POST /x - application/x-www-form-urlencoded text=a+b&page=3");
    });
});

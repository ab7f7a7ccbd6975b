//! hyper's server and client on the bridge, for both versions of HTTP.

use super::{pair, pattern, run};
use ::hyper::body::Incoming;
use ::hyper::rt::Timer as _;
use ::hyper::service::service_fn;
use ::hyper::{Request, Response, Version, client, server};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use ringroad_bridge::{Clock, Io, LocalExecutor};
use ringroad_engine::net::TcpStream;
use ringroad_engine::sim::{Faults, SimConfig};
use ringroad_engine::{DriverName, Runtime, spawn, time};
use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

const LARGE: usize = 4 << 20;

/// Answers with what it was sent.
async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    Ok(Response::new(Full::new(body)))
}

type Sender = Box<dyn FnMut(Request<Full<Bytes>>) -> futures_util::future::LocalBoxFuture<'static, Bytes>>;

/// A client and a server of this version over a connection of their own.
async fn connected(version: Version) -> Sender {
    let (here, there) = pair().await;
    if version == Version::HTTP_2 {
        spawn(async move {
            let builder = server::conn::http2::Builder::new(LocalExecutor);
            builder.serve_connection(Io::gathering(there), service_fn(echo)).await.unwrap();
        })
        .detach();
        let (sender, connection) =
            client::conn::http2::handshake(LocalExecutor, Io::gathering(here)).await.unwrap();
        spawn(connection).detach();
        return Box::new(move |request| {
            let mut sender = sender.clone();
            Box::pin(async move {
                let response = sender.send_request(request).await.unwrap();
                response.into_body().collect().await.unwrap().to_bytes()
            })
        });
    }
    spawn(async move {
        let builder = server::conn::http1::Builder::new();
        builder.serve_connection(Io::new(there), service_fn(echo)).await.unwrap();
    })
    .detach();
    let (sender, connection) = client::conn::http1::handshake(Io::new(here)).await.unwrap();
    spawn(connection).detach();
    // Here while no request is on its way.
    let sender = Rc::new(Cell::new(Some(sender)));
    Box::new(move |request| {
        let home = Rc::clone(&sender);
        Box::pin(async move {
            let mut sender = home.take().expect("one request at a time");
            sender.ready().await.unwrap();
            let response = sender.send_request(request).await.unwrap();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            home.set(Some(sender));
            body
        })
    })
}

fn request(body: Vec<u8>) -> Request<Full<Bytes>> {
    Request::post("http://a/").header("host", "a").body(Full::new(Bytes::from(body))).unwrap()
}

fn exchanges(driver: DriverName) {
    run(driver, async {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let mut send = connected(version).await;
            assert_eq!(send(request(b"hello".to_vec())).await, "hello");
            assert!(send(request(pattern(LARGE))).await == pattern(LARGE), "{version:?}");
            assert_eq!(send(request(b"again".to_vec())).await, "again");
        }
    });
}
drivers!(hyper_serves_and_asks_with_small_and_large_bodies, exchanges);

fn concurrent(driver: DriverName) {
    run(driver, async {
        let mut send = connected(Version::HTTP_2).await;
        let all: Vec<_> = (0..64).map(|at| (at, spawn(send(request(pattern(at * 1000)))))).collect();
        for (at, answer) in all {
            assert!(answer.await.unwrap() == pattern(at * 1000), "{at}");
        }
    });
}
drivers!(many_streams_share_a_connection, concurrent);

fn cancelled(driver: DriverName) {
    run(driver, async {
        let dropped = Rc::new(Cell::new(0));
        struct Guard(Rc<Cell<u32>>);
        impl Drop for Guard {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }
        let (here, there): (TcpStream, TcpStream) = pair().await;
        let seen = Rc::clone(&dropped);
        let service = service_fn(move |request: Request<Incoming>| {
            let guard = Guard(Rc::clone(&seen));
            async move {
                if request.uri().path() == "/never" {
                    let _guard = guard;
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"there"))))
            }
        });
        spawn(async move {
            let mut builder = server::conn::http2::Builder::new(LocalExecutor);
            let serving = builder.timer(Clock).serve_connection(Io::gathering(there), service);
            let _ = serving.await;
        })
        .detach();
        let (mut sender, connection) =
            client::conn::http2::handshake(LocalExecutor, Io::gathering(here)).await.unwrap();
        spawn(connection).detach();
        let never = Request::get("http://a/never").body(Full::new(Bytes::new())).unwrap();
        time::timeout(Duration::from_millis(50), sender.send_request(never)).await.unwrap_err();
        // The server's handler ends with the stream, and the connection goes on.
        while dropped.get() == 0 {
            time::sleep(Duration::from_millis(1)).await;
        }
        let body = sender.send_request(request(Vec::new())).await.unwrap().into_body();
        assert_eq!(body.collect().await.unwrap().to_bytes(), "there");
    });
}
drivers!(a_request_that_its_client_drops_ends_its_handler_and_not_the_connection, cancelled);

fn timers(driver: DriverName) {
    run(driver, async {
        let (here, there) = pair().await;
        let mut builder = server::conn::http1::Builder::new();
        // A client that sends no head is closed: by the timer, since nothing else happens.
        builder.timer(Clock).header_read_timeout(Duration::from_millis(20));
        let served = builder.serve_connection(Io::new(there), service_fn(echo)).await;
        assert!(served.unwrap_err().is_timeout());
        drop(here);
    });
}
drivers!(hypers_deadlines_run_on_the_engines_timers, timers);

#[test]
fn hypers_clock_is_virtual_in_a_simulation() {
    const HOUR: Duration = Duration::from_secs(3600);
    let config = SimConfig::new(7, Faults::none());
    let runtime = Runtime::builder(DriverName::Sim).sim(config).build().unwrap();
    let passed = runtime.block_on(async {
        let begin = Clock.now();
        Clock.sleep(HOUR).await;
        assert!(Clock.now() >= begin + HOUR);
        Clock.sleep_until(begin + 2 * HOUR).await;
        time::now() - begin
    });
    let passed = passed.unwrap();
    assert!((2 * HOUR..2 * HOUR + Duration::from_secs(1)).contains(&passed), "{passed:?}");
    // A pool of connections that outlives the runtime.
    Clock.now();
}

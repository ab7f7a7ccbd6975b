//! A client that keeps to the rules: the `h2` crate's, on the engine.

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest, handshake};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use ringroad_bridge::Io;
use ringroad_engine::net::TcpStream;
use ringroad_engine::{DriverName, JoinHandle, Runtime, spawn};
use std::net::SocketAddr;

/// Runs `work` on a runtime of this driver.
pub(crate) fn run<F: Future + 'static>(driver: DriverName, work: F) -> F::Output {
    Runtime::new(driver).unwrap().block_on(work).unwrap()
}

/// One connection.
pub(crate) struct Client {
    pub(crate) sender: SendRequest<Bytes>,
    /// How the connection ended.
    pub(crate) ended: JoinHandle<Result<(), h2::Error>>,
}

/// A response with all of its body.
pub(crate) struct Reply {
    pub(crate) head: Response<()>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Reply {
    pub(crate) fn status(&self) -> u16 {
        self.head.status().as_u16()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.headers().get(name).map(|value| value.to_str().unwrap())
    }
}

/// What is left of a response, behind its head.
pub(crate) async fn read(response: Response<RecvStream>) -> Result<Reply, h2::Error> {
    let (parts, mut body) = response.into_parts();
    let mut all = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        all.extend_from_slice(&piece);
    }
    let trailers = body.trailers().await?;
    Ok(Reply { head: Response::from_parts(parts, ()), body: all, trailers })
}

/// Sends all of `bytes`, as flow control lets it.
pub(crate) async fn send_all(stream: &mut SendStream<Bytes>, mut bytes: Bytes, end: bool) {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = std::future::poll_fn(|context| stream.poll_capacity(context)).await.unwrap().unwrap();
        let piece = bytes.split_to(room.min(bytes.len()));
        stream.send_data(piece, false).unwrap();
    }
    if end {
        stream.send_data(Bytes::new(), true).unwrap();
    }
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) = handshake(Io::gathering(stream)).await.unwrap();
        Client { sender, ended: spawn(connection) }
    }

    /// Begins a request.
    pub(crate) async fn begin(
        &mut self,
        request: Request<()>,
        end: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        self.sender.clone().ready().await?.send_request(request, end)
    }

    /// Asks, and waits for all of the answer.
    pub(crate) async fn ask(
        &mut self,
        request: Request<()>,
        body: impl Into<Bytes>,
    ) -> Result<Reply, h2::Error> {
        let body = body.into();
        let (response, mut stream) = self.begin(request, body.is_empty()).await?;
        if !body.is_empty() {
            spawn(async move { send_all(&mut stream, body, true).await }).detach();
        }
        read(response.await?).await
    }

    pub(crate) async fn get(&mut self, path: &str) -> Reply {
        self.ask(get(path), Bytes::new()).await.unwrap()
    }
}

pub(crate) fn get(path: &str) -> Request<()> {
    Request::get(format!("http://a{path}")).body(()).unwrap()
}

pub(crate) fn post(path: &str) -> Request<()> {
    Request::post(format!("http://a{path}")).body(()).unwrap()
}

/// The code that a failed request or connection has.
pub(crate) fn code(why: &h2::Error) -> Option<Reason> {
    why.reason()
}

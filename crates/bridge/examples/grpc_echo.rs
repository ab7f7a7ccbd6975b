//! `grpc_echo ADDR`: a gRPC service with one unary and one streaming method, by tonic on the engine, and a
//! client that asks it.
//!
//! tonic's own server and channel spawn on tokio's runtime. Its codec does not: the service is a function
//! from request to response, and a client stands on any tower service. The messages are derived, so nothing
//! is generated.

use http::uri::PathAndQuery;
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use ringroad_bridge::{Io, LocalExecutor};
use ringroad_engine::net::{TcpListener, TcpStream};
use ringroad_engine::{Runtime, spawn};
use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, Ready, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::server::{StreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

/// The message of both methods.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Text {
    #[prost(string, tag = "1")]
    pub(crate) text: String,
}

type Codec = ProstCodec<Text, Text>;

struct Once;

impl UnaryService<Text> for Once {
    type Response = Text;
    type Future = Ready<Result<Response<Text>, Status>>;

    fn call(&mut self, request: Request<Text>) -> Self::Future {
        let text = request.into_inner();
        ready(if text.text.is_empty() {
            Err(Status::invalid_argument("there is no text"))
        } else {
            Ok(Response::new(text))
        })
    }
}

struct Each;

impl StreamingService<Text> for Each {
    type Response = Text;
    type ResponseStream = Streaming<Text>;
    type Future = Ready<Result<Response<Streaming<Text>>, Status>>;

    fn call(&mut self, request: Request<Streaming<Text>>) -> Self::Future {
        // What comes in goes out.
        ready(Ok(Response::new(request.into_inner())))
    }
}

async fn answer(request: http::Request<Incoming>) -> Result<http::Response<Body>, Infallible> {
    let mut grpc = tonic::server::Grpc::new(Codec::default());
    Ok(match request.uri().path() {
        "/echo.Echo/Once" => grpc.unary(Once, request).await,
        "/echo.Echo/Each" => grpc.streaming(Each, request).await,
        _ => Status::unimplemented("there is no such method").into_http(),
    })
}

/// Serves one connection until its client closes it.
pub(crate) async fn serve(stream: TcpStream) -> Result<(), hyper::Error> {
    http2::Builder::new(LocalExecutor).serve_connection(Io::gathering(stream), service_fn(answer)).await
}

/// A connection of a client, as a tower service.
#[derive(Clone)]
pub(crate) struct Channel(SendRequest<Body>);

impl tower_service::Service<http::Request<Body>> for Channel {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Incoming>, hyper::Error>>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let mut sender = self.0.clone();
        Box::pin(async move { sender.send_request(request).await })
    }
}

/// The client of the service.
pub(crate) struct Client(tonic::client::Grpc<Channel>);

impl Client {
    /// Begins to speak HTTP/2 on a connection.
    pub(crate) async fn new(stream: TcpStream) -> Result<Client, Box<dyn Error>> {
        let io = Io::gathering(stream);
        let (sender, connection) = hyper::client::conn::http2::handshake(LocalExecutor, io).await?;
        spawn(connection).detach();
        let origin = http::Uri::from_static("http://localhost");
        Ok(Client(tonic::client::Grpc::with_origin(Channel(sender), origin)))
    }

    /// Sends one message and returns the answer.
    pub(crate) async fn once(&mut self, text: &str) -> Result<String, Status> {
        self.ready().await?;
        let request = Request::new(Text { text: text.to_owned() });
        let path = PathAndQuery::from_static("/echo.Echo/Once");
        let answer: Response<Text> = self.0.unary(request, path, Codec::default()).await?;
        Ok(answer.into_inner().text)
    }

    /// Sends messages, and returns the stream of the answers.
    pub(crate) async fn each(
        &mut self,
        texts: impl futures_util::Stream<Item = Text> + Send + 'static,
    ) -> Result<Streaming<Text>, Status> {
        self.ready().await?;
        let path = PathAndQuery::from_static("/echo.Echo/Each");
        Ok(self.0.streaming(Request::new(texts), path, Codec::default()).await?.into_inner())
    }

    async fn ready(&mut self) -> Result<(), Status> {
        self.0.ready().await.map_err(|why| Status::unavailable(why.to_string()))
    }
}

#[allow(dead_code, reason = "the tests use this file as well")]
fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let address: SocketAddr = address.parse()?;
    Runtime::auto()?.block_on(async move {
        let mut listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        spawn(async move {
            while let Ok(stream) = listener.accept().await {
                spawn(async move { drop(serve(stream).await) }).detach();
            }
        })
        .detach();
        let mut client = Client::new(TcpStream::connect(address).await?).await?;
        println!("{}", client.once("hello").await?);
        let texts = ["one", "two"].map(|text| Text { text: text.to_owned() });
        let mut answers = client.each(futures_util::stream::iter(texts)).await?;
        while let Some(answer) = answers.message().await? {
            println!("{}", answer.text);
        }
        Ok(())
    })?
}

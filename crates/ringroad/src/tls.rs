//! TLS: streams, certificates, clients and servers, and sessions without I/O.
//!
//! [`TlsStream`] wraps a TCP or Unix stream. It implements the traits of [`io`](crate::io), as that stream
//! does:
//!
//! ```
//! use ringroad::io::{AsyncReadExt, AsyncWrite};
//! use ringroad::net::{TcpListener, TcpStream};
//! use ringroad::tls::{Client, ClientSettings, Server, ServerSettings, TlsStream, Trust, self_signed};
//! use ringroad::{task::spawn, time::timeout};
//! use std::time::Duration;
//!
//! ringroad::run(async {
//!     // A certificate for this test. Others come from files: `Place`, or `Pair::from_pem`.
//!     let pair = self_signed(["localhost".to_owned()])?;
//!     let trust = Trust::Given(pair.chain.clone());
//!     let (server, _) = Server::new(ServerSettings::new(Vec::new()), vec![pair])?;
//!     let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into())?;
//!     let address = listener.local_addr()?;
//!     let served = spawn(async move {
//!         let stream = listener.accept().await?;
//!         // A client that says nothing has ten seconds.
//!         let shaken = timeout(Duration::from_secs(10), TlsStream::accept(stream, &server)).await;
//!         let mut stream = shaken??;
//!         let question = stream.read_to_string().await?;
//!         stream.write_all(format!("{question}? yes")).await.0?;
//!         stream.shutdown().await?;
//!         Ok::<(), Box<dyn std::error::Error>>(())
//!     });
//!
//!     // `Client::system()` trusts what this system trusts.
//!     let client = Client::new(ClientSettings::new(trust))?;
//!     let stream = TcpStream::connect(address).await?;
//!     let mut stream = TlsStream::connect(stream, &client, "localhost").await?;
//!     stream.write_all("encrypted").await.0?;
//!     stream.shutdown().await?; // the end of the question; the answer can still be read
//!     assert_eq!(stream.read_to_string().await?, "encrypted? yes");
//!     served.await.unwrap()
//! })??;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - If a stream is dropped without [`shutdown`](crate::io::AsyncWrite::shutdown), the peer gets an error at
//!   its end, because the received data may have been truncated.
//! - Both settings name HTTP/1.1 as their protocol (ALPN). For another one both sides set `alpn`.
//! - [`Split::into_split`](crate::io::Split::into_split) returns halves for two tasks. Call `finish` on the
//!   sending half at the end: it sends the end of the data (`close_notify`).
//! - Why a handshake failed is a [`HandshakeError`], and with [`HandshakeError::Tls`] a [`TlsErrorKind`].
//! - [`Server::refresh`] reads the certificates again while the server runs.
//! - The HTTP library takes both: [`http::Server::tls`](crate::http::Server::tls),
//!   [`http::Client::tls`](crate::http::Client::tls).

#[doc(no_inline)]
pub use ringroad_http::{HandshakeError, TlsStream};
#[doc(inline)]
pub use ringroad_tls::*;

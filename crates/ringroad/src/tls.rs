//! TLS: streams, certificates, clients and servers, and sessions without I/O.
//!
//! [`TlsStream`] lies over a TCP or Unix stream, and has the traits of [`io`](crate::io), as that has:
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
//! - A stream that is dropped without [`shutdown`](crate::io::AsyncWrite::shutdown) ends for its peer with an
//!   error, since what came may have been cut.
//! - Both settings name HTTP/1.1 as their protocol (ALPN). For another one both sides set `alpn`.
//! - [`Split::into_split`](crate::io::Split::into_split) gives halves for two tasks. `finish` of the sending
//!   one is its end, with what TLS has to say about that.
//! - Why a handshake failed is a [`HandshakeError`], and with [`HandshakeError::Tls`] a [`TlsErrorKind`].
//! - [`Server::refresh`] takes certificates anew while the server runs.
//! - The HTTP library takes both: [`http::Server::tls`](crate::http::Server::tls),
//!   [`http::Client::tls`](crate::http::Client::tls).

#[doc(no_inline)]
pub use ringroad_http::{HandshakeError, TlsStream};
#[doc(inline)]
pub use ringroad_tls::*;

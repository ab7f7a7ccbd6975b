//! The owner of a buffer, and which types can be sent.
//!
//! The kernel may read or write a buffer until it reports that the operation is over, also after the future
//! was dropped. So an operation takes its buffer by value, and returns it with the result:
//!
//! ```
//! use ringroad::net::UnixStream;
//!
//! ringroad::run(async {
//!     let (mut near, mut far) = UnixStream::pair()?;
//!     let request = Vec::from("question");
//!     let (sent, mut request) = near.write_all(request).await;
//!     sent?;
//!     request.clear(); // its memory can be used again
//!
//!     let (received, buffer) = far.recv_into(Vec::with_capacity(64)).await;
//!     assert_eq!((received?, &*buffer), (8, &b"question"[..]));
//!     Ok::<(), ringroad::Error>(())
//! })??;
//! # Ok::<(), ringroad::Error>(())
//! ```
//!
//! A borrowed slice cannot be sent, and the compiler says so. What can be sent ([`IoBuf`](crate::IoBuf)):
//! `Vec<u8>`, `Box<[u8]>`, `String`, arrays, `&'static` bytes and text, `Rc<[u8]>`, `Arc<[u8]>`, `Bytes`,
//! `BytesMut`, [`Lease`](crate::Lease), [`Pages`](crate::Pages). `Arc<[u8]>` and `Bytes` send the same
//! bytes to many peers without a copy for each.
//!
//! # Leases
//! [`recv`](crate::net::TcpStream::recv) returns a [`Lease`](crate::Lease): the bytes in the buffer that they
//! arrived in, out of a pool of the runtime. A connection that waits has no buffer. Drop the lease before you
//! wait for anything else, or send it on, which copies nothing:
//!
//! ```
//! use ringroad::net::{TcpStream, UnixStream};
//!
//! async fn echo(mut stream: UnixStream) -> ringroad::Result<()> {
//!     loop {
//!         let lease = stream.recv().await?;
//!         if lease.is_empty() {
//!             return Ok(()); // the end of the stream
//!         }
//!         stream.write_all(lease).await.0?;
//!     }
//! }
//! # ringroad::run(async {
//! #     let (mut near, far) = UnixStream::pair()?;
//! #     near.write_all("x").await.0?;
//! #     near.shutdown(std::net::Shutdown::Write)?;
//! #     echo(far).await
//! # })??;
//! # Ok::<(), ringroad::Error>(())
//! ```
//!
//! # Traits
//! [`AsyncRead`](crate::io::AsyncRead) and [`AsyncWrite`](crate::io::AsyncWrite) are implemented for TCP and
//! Unix streams and their halves, TLS, pipes and files. [`BufReader`](crate::io::BufReader) reads lines,
//! [`BufWriter`](crate::io::BufWriter) collects small writes, [`Framed`](crate::io::Framed) runs a codec,
//! [`copy_bidirectional`](crate::io::copy_bidirectional) is a proxy:
//!
//! ```
//! use ringroad::{io::{AsyncWrite, BufReader, BufWriter}, net::UnixStream};
//!
//! ringroad::run(async {
//!     let (near, far) = UnixStream::pair()?;
//!     let mut writer = BufWriter::new(near);
//!     for number in 0..3 {
//!         writer.write_slice(format!("line {number}\r\n").as_bytes()).await?;
//!     }
//!     writer.shutdown().await?;
//!     let mut lines = BufReader::new(far).with_limit(8 * 1024).lines();
//!     let mut count = 0;
//!     while let Some(line) = lines.next_line().await? {
//!         assert_eq!(line, format!("line {count}"));
//!         count += 1;
//!     }
//!     assert_eq!(count, 3);
//!     Ok::<(), ringroad::Error>(())
//! })??;
//! # Ok::<(), ringroad::Error>(())
//! ```

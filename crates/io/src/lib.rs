//! I/O over owned buffers: the traits that streams, pipes and files share, and what is built on them.
//!
//! A completion engine owns a buffer until the kernel has finished with it. So [`AsyncRead::read`] and
//! [`AsyncWrite::write_all`] take a buffer by value and return it with the result, also on an error. A reader
//! that has a buffer already gives it away as a [`Lease`] ([`AsyncRead::recv`]), without a copy.
//!
//! ```
//! use ringroad_engine::{DriverName, Runtime, net::UnixStream, spawn};
//! use ringroad_io::{AsyncWrite, BufReader};
//!
//! Runtime::new(DriverName::Epoll)?.block_on(async {
//!     let (mut near, far) = UnixStream::pair()?;
//!     spawn(async move {
//!         near.write_all("one\ntwo\n".to_owned()).await.0.unwrap();
//!     })
//!     .detach();
//!     let mut lines = BufReader::new(far).lines();
//!     while let Some(line) = lines.next_line().await? {
//!         println!("{line}");
//!     }
//!     Ok::<(), ringroad_engine::Error>(())
//! })??;
//! # Ok::<(), ringroad_engine::Error>(())
//! ```
//!
//! | for | use |
//! |---|---|
//! | lines, delimiters, a number of bytes | [`BufReader`] |
//! | many small writes | [`BufWriter`] |
//! | a protocol of frames | [`Framed`] with one of the traits in [`codec`] |
//! | one stream into another | [`copy`], [`copy_bidirectional`] |
//! | a file from its start | [`Cursor`](std::io::Cursor) around an [`fs::File`](ringroad_engine::fs::File) |
//! | child processes | [`process`] |
//! | descriptors for another process | [`DescriptorSocket`] |
//! | pipes, standard input and output | [`pipe`], [`stdin`], [`stdout`], [`stderr`] |
//!
//! Crates that are written for the traits of tokio, futures or hyper need the crate `ringroad-bridge`.
#![forbid(unsafe_code)]

mod buffered;
mod copy;
mod descriptors;
mod framed;
mod impls;
mod lines;
mod pipe;
pub mod process;
mod traits;
mod writer;

/// The codecs of `tokio-util`: the traits, and codecs for lines and for frames with a length.
pub mod codec {
    pub use tokio_util::codec::{
        AnyDelimiterCodec, AnyDelimiterCodecError, BytesCodec, Decoder, Encoder, LengthDelimitedCodec,
        LengthDelimitedCodecError, LinesCodec, LinesCodecError, length_delimited,
    };
}

pub use buffered::BufReader;
pub use copy::{copy, copy_bidirectional};
pub use descriptors::{DESCRIPTORS_MAX, DescriptorSocket};
pub use framed::Framed;
pub use lines::Lines;
pub use pipe::{PipeReader, PipeWriter, pipe, stderr, stdin, stdout};
pub use ringroad_engine::{AnyBuf, IoBuf, IoBufMut, Lease};
pub use traits::{AsyncRead, AsyncReadExt, AsyncWrite, Split};
pub use writer::BufWriter;

use ringroad_engine::Error;
use std::io;

/// Default limit of the bytes that a reader collects for one line or one call: 1 MiB.
pub const LIMIT: usize = 1 << 20;

#[cold]
fn ended(wanted: usize, got: usize) -> Error {
    let why = format!("the stream ended after {got} of {wanted} bytes");
    Error::layered("read", io::Error::new(io::ErrorKind::UnexpectedEof, why))
}

#[cold]
fn too_long(limit: usize) -> Error {
    let why =
        format!("more than the limit of {limit} bytes without an end: raise the limit, or refuse the peer");
    Error::layered("read", io::Error::new(io::ErrorKind::InvalidData, why))
}

#[cold]
fn not_text(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::layered("read", io::Error::new(io::ErrorKind::InvalidData, why))
}

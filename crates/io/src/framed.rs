//! Messages over a stream of bytes, by a codec.

use crate::codec::{Decoder, Encoder};
use crate::traits::{AsyncRead, AsyncWrite};
use bytes::BytesMut;
use ringroad_engine::sync::budget::counted;
use std::io;

/// Encoded bytes that [`Framed::feed`] collects before it writes.
const COLLECTED: usize = 64 * 1024;

/// A stream of messages: a byte stream with a codec.
///
/// The codec implements the codec traits of `tokio-util`, so the codecs of that crate and of other crates can
/// be used ([`codec`](crate::codec)). The codec bounds the length of a message. With a `Framed` over each
/// half of a stream, two tasks receive and send at once.
///
/// ```
/// # use ringroad_engine::{DriverName, Runtime, net::UnixStream};
/// use ringroad_io::{Framed, codec::LengthDelimitedCodec};
///
/// Runtime::new(DriverName::Epoll)?.block_on(async {
///     let (near, far) = UnixStream::pair()?;
///     let mut near = Framed::new(near, LengthDelimitedCodec::new());
///     let mut far = Framed::new(far, LengthDelimitedCodec::new());
///     near.send(&b"a message"[..]).await?;
///     assert_eq!(far.next().await.unwrap()?, "a message");
///     Ok::<(), std::io::Error>(())
/// })??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Framed<S, C> {
    stream: S,
    codec: C,
    received: BytesMut,
    /// Encoded messages that were not written.
    unsent: BytesMut,
    has_ended: bool,
    /// The last message was an error.
    has_failed: bool,
}

impl<S, C> Framed<S, C> {
    /// Makes a stream of messages.
    pub fn new(stream: S, codec: C) -> Framed<S, C> {
        let (received, unsent) = (BytesMut::new(), BytesMut::new());
        Framed { stream, codec, received, unsent, has_ended: false, has_failed: false }
    }

    /// Makes a stream of messages that begins with bytes that were received before: those behind what another
    /// reader has read, as [`BufReader::into_parts`](crate::BufReader::into_parts) returns them.
    pub fn with_received(stream: S, codec: C, received: &[u8]) -> Framed<S, C> {
        Framed { received: BytesMut::from(received), ..Framed::new(stream, codec) }
    }

    /// Replaces the codec. Bytes that were received and not decoded, or encoded and not written, are kept.
    ///
    /// ```
    /// # use ringroad_engine::{DriverName, Runtime, net::UnixStream};
    /// use ringroad_io::{Framed, codec::{LengthDelimitedCodec, LinesCodec}};
    ///
    /// Runtime::new(DriverName::Epoll)?.block_on(async {
    ///     let (mut near, far) = UnixStream::pair()?;
    ///     near.write_all("frames please\n\0\0\0\x03one").await.0?;
    ///     let mut lines = Framed::new(far, LinesCodec::new());
    ///     assert_eq!(lines.next().await.unwrap()?, "frames please");
    ///     let mut frames = lines.map_codec(|_| LengthDelimitedCodec::new());
    ///     assert_eq!(frames.next().await.unwrap()?, "one");
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })??;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn map_codec<D>(self, change: impl FnOnce(C) -> D) -> Framed<S, D> {
        let Framed { stream, codec, received, unsent, has_ended, has_failed } = self;
        Framed { stream, codec: change(codec), received, unsent, has_ended, has_failed }
    }

    /// Returns the stream.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Returns the stream. Bytes that were received but not decoded are in this `Framed`, not in the stream.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Returns the codec.
    pub fn codec_mut(&mut self) -> &mut C {
        &mut self.codec
    }

    /// Returns the stream, and the bytes that were received and not decoded. Bytes that were encoded and not
    /// written are lost.
    pub fn into_parts(self) -> (S, BytesMut) {
        (self.stream, self.received)
    }
}

impl<S: AsyncRead, C: Decoder> Framed<S, C> {
    /// Receives the next message; `None` at the end. Dropping the future loses nothing.
    ///
    /// # Errors
    /// Those of the stream and the codec; also if the stream ends within a message. After an error, the next
    /// call returns `None`, so that a loop over the messages ends; many codecs would return the same error
    /// for ever. The call after that decodes again, which works if the codec can continue (`LinesCodec` after
    /// a line that is too long).
    pub async fn next(&mut self) -> Option<Result<C::Item, C::Error>> {
        counted(self.next_uncounted()).await
    }

    async fn next_uncounted(&mut self) -> Option<Result<C::Item, C::Error>> {
        if std::mem::take(&mut self.has_failed) {
            return None;
        }
        let next = self.received().await;
        self.has_failed = matches!(next, Some(Err(_)));
        next
    }

    async fn received(&mut self) -> Option<Result<C::Item, C::Error>> {
        loop {
            let decoded = match self.has_ended {
                true => self.codec.decode_eof(&mut self.received),
                false => self.codec.decode(&mut self.received),
            };
            match decoded {
                Ok(None) if self.has_ended => return None,
                Ok(None) => {}
                decoded => return decoded.transpose(),
            }
            match self.stream.recv().await {
                Ok(lease) if lease.is_empty() => self.has_ended = true,
                Ok(lease) => self.received.extend_from_slice(&lease),
                Err(why) => return Some(Err(io::Error::from(why).into())),
            }
        }
    }
}

impl<S: AsyncWrite, C> Framed<S, C> {
    /// Encodes a message and writes it. Dropping the future breaks a stream, unless nothing of the message
    /// was sent.
    ///
    /// # Errors
    /// Those of the codec and the stream.
    pub async fn send<M>(&mut self, message: M) -> Result<(), <C as Encoder<M>>::Error>
    where
        C: Encoder<M>,
    {
        self.codec.encode(message, &mut self.unsent)?;
        self.flush().await.map_err(Into::into)
    }

    /// Encodes a message, to be written with the next [`flush`](Self::flush). Writes if 64 KiB are collected.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn feed<M>(&mut self, message: M) -> Result<(), <C as Encoder<M>>::Error>
    where
        C: Encoder<M>,
    {
        self.codec.encode(message, &mut self.unsent)?;
        if self.unsent.len() >= COLLECTED {
            self.flush().await?;
        }
        Ok(())
    }

    /// Writes what was encoded.
    ///
    /// # Errors
    /// Those of the stream.
    pub async fn flush(&mut self) -> io::Result<()> {
        if !self.unsent.is_empty() {
            let unsent = std::mem::take(&mut self.unsent);
            let (written, mut buffer) = self.stream.write_all(unsent).await;
            buffer.clear();
            self.unsent = buffer;
            written?;
        }
        self.stream.flush().await.map_err(Into::into)
    }

    /// Writes the encoded bytes, then ends the stream.
    ///
    /// # Errors
    /// Those of the stream.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        self.flush().await?;
        self.stream.shutdown().await.map_err(Into::into)
    }
}

//! Copies from one stream to another.

use crate::traits::{AsyncRead, AsyncWrite, Split};
use ringroad_engine::Result;
use ringroad_engine::sync::budget::Turns;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

/// Copies everything from `from` to `to`; returns the number of bytes. The sink is flushed and not shut down.
///
/// Between streams the bytes are sent from the buffer that they arrived in. A stream that carries bulk data
/// receives into large buffers.
///
/// Dropping the future leaves it unknown how much of the last piece was written.
///
/// # Errors
/// Those of either side.
pub async fn copy<R: AsyncRead, W: AsyncWrite>(from: &mut R, to: &mut W) -> Result<u64> {
    let mut copied = 0;
    loop {
        let lease = from.recv().await?;
        if lease.is_empty() {
            to.flush().await?;
            return Ok(copied);
        }
        copied += lease.len() as u64;
        to.write_lease(lease).await?;
    }
}

/// Copies both ways between two streams until both have ended. Returns the number of bytes from the first to
/// the second, and back. When one stream ends, the sending side of the other is ended too; the other may go
/// on sending.
///
/// ```
/// # use ringroad_engine::{DriverName, Runtime, net::UnixStream, spawn};
/// # use ringroad_io::{AsyncReadExt, AsyncWrite, copy_bidirectional};
/// Runtime::new(DriverName::Epoll)?.block_on(async {
///     let (mut client, one) = UnixStream::pair()?;
///     let (other, mut server) = UnixStream::pair()?;
///     let proxy = spawn(copy_bidirectional(one, other));
///     client.write_all(*b"question").await.0?;
///     AsyncWrite::shutdown(&mut client).await?;
///     assert_eq!(server.read_to_string().await?, "question");
///     server.write_all(*b"yes").await.0?;
///     drop(server);
///     assert_eq!(client.read_to_string().await?, "yes");
///     assert_eq!(proxy.await.unwrap()?, (8, 3));
///     Ok::<(), ringroad_engine::Error>(())
/// })??;
/// # Ok::<(), ringroad_engine::Error>(())
/// ```
///
/// # Errors
/// Those of either side. The other direction is dropped then.
pub async fn copy_bidirectional<A: Split, B: Split>(one: A, other: B) -> Result<(u64, u64)> {
    let (mut from_one, mut to_one) = one.into_split();
    let (mut from_other, mut to_other) = other.into_split();
    let mut there = pin!(one_way(&mut from_one, &mut to_other));
    let mut back = pin!(one_way(&mut from_other, &mut to_one));
    both(there.as_mut(), back.as_mut()).await
}

/// Waits for two futures, or the first error. They take [turns](Turns) in being polled first.
pub(crate) async fn both<T, U, E>(
    mut one: Pin<&mut impl Future<Output = std::result::Result<T, E>>>,
    mut other: Pin<&mut impl Future<Output = std::result::Result<U, E>>>,
) -> std::result::Result<(T, U), E> {
    let (mut first, mut second) = (None, None);
    let mut turns = Turns::default();
    poll_fn(|context| {
        for polls_one in turns.round() {
            if polls_one
                && first.is_none()
                && let Poll::Ready(result) = one.as_mut().poll(context)
            {
                first = Some(result?);
            }
            if !polls_one
                && second.is_none()
                && let Poll::Ready(result) = other.as_mut().poll(context)
            {
                second = Some(result?);
            }
        }
        match (first.take(), second.take()) {
            (Some(one), Some(other)) => Poll::Ready(Ok((one, other))),
            parts => {
                (first, second) = parts;
                Poll::Pending
            }
        }
    })
    .await
}

async fn one_way<R: AsyncRead, W: AsyncWrite>(from: &mut R, to: &mut W) -> Result<u64> {
    let copied = copy(from, to).await?;
    match to.shutdown().await {
        // The peer has closed, but all bytes were written.
        Err(why) if why.kind() == std::io::ErrorKind::NotConnected => Ok(copied),
        ended => ended.map(|()| copied),
    }
}

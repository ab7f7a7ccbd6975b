//! What a dropped future means.
//!
//! Dropping a future cancels its operation. The engine keeps the memory until the kernel has let go of it, so
//! this is always sound. What it means for the data:
//!
//! | dropped | effect |
//! |---|---|
//! | accept, receive, receive of a datagram | nothing is lost: what arrives anyway goes to the next call |
//! | connect | the socket is closed |
//! | send on a stream | unless nothing was sent, the sending side is broken: the next send is EPIPE |
//! | send of a datagram | it was sent whole, or not at all |
//! | read of a file | the buffer is lost, and nothing else |
//! | write of a file | it is unknown how much was or will be written |
//! | `recv` of a channel, a lock, a timer | nothing is lost |
//! | `send` of a channel | it was not sent, and the message is dropped; [`reserve`] waits without one |
//!
//! So receives may stand in a [`timeout`](crate::time::timeout) and in a [`select!`](crate::select) in a
//! loop. A send stands in the body of a branch, or in a task of its own:
//!
//! ```
//! use ringroad::{net::UnixStream, select, sync, task::spawn, time::timeout};
//! use std::time::Duration;
//!
//! async fn session(stream: UnixStream, news: sync::Receiver<&'static str>) -> ringroad::Result<u32> {
//!     let (mut reader, mut writer) = stream.split();
//!     let mut asked = 0;
//!     loop {
//!         select! {
//!             lease = reader.recv() => match lease?.len() {
//!                 0 => return Ok(asked),
//!                 _ => asked += 1,
//!             },
//!             Ok(text) = news.recv() => {
//!                 // A peer that does not read has ten seconds; then the stream is broken, and dropped.
//!                 match timeout(Duration::from_secs(10), writer.write_all(text)).await {
//!                     Ok((sent, _)) => sent?,
//!                     Err(_) => return Ok(asked),
//!                 }
//!             }
//!         }
//!     }
//! }
//!
//! ringroad::run(async {
//!     let (mut near, far) = UnixStream::pair()?;
//!     let (sender, receiver) = sync::bounded(1);
//!     let session = spawn(session(far, receiver));
//!     sender.send("hello").await.unwrap();
//!     assert_eq!(&*near.recv().await?, b"hello");
//!     near.write_all("?").await.0?;
//!     near.shutdown(std::net::Shutdown::Write)?;
//!     assert_eq!(session.await.unwrap()?, 1);
//!     Ok::<(), ringroad::Error>(())
//! })??;
//! # Ok::<(), ringroad::Error>(())
//! ```
//!
//! # Stopping tasks
//! [`JoinHandle::cancel`](crate::JoinHandle::cancel) drops a task's future, and so does a
//! [`CancelHandle`](crate::CancelHandle), of which there may be many. A
//! [`CancellationToken`](crate::sync::CancellationToken) asks many tasks, on several threads, to stop where
//! it suits them; a [`Canceller`](crate::net::Canceller) ends what another task awaits on a socket. A
//! [`JoinSet`](crate::JoinSet) cancels its tasks when it is dropped.
//!
//! [`reserve`]: crate::sync::Sender::reserve

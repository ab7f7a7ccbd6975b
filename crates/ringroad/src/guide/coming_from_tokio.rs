//! The same things under other names.
//!
//! | tokio | here |
//! |---|---|
//! | `#[tokio::main]`, `#[tokio::test]` | [`main`], [`test`] |
//! | `Runtime`, work stealing over threads | [`Runtime`], one for each thread ([cores]) |
//! | `tokio::spawn`: `Send` futures | [`task::spawn`]: any future, on this thread |
//! | `Handle::current`, `Handle::spawn` | [`Remote::current`], [`Remote::spawn_with_result`] |
//! | `JoinHandle::abort` | [`JoinHandle::cancel`] |
//! | `JoinSet` | [`JoinSet`] |
//! | `LocalSet` | not needed: every task is local |
//! | `select!`, `join!`, `try_join!` | [`select!`], [`join!`], [`try_join!`] |
//! | `AsyncRead::read(&mut [u8])` | [`AsyncRead::read`] with an owned buffer, or [`recv`] |
//! | `AsyncWriteExt::write_all(&[u8])` | [`AsyncWrite::write_all`] with an owned buffer |
//! | `BufReader::lines`, `BufWriter` | [`BufReader`], [`BufWriter`] |
//! | `io::copy_bidirectional` | [`io::copy_bidirectional`] |
//! | `tokio_util::codec::Framed` | [`Framed`], with the same codecs |
//! | `TcpStream::connect("host:80")` | [`connect_to`]; [`connect`] for an address |
//! | `TcpStream::into_split` | [`split`] |
//! | `fs::read_to_string` and the other functions | the same names in [`fs`] |
//! | `fs::File`, a position inside | [`fs::File`] with offsets; a position: `std::io::Cursor` around it |
//! | `sync::mpsc::channel`, `unbounded_channel` | [`sync::bounded`], [`sync::unbounded`] |
//! | `sync::{oneshot, watch, broadcast}` | [`oneshot`], [`watch`], [`broadcast`] |
//! | `sync::{Mutex, RwLock, Semaphore, Notify, OnceCell}` | the same names in [`sync`] |
//! | `tokio_util::sync::CancellationToken` | [`CancellationToken`] |
//! | `time::{sleep, sleep_until, timeout, interval}` | the same names in [`time`] |
//! | `time::pause` | the driver `sim` ([testing]) |
//! | `task_local!` | [`task_local!`] |
//! | `spawn_blocking`, `yield_now` | the same names in [`task`] |
//! | `signal::ctrl_c`, `signal::unix::signal` | [`ctrl_c`], [`Signals`] |
//!
//! Two habits differ. A buffer is given away and comes back ([buffers]). And a
//! [`sleep`] begins at its first poll, not when it is made.
//!
//! Crates that are written for tokio's traits run through `ringroad-bridge`: hyper, TLS, WebSocket, database
//! clients.
//!
//! [`Runtime`]: crate::Runtime
//! [cores]: super::cores
//! [`task::spawn`]: crate::task::spawn
//! [`Remote::current`]: crate::Remote::current
//! [`Remote::spawn_with_result`]: crate::Remote::spawn_with_result
//! [`JoinHandle::cancel`]: crate::JoinHandle::cancel
//! [`JoinSet`]: crate::JoinSet
//! [`select!`]: crate::select
//! [`join!`]: crate::join
//! [`try_join!`]: crate::try_join
//! [`AsyncRead::read`]: crate::io::AsyncRead::read
//! [`recv`]: crate::io::AsyncRead::recv
//! [`AsyncWrite::write_all`]: crate::io::AsyncWrite::write_all
//! [`BufReader`]: crate::io::BufReader
//! [`BufWriter`]: crate::io::BufWriter
//! [`io::copy_bidirectional`]: crate::io::copy_bidirectional
//! [`Framed`]: crate::io::Framed
//! [`connect_to`]: crate::net::TcpStream::connect_to
//! [`connect`]: crate::net::TcpStream::connect
//! [`split`]: crate::net::TcpStream::split
//! [`fs`]: crate::fs
//! [`fs::File`]: crate::fs::File
//! [`sync::bounded`]: crate::sync::bounded
//! [`sync::unbounded`]: crate::sync::unbounded
//! [`oneshot`]: crate::sync::oneshot
//! [`watch`]: crate::sync::watch
//! [`broadcast`]: crate::sync::broadcast
//! [`sync`]: crate::sync
//! [`CancellationToken`]: crate::sync::CancellationToken
//! [`time`]: crate::time
//! [testing]: super::testing
//! [`task_local!`]: crate::task_local
//! [`task`]: crate::task
//! [`ctrl_c`]: crate::signal::ctrl_c
//! [`Signals`]: crate::signal::Signals
//! [buffers]: super::buffers
//! [`sleep`]: crate::time::sleep
//! [`main`]: macro@crate::main
//! [`test`]: macro@crate::test

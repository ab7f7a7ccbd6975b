//! The same things under other names.
//!
//! Two habits differ. A buffer is given away and comes back ([buffers]). And a [`sleep`] begins at its first
//! poll, not when it is made.
//!
//! # Runtime and tasks
//! | tokio | here |
//! |---|---|
//! | `#[tokio::main]`, `#[tokio::test]` | [`main`], [`test`] |
//! | `Runtime`, work stealing over threads | [`Runtime`], one for each thread ([cores]) |
//! | `spawn`: `Send` futures | [`task::spawn`]: any future, on this thread |
//! | `Handle::current`, `Handle::spawn` | [`Remote::current`], [`Remote::spawn_with_result`] |
//! | `JoinHandle::abort`, `is_finished` | [`JoinHandle::cancel`], [`JoinHandle::is_finished`] |
//! | `JoinHandle::abort` on another thread | [`RemoteTask::cancel`] |
//! | `JoinHandle::abort_handle`, `AbortHandle` | [`JoinHandle::cancel_handle`], [`CancelHandle`] |
//! | `JoinError::{is_cancelled, is_panic, try_into_panic}` | the same names of [`JoinError`] |
//! | `JoinSet::{spawn, join_next, try_join_next, join_all}` | the same names of [`JoinSet`] |
//! | `JoinSet::abort_all`, `shutdown` | [`JoinSet::cancel_all`], [`JoinSet::shutdown`], which does not wait |
//! | `JoinSet::spawn_blocking` | [`JoinSet::spawn`] with a future that awaits [`spawn_blocking`] |
//! | `JoinSet::join_next_with_id`, `task::Id` | none: return what tells the task in its output |
//! | `tokio_util::task::TaskTracker` | [`WaitGroup`] |
//! | `LocalSet`, `spawn_local` | not needed: every task is local |
//! | `block_in_place` | none: [`spawn_blocking`] |
//! | `spawn_blocking`, `yield_now` | the same names in [`task`] |
//! | `task::consume_budget`, `coop::cooperative` | [`counted`] |
//! | `task::unconstrained` | none |
//! | `task_local!` | [`task_local!`] |
//! | `select!`, `join!`, `try_join!` | [`select!`], [`join!`], [`try_join!`] |
//!
//! # Channels and locks
//! | tokio | here |
//! |---|---|
//! | `mpsc::channel` | [`sync::bounded`], of which the receiver can be cloned too |
//! | `mpsc::unbounded_channel` | [`sync::unbounded`], with the same names |
//! | `mpsc::Sender::{send, try_send, send_timeout, closed}` | the same names of [`Sender`] |
//! | `mpsc::Sender::blocking_send` | [`Sender::send_blocking`] |
//! | `mpsc::Sender::{reserve, reserve_owned, try_reserve}` | the same names of [`Sender`] |
//! | `mpsc::Permit::send` | [`Permit::send`], which returns the message if no receiver is left |
//! | `mpsc::Sender::{reserve_many, try_reserve_many}` | the same names; above the capacity it panics |
//! | `mpsc::Sender::{capacity, max_capacity}` | [`Sender::room`], [`Sender::capacity`] |
//! | `mpsc::Receiver::{recv, recv_many, try_recv, close}` | the same names of [`Receiver`] |
//! | `mpsc::Receiver::blocking_recv` | [`Receiver::recv_blocking`] |
//! | `oneshot` | [`oneshot`]; `blocking_recv` is `recv_blocking` |
//! | `watch` | [`watch`], with the same names |
//! | `broadcast` | [`broadcast`], with the same names; `blocking_recv` is `recv_blocking` |
//! | `Mutex`, `lock_owned`, `blocking_lock` | [`Mutex`], `lock_arc`, `lock_blocking` |
//! | `RwLock`, `read_owned`, `write_owned` | [`RwLock`], `read_arc`, `write_arc` |
//! | `MutexGuard::map` | none |
//! | `Semaphore::{acquire, acquire_many, try_acquire}` | the same names of [`Semaphore`] |
//! | `Semaphore::acquire_owned` | [`Semaphore::acquire_arc`] |
//! | `Semaphore::acquire_many_owned` | [`Semaphore::acquire_many_arc`] |
//! | `Semaphore::close` | none: [`run_until_cancelled`] around the wait |
//! | `Notify::{notify_one, notify_waiters, notified}` | the same names of [`Notify`] |
//! | `Notify::notified_owned` | [`Notify::notified_arc`] |
//! | `Notified::enable` | poll it once |
//! | `Barrier`, `OnceCell` | [`Barrier`], [`OnceCell`] |
//! | `SetOnce` | [`OnceCell`] with [`OnceCell::wait`] |
//! | `tokio_util::sync::CancellationToken` | [`CancellationToken`]; `child_token` is `child` |
//!
//! # Time
//! | tokio | here |
//! |---|---|
//! | `sleep`, `sleep_until`, `timeout`, `timeout_at` | the same names in [`time`] |
//! | `interval`, `interval_at` | the same names in [`time`] |
//! | `Sleep::reset` with a deadline | [`Sleep::reset`] with a span, which begins at the next poll |
//! | `Interval::{reset, reset_immediately, reset_after, reset_at}` | the same names of [`Interval`] |
//! | `Interval::set_missed_tick_behavior` | [`Interval::set_missed_tick`] |
//! | `Instant::now` | [`time::now`], which is virtual in a simulation |
//! | `pause`, `advance` | the driver `sim` ([testing]) |
//! | `tokio_util::time::DelayQueue` | none: a task with a [`sleep`] for each entry |
//!
//! # Streams, files, processes
//! | tokio | here |
//! |---|---|
//! | `AsyncRead::read(&mut [u8])` | [`AsyncRead::read`] with an owned buffer, or [`recv`] |
//! | `AsyncWriteExt::write_all(&[u8])` | [`AsyncWrite::write_all`] with an owned buffer |
//! | `AsyncReadExt::read_exact(&mut [u8])` | [`AsyncReadExt::read_exact`] with a vector and a count |
//! | `AsyncReadExt::read_to_string` | [`AsyncReadExt::read_to_string`], up to a limit |
//! | `AsyncReadExt::read_to_end` | [`AsyncReadExt::read_to_end`] with a limit |
//! | `AsyncReadExt::read_u32` and the others | `u32::from_be_bytes` of [`AsyncReadExt::read_exact`] |
//! | `AsyncWriteExt::write_u32` and the others | `write_all(7_u32.to_be_bytes())` |
//! | `AsyncReadExt::{take, chain}` | none: [`BufReader`] has its limit, [`Framed`] that of its codec |
//! | `BufReader`, `fill_buf` | [`BufReader`], `fill` |
//! | `BufWriter` | [`BufWriter`] |
//! | `io::copy`, `copy_bidirectional` | [`io::copy`], [`io::copy_bidirectional`] of whole streams |
//! | `io::duplex` | [`UnixStream::pair`] |
//! | `io::{stdin, stdout, stderr}` | the same names in [`io`] |
//! | `io::unix::AsyncFd` | [`PollFd`] |
//! | `tokio_util::codec::Framed` | [`Framed`], with the same codecs |
//! | `FramedRead`, `FramedWrite`, `Framed::split` | a [`Framed`] over each half of a stream |
//! | `Framed::map_codec`, `from_parts` | [`Framed::map_codec`], [`Framed::with_received`] |
//! | `tokio_util::io::SyncIoBridge` | none: `std::io` in [`spawn_blocking`] |
//! | `TcpStream::connect("host:80")` | [`connect_to`]; [`connect`] for an address |
//! | `lookup_host` | [`lookup_host`] |
//! | `TcpStream::into_split` | [`split`] |
//! | `TcpSocket` | [`ListenOptions`], [`ConnectOptions`] |
//! | `UdpSocket`, `UnixStream`, `UnixDatagram`, `UnixListener` | the same names in [`net`] |
//! | `tokio_rustls::{TlsConnector, TlsAcceptor}` | [`TlsStream::connect`], [`TlsStream::accept`] |
//! | `net::unix::pipe` | [`io::pipe`] |
//! | `fs::read_to_string` and the other functions | the same names in [`fs`] |
//! | `fs::write(path, bytes).await?` | [`fs::write`], which returns the bytes too: `.await.0?` |
//! | `fs::File`, a position inside | [`fs::File`] with offsets; a position: `std::io::Cursor` around it |
//! | `process::Command`, `spawn`, `output` | that of std, [`process::spawn`], [`process::output`] |
//! | `signal::ctrl_c`, `signal::unix::signal` | [`ctrl_c`], [`Signals`] |
//!
//! Crates that are written for tokio's traits run through `ringroad-bridge`: hyper, TLS, WebSocket, database
//! clients.
//!
//! [`RemoteTask::cancel`]: crate::RemoteTask::cancel
//! [`JoinHandle::is_finished`]: crate::JoinHandle::is_finished
//! [`JoinHandle::cancel_handle`]: crate::JoinHandle::cancel_handle
//! [`CancelHandle`]: crate::CancelHandle
//! [`JoinError`]: crate::JoinError
//! [`JoinSet::cancel_all`]: crate::JoinSet::cancel_all
//! [`JoinSet::shutdown`]: crate::JoinSet::shutdown
//! [`JoinSet::spawn`]: crate::JoinSet::spawn
//! [`spawn_blocking`]: crate::task::spawn_blocking
//! [`WaitGroup`]: crate::sync::WaitGroup
//! [`counted`]: crate::sync::budget::counted
//! [`Sender`]: crate::sync::Sender
//! [`Sender::send_blocking`]: crate::sync::Sender::send_blocking
//! [`Sender::room`]: crate::sync::Sender::room
//! [`Sender::capacity`]: crate::sync::Sender::capacity
//! [`Permit::send`]: crate::sync::Permit::send
//! [`Receiver`]: crate::sync::Receiver
//! [`Receiver::recv_blocking`]: crate::sync::Receiver::recv_blocking
//! [`Mutex`]: crate::sync::Mutex
//! [`RwLock`]: crate::sync::RwLock
//! [`Semaphore`]: crate::sync::Semaphore
//! [`Semaphore::acquire_arc`]: crate::sync::Semaphore::acquire_arc
//! [`Semaphore::acquire_many_arc`]: crate::sync::Semaphore::acquire_many_arc
//! [`run_until_cancelled`]: crate::sync::CancellationToken::run_until_cancelled
//! [`Notify`]: crate::sync::Notify
//! [`Notify::notified_arc`]: crate::sync::Notify::notified_arc
//! [`Barrier`]: crate::sync::Barrier
//! [`OnceCell`]: crate::sync::OnceCell
//! [`OnceCell::wait`]: crate::sync::OnceCell::wait
//! [`Sleep::reset`]: crate::time::Sleep::reset
//! [`Interval`]: crate::time::Interval
//! [`Interval::set_missed_tick`]: crate::time::Interval::set_missed_tick
//! [`time::now`]: crate::time::now
//! [`AsyncReadExt`]: crate::io::AsyncReadExt
//! [`AsyncReadExt::read_to_end`]: crate::io::AsyncReadExt::read_to_end
//! [`AsyncReadExt::read_exact`]: crate::io::AsyncReadExt::read_exact
//! [`AsyncReadExt::read_to_string`]: crate::io::AsyncReadExt::read_to_string
//! [`io::copy`]: crate::io::copy
//! [`UnixStream::pair`]: crate::net::UnixStream::pair
//! [`io`]: crate::io
//! [`PollFd`]: crate::PollFd
//! [`lookup_host`]: crate::net::lookup_host
//! [`TlsStream::connect`]: crate::http::TlsStream::connect
//! [`TlsStream::accept`]: crate::http::TlsStream::accept
//! [`ListenOptions`]: crate::net::ListenOptions
//! [`ConnectOptions`]: crate::net::ConnectOptions
//! [`net`]: crate::net
//! [`io::pipe`]: crate::io::pipe
//! [`process::spawn`]: crate::process::spawn
//! [`process::output`]: crate::process::output
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
//! [`Framed::map_codec`]: crate::io::Framed::map_codec
//! [`Framed::with_received`]: crate::io::Framed::with_received
//! [`connect_to`]: crate::net::TcpStream::connect_to
//! [`connect`]: crate::net::TcpStream::connect
//! [`split`]: crate::net::TcpStream::split
//! [`fs`]: crate::fs
//! [`fs::write`]: crate::fs::write
//! [`fs::File`]: crate::fs::File
//! [`sync::bounded`]: crate::sync::bounded
//! [`sync::unbounded`]: crate::sync::unbounded
//! [`oneshot`]: crate::sync::oneshot
//! [`watch`]: crate::sync::watch
//! [`broadcast`]: crate::sync::broadcast
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

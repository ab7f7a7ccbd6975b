//! What an error says, and how to tell one from another.
//!
//! An [`Error`](crate::Error) has the operation by its kernel name, what it was about, what the system said,
//! the driver, and a hint where there is one:
//!
//! ```
//! use ringroad::net::TcpStream;
//! use std::io::ErrorKind;
//!
//! ringroad::run(async {
//!     // A port on which nothing listens any more.
//!     let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
//!     let why = TcpStream::connect(port).await.unwrap_err();
//!     assert_eq!((why.operation(), why.kind()), ("connect", ErrorKind::ConnectionRefused));
//!     assert!(why.to_string().contains("nothing listens there"));
//! })?;
//! # Ok::<(), ringroad::Error>(())
//! ```
//!
//! [`kind`](crate::Error::kind) and [`raw_os_error`](crate::Error::raw_os_error) are for `match`;
//! [`is_cancelled`](crate::Error::is_cancelled) is true after a cancel;
//! [`is_driver_limit`](crate::Error::is_driver_limit) if another driver would have done it. An error converts
//! into `std::io::Error` and back, so `?` works in functions of either type. It is one word long: a result
//! costs nothing while all goes well.
//!
//! [`Runtime::block_on`](crate::Runtime::block_on) and [`run`](crate::run) return the future's output in a
//! `Result` of their own, for the case that the driver itself fails; hence `run(…)??`.
//!
//! A task that panics ends alone: awaiting its handle returns
//! [`JoinError::Panicked`](crate::JoinError::Panicked). [`Runtime::dump`](crate::Runtime::dump) lists what a
//! program waits for, and [`signal::dump_on`](crate::signal::dump_on) prints it on a signal.

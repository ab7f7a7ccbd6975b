//! Several threads, each with a runtime.
//!
//! A runtime uses one core. [`workers`](fn@crate::workers) runs the same program in several threads, each
//! with a listener, and the kernel spreads the connections over them. Nothing is shared, so nothing is
//! locked:
//!
//! ```
//! use ringroad::workers::{Share, Workers};
//! use ringroad::task::spawn;
//!
//! let crew = Workers::new(2).listen(([127, 0, 0, 1], 0).into(), Share::ReusePort).pin(true).start(
//!     |worker| async move {
//!         let mut listener = worker.listener(0)?;
//!         while let Some(accepted) = worker.stopping().run_until_cancelled(listener.accept()).await {
//!             let mut stream = accepted?;
//!             spawn(async move { stream.write_all("hello").await.0 }).detach();
//!         }
//!         Ok::<(), ringroad::Error>(())
//!     },
//! )?;
//! println!("listening on {}", crew.addresses()[0]);
//! crew.stop(); // a program waits for a signal first
//! for ended in crew.join()? {
//!     ended?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A worker that panics stops the others, is left, or is started again
//! ([`OnPanic`](crate::workers::OnPanic)). Workers that start one after the other are
//! [added](crate::workers::Crew::add) to a crew, and some of them may be
//! [released](crate::workers::Crew::release) while the others go on. [`http::Server`](crate::http::Server)
//! has such workers of its own.
//!
//! # Between threads
//! Channels, locks and tokens of [`sync`](crate::sync) work between runtimes and with plain threads. A
//! [`Remote`](crate::Remote) starts a task on another runtime and can bring its output back
//! ([`spawn_with_result`](crate::Remote::spawn_with_result)); a connection moves with
//! [`detach`](crate::net::TcpStream::detach) and [`attach`](crate::net::Detached::attach).

//! A wrapper that declares a value `Send` and keeps it on its thread, for crates that ask for `Send` where a
//! program with one runtime per thread does not need it.

use futures_io as futures;
use hyper::rt;
use pin_project_lite::pin_project;
use send_wrapper::SendWrapper;
use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll};

pin_project! {
    /// A future or a stream that is `Send` by name, and stays on the thread that made it.
    ///
    /// Some crates ask for `Send` because their own runtime moves tasks between threads: the handlers of
    /// axum, the upgraded connections of hyper, the stream of the `redis` crate. On the engine a task stays
    /// on its thread, so what it holds is not `Send`. In this wrapper it may be given to such a crate.
    ///
    /// It implements [`Future`] for futures, and the I/O traits of hyper, tokio and futures for adapters.
    /// [`LocalExecutor`](crate::LocalExecutor) takes futures as they are and needs no wrapper.
    ///
    /// ```
    /// use ringroad_bridge::Local;
    /// use ringroad_engine::{run, time};
    /// use std::time::Duration;
    ///
    /// fn asks_for_send<F: Future + Send>(future: F) -> F {
    ///     future
    /// }
    ///
    /// run(asks_for_send(Local::new(async {
    ///     // A timer of the engine is not `Send`.
    ///     time::sleep(Duration::from_millis(1)).await;
    /// })))?;
    /// # Ok::<(), ringroad_engine::Error>(())
    /// ```
    ///
    /// # Panics
    /// Any use of it on another thread panics, the drop included. The value is not touched there: a drop that
    /// panics leaks it.
    pub struct Local<T> {
        #[pin]
        inner: SendWrapper<T>,
    }
}

impl<T> Local<T> {
    /// Binds `inner` to the thread that calls this.
    pub fn new(inner: T) -> Local<T> {
        Local { inner: SendWrapper::new(inner) }
    }

    /// Returns the value.
    ///
    /// # Panics
    /// On another thread.
    pub fn into_inner(self) -> T {
        self.inner.take()
    }
}

impl<T> Deref for Local<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Local<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> fmt::Debug for Local<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Debug output works on any thread.
        f.debug_struct("Local").field("is_here", &self.inner.valid()).finish_non_exhaustive()
    }
}

impl<F: Future> Future for Local<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.project().inner.poll(context)
    }
}

impl<S: rt::Read + Unpin> rt::Read for Local<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut **self).poll_read(context, into)
    }
}

impl<S: tokio::io::AsyncRead + Unpin> tokio::io::AsyncRead for Local<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut **self).poll_read(context, into)
    }
}

impl<S: futures::AsyncRead + Unpin> futures::AsyncRead for Local<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut **self).poll_read(context, into)
    }
}

macro_rules! writes {
    ($trait:path, $end:ident $(, $is_vectored:ident)?) => {
        impl<S: $trait + Unpin> $trait for Local<S> {
            fn poll_write(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut **self).poll_write(context, bytes)
            }

            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut **self).poll_write_vectored(context, slices)
            }

            $(fn $is_vectored(&self) -> bool {
                (**self).$is_vectored()
            })?

            fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut **self).poll_flush(context)
            }

            fn $end(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut **self).$end(context)
            }
        }
    };
}
writes!(rt::Write, poll_shutdown, is_write_vectored);
writes!(tokio::io::AsyncWrite, poll_shutdown, is_write_vectored);
writes!(futures::AsyncWrite, poll_close);

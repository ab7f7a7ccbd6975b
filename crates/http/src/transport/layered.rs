//! Futures of a transport: those of the stream, or of a layer over it.
//!
//! The stream's futures are inline, because every connection task contains them. A layer's are boxed: they
//! are larger, and sealing a record costs far more than an allocation.

use super::{TlsStream, TunnelStream};
use pin_project_lite::pin_project;
use ringroad_engine::net::{Hangup, PeerGone};
use ringroad_engine::{Lease, Result};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

pin_project! {
    /// A send.
    #[project = LayeredProjection]
    pub(super) enum Layered<'a, F>
    where
        F: Future,
    {
        Plain { #[pin] future: F },
        Boxed { future: Pin<Box<dyn Future<Output = F::Output> + 'a>> },
    }
}

impl<F: Future> Future for Layered<'_, F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        match self.project() {
            LayeredProjection::Plain { future } => future.poll(context),
            LayeredProjection::Boxed { future } => future.as_mut().poll(context),
        }
    }
}

pin_project! {
    /// A receive. While it waits, its state is in the layer.
    #[project = RecvProjection]
    pub(super) enum Recv<'a, F> {
        Plain { #[pin] future: F },
        Tls { stream: &'a mut TlsStream },
        Tunnel { stream: &'a mut TunnelStream },
    }
}

impl<F: Future<Output = Result<Lease>>> Future for Recv<'_, F> {
    type Output = Result<Lease>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Lease>> {
        match self.project() {
            RecvProjection::Plain { future } => future.poll(context),
            RecvProjection::Tls { stream } => stream.poll_recv(context),
            RecvProjection::Tunnel { stream } => stream.poll_recv(context),
        }
    }
}

pin_project! {
    /// A wait until the peer ends the connection.
    #[project = GoneProjection]
    pub(super) enum Gone<'a> {
        Socket { #[pin] future: Hangup<'a> },
        Tunnel { stream: &'a TunnelStream },
    }
}

impl Future for Gone<'_> {
    type Output = Result<PeerGone>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<PeerGone>> {
        match self.project() {
            GoneProjection::Socket { future } => future.poll(context),
            GoneProjection::Tunnel { stream } => stream.poll_hangup(context),
        }
    }
}

//! The traits of `ringroad-io` for transports and TLS streams.

use super::tls::TlsStream;
use super::{ReadTransport, Receive, Transport, WriteTransport};
use ringroad_engine::{IoBuf, IoBufMut, Lease, Result};
use ringroad_io::{AsyncRead, AsyncWrite, Split};

/// Copies received bytes into the caller's buffer; `keep` gets what does not fit.
fn into_buffer<B: IoBufMut>(
    received: Result<Lease>,
    mut buffer: B,
    keep: impl FnOnce(Lease),
) -> (Result<usize>, B) {
    let mut lease = match received {
        Ok(lease) => lease,
        Err(why) => return (Err(why), buffer),
    };
    let read = buffer.append(&lease);
    if read < lease.len() {
        lease.advance(read);
        keep(lease);
    }
    (Ok(read), buffer)
}

impl AsyncRead for TlsStream {
    async fn read<B: IoBufMut + Unpin + Send>(&mut self, buffer: B) -> (Result<usize>, B) {
        let received = TlsStream::recv(self).await;
        into_buffer(received, buffer, |rest| self.keep(rest))
    }

    async fn recv(&mut self) -> Result<Lease> {
        TlsStream::recv(self).await
    }
}

impl AsyncWrite for TlsStream {
    async fn write<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> (Result<usize>, B) {
        self.write_from(bytes, 0).await
    }

    async fn write_all<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> (Result<()>, B) {
        TlsStream::write_all(self, bytes).await
    }

    async fn write_lease(&mut self, lease: Lease) -> Result<()> {
        TlsStream::write_all(self, lease).await.0
    }

    async fn shutdown(&mut self) -> Result<()> {
        self.finish().await
    }
}

impl Split for TlsStream {
    type Read = ReadTransport;
    type Write = WriteTransport;

    fn into_split(self) -> (ReadTransport, WriteTransport) {
        Transport::from(self).split()
    }
}

impl AsyncRead for Transport {
    async fn read<B: IoBufMut + Unpin + Send>(&mut self, buffer: B) -> (Result<usize>, B) {
        match self {
            Transport::Tcp(stream) => stream.recv_into(buffer).await,
            Transport::Unix(stream) => stream.recv_into(buffer).await,
            Transport::Tls(stream) => stream.read(buffer).await,
            Transport::Tunnel(stream) => {
                let received = std::future::poll_fn(|context| stream.poll_recv(context)).await;
                into_buffer(received, buffer, |rest| stream.keep(rest))
            }
        }
    }

    async fn recv(&mut self) -> Result<Lease> {
        Transport::recv(self).await
    }
}

impl AsyncWrite for Transport {
    async fn write<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> (Result<usize>, B) {
        self.write_from(bytes, 0).await
    }

    async fn write_all<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> (Result<()>, B) {
        Transport::write_all(self, bytes).await
    }

    async fn write_lease(&mut self, lease: Lease) -> Result<()> {
        Transport::write_all(self, lease).await.0
    }

    async fn shutdown(&mut self) -> Result<()> {
        self.finish().await
    }
}

impl Split for Transport {
    type Read = ReadTransport;
    type Write = WriteTransport;

    fn into_split(self) -> (ReadTransport, WriteTransport) {
        self.split()
    }
}

impl AsyncRead for ReadTransport {
    async fn read<B: IoBufMut + Unpin + Send>(&mut self, buffer: B) -> (Result<usize>, B) {
        match self {
            ReadTransport::Tcp(half) => half.recv_into(buffer).await,
            ReadTransport::Unix(half) => half.recv_into(buffer).await,
            ReadTransport::Tls(half) => {
                let received = std::future::poll_fn(|context| half.poll_recv(context)).await;
                into_buffer(received, buffer, |rest| half.keep(rest))
            }
            ReadTransport::Tunnel(half) => {
                let received = std::future::poll_fn(|context| half.poll_recv(context)).await;
                into_buffer(received, buffer, |rest| half.keep(rest))
            }
        }
    }

    async fn recv(&mut self) -> Result<Lease> {
        Receive::recv(self).await
    }
}

impl AsyncWrite for WriteTransport {
    async fn write<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> (Result<usize>, B) {
        self.write_from(bytes, 0).await
    }

    async fn write_all<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> (Result<()>, B) {
        WriteTransport::write_all(self, bytes).await
    }

    async fn write_lease(&mut self, lease: Lease) -> Result<()> {
        WriteTransport::write_all(self, lease).await.0
    }

    async fn shutdown(&mut self) -> Result<()> {
        self.finish().await
    }
}

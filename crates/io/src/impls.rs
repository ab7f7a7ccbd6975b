//! The I/O traits for the engine's streams and files.

use crate::traits::{AsyncRead, AsyncWrite, Split};
use ringroad_engine::fs::File;
use ringroad_engine::net::{Family, ReadHalf, Stream, WriteHalf};
use ringroad_engine::{IoBuf, IoBufMut, Lease, Result};
use std::io::Cursor;
use std::net::Shutdown;

impl<F: Family> AsyncRead for Stream<F> {
    async fn read<B: IoBufMut + Unpin + Send>(&mut self, buffer: B) -> (Result<usize>, B) {
        self.recv_into(buffer).await
    }

    async fn recv(&mut self) -> Result<Lease> {
        Stream::recv(self).await
    }
}

impl<F: Family> AsyncRead for ReadHalf<F> {
    async fn read<B: IoBufMut + Unpin + Send>(&mut self, buffer: B) -> (Result<usize>, B) {
        self.recv_into(buffer).await
    }

    async fn recv(&mut self) -> Result<Lease> {
        ReadHalf::recv(self).await
    }
}

impl<F: Family> AsyncWrite for Stream<F> {
    async fn write<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> (Result<usize>, B) {
        Stream::write(self, bytes).await
    }

    async fn write_all<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> (Result<()>, B) {
        Stream::write_all(self, bytes).await
    }

    async fn write_lease(&mut self, lease: Lease) -> Result<()> {
        Stream::write_all(self, lease).await.0
    }

    async fn shutdown(&mut self) -> Result<()> {
        Stream::shutdown(self, Shutdown::Write)
    }
}

impl<F: Family> AsyncWrite for WriteHalf<F> {
    async fn write<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> (Result<usize>, B) {
        self.write_from(bytes, 0).await
    }

    async fn write_all<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> (Result<()>, B) {
        WriteHalf::write_all(self, bytes).await
    }

    async fn write_lease(&mut self, lease: Lease) -> Result<()> {
        WriteHalf::write_all(self, lease).await.0
    }

    async fn shutdown(&mut self) -> Result<()> {
        WriteHalf::shutdown(self)
    }
}

impl<F: Family> Split for Stream<F> {
    type Read = ReadHalf<F>;
    type Write = WriteHalf<F>;

    fn into_split(self) -> (ReadHalf<F>, WriteHalf<F>) {
        self.split()
    }
}

/// Reads at the cursor's position, and moves it. A dropped read does not move it.
impl AsyncRead for Cursor<File> {
    async fn read<B: IoBufMut + Unpin + Send>(&mut self, buffer: B) -> (Result<usize>, B) {
        let (read, buffer) = self.get_ref().read_at(buffer, self.position()).await;
        self.set_position(self.position() + *read.as_ref().unwrap_or(&0) as u64);
        (read, buffer)
    }
}

/// Writes at the cursor's position, and moves it. `shutdown` does not truncate the file at the position; it
/// waits until the data is on the device.
impl AsyncWrite for Cursor<File> {
    async fn write<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> (Result<usize>, B) {
        let (written, bytes) = self.get_ref().write_at(bytes, self.position()).await;
        self.set_position(self.position() + *written.as_ref().unwrap_or(&0) as u64);
        (written, bytes)
    }

    async fn write_all<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> (Result<()>, B) {
        let (written, bytes) = self.get_ref().write_all_at(bytes, self.position()).await;
        if written.is_ok() {
            self.set_position(self.position() + bytes.bytes().len() as u64);
        }
        (written, bytes)
    }

    async fn shutdown(&mut self) -> Result<()> {
        self.get_ref().sync_data().await
    }
}

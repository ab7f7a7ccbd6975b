//! The layer between a connection's bytes and its messages: none, or TLS. Bytes in, bytes out; no I/O, no
//! clock.
//!
//! The code of a connection is written once, over a [`Layer`]. The empty layer compiles to nothing.

use ringroad_engine::AnyBuf;

/// Between a connection's bytes and its messages.
pub(crate) trait Layer {
    /// Returns the bytes to send: these messages, and the layer's own records. `None`: nothing.
    fn outgoing(&mut self, messages: Option<AnyBuf>) -> Option<AnyBuf>;

    /// Decodes received bytes, which may be changed where they lie, and passes the content on in pieces,
    /// until one ends the connection.
    ///
    /// # Errors
    /// The bytes are invalid for the layer: the reason.
    fn incoming<E>(
        &mut self,
        bytes: &mut [u8],
        show: impl FnMut(&[u8]) -> Option<E>,
    ) -> Result<Option<E>, String>;

    /// Takes content that came before it was asked for: behind the server's part of a handshake.
    fn early(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Returns whether the end of the bytes is an authentic end of the messages, and no truncation on the
    /// way.
    fn may_end(&self) -> bool;

    /// Returns whether the peer has ended its messages, though its bytes may go on.
    fn has_ended(&self) -> bool {
        false
    }
}

/// The empty layer.
pub(crate) struct Plain;

impl Layer for Plain {
    #[inline]
    fn outgoing(&mut self, messages: Option<AnyBuf>) -> Option<AnyBuf> {
        messages
    }

    #[inline]
    fn incoming<E>(
        &mut self,
        bytes: &mut [u8],
        mut show: impl FnMut(&[u8]) -> Option<E>,
    ) -> Result<Option<E>, String> {
        Ok(show(bytes))
    }

    #[inline]
    fn may_end(&self) -> bool {
        true
    }
}

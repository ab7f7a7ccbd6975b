//! What lies between a connection's bytes and its messages: nothing, or TLS. Bytes in, bytes out; no I/O, no clock.
//!
//! A conversation is written once, over a [`Layer`]. Of the empty one nothing is left when it is compiled.

use ringroad_engine::AnyBuf;

/// Between a connection's bytes and its messages.
pub(crate) trait Layer {
    /// What has to be sent: these messages, and whatever the layer itself has to say. `None`: nothing.
    fn outgoing(&mut self, messages: Option<AnyBuf>) -> Option<AnyBuf>;

    /// Takes in what came, and shows what it says in pieces, until one of them makes an end.
    ///
    /// # Errors
    /// It is nothing that the layer understands: why.
    fn incoming<E>(
        &mut self,
        bytes: &[u8],
        show: impl FnMut(&[u8]) -> Option<E>,
    ) -> Result<Option<E>, String>;

    /// Whether an end of the bytes is an end of the messages too, and nobody's cut.
    fn may_end(&self) -> bool;
}

/// Nothing.
pub(crate) struct Plain;

impl Layer for Plain {
    #[inline]
    fn outgoing(&mut self, messages: Option<AnyBuf>) -> Option<AnyBuf> {
        messages
    }

    #[inline]
    fn incoming<E>(
        &mut self,
        bytes: &[u8],
        mut show: impl FnMut(&[u8]) -> Option<E>,
    ) -> Result<Option<E>, String> {
        Ok(show(bytes))
    }

    #[inline]
    fn may_end(&self) -> bool {
        true
    }
}

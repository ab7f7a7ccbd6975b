//! Unused input of a connection: the beginning of a head, or requests behind an answer.

/// Bytes for the next parse; usually none, which takes one word of memory.
#[derive(Default)]
pub(super) struct Carry(Option<Box<Carried>>);

/// INVARIANT: `at` is before the end of `bytes`.
struct Carried {
    bytes: Vec<u8>,
    /// Bytes before this index are used.
    at: usize,
}

impl Carry {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the bytes of memory that it holds.
    #[inline]
    pub(super) fn held(&self) -> usize {
        self.0.as_ref().map_or(0, |carried| carried.bytes.capacity())
    }

    /// Returns the unused bytes.
    pub(super) fn rest(&self) -> &[u8] {
        self.0.as_ref().and_then(|carried| carried.bytes.get(carried.at..)).unwrap_or_default()
    }

    /// Takes the bytes out, and the index of the first unused one.
    pub(super) fn take(&mut self) -> (Vec<u8>, usize) {
        self.0.take().map_or((Vec::new(), 0), |carried| (carried.bytes, carried.at))
    }

    /// Keeps the bytes of `bytes` from index `at` on.
    pub(super) fn keep(&mut self, mut bytes: Vec<u8>, mut at: usize) {
        if at >= bytes.len() {
            self.0 = None;
            return;
        }
        if at > bytes.len() / 2 {
            // Moving the rest costs no more than the used part.
            bytes.drain(..at);
            at = 0;
        }
        self.0 = Some(Box::new(Carried { bytes, at }));
    }
}

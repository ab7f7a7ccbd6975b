//! Input of a connection that is not used up: the beginning of a head, or what waits behind an answer.

/// Bytes for the next look; most often none, which take no memory but a word.
#[derive(Default)]
pub(super) struct Carry(Option<Box<Carried>>);

/// INVARIANT: `at` is before the end of `bytes`.
struct Carried {
    bytes: Vec<u8>,
    /// What is before it is used up.
    at: usize,
}

impl Carry {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Bytes of memory it holds.
    #[inline]
    pub(super) fn held(&self) -> usize {
        self.0.as_ref().map_or(0, |carried| carried.bytes.capacity())
    }

    /// Returns what is not used up.
    pub(super) fn rest(&self) -> &[u8] {
        self.0.as_ref().and_then(|carried| carried.bytes.get(carried.at..)).unwrap_or_default()
    }

    /// Takes the bytes out, with where those begin that are not used up.
    pub(super) fn take(&mut self) -> (Vec<u8>, usize) {
        self.0.take().map_or((Vec::new(), 0), |carried| (carried.bytes, carried.at))
    }

    /// Keeps what is left of `bytes` from `at` on.
    pub(super) fn keep(&mut self, mut bytes: Vec<u8>, mut at: usize) {
        if at >= bytes.len() {
            self.0 = None;
            return;
        }
        if at > bytes.len() / 2 {
            // So that moving what is left costs no more than what is used.
            bytes.drain(..at);
            at = 0;
        }
        self.0 = Some(Box::new(Carried { bytes, at }));
    }
}

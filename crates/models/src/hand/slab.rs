//! Connections in a dense vector, found by a token instead of a hash.
//!
//! A token is an index and the generation of what was stored there. Removing raises the generation, so a
//! token kept somewhere (an event of the same batch, a delayed answer) never reaches the connection that
//! moved in later.

/// Names one stored value for as long as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) index: u32,
    generation: u32,
}

impl Token {
    /// As one word, for the kernel to keep.
    pub(super) fn to_bits(self) -> u64 {
        (u64::from(self.generation) << 32) | u64::from(self.index)
    }

    /// Back from [`Token::to_bits`].
    pub(super) fn from_bits(bits: u64) -> Self {
        Token { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// The storage. Grows to the most values ever held at once and reuses places, the last freed first.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Slab { slots: Vec::new(), free: Vec::new() }
    }

    /// Stores a value.
    pub(super) fn insert(&mut self, value: T) -> Token {
        if let Some(index) = self.free.pop()
            && let Some(slot) = self.slots.get_mut(index as usize)
        {
            slot.value = Some(value);
            return Token { index, generation: slot.generation };
        }
        // There are fewer values than descriptors, and a descriptor is a non-negative i32.
        let index = self.slots.len() as u32;
        self.slots.push(Slot { generation: 0, value: Some(value) });
        Token { index, generation: 0 }
    }

    /// Returns the value of this token, unless it has been removed.
    #[inline]
    pub(super) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let slot = self.slots.get_mut(token.index as usize)?;
        if slot.generation != token.generation { None } else { slot.value.as_mut() }
    }

    /// Takes the value out and makes its token void.
    pub(super) fn remove(&mut self, token: Token) -> Option<T> {
        let slot = self.slots.get_mut(token.index as usize)?;
        if slot.generation != token.generation {
            return None;
        }
        let value = slot.value.take()?;
        // Wraps after 2^32 reuses of one place: no token is kept that long.
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(token.index);
        Some(value)
    }

    /// Everything stored, in no order.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> + '_ {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    /// Takes everything out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.free.clear();
        self.slots.drain(..).filter_map(|slot| slot.value)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_does_not_reach_the_value_that_moved_in_later() {
        let mut slab = Slab::new();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second");
        assert_eq!(second.index, first.index, "the place is reused");
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get_mut(second), Some(&mut "second"));
    }

    #[test]
    fn a_token_survives_its_stay_in_the_kernel() {
        let mut slab = Slab::new();
        for value in 0..3 {
            let token = slab.insert(value);
            slab.remove(token).unwrap();
        }
        let token = slab.insert(7);
        assert_eq!(Token::from_bits(token.to_bits()), token);
        assert_ne!(token.to_bits(), Token { index: token.index, generation: 0 }.to_bits());
    }
}

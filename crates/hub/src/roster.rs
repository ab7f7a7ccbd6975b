//! A list without order from which any entry is removed in constant time.
//!
//! Entries lie side by side, so going through them costs no look at what was removed. INVARIANT: `places` has
//! the index of each entry by its handle, and each entry has its handle; a handle that is free names the next
//! free one. Removing moves the last entry into the gap, so it changes one entry and two places.

/// Entries, each removed by the handle that its insertion returned.
pub(crate) struct Roster<T> {
    entries: Vec<(u32, T)>,
    places: Vec<u32>,
    /// The first handle that is free; [`NONE`]: none is.
    free: u32,
    /// Entries and places that were written.
    #[cfg(test)]
    steps: u64,
}

const NONE: u32 = u32::MAX;

impl<T> Default for Roster<T> {
    fn default() -> Roster<T> {
        Roster {
            entries: Vec::new(),
            places: Vec::new(),
            free: NONE,
            #[cfg(test)]
            steps: 0,
        }
    }
}

impl<T> Roster<T> {
    /// Inserts an entry and returns its handle.
    ///
    /// # Panics
    /// There are 2^32 - 1 entries.
    pub(crate) fn insert(&mut self, entry: T) -> u32 {
        let at = u32::try_from(self.entries.len()).unwrap_or(NONE);
        assert_ne!(at, NONE, "a roster has fewer than 2^32 - 1 entries");
        let handle = match self.places.get_mut(self.free as usize) {
            Some(place) => {
                let handle = self.free;
                self.free = std::mem::replace(place, at);
                handle
            }
            None => {
                // Without a free handle there are as many places as entries.
                self.places.push(at);
                at
            }
        };
        self.entries.push((handle, entry));
        self.count(2);
        handle
    }

    /// Removes and returns the entry of a handle.
    pub(crate) fn remove(&mut self, handle: u32) -> Option<T> {
        let place = self.places.get_mut(handle as usize)?;
        let at = *place as usize;
        // A handle that is free names no entry, or one of another handle.
        self.entries.get(at).filter(|(known, _)| *known == handle)?;
        *place = self.free;
        self.free = handle;
        let (_, removed) = self.entries.swap_remove(at);
        if let Some((moved, _)) = self.entries.get(at)
            && let Some(place) = self.places.get_mut(*moved as usize)
        {
            *place = at as u32;
        }
        self.count(3);
        Some(removed)
    }

    /// Returns the entries, in any order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|(_, entry)| entry)
    }

    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[cfg(test)]
    fn count(&mut self, steps: u64) {
        self.steps += steps;
    }

    #[cfg(not(test))]
    fn count(&mut self, _: u64) {}
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn an_entry_is_removed_in_the_same_number_of_steps_however_many_there_are() {
        let steps_of = |entries: u64| {
            let mut roster = Roster::default();
            let handles: Vec<u32> = (0..entries).map(|entry| roster.insert(entry)).collect();
            let before = roster.steps;
            // From the front, where a search from the front is short and a shift long, then from the back.
            for handle in [handles[0], handles[1], handles[handles.len() - 1], handles[handles.len() / 2]] {
                roster.remove(handle).unwrap();
            }
            roster.steps - before
        };
        assert_eq!(steps_of(100_000), steps_of(8));
    }

    #[test]
    fn a_roster_has_what_a_map_of_the_same_handles_has() {
        let (mut roster, mut map) = (Roster::default(), HashMap::new());
        let mut random = 7_u64;
        for number in 0..20_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // More come than go at first, and then the other way round.
            if (random >> 33) % 10 < if number < 10_000 { 6 } else { 4 } {
                let handle = roster.insert(number);
                assert_eq!(map.insert(handle, number), None);
            } else {
                let handle = (random >> 40) as u32 % 2_000;
                assert_eq!(roster.remove(handle), map.remove(&handle));
                assert_eq!(roster.remove(handle), None);
            }
        }
        let mut all: Vec<u64> = roster.iter().copied().collect();
        let mut expected: Vec<u64> = map.values().copied().collect();
        all.sort_unstable();
        expected.sort_unstable();
        assert_eq!(all, expected);
        let handles: Vec<u32> = map.keys().copied().collect();
        assert!(handles.iter().all(|handle| roster.remove(*handle).is_some()));
        assert!(roster.is_empty());
        // Handles are used again.
        assert!(roster.places.len() < 10_000, "{}", roster.places.len());
    }
}

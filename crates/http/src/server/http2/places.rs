//! Streams with a running handler, as their requests refer to them.
//!
//! A stream's id differs from a connection's by its index, which has the highest bit set.

use crate::message::ConnectionId;
use std::cell::RefCell;

/// First index of streams; indices of connections are smaller, because they are bounded by the descriptors.
const FIRST: u32 = 1 << 31;

struct Place {
    visit: u32,
    /// `None` if the place is free.
    connection: Option<ConnectionId>,
    /// Whether the client has reset the stream.
    gone: bool,
}

/// The places of a worker's streams.
#[derive(Default)]
pub(in crate::server) struct Places(RefCell<Inner>);

#[derive(Default)]
struct Inner {
    places: Vec<Place>,
    free: Vec<u32>,
}

impl Places {
    /// Returns a place for a stream of this connection.
    pub(super) fn take(&self, connection: ConnectionId) -> ConnectionId {
        let mut inner = self.0.borrow_mut();
        if let Some(index) = inner.free.pop()
            && let Some(place) = inner.places.get_mut((index - FIRST) as usize)
        {
            (place.connection, place.gone) = (Some(connection), false);
            return ConnectionId { index, visit: place.visit };
        }
        // There are far fewer than two billion: so many would not fit into memory.
        let index = FIRST + inner.places.len() as u32;
        inner.places.push(Place { visit: 0, connection: Some(connection), gone: false });
        ConnectionId { index, visit: 0 }
    }

    /// Frees the place of a stream. Its request was answered or given up.
    pub(super) fn leave(&self, id: ConnectionId) {
        let mut inner = self.0.borrow_mut();
        if let Some(place) = inner.places.get_mut(id.index.wrapping_sub(FIRST) as usize) {
            place.connection = None;
            place.visit = place.visit.wrapping_add(1);
            inner.free.push(id.index);
        }
    }

    fn with<R>(&self, id: ConnectionId, work: impl FnOnce(&mut Place) -> R) -> Option<R> {
        let mut inner = self.0.borrow_mut();
        let place = inner.places.get_mut(id.index.checked_sub(FIRST)? as usize)?;
        (place.visit == id.visit && place.connection.is_some()).then(|| work(place))
    }

    /// Records that the client has reset the stream.
    pub(super) fn set_gone(&self, id: ConnectionId) {
        self.with(id, |place| place.gone = true);
    }

    /// Returns whether this is a stream that its client has reset.
    pub(in crate::server) fn is_gone(&self, id: ConnectionId) -> bool {
        self.with(id, |place| place.gone).unwrap_or(false)
    }

    /// Returns the connection of a stream, or the connection itself; `None` if the stream is over.
    pub(in crate::server) fn connection_of(&self, id: ConnectionId) -> Option<ConnectionId> {
        if id.index < FIRST || id == ConnectionId::NONE {
            return Some(id);
        }
        self.with(id, |place| place.connection).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_taken_again_is_another_stream() {
        let places = Places::default();
        let connection = ConnectionId { index: 3, visit: 1 };
        let first = places.take(connection);
        assert_eq!(places.connection_of(first), Some(connection));
        assert_eq!(places.connection_of(connection), Some(connection));
        places.set_gone(first);
        assert!(places.is_gone(first));
        places.leave(first);
        let second = places.take(connection);
        assert_eq!(second.index, first.index);
        assert!(!places.is_gone(second) && places.connection_of(first).is_none());
    }
}

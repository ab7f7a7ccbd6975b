//! Values that one step of a request hands to the next, by type.

use std::any::{Any, TypeId};
use std::fmt;

/// Values by type, one of each. For example, a layer that has checked a password inserts the user, and the
/// handler reads it.
///
/// Empty it takes no memory. It is searched from the front, which is fastest for a few values.
#[derive(Default)]
pub struct Extensions(Vec<(TypeId, Box<dyn Any>)>);

impl Extensions {
    /// Inserts `value`; returns the previous value of the type.
    pub fn insert<T: 'static>(&mut self, value: T) -> Option<T> {
        let before = self.remove::<T>();
        self.0.push((TypeId::of::<T>(), Box::new(value)));
        before
    }

    /// Returns the value of this type.
    pub fn get<T: 'static>(&self) -> Option<&T> {
        let (_, value) = self.0.iter().find(|(of, _)| *of == TypeId::of::<T>())?;
        value.downcast_ref()
    }

    /// Returns the value of this type, for a change.
    pub fn get_mut<T: 'static>(&mut self) -> Option<&mut T> {
        let (_, value) = self.0.iter_mut().find(|(of, _)| *of == TypeId::of::<T>())?;
        value.downcast_mut()
    }

    /// Removes and returns the value of this type.
    pub fn remove<T: 'static>(&mut self) -> Option<T> {
        let at = self.0.iter().position(|(of, _)| *of == TypeId::of::<T>())?;
        let (_, value) = self.0.swap_remove(at);
        value.downcast().ok().map(|value| *value)
    }

    /// Drops all values.
    pub(crate) fn clear(&mut self) {
        // Drops may run the user's code, so the list is consistent meanwhile.
        if !self.0.is_empty() {
            drop(std::mem::take(&mut self.0));
        }
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extensions({} values)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]
    use super::*;

    #[test]
    fn a_value_is_found_by_its_type_and_replaced_by_another_of_it() {
        let mut all = Extensions::default();
        assert_eq!(all.insert(7_u32), None);
        assert_eq!(all.insert("user"), None);
        assert_eq!((all.get::<u32>(), all.get::<&str>(), all.get::<u64>()), (Some(&7), Some(&"user"), None));
        assert_eq!(all.insert(8_u32), Some(7));
        *all.get_mut::<u32>().expect("it is there") += 1;
        assert_eq!((all.remove::<u32>(), all.remove::<u32>()), (Some(9), None));
        all.clear();
        assert_eq!(all.get::<&str>(), None);
    }
}

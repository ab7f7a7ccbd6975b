//! Names of one file in the source become names of one file in the target.
//!
//! The first worker that finds a file with several names copies it. Other workers that find it meanwhile
//! leave their name here and continue; the names are queued again when the copy is complete. A group is
//! forgotten when all the names its file had were met, so the table holds only what is still open. Several
//! operands may meet one name more than once (`cp -a s/f s d`): then nothing is forgotten.

use crate::dir::Dir;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex, PoisonError};

/// Files with several names, by device and inode.
#[derive(Debug, Default)]
pub(crate) struct Links {
    groups: Mutex<HashMap<(u64, u64), Group>>,
    /// Whether a name may be met more than once.
    repeats: bool,
}

#[derive(Debug)]
struct Group {
    /// Names that are neither copied nor linked yet.
    left: u64,
    copy: Copy,
}

#[derive(Debug)]
enum Copy {
    /// Being copied; these names wait.
    Making(Vec<Waiter>),
    /// Complete.
    Made(Made),
}

/// Where the copy of a file is.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) dir: Arc<Dir>,
    pub(crate) name: CString,
}

/// A name that waits for the copy it will be linked to.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) dir: Arc<Dir>,
    pub(crate) source: CString,
    pub(crate) target: CString,
    pub(crate) operand: bool,
    pub(crate) follow: bool,
}

/// What to do with one of several names.
#[derive(Debug)]
pub(crate) enum Claim {
    /// Copy it, then [`Links::resolve`].
    Copy,
    /// Link it to this.
    Link(Made),
    /// Nothing now: it comes back as work.
    Wait,
}

impl Links {
    pub(crate) fn of_operands(count: usize) -> Links {
        Links { repeats: count > 1, ..Links::default() }
    }

    /// Returns what to do with a name of the file `identity`, which has `nlink` names. `waiter` is asked for
    /// only where the answer is to wait.
    pub(crate) fn claim(&self, identity: (u64, u64), nlink: u64, waiter: impl FnOnce() -> Waiter) -> Claim {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        match groups.entry(identity) {
            Entry::Vacant(entry) => {
                let left = if self.repeats { u64::MAX } else { nlink };
                entry.insert(Group { left, copy: Copy::Making(Vec::new()) });
                Claim::Copy
            }
            Entry::Occupied(mut entry) => match &mut entry.get_mut().copy {
                Copy::Making(waiting) => {
                    waiting.push(waiter());
                    Claim::Wait
                }
                Copy::Made(made) => Claim::Link(made.clone()),
            },
        }
    }

    /// Notes that the copy was made, or could not be: then the next name that is met tries. Returns the names
    /// that waited.
    pub(crate) fn resolve(&self, identity: (u64, u64), made: Option<(&Arc<Dir>, &CStr)>) -> Vec<Waiter> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let Entry::Occupied(mut entry) = groups.entry(identity) else { return Vec::new() };
        let waiting = match &mut entry.get_mut().copy {
            Copy::Making(waiting) => std::mem::take(waiting),
            Copy::Made(_) => return Vec::new(),
        };
        match made {
            Some((dir, name)) => {
                entry.get_mut().copy = Copy::Made(Made { dir: Arc::clone(dir), name: name.to_owned() });
                one_less(entry);
            }
            None => {
                entry.remove();
            }
        }
        waiting
    }

    /// A name was linked.
    pub(crate) fn linked(&self, identity: (u64, u64)) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(entry) = groups.entry(identity) {
            one_less(entry);
        }
    }
}

/// With its last name a group goes.
fn one_less(mut entry: std::collections::hash_map::OccupiedEntry<'_, (u64, u64), Group>) {
    let left = &mut entry.get_mut().left;
    *left = left.saturating_sub(1);
    if *left == 0 {
        entry.remove();
    }
}

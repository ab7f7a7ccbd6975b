//! Names of slots: a number, for task workers with `t` before it, as people read and write them.

use std::fmt;
use std::str::FromStr;

/// Set in the slots of task workers, which have numbers of their own.
pub(crate) const TASK_SLOT: u32 = ringroad_wire::rwp::TASK_SLOT as u32;

/// Most slots of one kind.
const SLOTS_MAX: u32 = 1024;

/// A place for a process of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotId {
    /// Counted from 0, task workers by themselves.
    pub number: u32,
    /// Whether the slot is that of a task worker.
    pub is_task: bool,
}

impl SlotId {
    /// Reads the slot of a number with the mark of task workers.
    pub(crate) fn of(raw: u32) -> SlotId {
        SlotId { number: raw & !TASK_SLOT, is_task: raw & TASK_SLOT != 0 }
    }

    /// Returns the number with the mark of task workers.
    pub(crate) fn raw(self) -> u32 {
        self.number | if self.is_task { TASK_SLOT } else { 0 }
    }
}

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_task { "t" } else { "" }, self.number)
    }
}

impl FromStr for SlotId {
    type Err = String;

    fn from_str(text: &str) -> Result<SlotId, String> {
        let (digits, is_task) = text.strip_prefix('t').map_or((text, false), |digits| (digits, true));
        let number = digits.parse().ok().filter(|number| *number < SLOTS_MAX);
        match number.filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit())) {
            Some(number) => Ok(SlotId { number, is_task }),
            None => {
                Err(format!("expected the number of a slot, as 0, or t0 for a task worker, found {text:?}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_slot_has_one_name() {
        for (text, slot) in [("0", 0), ("17", 17), ("t0", TASK_SLOT), ("t3", TASK_SLOT | 3)] {
            let read: SlotId = text.parse().unwrap();
            assert_eq!((read.raw(), read.to_string()), (slot, text.to_owned()));
            assert_eq!(SlotId::of(slot), read);
        }
        for wrong in ["", "t", "-1", "+1", "1024", "x", "tt1", "1 "] {
            assert!(wrong.parse::<SlotId>().is_err(), "{wrong}");
        }
    }
}

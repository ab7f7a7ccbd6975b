//! `select(2)`: two bit sets, one bit per descriptor number.
//!
//! The kernel overwrites the sets with its result, so it gets copies. Only the words up to the highest number
//! are copied, passed and scanned. A number of 1024 or more has no bit: setting it anyway writes out of
//! bounds, the classic bug with this call. [`Poller::NUMBERS`] refuses such descriptors earlier, and the sets
//! are indexed with bounds checks. (The limit is the C library's `FD_SETSIZE`; the kernel takes larger sets.)
//!
//! References: select(2), in particular under BUGS; pselect6 overwrites its time-out with the remaining time.

use super::readiness::{Event, IN, OUT, Poller};
use super::{DriverName, alarm};
use crate::clock::Until;
use crate::counters::Counters;
use crate::descriptor::NONE;
use crate::op::{Target, Token};
use crate::sys::{check_wait, wait_span};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// Number of bits in a set.
const LIMIT: usize = libc::FD_SETSIZE;
const WORDS: usize = LIMIT / 64;

/// A set of descriptor numbers, laid out as the kernel reads it: an array of longs, lowest bit first.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Set {
    words: [u64; WORDS],
}

// The kernel's longs are 64 bits wide where this builds, and the C library's set is the same 128 bytes.
const _: () = assert!(size_of::<Set>() == size_of::<libc::fd_set>() && size_of::<libc::c_ulong>() == 8);

impl Set {
    const EMPTY: Set = Set { words: [0; WORDS] };

    fn set(&mut self, number: usize, present: bool) {
        let bit = 1 << (number % 64);
        if present { self.words[number / 64] |= bit } else { self.words[number / 64] &= !bit }
    }
}

/// The sets of descriptors with an interest, and the table entries of these descriptors.
pub(crate) struct Select {
    reads: Set,
    writes: Set,
    /// Number of leading words of the sets that may have bits.
    words: usize,
    /// Number of bits in `writes`.
    writers: usize,
    /// The table entry of each number. The alarm has none.
    owners: Box<[Token; LIMIT]>,
    /// Number of the descriptor, by index in the table of descriptors.
    numbers: Vec<u16>,
    alarm: Arc<OwnedFd>,
}

const UNOWNED: Token = Token { index: NONE, generation: 0 };

impl Select {
    pub(crate) fn new() -> io::Result<Select> {
        let alarm = Arc::new(alarm::new()?);
        let number = alarm.as_raw_fd() as usize;
        if number >= LIMIT {
            let why =
                format!("it is descriptor {number}, and select has bits for numbers below {LIMIT} only");
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let mut select = Select {
            reads: Set::EMPTY,
            writes: Set::EMPTY,
            words: number / 64 + 1,
            writers: 0,
            owners: Box::new([UNOWNED; LIMIT]),
            numbers: Vec::new(),
            alarm,
        };
        select.reads.set(number, true);
        Ok(select)
    }

    fn change(&mut self, number: usize, directions: u8) {
        self.reads.set(number, directions & IN != 0);
        let wrote = self.writes.words[number / 64] >> (number % 64) & 1;
        self.writes.set(number, directions & OUT != 0);
        self.writers = self.writers + usize::from(directions & OUT != 0) - wrote as usize;
    }

    /// Returns one more than the highest number in the sets.
    fn count(&mut self) -> usize {
        loop {
            // The alarm is never removed, so there is always a word.
            let last = self.words - 1;
            let bits = self.reads.words[last] | self.writes.words[last];
            if bits != 0 {
                return self.words * 64 - bits.leading_zeros() as usize;
            }
            self.words = last;
        }
    }
}

impl Poller for Select {
    const NAME: DriverName = DriverName::Select;
    const TELLS_ONCE: bool = false;
    const NUMBERS: i32 = LIMIT as i32;

    fn ask(&mut self, on: Target, _: u8, directions: u8, _: &mut Counters) -> io::Result<()> {
        let number = on.number as usize;
        if number >= LIMIT {
            return Err(io::Error::from_raw_os_error(libc::ERANGE));
        }
        let index = on.index as usize;
        if index >= self.numbers.len() {
            self.numbers.resize(index + 1, 0);
        }
        self.numbers[index] = number as u16;
        self.owners[number] = Token { index: on.index, generation: on.generation };
        self.words = self.words.max(number / 64 + 1);
        self.change(number, directions);
        Ok(())
    }

    fn forget(&mut self, on: Target, _: &mut Counters) {
        self.reduce_interest(on.index, 0);
    }

    fn reduce_interest(&mut self, index: u32, directions: u8) {
        let number = usize::from(self.numbers[index as usize]);
        self.change(number, directions);
    }

    fn wait(&mut self, until: Until, counters: &mut Counters, out: &mut Vec<Event>) -> io::Result<()> {
        let count = self.count();
        let words = self.words;
        let (mut reads, mut writes) = (Set::EMPTY, Set::EMPTY);
        reads.words[..words].copy_from_slice(&self.reads.words[..words]);
        let read = (&raw mut reads).cast::<libc::fd_set>();
        let mut write = std::ptr::null_mut::<libc::fd_set>();
        if self.writers > 0 {
            writes.words[..words].copy_from_slice(&self.writes.words[..words]);
            write = (&raw mut writes).cast();
        }
        let mut span = wait_span(until);
        let span = span.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
        let none = std::ptr::null_mut::<libc::fd_set>();
        counters.system_calls += 1;
        // SAFETY: the sets and the timespec are of this frame, and written during the call only; `count` is
        // at most 1024, the number of bits of the sets, so the kernel stays inside them; null means no set.
        // (By number, as in `sys::attempt`.)
        let ready = unsafe {
            libc::syscall(libc::SYS_pselect6, count, read, write, none, span, std::ptr::null::<u8>())
        };
        // After EINTR the sets still hold the request.
        let mut left = check_wait(ready)?;
        for word in 0..words {
            if left == 0 {
                break;
            }
            let (read, write) = (reads.words[word], writes.words[word]);
            left -= (read.count_ones() + write.count_ones()) as usize;
            let mut bits = read | write;
            while bits != 0 {
                let bit = bits.trailing_zeros();
                bits &= bits - 1;
                let Token { index, generation } = self.owners[word * 64 + bit as usize];
                if index == NONE {
                    alarm::silence(&self.alarm, counters);
                    continue;
                }
                let input = if read >> bit & 1 == 1 { IN } else { 0 };
                let output = if write >> bit & 1 == 1 { OUT } else { 0 };
                out.push(Event { index, generation, ready: input | output });
            }
        }
        Ok(())
    }

    fn alarm(&self) -> &Arc<OwnedFd> {
        &self.alarm
    }
}

//! A hierarchical timing wheel with ticks of one millisecond. It yields one deadline per wait.
//!
//! A timer never fires early; it fires at the first turn of the loop after its tick. Setting, dropping and
//! firing take constant time. A level has 64 places, each as wide as the whole level below. Six levels reach
//! 2.2 years; later timers wait in the last level and are inserted again.
//!
//! Reference: Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", 1987.

use crate::caller::Caller;
use crate::clock::Moment;
use std::task::Waker;

const LEVELS: usize = 6;
const PLACES: usize = 64;
const BITS: u32 = 6;
const NONE: u32 = u32::MAX;
const TICK_NS: u64 = 1_000_000;

/// Timers that are set.
pub(crate) struct Wheel {
    /// The tick up to which everything has fired.
    elapsed: u64,
    timers: Vec<Timer>,
    free: u32,
    set: usize,
    /// The first timer of each place.
    places: [[u32; PLACES]; LEVELS],
    /// Bit set of places with timers, by level.
    occupied: [u64; LEVELS],
}

struct Timer {
    tick: u64,
    previous: u32,
    /// In a free timer: the next free one.
    next: u32,
    level: u8,
    place: u8,
    state: TimerState,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TimerState {
    Free,
    Set,
    Fired,
}

/// A timer that is set, or that has fired and was not dropped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TimerId(u32);

/// Returns the first tick at which `deadline` has passed.
fn tick_of(deadline: Moment) -> u64 {
    deadline.0.div_ceil(TICK_NS)
}

impl Wheel {
    pub(crate) fn new(now: Moment) -> Wheel {
        Wheel {
            elapsed: now.0 / TICK_NS,
            timers: Vec::new(),
            free: NONE,
            set: 0,
            places: [[NONE; PLACES]; LEVELS],
            occupied: [0; LEVELS],
        }
    }

    /// Sets a timer.
    pub(crate) fn set(&mut self, deadline: Moment, waker: Waker) -> TimerId {
        let tick = tick_of(deadline);
        let timer = Timer {
            tick,
            previous: NONE,
            next: NONE,
            level: 0,
            place: 0,
            state: TimerState::Set,
            waker: Some(waker),
        };
        let index = self.free;
        let index = if let Some(free) = self.timers.get_mut(index as usize) {
            self.free = free.next;
            *free = timer;
            index
        } else {
            self.timers.push(timer);
            (self.timers.len() - 1) as u32
        };
        self.set += 1;
        self.link(index);
        TimerId(index)
    }

    /// Returns whether it has fired; if not, the caller is woken when it does. Also returns a replaced waker.
    pub(crate) fn poll(&mut self, id: &TimerId, caller: &Caller<'_>) -> (bool, Option<Waker>) {
        let timer = &mut self.timers[id.0 as usize];
        if timer.state == TimerState::Fired {
            return (true, None);
        }
        match &timer.waker {
            Some(before) if caller.is(before) => (false, None),
            _ => (false, timer.waker.replace(caller.waker())),
        }
    }

    /// Returns the earliest moment at which it fires.
    pub(crate) fn due(&self, id: &TimerId) -> Moment {
        Moment(self.timers[id.0 as usize].tick.saturating_mul(TICK_NS))
    }

    /// Removes a timer, whether it has fired or not; returns its waker.
    pub(crate) fn drop_timer(&mut self, id: TimerId) -> Option<Waker> {
        let index = id.0;
        if self.timers[index as usize].state == TimerState::Set {
            self.unlink(index);
            self.set -= 1;
        }
        let free = self.free;
        let timer = &mut self.timers[index as usize];
        timer.state = TimerState::Free;
        timer.next = free;
        self.free = index;
        timer.waker.take()
    }

    /// Timers that are set.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.set
    }

    /// Returns the next moment at which the wheel must advance: that of the earliest timer, or an earlier one
    /// at which timers move to a lower level.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        self.next_place().map(|(_, _, tick)| Moment(tick.saturating_mul(TICK_NS)))
    }

    /// Fires due timers and appends their wakers to `wakes`.
    pub(crate) fn advance(&mut self, now: Moment, wakes: &mut Vec<Waker>) {
        let now_tick = now.0 / TICK_NS;
        while let Some((level, place, tick)) = self.next_place() {
            if tick > now_tick {
                break;
            }
            self.elapsed = self.elapsed.max(tick);
            // Take the whole list: a timer that is inserted again may land in the same place of the last
            // level.
            let mut index = std::mem::replace(&mut self.places[level][place], NONE);
            self.occupied[level] &= !(1 << place);
            while index != NONE {
                let timer = &mut self.timers[index as usize];
                let next = timer.next;
                // A later timer is inserted again even if it is due too, so that all fire in order.
                if timer.tick <= self.elapsed {
                    timer.state = TimerState::Fired;
                    self.set -= 1;
                    wakes.extend(timer.waker.take());
                } else {
                    self.link(index);
                }
                index = next;
            }
        }
        self.elapsed = self.elapsed.max(now_tick);
    }

    /// Returns the next occupied place: level, index, and the tick at which it begins.
    fn next_place(&self) -> Option<(usize, usize, u64)> {
        if self.set == 0 {
            return None;
        }
        (0..LEVELS).find_map(|level| {
            let occupied = self.occupied[level];
            if occupied == 0 {
                return None;
            }
            let shift = BITS * level as u32;
            let here = ((self.elapsed >> shift) % PLACES as u64) as u32;
            let ahead = occupied.rotate_right(here).trailing_zeros();
            let place = (here + ahead) as usize % PLACES;
            let span = 1u64 << (shift + BITS);
            let mut tick = (self.elapsed & !(span - 1)) + ((place as u64) << shift);
            if (here + ahead) as usize >= PLACES {
                tick += span;
            }
            Some((level, place, tick))
        })
    }

    fn link(&mut self, index: u32) {
        let timer = &self.timers[index as usize];
        let (level, place) = self.place_of(timer.tick);
        let first = std::mem::replace(&mut self.places[level][place], index);
        self.occupied[level] |= 1 << place;
        if first != NONE {
            self.timers[first as usize].previous = index;
        }
        let timer = &mut self.timers[index as usize];
        timer.previous = NONE;
        timer.next = first;
        timer.level = level as u8;
        timer.place = place as u8;
    }

    fn unlink(&mut self, index: u32) {
        let Timer { previous, next, level, place, .. } = self.timers[index as usize];
        if next != NONE {
            self.timers[next as usize].previous = previous;
        }
        if previous != NONE {
            self.timers[previous as usize].next = next;
        } else {
            let (level, place) = (usize::from(level), usize::from(place));
            self.places[level][place] = next;
            if next == NONE {
                self.occupied[level] &= !(1 << place);
            }
        }
    }

    /// Returns the lowest level on which `tick` is less than one turn away, and its place there.
    fn place_of(&self, tick: u64) -> (usize, usize) {
        // A timer that is already due fires at the next advance: insert it at the next tick.
        let tick = tick.max(self.elapsed + 1);
        // The last level ends just before the current place, where a timer would count as due.
        let widest = BITS * (LEVELS as u32 - 1);
        let tick = tick.min(((self.elapsed >> widest) + PLACES as u64 - 1) << widest);
        let differs = (tick ^ self.elapsed) | (PLACES as u64 - 1);
        let level = ((63 - differs.leading_zeros()) / BITS).min(LEVELS as u32 - 1);
        (level as usize, ((tick >> (BITS * level)) % PLACES as u64) as usize)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn ms(ms: u64) -> Moment {
        Moment(ms * TICK_NS)
    }

    /// Returns a reproducible stream of numbers.
    fn numbers(mut seed: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        }
    }

    #[test]
    fn timers_fire_at_their_tick_and_never_before_whatever_the_steps() {
        let caller = Caller::ours(Waker::noop());
        for seed in 0..50 {
            let mut number = numbers(seed);
            let mut wheel = Wheel::new(ms(number(1 << 38)));
            let mut now = wheel.elapsed;
            let mut waiting: Vec<(u64, TimerId)> = Vec::new();
            for _ in 0..400 {
                for _ in 0..number(4) {
                    let ahead = 1u64 << number(38);
                    let tick = now + 1 + number(ahead);
                    waiting.push((tick, wheel.set(ms(tick), Waker::noop().clone())));
                }
                if number(3) == 0 && !waiting.is_empty() {
                    let (_, id) = waiting.swap_remove(number(waiting.len() as u64) as usize);
                    wheel.drop_timer(id);
                }
                // Advance to the deadline, or by a random step.
                now = match wheel.deadline() {
                    Some(deadline) if number(2) == 0 => now.max(deadline.0 / TICK_NS),
                    _ => {
                        let ahead = 1 << number(34);
                        now + number(ahead)
                    }
                };
                let mut wakes = Vec::new();
                wheel.advance(ms(now), &mut wakes);
                let (due, later): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(tick, _)| *tick <= now);
                assert_eq!(wakes.len(), due.len(), "seed {seed}");
                for (tick, id) in due {
                    assert!(wheel.poll(&id, &caller).0, "seed {seed}: {tick} has not fired at {now}");
                    wheel.drop_timer(id);
                }
                for (tick, id) in &later {
                    assert!(!wheel.poll(id, &caller).0, "seed {seed}: {tick} has fired at {now}");
                }
                waiting = later;
                assert_eq!(wheel.len(), waiting.len());
                if let Some(first) = waiting.iter().map(|(tick, _)| *tick).min() {
                    assert!(
                        wheel.deadline().is_some_and(|deadline| deadline <= ms(first)),
                        "seed {seed}: sleeps past {first}"
                    );
                } else {
                    assert_eq!(wheel.deadline(), None);
                }
            }
        }
    }

    #[test]
    fn timers_that_are_due_together_fire_in_order() {
        struct Nth(u64, std::sync::Arc<std::sync::Mutex<Vec<u64>>>);
        impl std::task::Wake for Nth {
            fn wake(self: std::sync::Arc<Nth>) {
                self.1.lock().unwrap().push(self.0);
            }
        }
        let order = std::sync::Arc::default();
        let mut number = numbers(3);
        let mut wheel = Wheel::new(ms(12_345));
        let ids: Vec<_> = (0..500)
            .map(|_| {
                let tick = 12_346 + number(100_000);
                let nth = std::sync::Arc::new(Nth(tick, std::sync::Arc::clone(&order)));
                wheel.set(ms(tick), Waker::from(nth))
            })
            .collect();
        let mut wakes = Vec::new();
        wheel.advance(ms(200_000), &mut wakes);
        wakes.into_iter().for_each(Waker::wake);
        let order = order.lock().unwrap();
        assert!(order.len() == ids.len() && order.is_sorted(), "{order:?}");
    }

    #[test]
    fn a_timer_beyond_the_last_level_never_fires_early() {
        const WIDEST: u64 = 1 << (BITS * (LEVELS as u32 - 1));
        for began in [0, 1, 2, 1000, WIDEST - 1, WIDEST, WIDEST + 1, 64 * WIDEST - 1, 64 * WIDEST + 1] {
            let mut wheel = Wheel::new(ms(began));
            let id = wheel.set(Moment(u64::MAX), Waker::noop().clone());
            let mut now = began;
            for _ in 0..100 {
                let deadline = wheel.deadline().unwrap().0 / TICK_NS;
                assert!(deadline > now, "from {began}: at {now} it is due at {deadline}");
                now += (deadline - now).min(WIDEST / 3);
                let mut wakes = Vec::new();
                wheel.advance(ms(now), &mut wakes);
                assert!(wakes.is_empty(), "from {began}: it has fired at {now}");
            }
            wheel.drop_timer(id);
            assert_eq!(wheel.deadline(), None);
        }
    }

    #[test]
    fn a_deadline_inside_a_tick_is_not_fired_at_its_beginning() {
        let mut wheel = Wheel::new(ms(10));
        let _id = wheel.set(Moment(11 * TICK_NS + 1), Waker::noop().clone());
        let mut wakes = Vec::new();
        wheel.advance(ms(11), &mut wakes);
        assert_eq!(wakes.len(), 0);
        wheel.advance(ms(12), &mut wakes);
        assert_eq!(wakes.len(), 1);
    }
}

//! `[store.NAME]`: kept answers of all workers, bounded in bytes, and the fetches under way.
//!
//! The map is sharded and evicts by frequency and age (the crate `quick_cache`). One entry is a [`Resource`]:
//! all variants of one key. A change makes a new one, under a lock of its own, so that readers never wait for
//! it.

use super::fill::{Fill, Stage};
use super::stored::Stored;
use crate::feature::{Configured, NamedTables};
use crate::metrics::{Families, label};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use ringroad_policy::Nanos;
use ringroad_policy::fresh::{Lines, vary};
use ringroad_settings::{Key, Section, Table, value};
use std::any::Any;
use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The family of the tables.
pub const KEY: Key =
    Key { name: "store", form: "named tables", default: "-", meaning: "Where answers are kept, see below." };

/// The table of the key reference.
pub static TABLE: Table = Table {
    name: "[store.NAME]",
    meaning: "A memory for answers, one for all workers. Routes name it in `cache`. A reload keeps what is in it.",
    keys: &[
        Key {
            name: "memory",
            form: "size, 1M or more",
            default: "256M",
            meaning: "Bytes of all answers in it. Beyond that, those that are used the least are dropped.",
        },
        Key {
            name: "object",
            form: "size, up to a quarter of `memory`",
            default: "4M",
            meaning: "The longest body that is kept.",
        },
    ],
};

/// Most variants of one key.
const VARIANTS_MAX: usize = 32;
/// Most places of one key that are known to have answers which are not to be kept.
const MARKS_MAX: usize = 16;
const SHARDS: usize = 64;

/// Bytes of one answer that a table of the map is laid out for.
const USUAL_BYTES: u64 = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settings {
    memory: u64,
    object: u64,
}

/// A store, as it is configured.
#[derive(Debug)]
pub struct Store {
    name: String,
    settings: Settings,
    state: Mutex<Arc<State>>,
}

/// All variants of one key.
#[derive(Debug, Default)]
pub struct Resource {
    /// The newest first.
    variants: Vec<Arc<Stored>>,
    /// Places with answers that turned out not to be kept, and until when that is taken for granted.
    marks: Vec<(Box<[u8]>, Nanos)>,
}

#[derive(Clone)]
struct Weigh;

impl Weighter<Arc<[u8]>, Arc<Resource>> for Weigh {
    fn weight(&self, key: &Arc<[u8]>, resource: &Arc<Resource>) -> u64 {
        let marks: usize = resource.marks.iter().map(|(place, _)| place.len() + 32).sum();
        let variants: u64 = resource.variants.iter().map(|stored| stored.bytes()).sum();
        variants + (key.len() + marks) as u64 + 128
    }
}

type Entries =
    Cache<Arc<[u8]>, Arc<Resource>, Weigh, RandomState, DefaultLifecycle<Arc<[u8]>, Arc<Resource>>>;

/// What a fetch is known by: two requests with the same one may have the same answer.
pub type FillKey = Box<[u8]>;

/// Fetches under way, each with the key that it is for.
type Fills = HashMap<FillKey, (Arc<[u8]>, Arc<Fill>)>;

/// What is kept, for all workers.
pub struct State {
    entries: Entries,
    object: AtomicU64,
    writes: [Mutex<()>; SHARDS],
    fills: [Mutex<Fills>; SHARDS],
    hasher: RandomState,
    /// Fetches so far that no other request waits for.
    alone: AtomicU64,
    /// Counts by [`Told`].
    told: [AtomicU64; Told::ALL.len()],
    stored: AtomicU64,
    purged: AtomicU64,
    waits_over: AtomicU64,
}

/// How a request was answered, for the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// From the store.
    Hit,
    /// From the store, though stale.
    Stale,
    /// From the store, after the origin has said that it is still good.
    Revalidated,
    /// By the origin.
    Miss,
    /// By the fetch of another request.
    Collapsed,
    /// By the origin, since the request or the answer is not for the store.
    Bypass,
}

impl Told {
    const ALL: [(Told, &'static str); 6] = [
        (Told::Hit, "hit"),
        (Told::Stale, "stale"),
        (Told::Revalidated, "revalidated"),
        (Told::Miss, "miss"),
        (Told::Collapsed, "collapsed"),
        (Told::Bypass, "bypass"),
    ];
}

/// What to remove.
#[derive(Clone, Copy, Debug)]
pub enum Purge<'p> {
    /// This key.
    Key(&'p [u8]),
    /// All keys that begin so.
    Prefix(&'p [u8]),
    /// All answers with this tag.
    Tag(&'p [u8]),
}

/// Whether a request fetches or waits.
#[derive(Debug)]
pub enum Part {
    /// It fetches, for all that ask meanwhile.
    Leads(Lead),
    /// It waits for this fetch.
    Follows(Arc<Fill>),
}

/// A fetch, for the one that leads it. Dropped without an answer, another one leads.
#[derive(Debug)]
pub struct Lead {
    state: Arc<State>,
    key: Arc<[u8]>,
    /// What purges find it by. `None`: its answer is kept, or is not to be.
    listed: Option<FillKey>,
    /// The fetch.
    pub fill: Arc<Fill>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State({} entries, {} bytes)", self.entries.len(), self.entries.weight())
    }
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Resource {
    /// Returns the answer for a request of this place with these lines.
    pub fn find(&self, place: &[u8], request: &(impl Lines + ?Sized)) -> Option<&Arc<Stored>> {
        self.variants.iter().find(|stored| stored.head.fits(place, request))
    }

    /// Returns whether there is an answer for other requests of this place.
    pub fn has_place(&self, place: &[u8]) -> bool {
        self.variants.iter().any(|stored| *stored.head.place == *place)
    }

    /// Returns whether answers of this place are not to be waited for.
    pub fn is_marked(&self, place: &[u8], now: Nanos) -> bool {
        self.marks.iter().any(|(own, until)| **own == *place && now < *until)
    }

    /// Returns what fetches for such a request are known by.
    pub fn fill_key(
        this: Option<&Resource>,
        key: &[u8],
        place: &[u8],
        request: &(impl Lines + ?Sized),
    ) -> FillKey {
        let newest = this.and_then(|this| this.variants.iter().find(|stored| *stored.head.place == *place));
        let variant = newest.map(|stored| vary::key(&stored.head.vary, request)).unwrap_or_default();
        [&(key.len() as u64).to_le_bytes(), key, &(place.len() as u64).to_le_bytes(), place, &variant]
            .concat()
            .into()
    }
}

impl State {
    fn new(settings: Settings) -> Arc<State> {
        // A shard has room for several of the longest answers.
        let fit = settings.memory / (settings.object.max(1) * 4);
        let shards =
            (1..=SHARDS).rev().filter(|count| count.is_power_of_two()).find(|count| *count as u64 <= fit);
        let options = OptionsBuilder::new()
            .shards(shards.unwrap_or(1))
            .estimated_items_capacity(
                usize::try_from(settings.memory / USUAL_BYTES).unwrap_or(1 << 20).clamp(64, 1 << 20),
            )
            .weight_capacity(settings.memory)
            .build();
        #[allow(clippy::expect_used, reason = "the two values that it needs are given")]
        let options = options.expect("capacities are given");
        let hasher = RandomState::new();
        Arc::new(State {
            entries: Cache::with_options(options, Weigh, hasher.clone(), DefaultLifecycle::default()),
            object: AtomicU64::new(settings.object),
            writes: std::array::from_fn(|_| Mutex::default()),
            fills: std::array::from_fn(|_| Mutex::default()),
            hasher,
            alone: AtomicU64::new(0),
            told: Default::default(),
            stored: AtomicU64::new(0),
            purged: AtomicU64::new(0),
            waits_over: AtomicU64::new(0),
        })
    }

    /// Returns the longest body that is kept.
    pub fn object(&self) -> u64 {
        self.object.load(Ordering::Relaxed)
    }

    /// Counts how a request was answered.
    pub fn count(&self, told: Told) {
        if let Some(count) = self.told.get(told as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a wait that took too long.
    pub fn wait_is_over(&self) {
        self.waits_over.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns entries, bytes, and the most bytes.
    pub fn size(&self) -> (usize, u64, u64) {
        (self.entries.len(), self.entries.weight(), self.entries.capacity())
    }

    /// Returns what is known of a key.
    pub fn get(&self, key: &[u8]) -> Option<Arc<Resource>> {
        self.entries.get(key)
    }

    fn shard<'s, T>(&self, of: &'s [Mutex<T>; SHARDS], key: &[u8]) -> MutexGuard<'s, T> {
        #[allow(clippy::indexing_slicing, reason = "the remainder is below the length, which is SHARDS")]
        held(&of[self.hasher.hash_one(key) as usize % SHARDS])
    }

    fn change(&self, key: &Arc<[u8]>, change: impl FnOnce(&mut Resource)) {
        let _writing = self.shard(&self.writes, key);
        let known = self.entries.peek(&**key);
        let mut resource = match &known {
            Some(known) => Resource { variants: known.variants.clone(), marks: known.marks.clone() },
            None => Resource::default(),
        };
        change(&mut resource);
        self.entries.insert(Arc::clone(key), Arc::new(resource));
    }

    /// Keeps an answer, in the place of the one for the same requests.
    fn put(&self, key: &Arc<[u8]>, stored: Arc<Stored>) {
        self.stored.fetch_add(1, Ordering::Relaxed);
        let most = self.entries.shard_capacity() / 2;
        self.change(key, |resource| {
            let new = &stored.head;
            resource.marks.retain(|(place, _)| *place != new.place);
            resource.variants.retain(|known| {
                let known = &known.head;
                known.place != new.place || (&known.vary, &known.variant) != (&new.vary, &new.variant)
            });
            resource.variants.insert(0, stored);
            let (mut bytes, mut count) = (0, 0);
            resource.variants.retain(|known| {
                bytes += known.bytes();
                count += 1;
                count <= VARIANTS_MAX && (bytes <= most || count == 1)
            });
        });
    }

    /// Removes an answer that is no longer the origin's.
    pub fn drop_stored(&self, key: &Arc<[u8]>, stored: &Arc<Stored>) {
        self.change(key, |resource| resource.variants.retain(|known| !Arc::ptr_eq(known, stored)));
    }

    /// Notes that answers of this place are not kept.
    pub fn mark(&self, key: &Arc<[u8]>, place: &[u8], until: Nanos) {
        self.change(key, |resource| {
            resource.marks.retain(|(own, _)| **own != *place);
            resource.marks.insert(0, (place.into(), until));
            resource.marks.truncate(MARKS_MAX);
        });
    }

    /// Leads a fetch or follows the one there is.
    pub fn join(self: &Arc<Self>, key: &Arc<[u8]>, fill_key: FillKey) -> Part {
        let mut fills = self.shard(&self.fills, &fill_key);
        let fill = match fills.entry(fill_key.clone()) {
            Entry::Occupied(known) => return Part::Follows(Arc::clone(&known.get().1)),
            Entry::Vacant(place) => {
                let fill = Arc::<Fill>::default();
                place.insert((Arc::clone(key), Arc::clone(&fill)));
                fill
            }
        };
        drop(fills);
        Part::Leads(self.lead(key, fill_key, fill))
    }

    /// Leads a fetch that no other request waits for.
    pub fn alone(self: &Arc<Self>, key: &Arc<[u8]>) -> Lead {
        // No request is known by such a number: those names are longer.
        let fill_key: FillKey = Box::from(self.alone.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        let fill = Arc::<Fill>::default();
        self.shard(&self.fills, &fill_key).insert(fill_key.clone(), (Arc::clone(key), Arc::clone(&fill)));
        self.lead(key, fill_key, fill)
    }

    fn lead(self: &Arc<Self>, key: &Arc<[u8]>, listed: FillKey, fill: Arc<Fill>) -> Lead {
        Lead { state: Arc::clone(self), key: Arc::clone(key), listed: Some(listed), fill }
    }

    /// Removes answers, and has those on their way not kept. Returns how many there were.
    pub fn purge(&self, purge: Purge<'_>) -> u64 {
        let is_meant = |key: &[u8]| match purge {
            Purge::Key(own) => key == own,
            Purge::Prefix(prefix) => key.starts_with(prefix),
            // The answer may turn out to have it.
            Purge::Tag(_) => true,
        };
        // First those on their way: what ends between this and the next lines is removed by them.
        for shard in &self.fills {
            held(shard).values().filter(|(key, _)| is_meant(key)).for_each(|(_, fill)| fill.doom());
        }
        let count = match purge {
            Purge::Key(key) => {
                let _writing = self.shard(&self.writes, key);
                self.entries.remove(key).map_or(0, |(_, resource)| resource.variants.len() as u64)
            }
            Purge::Prefix(prefix) => {
                // A change under way would put back what it has read.
                let _writing = self.writes.each_ref().map(held);
                let count = Cell::new(0);
                self.entries.retain(|key, resource| {
                    let stays = !key.starts_with(prefix);
                    count.set(count.get() + if stays { 0 } else { resource.variants.len() as u64 });
                    stays
                });
                count.get()
            }
            Purge::Tag(tag) => {
                let mut tagged = Vec::new();
                for (key, resource) in self.entries.iter() {
                    if resource.variants.iter().any(|stored| stored.head.has_tag(tag)) {
                        tagged.push(key);
                    }
                }
                let mut count = 0;
                for key in tagged {
                    self.change(&key, |resource| {
                        let before = resource.variants.len();
                        resource.variants.retain(|stored| !stored.head.has_tag(tag));
                        count += (before - resource.variants.len()) as u64;
                    });
                }
                count
            }
        };
        self.purged.fetch_add(count, Ordering::Relaxed);
        count
    }

    fn fills(&self) -> usize {
        self.fills.iter().map(|shard| held(shard).len()).sum()
    }
}

impl Lead {
    /// Returns the key.
    pub fn key(&self) -> &Arc<[u8]> {
        &self.key
    }

    /// Returns the store.
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    fn take_off(&mut self, keep: impl FnOnce(&State)) {
        let Some(listed) = self.listed.take() else { return };
        // Under the lock under which a purge looks: the answer is kept before it, or is doomed.
        let mut fills = self.state.shard(&self.state.fills, &listed);
        fills.remove(&listed);
        if !self.fill.is_doomed() {
            keep(&self.state);
        }
    }

    /// Keeps this answer, unless it was purged meanwhile.
    pub fn keep(&mut self, stored: &Arc<Stored>) {
        let key = Arc::clone(&self.key);
        self.take_off(|state| state.put(&key, Arc::clone(stored)));
    }

    /// Ends with an answer that is for its own request only.
    pub fn give_up(mut self, stage: Stage) {
        self.take_off(|_| {});
        self.fill.set(stage);
    }

    /// Goes on for the readers there are, without further ones.
    pub fn unlist(&mut self) {
        self.take_off(|_| {});
        self.fill.doom();
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.take_off(|_| {});
        self.fill.abandon();
    }
}

impl Store {
    /// Returns what is in it.
    pub fn state(&self) -> Arc<State> {
        Arc::clone(&held(&self.state))
    }
}

impl Configured for Store {
    fn same_as(&self, other: &dyn Any) -> bool {
        other
            .downcast_ref::<Store>()
            .is_some_and(|other| self.name == other.name && self.settings == other.settings)
    }

    fn adopt(&self, before: &dyn Any) {
        if let Some(before) = before.downcast_ref::<Store>() {
            let state = before.state();
            if before.settings.memory != self.settings.memory {
                state.entries.set_capacity(self.settings.memory);
            }
            state.object.store(self.settings.object, Ordering::Relaxed);
            *held(&self.state) = state;
        }
    }

    fn metrics(&self, labels: &str, out: &mut Families) {
        let state = self.state();
        let help = "Requests of routes with `cache`, by how they were answered.";
        let mut family = out.family("ringroad_cache_requests_total", "counter", help);
        for ((_, word), count) in Told::ALL.iter().zip(&state.told) {
            family.sample(&format!("{labels},{}", label("status", word)), count.load(Ordering::Relaxed));
        }
        let (entries, bytes, most) = state.size();
        for (name, help, value) in [
            ("ringroad_cache_bytes", "Bytes of kept answers.", bytes),
            ("ringroad_cache_bytes_max", "Most bytes of kept answers.", most),
            ("ringroad_cache_entries", "Keys with kept answers, or known not to have any.", entries as u64),
            ("ringroad_cache_fetches", "Fetches under way.", state.fills() as u64),
        ] {
            out.family(name, "gauge", help).sample(labels, value);
        }
        for (name, help, count) in [
            ("ringroad_cache_stored_total", "Answers that were put into the store.", &state.stored),
            (
                "ringroad_cache_purged_total",
                "Answers that a purge or an unsafe method has removed.",
                &state.purged,
            ),
            (
                "ringroad_cache_waits_over_total",
                "Requests that have waited too long for the fetch of another one.",
                &state.waits_over,
            ),
        ] {
            out.family(name, "counter", help).sample(labels, count.load(Ordering::Relaxed));
        }
    }
}

/// Reads one table.
pub fn read(name: &str, mut section: Section<'_>, _: &NamedTables) -> Option<Arc<dyn Configured>> {
    section.describe(&TABLE);
    let memory = section.read("memory", |value| value::bytes(value, 1 << 20, 1 << 44)).unwrap_or(256 << 20);
    let most = memory / 4;
    let object = section.read("object", |value| value::bytes(value, 1, most)).unwrap_or(most.min(4 << 20));
    section.finish();
    let settings = Settings { memory, object };
    Some(Arc::new(Store { name: name.to_owned(), settings, state: Mutex::new(State::new(settings)) }))
}

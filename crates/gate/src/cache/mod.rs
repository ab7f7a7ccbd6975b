//! Answers that are kept: one store for all workers, fetched once for all that ask at the same time.
//!
//! Whether an answer may be kept and used is decided by [`ringroad_policy::fresh`]. [`stored`] is one answer
//! and how a request is answered from it, [`store`] is `[store.NAME]`, [`fill`] is an answer on its way,
//! which all readers get as it comes. The step of a route is `filter/cache.rs`; start there.

pub mod fill;
pub mod store;
pub mod stored;

use ringroad_http::{FieldBlock, Fields, Response};
use ringroad_policy::fresh::Lines;

/// The lines of a request.
pub struct OfRequest<'r>(pub Fields<'r>);

impl Lines for OfRequest<'_> {
    fn each(&self, name: &str, take: &mut dyn FnMut(&[u8])) {
        self.0.get_all(name).for_each(take);
    }

    fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some()
    }
}

/// The lines of a response.
pub struct OfResponse<'r>(pub &'r Response);

impl Lines for OfResponse<'_> {
    fn each(&self, name: &str, take: &mut dyn FnMut(&[u8])) {
        let named = self.0.headers().filter(|line| line.name.eq_ignore_ascii_case(name.as_bytes()));
        named.for_each(|line| take(line.value));
    }
}

/// The lines of a block.
pub struct OfBlock<'b>(pub &'b FieldBlock);

impl Lines for OfBlock<'_> {
    fn each(&self, name: &str, take: &mut dyn FnMut(&[u8])) {
        let named = self.0.iter().filter(|line| line.name.eq_ignore_ascii_case(name.as_bytes()));
        named.for_each(|line| take(line.value));
    }
}

//! Tests on every driver, and in simulated time.
//!
//! `#[ringroad::test(all)]` makes a test for each driver of the kernel; one that cannot be used on the
//! machine is skipped, with the reason. On the driver `sim` (feature `sim`, for dev-dependencies) sockets,
//! files and timers are simulated: an hour passes at once, and a run depends on its seed alone.
//!
//! ```
//! # #[cfg(test)]
//! mod tests {
//!     use ringroad::time::{now, sleep};
//!     use std::time::Duration;
//!
//!     #[ringroad::test(sim)]
//!     async fn an_hour_takes_no_time() {
//!         let begin = now();
//!         sleep(Duration::from_secs(3600)).await;
//!         assert!(now() - begin >= Duration::from_secs(3600));
//!     }
//! }
//! ```
//!
//! [`time::now`](crate::time::now) follows the virtual clock, as [`sleep`](crate::time::sleep),
//! [`timeout`](crate::time::timeout) and [`interval`](crate::time::interval) do; `Instant::now` does not.
//! [`sim::Faults`](crate::sim::Faults) lets receives be short, connections reset and descriptors run out.
#![cfg_attr(not(feature = "sim"), allow(rustdoc::broken_intra_doc_links))]

//! The guide: what a program has to know, a page for each subject.
//!
//! 1. [`model`]: one thread, one runtime, operations that the kernel completes.
//! 2. [`buffers`]: the owner of a buffer, and which types can be sent.
//! 3. [`cancellation`]: what a dropped future means.
//! 4. [`errors`]: what an error says, and how to tell one from another.
//! 5. [`drivers`]: how a driver is chosen, and what differs.
//! 6. [`cores`]: several threads, each with a runtime.
//! 7. [`testing`]: tests on every driver, and in simulated time.
//! 8. [`coming_from_tokio`]: the same things under other names.

pub mod buffers;
pub mod cancellation;
pub mod coming_from_tokio;
pub mod cores;
pub mod drivers;
pub mod errors;
pub mod model;
pub mod testing;

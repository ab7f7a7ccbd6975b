//! TCP: streams, listeners, their options.

mod option;

pub use option::SocketOption;

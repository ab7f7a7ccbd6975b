//! Loads that are put on again for longer, where a busy machine left them too little time. The command line's
//! tests use this file as well, by its path.

use ringroad_lab::client::Options;

/// Calls `has_enough` with these options, and as long as it returns false with a window that is ten times as
/// long, up to half a minute; returns whether it had enough at last.
pub(crate) fn for_long_enough(options: &Options, mut has_enough: impl FnMut(&Options) -> bool) -> bool {
    let mut options = options.clone();
    loop {
        if has_enough(&options) {
            return true;
        }
        if options.duration_s > 3.0 {
            return false;
        }
        options.duration_s *= 10.0;
    }
}

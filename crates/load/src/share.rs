//! Division of a whole into shares, among the threads of a process and among the parts of a load.

/// Returns the share of `all` that falls to number `index` of `count`: shares differ by one at most, and add
/// up. It is the number of those of `all` that come to `index` when they are dealt out in turns.
pub(crate) fn share(all: u64, index: u32, count: u32) -> u64 {
    all / u64::from(count) + u64::from(u64::from(index) < all % u64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_differ_by_one_at_most_and_add_up() {
        for (all, workers) in [(10, 3), (3, 3), (1, 4), (0, 2), (u64::MAX, 7)] {
            let shares: Vec<u64> = (0..workers).map(|index| share(all, index, workers)).collect();
            assert_eq!(shares.iter().sum::<u64>(), all);
            assert!(shares.iter().max() <= shares.iter().min().map(|min| min + 1).as_ref(), "{shares:?}");
        }
    }

    /// A part deals out its share to its threads, whatever their number is: the whole is dealt out to all of
    /// them, thread i of part I having the number I + N·i.
    #[test]
    fn a_part_has_its_share_whatever_the_number_of_its_threads_is() {
        for (all, parts) in [(1000_u64, 3), (7, 7), (64, 5), (0, 4)] {
            for part in 0..parts {
                for threads in 1..6 {
                    let of = |thread| share(all, part + parts * thread, parts * threads);
                    let sum: u64 = (0..threads).map(of).sum();
                    assert_eq!(sum, share(all, part, parts), "{all} {part}/{parts}, {threads} threads");
                }
            }
        }
    }
}

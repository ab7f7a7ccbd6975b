//! Division of connections and turns: which connections are silent, in which order messages are sent.

/// Returns whether connection `number` of a worker is one of its silent ones, which are spread evenly among
/// the others.
pub(super) fn is_silent(number: u64, silent: u64, all: u64) -> bool {
    number * silent / all != (number + 1) * silent / all
}

/// Returns the order in which messages are sent: each as often as its weight says, spread evenly (the one
/// that is furthest behind its share comes next).
pub(super) fn wheel(weights: &[u32]) -> Vec<u16> {
    let divisor = weights.iter().copied().fold(0, gcd).max(1);
    let weights: Vec<i64> = weights.iter().map(|weight| i64::from(weight / divisor)).collect();
    if weights.iter().all(|weight| *weight <= 1) {
        // As long as there are messages, and each once: no need to look for the one that is furthest behind.
        let once = (0..).zip(&weights).filter(|(_, weight)| **weight == 1).map(|(at, _)| at);
        let turns: Vec<u16> = once.collect();
        return if turns.is_empty() { vec![0] } else { turns };
    }
    let total: i64 = weights.iter().sum();
    let mut behind = vec![0_i64; weights.len()];
    let turns = total.clamp(1, 10_000);
    (0..turns)
        .map(|_| {
            behind.iter_mut().zip(&weights).for_each(|(behind, weight)| *behind += weight);
            let next =
                (0..behind.len()).max_by_key(|at| (behind.get(*at), std::cmp::Reverse(*at))).unwrap_or(0);
            if let Some(behind) = behind.get_mut(next) {
                *behind -= total;
            }
            next as u16
        })
        .collect()
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_connections_are_as_many_as_asked_for_and_spread() {
        for (silent, all) in [(0, 3), (7, 10), (9, 10), (1, 10), (990, 1000)] {
            let numbers: Vec<u64> = (0..all).filter(|number| is_silent(*number, silent, all)).collect();
            assert_eq!(numbers.len() as u64, silent);
            let gap = all.div_ceil(silent.max(1));
            assert!(numbers.windows(2).all(|pair| pair[1] - pair[0] <= gap), "{numbers:?}");
        }
    }

    #[test]
    fn messages_are_sent_as_often_as_their_weights_say_and_spread() {
        assert_eq!(wheel(&[1]), [0]);
        assert_eq!(wheel(&[7]), [0]);
        assert_eq!(wheel(&[2, 1]), [0, 1, 0]);
        let turns = wheel(&[50, 30, 20]);
        assert_eq!(turns.len(), 10);
        for (message, count) in [(0, 5), (1, 3), (2, 2)] {
            assert_eq!(turns.iter().filter(|turn| **turn == message).count(), count);
        }
        assert_eq!(wheel(&[0, 3]), [1]);
        assert_eq!(wheel(&[0, 0]), [0]);
        assert_eq!(wheel(&[5; 20_000]), (0..20_000).collect::<Vec<u16>>());
    }
}

//! What must hold of each decision, whatever the arguments: bounds, exactness over threads, and recovery.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringroad_policy::breaker::{self, Breaker, Change, Opening, Outcome, State};
use ringroad_policy::budget::Budget;
use ringroad_policy::ejection::{self, Ejection};
use ringroad_policy::ewma::PeakEwma;
use ringroad_policy::gcra::{Cell, Quota, Table};
use ringroad_policy::health::{Health, panics, slow_start};
use ringroad_policy::ring::{Ring, bound, rendezvous};
use ringroad_policy::{SECOND, backoff, balance};
use std::collections::HashMap;
use std::time::Duration;

/// Random numbers that a seed fixes.
fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

proptest! {
    /// Giving up is no good news: it raises the average to what was waited, or leaves it as it is.
    #[test]
    fn an_exchange_that_was_given_up_never_lowers_an_average(
        samples in prop::collection::vec((0_u64..20_000_000_000, any::<bool>(), 0_u64..20), 0..30),
        waited in 0_u64..60_000_000_000,
        pause in 0_u64..30,
    ) {
        let ewma = PeakEwma::default();
        let mut now = 3600 * SECOND;
        for (sample, is_answer, pause) in samples {
            now += pause * SECOND;
            if is_answer { ewma.observe(sample, now) } else { ewma.observe_at_least(sample, now) }
        }
        now += pause * SECOND;
        let is_known = ewma.cost(0, now) > 0.0;
        let before = ewma.value(now);
        ewma.observe_at_least(waited, now);
        let after = ewma.value(now);
        let waited = (waited as f64 / 1e6).max(1.0);
        prop_assert!(after >= waited * 0.999, "{after} after {waited}");
        prop_assert!(!is_known || after >= before * 0.999, "{after} after {before}");
        prop_assert!(after <= before.max(waited) * 1.001, "{after}: {before}, {waited}");
    }

    #[test]
    fn no_key_gets_more_than_its_burst_and_its_rate(
        count in 1_u64..1000, per in 1_u64..100, burst in 1_u64..100, gaps in prop::collection::vec(0_u64..SECOND, 1..200),
    ) {
        let quota = Quota::new(count, Duration::from_secs(per), burst);
        let (cell, start) = (Cell::default(), 1_000 * SECOND);
        let (mut now, mut allowed) = (start, 0_u64);
        for gap in gaps {
            now += gap;
            let decision = cell.take(&quota, now, 1);
            allowed += u64::from(decision.allowed);
            prop_assert!(decision.remaining <= burst);
            // A refused request that waits as told is allowed.
            if !decision.allowed {
                prop_assert!(decision.retry_after > 0);
                let later = Cell::default();
                let _ = later.take(&quota, now + decision.retry_after, 1);
                let (_, again) = quota.decide(now + decision.reset_after, now + decision.retry_after, 1);
                prop_assert!(again.allowed);
            }
        }
        prop_assert!(allowed <= burst + (now - start) / quota.interval() + 1);
    }

    #[test]
    fn a_table_decides_as_a_cell_does(keys in prop::collection::vec(0_u64..8, 1..300)) {
        let quota = Quota::new(3, Duration::from_secs(1), 5);
        let table = Table::new(4096, 7);
        let cells: Vec<Cell> = (0..8).map(|_| Cell::default()).collect();
        for (step, key) in keys.iter().enumerate() {
            let now = SECOND + step as u64 * 10_000_000;
            prop_assert_eq!(table.take(*key, &quota, now, 1), cells[*key as usize].take(&quota, now, 1));
        }
    }

    #[test]
    fn two_choices_take_a_usable_server_and_the_cheaper_of_two(
        costs in prop::collection::vec(0_u32..100, 1..10), out in prop::collection::vec(any::<bool>(), 10), seed: u64,
    ) {
        let mut next = random(seed);
        let usable = |at: usize| !out[at];
        let chosen = balance::two_choices(costs.len(), |_| 1, usable, |at| f64::from(costs[at]), [next(), next()]);
        match chosen {
            Some(at) => {
                prop_assert!(usable(at));
                // The dearest is only taken where it is the only one, or one as dear was drawn with it.
                let others = (0..costs.len()).filter(|other| usable(*other) && *other != at);
                let cheapest = others.map(|other| costs[other]).max();
                prop_assert!(cheapest.is_none_or(|most| costs[at] <= most));
            }
            None => prop_assert!((0..costs.len()).all(|at| out[at])),
        }
    }

    #[test]
    fn turns_give_each_server_its_weight(weights in prop::collection::vec(1_u32..20, 1..8)) {
        let turns = balance::Turns::new(&weights);
        let sum: u32 = weights.iter().sum();
        let mut had = vec![0_u32; weights.len()];
        for turn in 0..sum as usize {
            had[turns.from(turn).next().unwrap()] += 1;
        }
        prop_assert_eq!(had, weights);
    }

    #[test]
    fn a_wait_stays_within_its_ceiling(attempt in 0_u32..80, base in 1_u64..SECOND, random: u64) {
        let longest = 250_000_000;
        let wait = backoff::wait(attempt, base, longest, random);
        prop_assert!(wait <= longest);
        prop_assert!(attempt > 0 || wait <= base);
    }

    #[test]
    fn repeats_stay_a_share_of_requests(requests in 0_u64..10_000, seconds in 0_u64..100) {
        let mut budget = Budget::new(0.2, 10);
        let mut repeats = 0_u64;
        for number in 0..requests {
            budget.request();
            // As many repeats as it permits.
            while budget.repeat(number * seconds * SECOND / requests.max(1)) {
                repeats += 1;
            }
        }
        prop_assert!(repeats <= requests / 5 + 10 * seconds + 100 + 1);
    }

    #[test]
    fn keys_move_only_from_a_server_that_leaves(names in prop::collection::hash_set(any::<u64>(), 2..10), gone: prop::sample::Index) {
        let names: Vec<_> = names.into_iter().collect();
        let gone = gone.index(names.len());
        let all: Vec<_> = names.iter().map(|name| (*name, 1)).collect();
        let left: Vec<_> = all.iter().copied().filter(|(name, _)| *name != names[gone]).collect();
        let (before, after) = (Ring::new(&all), Ring::new(&left));
        for key in 0..200 {
            let old = all[before.from(key).next().unwrap()].0;
            let new = left[after.from(key).next().unwrap()].0;
            prop_assert!(old == new || old == names[gone]);
            let chosen = rendezvous(key, names.iter().copied()).unwrap();
            let then = rendezvous(key, left.iter().map(|(name, _)| *name)).unwrap();
            prop_assert!(chosen == then || chosen == names[gone]);
        }
    }
}

#[test]
fn threads_together_get_exactly_the_burst() {
    let quota = Quota::new(1, Duration::from_secs(3600), 100);
    let (cell, table) = (Cell::default(), Table::new(1, 3));
    let allowed = |take: &(dyn Fn() -> bool + Sync)| {
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(move || (0..100).filter(|_| take()).count())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        })
    };
    assert_eq!(allowed(&|| cell.take(&quota, SECOND, 1).allowed), 100);
    assert_eq!(allowed(&|| table.take(5, &quota, SECOND, 1).allowed), 100);
}

#[test]
fn what_another_limit_refuses_is_given_back() {
    let quota = Quota::new(1, Duration::from_secs(60), 2);
    let table = Table::new(1, 3);
    for _ in 0..10 {
        assert!(table.take(5, &quota, SECOND, 1).allowed);
        table.give_back(5, &quota, SECOND, 1);
    }
    assert_eq!(table.take(5, &quota, SECOND, 1).remaining, 1);
}

#[test]
fn a_table_stays_as_large_as_it_was_made_and_made_up_keys_open_no_limit_that_is_used() {
    let quota = Quota::new(1, Duration::from_secs(10), 5);
    let table = Table::new(1000, 9);
    let bytes = table.bytes();
    for _ in 0..5 {
        assert!(table.take(1, &quota, SECOND, 1).allowed);
    }
    for key in 0..100_000 {
        // Keys that were seen once are nearer to their whole burst than the one that has used its own up.
        let _ = table.take(1000 + key, &quota, SECOND, 1);
        assert!(key % 1000 != 0 || !table.take(1, &quota, SECOND, 1).allowed, "after {key} keys");
    }
    assert_eq!(table.bytes(), bytes);
}

#[test]
fn two_choices_share_by_weight_and_avoid_the_slow() {
    let mut next = random(1);
    let mut had = [0_u32; 3];
    for _ in 0..30_000 {
        let chosen =
            balance::two_choices(3, |at| [1, 2, 1][at], |_| true, |at| [1.0, 1.0, 9.0][at], [next(), next()]);
        had[chosen.unwrap()] += 1;
    }
    assert_eq!(had[2], 0, "the dearest of three is never the cheaper of two: {had:?}");
    assert!(had[1] > had[0], "{had:?}");
}

#[test]
fn equal_servers_have_their_turn_in_order_and_heavy_ones_are_spread() {
    let order = |weights: &[u32], count| {
        let turns = balance::Turns::new(weights);
        (0..count).map(|turn| turns.from(turn).next().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(order(&[1, 1, 1], 4), [0, 1, 2, 0]);
    assert_eq!(order(&[5, 1, 1], 7), [0, 0, 1, 0, 2, 0, 0]);
    assert_eq!(balance::Turns::new(&[1_000_000, 1]).from(0).filter(|at| *at == 1).count(), 1);
    assert_eq!(balance::Turns::new(&[]).from(3).next(), None);
}

#[test]
fn a_ring_spreads_keys_evenly_and_the_next_server_takes_over() {
    let ring = Ring::new(&[(11, 1), (22, 1), (33, 2)]);
    let mut had = HashMap::new();
    for key in 0..100_000 {
        *had.entry(ring.from(key).next().unwrap()).or_insert(0_u32) += 1;
    }
    let share = |at: usize| f64::from(had[&at]) / 100_000.0;
    assert!((0.18..0.32).contains(&share(0)) && (0.18..0.32).contains(&share(1)), "{had:?}");
    assert!((0.42..0.58).contains(&share(2)), "{had:?}");
    assert!(ring.from(7).any(|at| Some(at) != ring.from(7).next()));
    assert_eq!(Ring::default().from(1).next(), None);
}

#[test]
fn a_bounded_load_is_a_quarter_over_the_fair_share() {
    assert_eq!(bound(0, 1, 4, 1.25), 1);
    assert_eq!(bound(99, 1, 4, 1.25), 32);
    assert_eq!(bound(99, 2, 4, 1.25), 63);
}

#[test]
fn an_average_jumps_to_a_peak_and_forgets_it_slowly() {
    let ewma = PeakEwma::default();
    ewma.observe(200_000_000, SECOND);
    assert!((ewma.value(SECOND) - 200.0).abs() < 0.1);
    ewma.observe(1_000_000, 2 * SECOND);
    let after = ewma.value(2 * SECOND);
    assert!((150.0..200.0).contains(&after), "{after}");
    assert!(ewma.value(100 * SECOND) < 2.0);
    assert!(ewma.cost(3, 2 * SECOND) > ewma.cost(0, 2 * SECOND) * 3.9);
}

#[test]
fn a_server_without_a_sample_gets_one_request_whatever_the_time_is_and_no_flood() {
    for now in [0, SECOND, 1_000_000 * SECOND] {
        let (fresh, known) = (PeakEwma::default(), PeakEwma::default());
        known.observe(5_000_000, now);
        assert!(fresh.cost(0, now) < known.cost(0, now));
        assert!(fresh.cost(1, now) > known.cost(1, now));
        assert!((fresh.value(now) - 30.0).abs() < 0.1);
        // An answer in no time at all is a sample.
        fresh.observe(0, now);
        assert!(fresh.cost(0, now) > 0.0 && fresh.value(now) < 2.0);
    }
}

#[test]
fn a_server_that_fails_in_a_row_is_left_out_longer_each_time() {
    let settings = ejection::Settings::default();
    let mut server = Ejection::default();
    let mut now = SECOND;
    for _ in 0..4 {
        assert_eq!(server.failed(&settings, now, true, 0), None);
    }
    server.succeeded(&settings, now);
    let fail =
        |server: &mut Ejection, now| (0..5).filter_map(|_| server.failed(&settings, now, true, 0)).last();
    assert_eq!(fail(&mut server, now), Some(now + 30 * SECOND));
    now = server.until();
    assert_eq!(fail(&mut server, now), Some(now + 60 * SECOND));
    // A good spell makes the next time short again.
    now = server.until() + 60 * SECOND;
    server.succeeded(&settings, now);
    assert_eq!(fail(&mut server, now), Some(now + 30 * SECOND));
    assert_eq!(Ejection::default().failed(&ejection::Settings { after: 1, ..settings }, now, false, 0), None);
}

#[test]
fn no_group_is_emptied_by_ejection() {
    let settings = ejection::Settings::default();
    assert!(!settings.allows(1, 0));
    assert!(settings.allows(2, 0) && !settings.allows(2, 1));
    assert!(settings.allows(10, 4) && !settings.allows(10, 5));
    assert!(ejection::Settings { most: 0.0, ..settings }.allows(3, 0));
}

#[test]
fn a_breaker_opens_at_its_share_and_closes_after_good_probes() {
    let settings = breaker::Settings::default();
    let mut breaker = Breaker::new(settings);
    let mut now = 100 * SECOND;
    let send = |breaker: &mut Breaker, outcome, now| {
        let permit = breaker.ask(now).unwrap();
        breaker.end(permit, outcome, now)
    };
    // Too few requests decide nothing.
    assert!((0..19).all(|_| !send(&mut breaker, Outcome::Failed, now)));
    assert!(send(&mut breaker, Outcome::Failed, now));
    assert_eq!(breaker.state(now), State::Open(now + 5 * SECOND));
    assert_eq!(breaker.ask(now), Err(5 * SECOND));
    now += 5 * SECOND;
    // Three try, and no more than three.
    let probes: Vec<_> = (0..3).map(|_| breaker.ask(now).unwrap()).collect();
    assert!(breaker.ask(now).is_err());
    assert!(breaker.end(probes[0], Outcome::Failed, now));
    assert_eq!(breaker.state(now), State::Open(now + 10 * SECOND), "twice as long");
    // Results of an earlier life change nothing.
    assert!(!breaker.end(probes[1], Outcome::Succeeded, now));
    now += 10 * SECOND;
    for _ in 0..3 {
        assert_eq!(breaker.state(now), State::Probing);
        assert!(!send(&mut breaker, Outcome::Succeeded, now));
    }
    assert_eq!(breaker.state(now), State::Closed);
}

#[test]
fn a_breaker_tells_each_change_once_with_its_reason() {
    let settings = breaker::Settings { least: 4, probes: 2, ..breaker::Settings::default() };
    let mut breaker = Breaker::new(settings);
    let mut now = 100 * SECOND;
    let send = |breaker: &mut Breaker, outcome, now| {
        let permit = breaker.ask(now).unwrap();
        let asked = breaker.take_change();
        breaker.end(permit, outcome, now);
        [asked, breaker.take_change()]
    };
    assert_eq!(send(&mut breaker, Outcome::Succeeded, now), [None, None]);
    for _ in 0..2 {
        assert_eq!(send(&mut breaker, Outcome::Failed, now), [None, None]);
    }
    let why = Opening::Share { failed: 3, all: 4, window: 10 * SECOND };
    assert_eq!(send(&mut breaker, Outcome::Failed, now), [None, Some(Change::Opened(5 * SECOND, why))]);
    now += 5 * SECOND;
    let again = Change::Opened(10 * SECOND, Opening::Probe);
    assert_eq!(send(&mut breaker, Outcome::Failed, now), [Some(Change::Probing(2)), Some(again)]);
    now += 10 * SECOND;
    assert_eq!(send(&mut breaker, Outcome::Succeeded, now), [Some(Change::Probing(2)), None]);
    assert_eq!(send(&mut breaker, Outcome::Succeeded, now), [None, Some(Change::Closed(2))]);
    assert_eq!(breaker.take_change(), None);
}

#[test]
fn a_breaker_counts_its_window_only_and_a_probe_given_up_leaves_room_for_another() {
    let mut breaker = Breaker::new(breaker::Settings { least: 4, ..breaker::Settings::default() });
    for step in 0..100 {
        let now = step * 6 * SECOND;
        let permit = breaker.ask(now).unwrap();
        assert!(!breaker.end(permit, Outcome::Failed, now), "two or three in each window");
    }
    let now = 1000 * SECOND;
    for _ in 0..4 {
        let permit = breaker.ask(now).unwrap();
        breaker.end(permit, Outcome::Failed, now);
    }
    let now = now + 5 * SECOND;
    for _ in 0..10 {
        let probe = breaker.ask(now).unwrap();
        breaker.end(probe, Outcome::Abandoned, now);
    }
    assert_eq!(breaker.state(now), State::Probing);
}

#[test]
fn an_idle_budget_permits_a_few_repeats_and_fills_again() {
    let mut budget = Budget::new(0.2, 10);
    let now = 50 * SECOND;
    assert_eq!((0..1000).filter(|_| budget.repeat(now)).count(), 100);
    assert_eq!((0..1000).filter(|_| budget.repeat(now + SECOND)).count(), 10);
    let mut none = Budget::new(0.0, 0);
    none.request();
    assert!(!none.repeat(now));
}

#[test]
fn checks_in_a_row_change_a_servers_state_and_single_ones_do_not() {
    let mut health = Health::new(true);
    assert!(!health.checked(false, 2, 3) && !health.checked(false, 2, 3));
    assert!(!health.checked(true, 2, 3) && !health.checked(false, 2, 3) && !health.checked(false, 2, 3));
    assert!(health.checked(false, 2, 3) && !health.is_healthy());
    assert!(!health.checked(true, 2, 3) && health.checked(true, 2, 3) && health.is_healthy());
}

#[test]
fn with_too_few_healthy_servers_health_is_ignored() {
    assert!(panics(2, 5, 0.5) && !panics(3, 5, 0.5) && panics(0, 1, 0.5) && !panics(1, 1, 0.5));
}

#[test]
fn a_server_that_came_back_gets_its_weight_slowly() {
    assert!((slow_start(10, 0, 30 * SECOND) - 1.0).abs() < 1e-9);
    assert!((slow_start(10, 15 * SECOND, 30 * SECOND) - 5.0).abs() < 1e-9);
    assert!((slow_start(10, 60 * SECOND, 30 * SECOND) - 10.0).abs() < 1e-9);
    assert!((slow_start(10, 0, 0) - 10.0).abs() < 1e-9);
}

#[test]
fn a_quantile_settles_where_its_share_of_the_samples_is_below() {
    use ringroad_policy::quantile::Quantile;
    let quantile = Quantile::new(0.95);
    let mut random = 7_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Evenly from 1 to 101 ms.
        1_000_000 + (random >> 33) % 100_000_000
    };
    assert_eq!(quantile.get(), None);
    for _ in 0..2_000 {
        quantile.see(next());
    }
    let mut total = 0;
    for _ in 0..2_000 {
        quantile.see(next());
        total += quantile.get().unwrap();
    }
    let mean = total / 2_000;
    assert!((88_000_000..104_000_000).contains(&mean), "{mean}");
    // It follows when everything becomes ten times as fast.
    for _ in 0..4_000 {
        quantile.see(next() / 10);
    }
    assert!(quantile.get().unwrap() < 15_000_000);
}

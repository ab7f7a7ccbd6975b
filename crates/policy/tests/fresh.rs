//! What must hold of decisions about stored answers, whatever the lines are.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringroad_policy::fresh::control::Asked;
use ringroad_policy::fresh::{Bound, Facts, Freshness, NotStored, Rules, Verdict, condition, judge, vary};

/// Fri, 15 Jan 2027 08:00:00 GMT.
const NOW: u64 = 1_800_000_000;

fn directive() -> impl Strategy<Value = String> {
    prop_oneof![
        (0_u64..200).prop_map(|n| format!("max-age={n}")),
        (0_u64..200).prop_map(|n| format!("s-maxage={n}")),
        (0_u64..200).prop_map(|n| format!("stale-while-revalidate={n}")),
        (0_u64..200).prop_map(|n| format!("stale-if-error={n}")),
        prop::sample::select(vec![
            "no-store",
            "private",
            "no-cache",
            "public",
            "must-revalidate",
            "proxy-revalidate",
            "private=\"x-a\"",
            "no-cache=\"x-b, x-c\"",
            "immutable",
            "must-understand",
            "x=\"no-store\"",
            "max-age=x",
            ",",
            "\"",
        ])
        .prop_map(str::to_owned),
    ]
}

fn rules() -> impl Strategy<Value = Rules> {
    (prop::option::of(0_u64..100), any::<bool>(), any::<bool>(), any::<bool>(), 0_u64..100, 0_u64..100)
        .prop_map(|(lifetime, heuristic, cookies, obey_requests, stale_while, stale_if_error)| Rules {
            lifetime,
            heuristic,
            cookies,
            obey_requests,
            stale_while,
            stale_if_error,
        })
}

fn fresh() -> impl Strategy<Value = Freshness> {
    let bound = prop::sample::select(vec![Bound::None, Bound::Shared, Bound::Always]);
    (0_u64..300, 0_u64..300, any::<bool>(), bound, prop::option::of(0_u64..200), prop::option::of(0_u64..200))
        .prop_map(|(lifetime, age, ask, bound, stale_while, stale_if_error)| Freshness {
            lifetime,
            age,
            ask,
            bound,
            stale_while,
            stale_if_error,
            without: Vec::new(),
        })
}

proptest! {
    #[test]
    fn nothing_is_stored_that_the_answer_or_the_request_forbids(
        words in prop::collection::vec(directive(), 0..6), rules in rules(), authorization: bool, identified: bool, no_store: bool,
        status in prop::sample::select(vec![200_u16, 204, 206, 301, 304, 404, 500, 599]), cookie: bool,
    ) {
        let list = words.join(", ");
        let mut lines = vec![("Cache-Control", list.as_str()), ("ETag", "\"a\"")];
        if cookie {
            lines.push(("Set-Cookie", "a=b"));
        }
        let facts = Facts { authorization, identified, no_store };
        let judged = judge(facts, status, lines.as_slice(), (NOW, 0), &rules);
        // A quote without its end swallows what follows.
        prop_assume!(!list.contains("\","));
        let has = |word: &str| words.iter().any(|own| own == word);
        let begins = |word: &str| words.iter().any(|own| own.starts_with(word));
        if let Ok(fresh) = &judged {
            prop_assert!(!matches!(status, 206 | 304));
            prop_assert!(!no_store && !has("private"));
            prop_assert!(!has("no-store") || has("must-understand"));
            prop_assert!(!cookie || rules.cookies);
            prop_assert!(!identified || has("public") || begins("s-maxage"));
            prop_assert!(!authorization || has("public") || begins("s-maxage") || has("must-revalidate"));
            prop_assert_eq!(fresh.ask, has("no-cache"));
            prop_assert_eq!(fresh.without.contains(&"x-a".to_owned()), has("private=\"x-a\""));
        } else if no_store {
            prop_assert_ne!(judged, Err(NotStored::NoLifetime));
        }
    }

    #[test]
    fn an_answer_that_must_be_validated_is_never_used_after_its_time(
        fresh in fresh(), rules in rules(), resident in 0_u64..1000, max_stale in prop::option::of(0_u64..1000),
    ) {
        let asked = Asked { max_stale, ..Asked::default() };
        let is_stale = fresh.age_after(resident) >= fresh.lifetime || fresh.ask;
        let used = !matches!(fresh.verdict(resident, &asked, &rules), Verdict::Stale | Verdict::Request);
        if fresh.bound == Bound::Always {
            prop_assert!(!(is_stale && used));
            prop_assert!(!(is_stale && fresh.serves_errors(resident, &rules)));
        }
        if fresh.ask {
            prop_assert!(!used);
        }
        if fresh.bound == Bound::Shared && fresh.stale_if_error.is_none() && is_stale {
            prop_assert!(!fresh.serves_errors(resident, &rules));
        }
    }

    #[test]
    fn what_is_stale_does_not_become_fresh_again(fresh in fresh(), rules in rules(), one in 0_u64..1000, more in 0_u64..1000) {
        let order = |verdict: Verdict| match verdict {
            Verdict::Use(left) => (0, -left),
            Verdict::Refresh(left) => (1, -left),
            Verdict::Stale | Verdict::Request => (2, 0),
        };
        let asked = Asked::default();
        let at = |resident| fresh.verdict(resident, &asked, &rules);
        prop_assert!(order(at(one)) <= order(at(one + more)), "{:?} {:?}", at(one), at(one + more));
        prop_assert!(fresh.age_after(one) <= fresh.age_after(one + more));
        prop_assert!(fresh.serves_errors(one, &rules) || !fresh.serves_errors(one + more, &rules));
        if matches!(at(one), Verdict::Use(_) | Verdict::Refresh(_)) {
            prop_assert!(one <= fresh.useful_for(&rules));
        }
    }

    #[test]
    fn any_bytes_are_read_and_a_part_lies_within_the_whole(
        value in "[ -~]{0,40}", range in "(bytes=)?[0-9, -]{0,12}", tag in "[\"Wa/, ]{0,8}", bytes in 0_u64..100,
    ) {
        let stored = [("etag", tag.as_str()), ("date", value.as_str()), ("last-modified", value.as_str()), ("vary", value.as_str())];
        let lines = [
            ("cache-control", value.as_str()), ("cdn-cache-control", &value), ("expires", &value), ("age", &value),
            ("date", &value), ("etag", &tag),
        ];
        let _ = judge(Facts::default(), 200, &lines, (NOW, 0), &Rules::default());
        let request = [("range", range.as_str()), ("if-range", &tag), ("if-none-match", &tag), ("if-modified-since", &value)];
        if let condition::Asked::Part(part) = condition::range(&request[..1], &stored, bytes) {
            prop_assert!(part.start < part.end && part.end <= bytes);
        }
        let _ = condition::range(&request, &stored, bytes);
        let _ = condition::judge(&request, &stored, NOW);
        if let Some(names) = vary::names(&stored) {
            let _ = vary::key(&names, &request);
        }
    }

    #[test]
    fn the_order_of_accepted_languages_and_codings_does_not_matter(mut members in prop::collection::vec("[a-z]{1,3}(;q=0\\.[0-9])?", 1..6), seed: u64) {
        let names = ["accept-encoding".to_owned(), "accept-language".to_owned()];
        let key = |members: &[String]| {
            let list = members.join(", ");
            vary::key(&names, &[("Accept-Encoding", list.as_str()), ("Accept-Language", &list)])
        };
        let before = key(&members);
        let len = members.len();
        members.rotate_left(seed as usize % len);
        members.reverse();
        prop_assert_eq!(before, key(&members));
    }
}

#[test]
fn lifetimes_and_ages_are_those_of_the_rfc() {
    let date = "Fri, 15 Jan 2027 08:00:00 GMT";
    let later = "Fri, 15 Jan 2027 08:10:00 GMT";
    let earlier = "Fri, 15 Jan 2027 06:00:00 GMT";
    let rules = Rules { heuristic: true, ..Rules::default() };
    let of = |lines: &[(&str, &str)]| {
        judge(Facts::default(), 200, lines, (NOW, 2), &rules).map(|fresh| (fresh.lifetime, fresh.age))
    };
    for (lines, expected) in [
        (&[("date", date), ("cache-control", "max-age=60")][..], Ok((60, 2))),
        (&[("date", date), ("cache-control", "max-age=60, s-maxage=30")], Ok((30, 2))),
        (&[("date", date), ("cache-control", "max-age=60"), ("age", "10")], Ok((60, 12))),
        (&[("date", date), ("expires", later)], Ok((600, 2))),
        (&[("date", date), ("expires", later), ("cache-control", "max-age=60")], Ok((60, 2))),
        (&[("date", date), ("expires", "0"), ("etag", "x")], Ok((0, 2))),
        (&[("date", date), ("expires", later), ("expires", date), ("etag", "x")], Ok((0, 2))),
        (&[("date", earlier), ("cache-control", "max-age=9000")], Ok((9000, 7200))),
        (&[("date", date), ("last-modified", earlier)], Ok((720, 2))),
        (&[("date", date), ("cdn-cache-control", "max-age=5"), ("cache-control", "no-store")], Ok((5, 2))),
        (
            &[("date", date), ("cdn-cache-control", "no-store"), ("cache-control", "max-age=5")],
            Err(NotStored::NoStore),
        ),
        (&[("date", date)], Err(NotStored::NoLifetime)),
        (&[("date", date), ("cache-control", "max-age=60"), ("vary", "*")], Err(NotStored::VaryAll)),
        // Of several ages the first counts, and what is no number says nothing.
        (&[("date", date), ("cache-control", "max-age=60"), ("age", "0, 100")], Ok((60, 2))),
        (&[("date", date), ("cache-control", "max-age=60"), ("age", "0"), ("age", "100")], Ok((60, 2))),
        (&[("date", date), ("cache-control", "max-age=60"), ("age", "9, 0"), ("age", "0")], Ok((60, 11))),
        (&[("date", date), ("cache-control", "max-age=60"), ("age", "-7200")], Ok((60, 2))),
        (&[("date", date), ("cache-control", "max-age=60"), ("age", "1.0")], Ok((60, 2))),
        // Stale already, and with nothing to ask by.
        (&[("date", date), ("cache-control", "max-age=60"), ("age", "100")], Err(NotStored::NoLifetime)),
    ] {
        assert_eq!(of(lines), expected, "{lines:?}");
    }
}

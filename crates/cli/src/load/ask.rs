//! One request before the load: what does the server answer? A load on a path that does not exist would
//! measure how fast the server refuses.
//!
//! With `-L` redirects are followed here, with `--jar` cookies are taken from here. Start at [`settle`].

use super::flags::LoadFlags;
use super::inputs::Inputs;
use super::plan::{self, Learnt};
use super::{Complaint, urls};
use crate::complaint::{FAILED, USAGE};
use ringroad_engine::choose::Choice;
use ringroad_load::Plan;
use ringroad_load::ask::{Asked, Heard, ask, named};
use ringroad_load::verdict::advice;
use ringroad_measure::units::counted;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Redirects that are followed one after the other, as in curl's documentation of browsers.
const REDIRECTS_MAX: u32 = 10;

/// A plan, and what the answers to the first requests say about it.
pub(super) struct Settled {
    pub(super) plan: Plan,
    /// The reason not to run it: the server refuses all of its requests.
    pub(super) refusal: Option<String>,
    /// A warning: some of its URLs have no answer as expected.
    pub(super) warning: Option<String>,
}

/// Returns the plan of the flags, for `url` instead of their own if there is one, after one request to the
/// server.
pub(super) fn settle(
    flags: &LoadFlags,
    url: Option<&str>,
    inputs: &Inputs,
    choice: &Choice,
    stop: &Arc<AtomicBool>,
) -> Result<Settled, Complaint> {
    let refuse = |message: &str| Err(Complaint { message: message.to_owned(), code: USAGE });
    let mut learnt = Learnt::default();
    let mut plan = plan::of(flags, url, &learnt, inputs)?;
    plan.check()?;
    let asks = plan.target.scheme.is_http()
        && (flags.url.is_some() || flags.urls.is_some())
        && flags.processes.process_part.is_none();
    if flags.location || flags.jar {
        if flags.no_ask {
            return refuse("-L and --jar with --no-ask: redirects and cookies come with the first request");
        }
        if plan.processes > 1 {
            return refuse("-L and --jar with --processes: give the URL and the cookies (-b) themselves");
        }
    }
    if !asks || flags.no_ask {
        return Ok(Settled { plan, refusal: None, warning: None });
    }
    for _ in 0..=REDIRECTS_MAX {
        let asked = ask(&plan, choice, stop)?;
        let cookies: Vec<String> = asked.iter().flat_map(|asked| asked.cookies.iter().cloned()).collect();
        let is_new = !cookies.is_empty();
        learnt.cookies = latest(learnt.cookies.iter().chain(&cookies));
        let next = match asked.first() {
            Some(Asked { heard: Heard::Status(status), location: Some(location), .. })
                if flags.location && (300..400).contains(status) =>
            {
                Some((*status, location.clone()))
            }
            _ => None,
        };
        let Some((status, location)) = next else {
            if is_new {
                plan = plan::of(flags, url, &learnt, inputs)?;
            }
            let refusal = refusal(&asked);
            let warning = if refusal.is_none() { warning(&asked, plan.messages.len()) } else { None };
            return Ok(Settled { plan, refusal, warning });
        };
        let from = learnt.target.clone().unwrap_or_else(|| plan.target.clone());
        let to = urls::joined(&from, &location)
            .map_err(|why| Complaint { message: format!("-L, on {from}: {why}"), code: FAILED })?;
        if !to.host.eq_ignore_ascii_case(&from.host) {
            let refusal = format!(
                "{from} redirects to another host, {to}: only the host of the URL is loaded, so give this URL if you may load it"
            );
            return Ok(Settled { plan, refusal: Some(refusal), warning: None });
        }
        // As browsers and curl do (RFC 9110 §15.4).
        learnt.is_get |= flags.method.is_none() && matches!(status, 301..=303);
        learnt.target = Some(to);
        plan = plan::of(flags, url, &learnt, inputs)?;
        plan.check()?;
    }
    let refusal = format!("-L: more than {REDIRECTS_MAX} redirects, the last to {}", plan.target);
    Ok(Settled { plan, refusal: Some(refusal), warning: None })
}

/// Returns the last cookie of each name, in the order of the names.
fn latest<'a>(cookies: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for cookie in cookies {
        let name = |cookie: &str| cookie.split('=').next().unwrap_or_default().to_owned();
        match kept.iter_mut().find(|known| name(known) == name(cookie)) {
            Some(known) => known.clone_from(cookie),
            None => kept.push(cookie.clone()),
        }
    }
    kept
}

/// Returns the reason not to run the load: no answer is as expected.
fn refusal(all: &[Asked]) -> Option<String> {
    if all.iter().any(|asked| matches!(asked.heard, Heard::Good | Heard::Nothing)) {
        return None;
    }
    let first = all.first()?;
    let more = match all.len() {
        1 => String::new(),
        many => format!(". None of the {many} URLs asked has an answer as expected"),
    };
    let what = &first.what;
    match &first.heard {
        Heard::Status(status) => Some(format!(
            "{what}: the server answered {}, so nothing was loaded: {}{more}",
            named(*status),
            advice(*status, first.location.as_deref())
        )),
        Heard::Wrong(why) => {
            Some(format!("{what}: {why}. Nothing was loaded; --no-ask loads it all the same{more}"))
        }
        Heard::Good | Heard::Nothing => None,
    }
}

/// Returns how many of the `urls` have no answer as expected, told apart by the answers: each with its count
/// and the first URL that has it. `None` if all that answered did as expected.
fn warning(all: &[Asked], urls: usize) -> Option<String> {
    let mut groups: Vec<(String, &str, u64)> = Vec::new();
    for asked in all {
        let answer = match &asked.heard {
            Heard::Status(status) => named(*status),
            Heard::Wrong(why) => why.clone(),
            // The load tells why there is no answer.
            Heard::Good | Heard::Nothing => continue,
        };
        match groups.iter_mut().find(|(known, ..)| *known == answer) {
            Some((.., count)) => *count += 1,
            None => groups.push((answer, &asked.what, 1)),
        }
    }
    let wrong: u64 = groups.iter().map(|(.., count)| count).sum();
    if wrong == 0 {
        return None;
    }
    let answers: Vec<String> = groups
        .iter()
        .map(|(answer, what, count)| match count {
            1 => format!("{answer} (1: {what})"),
            count => format!("{answer} ({count}, the first: {what})"),
        })
        .collect();
    let of = match all.len() < urls {
        true => format!("the first {} of {urls} URLs", all.len()),
        false => counted(urls as u64, "URL"),
    };
    let have = if wrong == 1 { "has" } else { "have" };
    Some(format!(
        "warning: {wrong} of {of} {have} no answer as expected: {}. They are loaded all the same and count as failures",
        answers.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(heard: Heard, location: Option<&str>) -> Asked {
        let location = location.map(str::to_owned);
        Asked { what: "GET http://a/".to_owned(), heard, location, cookies: Vec::new() }
    }

    #[test]
    fn a_load_is_refused_only_if_no_answer_is_as_expected() {
        let missing = asked(Heard::Status(404), None);
        let said = refusal(std::slice::from_ref(&missing)).unwrap_or_default();
        assert!(
            said.starts_with("GET http://a/: the server answered 404 Not Found, so nothing was"),
            "{said}"
        );
        assert!(said.contains("check the path"), "{said}");
        let said = refusal(&[asked(Heard::Status(302), Some("/b/\u{7}"))]).unwrap_or_default();
        assert!(said.contains("leads to /b/\\u{7}, so load that, or follow it with -L"), "{said}");
        let said = refusal(&[missing.clone(), missing.clone()]).unwrap_or_default();
        assert!(said.contains("None of the 2 URLs"), "{said}");
        for other in [Heard::Good, Heard::Nothing] {
            assert_eq!(refusal(&[missing.clone(), asked(other, None)]), None);
        }
    }

    #[test]
    fn urls_without_a_good_answer_are_counted_by_answer_with_the_first_as_example() {
        let good = asked(Heard::Good, None);
        let named = |heard, path: &str| Asked { what: format!("GET http://a{path}"), ..asked(heard, None) };
        let mut all = vec![good.clone(), good.clone(), asked(Heard::Nothing, None)];
        assert_eq!(warning(&all, 3), None);
        all.push(named(Heard::Status(404), "/x"));
        assert_eq!(
            warning(&all, 4).unwrap_or_default(),
            "warning: 1 of 4 URLs has no answer as expected: 404 Not Found (1: GET http://a/x). They are loaded all the \
             same and count as failures"
        );
        all.push(named(Heard::Wrong("no --expect-body".to_owned()), "/y"));
        all.push(named(Heard::Status(404), "/z"));
        let said = warning(&all, 100).unwrap_or_default();
        let expected = "warning: 3 of the first 6 of 100 URLs have no answer as expected: 404 Not Found (2, the \
                        first: GET http://a/x); no --expect-body (1: GET http://a/y). They";
        assert!(said.starts_with(expected), "{said}");
    }

    #[test]
    fn of_cookies_with_one_name_the_last_is_sent() {
        let cookies = ["a=1", "b=2", "a=3"].map(str::to_owned);
        assert_eq!(latest(cookies.iter()), ["a=3", "b=2"]);
    }
}

//! `Vary`: which lines of requests choose a variant, and their values in a form in which equal means equal.

use super::Lines;

/// Returns the names that `Vary` lists, in small letters, sorted, each once. `None`: it has `*`, so no
/// request fits.
pub fn names(lines: &(impl Lines + ?Sized)) -> Option<Vec<String>> {
    let (mut names, mut all) = (Vec::new(), false);
    lines.each("vary", &mut |list| {
        for name in list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            all |= name == b"*";
            if !name.is_empty() {
                names.push(String::from_utf8_lossy(name).to_ascii_lowercase());
            }
        }
    });
    names.sort_unstable();
    names.dedup();
    (!all).then_some(names)
}

/// Returns the key of the variant that a request wants: the values of these lines. Two requests with the same
/// key may have the same answer.
pub fn key(names: &[String], request: &(impl Lines + ?Sized)) -> Vec<u8> {
    let mut key = Vec::new();
    for name in names {
        match &**name {
            "accept-encoding" => put(&mut key, &weighted(name, request, false)),
            "accept-language" => put(&mut key, &weighted(name, request, true)),
            name => {
                let mut any = false;
                let mut value = Vec::new();
                request.each(name, &mut |line| {
                    if any {
                        value.push(b',');
                    }
                    any = true;
                    tight(line, &mut value);
                });
                put(&mut key, &any.then_some(value));
            }
        }
    }
    key
}

/// Appends a value with its length before it, so that no two lists of values are written alike.
fn put(key: &mut Vec<u8>, value: &Option<Vec<u8>>) {
    match value {
        Some(value) => {
            key.extend_from_slice(&(value.len() as u32 + 1).to_le_bytes());
            key.extend_from_slice(value);
        }
        None => key.extend_from_slice(&0_u32.to_le_bytes()),
    }
}

/// Appends a list without the blanks around its commas, outside of quotes.
fn tight(line: &[u8], out: &mut Vec<u8>) {
    let mut quoted = false;
    let mut blanks = 0;
    for byte in line.trim_ascii() {
        match byte {
            b' ' | b'\t' if !quoted => {
                blanks += 1;
                continue;
            }
            b'"' => quoted = !quoted,
            _ => {}
        }
        if blanks > 0 {
            if *byte != b',' && out.last() != Some(&b',') {
                out.push(b' ');
            }
            blanks = 0;
        }
        out.push(*byte);
    }
}

/// Returns the members of a weighted list, in small letters and in a fixed order. Without `ranked`, only
/// whether a member is accepted at all counts: any accepted coding will do.
fn weighted(name: &str, request: &(impl Lines + ?Sized), ranked: bool) -> Option<Vec<u8>> {
    let mut members: Vec<(u32, Vec<u8>)> = Vec::new();
    let mut any = false;
    request.each(name, &mut |list| {
        any = true;
        for member in list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            let mut parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let Some(word) = parts.next().filter(|word| !word.is_empty()) else { continue };
            let weight =
                parts.filter_map(|part| part.strip_prefix(b"q=").or(part.strip_prefix(b"Q="))).next();
            let weight = weight.map_or(1000, thousandths);
            let mut word = word.to_ascii_lowercase();
            if !ranked && word == b"x-gzip" {
                word = b"gzip".to_vec();
            }
            // What is accepted anyway needs no mention.
            if !ranked && word == b"identity" && weight > 0 {
                continue;
            }
            members.push((if ranked { weight } else { u32::from(weight > 0) }, word));
        }
    });
    if !ranked {
        // A coding that is refused is as one that is not named, but for these two.
        members.retain(|(weight, word)| *weight > 0 || word == b"identity" || word == b"*");
    }
    members.sort_unstable_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    members.dedup();
    let mut out = Vec::new();
    for (weight, word) in members {
        out.extend_from_slice(&word);
        out.extend_from_slice(format!(";{weight},").as_bytes());
    }
    any.then_some(out)
}

/// Returns a weight (RFC 9110 §12.4.2) in thousandths; what is none counts as 1.
fn thousandths(text: &[u8]) -> u32 {
    let text = str::from_utf8(text).unwrap_or("1");
    match text.parse::<f32>() {
        Ok(weight) if (0.0..=1.0).contains(&weight) => (weight * 1000.0).round() as u32,
        _ => 1000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str], lines: &[(&str, &str)]) -> Vec<u8> {
        key(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), lines)
    }

    #[test]
    fn names_are_one_set_and_a_star_is_none() {
        let lines = [("Vary", "Accept-Encoding, origin,"), ("vary", "Origin")];
        assert_eq!(names(&lines), Some(vec!["accept-encoding".to_owned(), "origin".to_owned()]));
        assert_eq!(names(&[("vary", ", *")]), None);
        assert_eq!(names(&[("vary", "foo"), ("vary", "*")]), None);
        assert_eq!(names(&[("x", "y")]), Some(Vec::new()));
    }

    #[test]
    fn values_that_mean_the_same_are_the_same() {
        let same =
            |name: &str, one: &str, other: &str| of(&[name], &[(name, one)]) == of(&[name], &[(name, other)]);
        assert!(same("accept-encoding", "gzip, br", "br;q=0.5,GZIP, deflate;q=0"));
        assert!(same("accept-encoding", "identity, gzip", "x-gzip"));
        assert!(!same("accept-encoding", "gzip", "br"));
        assert!(!same("accept-encoding", "identity;q=0, gzip", "gzip"));
        assert!(!same("accept-encoding", "*;q=0, gzip", "gzip, *"));
        assert!(same("accept-language", "en, DE;q=0.5", "en,de;q=0.500"));
        assert!(!same("accept-language", "en;q=0.5, de", "en, de;q=0.5"));
        assert!(same("x", "a , b", "a,b"));
        assert!(!same("x", "\"a , b\"", "\"a,b\""));
        assert!(!same("x", "a b", "ab"));
        assert_ne!(of(&["x"], &[]), of(&["x"], &[("x", "")]));
        assert_ne!(of(&["x", "y"], &[("x", "a"), ("y", "bc")]), of(&["x", "y"], &[("x", "ab"), ("y", "c")]));
        assert_eq!(of(&["x"], &[("x", "a"), ("X", "b")]), of(&["x"], &[("x", "a, b")]));
    }
}

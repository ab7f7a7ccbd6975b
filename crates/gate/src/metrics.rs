//! Families of metrics in Prometheus' text form. Samples of one family are kept together, in whatever order
//! they are written, since its parser wants them so.

use std::fmt::{Display, Write};

/// Families with their samples, in the order in which they were first written.
#[derive(Debug, Default)]
pub struct Families(Vec<Family>);

#[derive(Debug)]
struct Family {
    name: String,
    head: String,
    samples: String,
}

impl Families {
    /// Begins a family, or goes on with it.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) -> Samples<'_> {
        let at = match self.0.iter().position(|family| family.name == name) {
            Some(at) => at,
            None => {
                let head = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
                self.0.push(Family { name: name.to_owned(), head, samples: String::new() });
                self.0.len() - 1
            }
        };
        Samples { of: self.0.get_mut(at) }
    }

    /// Writes a family of one sample without labels.
    pub fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help).sample("", value);
    }

    /// Writes a family with its samples.
    pub fn several(&mut self, name: &str, kind: &str, help: &str, samples: &[(String, u64)]) {
        let mut family = self.family(name, kind, help);
        for (labels, value) in samples {
            family.sample(labels, value);
        }
    }

    /// Returns the text.
    pub fn text(&self) -> String {
        self.0.iter().flat_map(|family| [family.head.as_str(), family.samples.as_str()]).collect()
    }
}

/// The samples of one family.
#[derive(Debug)]
pub struct Samples<'f> {
    of: Option<&'f mut Family>,
}

impl Samples<'_> {
    /// Writes one, with labels as [`label`] makes them, separated by commas.
    pub fn sample(&mut self, labels: &str, value: impl Display) {
        self.part("", labels, value);
    }

    /// Writes one of a histogram: `_bucket`, `_sum`, `_count`.
    pub fn part(&mut self, suffix: &str, labels: &str, value: impl Display) {
        let Some(Family { name, samples, .. }) = self.of.as_deref_mut() else { return };
        // Writing to a string does not fail.
        let _ = match labels {
            "" => writeln!(samples, "{name}{suffix} {value}"),
            labels => writeln!(samples, "{name}{suffix}{{{labels}}} {value}"),
        };
    }
}

/// Returns a label.
pub fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_family_stay_together() {
        let mut all = Families::default();
        all.family("a_total", "counter", "About a.").sample(&label("of", "x\"y"), 1);
        all.one("b", "gauge", "About b.", 2);
        all.family("a_total", "counter", "About a.").sample(&label("of", "z"), 3);
        assert_eq!(
            all.text(),
            "# HELP a_total About a.\n# TYPE a_total counter\na_total{of=\"x\\\"y\"} 1\na_total{of=\"z\"} 3\n\
             # HELP b About b.\n# TYPE b gauge\nb 2\n"
        );
    }
}

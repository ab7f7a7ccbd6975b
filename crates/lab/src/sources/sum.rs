//! The sums of `docs/claims.toml`: a figure, or a few of them put together, read from left to right.
//!
//! `echo-10/poll.rps`, `a / b`, `gain a / b` (per cent above 1), `drop a / b` (per cent below 1), numbers
//! among them. No precedence and no brackets: what needs them is said in two figures. Start at [`Sum`].

use ringroad_measure::Interval;
use std::fmt;

/// A figure of this machine, or one computed from a document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// Its value, in the unit its name ends with.
    pub value: f64,
    /// The 95 % interval of it, where there were runs enough.
    pub interval: Option<Interval>,
    /// How the test differs in size from what a document describes.
    pub scale: Option<String>,
}

impl Figure {
    /// Makes a bare value.
    pub fn of(value: f64) -> Figure {
        Figure { value, ..Figure::default() }
    }

    /// Returns the median of some runs, with its interval if six or more allow one.
    pub fn median(values: &[f64]) -> Option<Figure> {
        let value = ringroad_measure::summary::median(values)?;
        let enough = values.len() >= ringroad_measure::caveat::REPEATS_MIN as usize;
        let interval = enough.then(|| ringroad_measure::summary::median_interval(values)).flatten();
        Some(Figure { value, interval, ..Figure::default() })
    }

    /// Returns the same, with the size of the test.
    #[must_use]
    pub fn scaled(self, scale: impl Into<String>) -> Figure {
        Figure { scale: Some(scale.into()), ..self }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Term {
    Number(f64),
    Name(String),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Plus,
    Minus,
    Times,
    Over,
}

/// Which way a ratio is told.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Plain,
    Gain,
    Drop,
}

/// A sum that was read and not yet worked out.
#[derive(Clone, Debug, PartialEq)]
pub struct Sum {
    form: Form,
    first: Term,
    rest: Vec<(Operator, Term)>,
}

/// Why a text is not a sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSum(String);

impl fmt::Display for NoSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a sum: figures or numbers with + - * / between them, with spaces around them",
            self.0
        )
    }
}

impl Sum {
    /// Reads a sum.
    ///
    /// # Errors
    /// Something else stands there.
    pub fn read(text: &str) -> Result<Sum, NoSum> {
        let complain = || NoSum(text.to_owned());
        let mut words = text.split_ascii_whitespace().peekable();
        let form = match words.peek() {
            Some(&"gain") => Form::Gain,
            Some(&"drop") => Form::Drop,
            _ => Form::Plain,
        };
        if form != Form::Plain {
            words.next();
        }
        let term = |word: Option<&str>| {
            let word = word.ok_or_else(complain)?;
            match word.parse() {
                Ok(number) => Ok(Term::Number(number)),
                Err(_) if word.starts_with(|c: char| c.is_ascii_alphanumeric()) => {
                    Ok(Term::Name(word.to_owned()))
                }
                Err(_) => Err(complain()),
            }
        };
        let first = term(words.next())?;
        let mut rest = Vec::new();
        while let Some(word) = words.next() {
            let operator = match word {
                "+" => Operator::Plus,
                "-" => Operator::Minus,
                "*" => Operator::Times,
                "/" => Operator::Over,
                _ => return Err(complain()),
            };
            rest.push((operator, term(words.next())?));
        }
        Ok(Sum { form, first, rest })
    }

    /// Returns the names in it.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.first).chain(self.rest.iter().map(|(_, term)| term)).filter_map(|term| {
            match term {
                Term::Name(name) => Some(name.as_str()),
                Term::Number(_) => None,
            }
        })
    }

    /// Returns the name, if the sum is nothing but one figure.
    pub fn single(&self) -> Option<&str> {
        match (&self.first, self.form) {
            (Term::Name(name), Form::Plain) if self.rest.is_empty() => Some(name),
            _ => None,
        }
    }

    /// Works it out. A figure alone keeps its interval; how several vary together is not known.
    ///
    /// # Errors
    /// The first name that has no figure, in `figure`'s words; or a result that is no number.
    pub fn work_out(&self, figure: impl Fn(&str) -> Result<Figure, String>) -> Result<Figure, String> {
        if let Some(name) = self.single() {
            return figure(name);
        }
        let mut scales: Vec<String> = Vec::new();
        let mut value_of = |term: &Term| match term {
            Term::Number(number) => Ok(*number),
            Term::Name(name) => {
                let Figure { value, scale, .. } = figure(name)?;
                scales.extend(scale.filter(|scale| !scales.contains(scale)));
                Ok::<f64, String>(value)
            }
        };
        let mut value = value_of(&self.first)?;
        for (operator, term) in &self.rest {
            let other = value_of(term)?;
            match operator {
                Operator::Plus => value += other,
                Operator::Minus => value -= other,
                Operator::Times => value *= other,
                Operator::Over => value /= other,
            }
        }
        value = match self.form {
            Form::Plain => value,
            Form::Gain => (value - 1.0) * 100.0,
            Form::Drop => (1.0 - value) * 100.0,
        };
        if !value.is_finite() {
            return Err("its figures give no number".to_owned());
        }
        Ok(Figure { value, interval: None, scale: (!scales.is_empty()).then(|| scales.join("; ")) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn figures(name: &str) -> Result<Figure, String> {
        match name {
            "swoole" => Ok(Figure::of(98_432.0)),
            "go" => Ok(Figure::of(86_741.0).scaled("a tenth")),
            "zero" => Ok(Figure::of(0.0)),
            _ => Err(format!("{name} did not run")),
        }
    }

    fn value(text: &str) -> Result<f64, String> {
        Sum::read(text).unwrap().work_out(figures).map(|figure| figure.value)
    }

    #[test]
    fn sums_are_read_from_left_to_right() {
        assert_eq!(value("1000 * 8 * 1000 / 1000000"), Ok(8.0));
        assert_eq!(value("4 + 2 + 2"), Ok(8.0));
        assert_eq!(value("10 - 4 / 2"), Ok(3.0));
        assert!((value("gain swoole / go").unwrap() - 13.48).abs() < 0.01);
        assert!((value("drop 100 / 1000").unwrap() - 90.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_missing_or_no_number_is_said() {
        assert_eq!(value("swoole / gin"), Err("gin did not run".to_owned()));
        assert_eq!(value("swoole / zero"), Err("its figures give no number".to_owned()));
    }

    #[test]
    fn what_is_no_sum_is_refused() {
        for text in ["", "gain", "a /", "a b", "a % b", "/ a", "a / * b"] {
            assert!(Sum::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_figure_alone_keeps_its_interval_and_several_keep_their_scales() {
        let alone = Figure::median(&[3.0, 1.0, 2.0, 4.0, 5.0, 6.0]).unwrap();
        let kept = Sum::read("it").unwrap().work_out(|_| Ok(alone.clone())).unwrap();
        assert!(kept.interval.is_some() && kept == alone);
        let ratio = Sum::read("swoole / go").unwrap().work_out(figures).unwrap();
        assert_eq!((ratio.interval, ratio.scale.as_deref()), (None, Some("a tenth")));
        assert_eq!(Figure::median(&[1.0, 2.0]).unwrap().interval, None, "too few for one");
    }
}

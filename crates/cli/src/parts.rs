//! Which part of the work this program does: from `--part`, or from what an engine for jobs sets.
//!
//! Kubernetes numbers the pods of an Indexed Job (`JOB_COMPLETION_INDEX`, from 0) and leaves it to the
//! manifest to say how many there are; Slurm sets both for the tasks of an array. Start at [`of`].

use ringroad_load::Split;
use std::env;

/// Where the part was found, for a message: the name of an option or a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) split: Split,
    pub(crate) from: &'static str,
}

/// What is given on the command line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Given<'a> {
    /// `--part I/N`, or `auto`.
    pub(crate) part: Option<&'a str>,
    /// `--parts N`.
    pub(crate) parts: Option<u32>,
    /// Whether a Slurm array is a division of the work, or only of other things. A load is divided by it; a
    /// copy in a task of an array is often one of the task's own, so that asks for `--part auto`.
    pub(crate) slurm: bool,
}

/// Returns the part of this program; `None`: it does the whole.
///
/// # Errors
/// A part that is none, or an engine's variable without the other one that it needs.
pub(crate) fn of(given: Given<'_>) -> Result<Option<Found>, String> {
    find(given, &|name| env::var(name).ok().filter(|value| !value.is_empty()))
}

fn find(given: Given<'_>, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Found>, String> {
    let auto = given.part == Some("auto");
    if let (Some(text), false) = (given.part, auto) {
        if given.parts.is_some() {
            return Err("--parts: --part I/N has the number of parts already".to_owned());
        }
        let split = text.parse().map_err(|why: ringroad_load::Error| format!("--part: {why}"))?;
        return Ok(Some(Found { split, from: "--part" }));
    }
    let number = |name: &'static str| {
        let value = variable(name);
        let number = value.as_ref().map(|text| text.trim().parse::<u32>());
        number.transpose().map_err(|_| format!("{name}={}: a number is expected", value.unwrap_or_default()))
    };
    let count = match given.parts {
        Some(count) => Some(count),
        None => number("RINGROAD_PARTS")?,
    };
    if count == Some(0) {
        return Err("RINGROAD_PARTS=0: at least one part".to_owned());
    }
    let build = |index: u32, count: u32, from: &'static str| {
        if index >= count {
            return Err(format!("{from}: number {index} (from 0) of {count} parts: more tasks than parts"));
        }
        Ok(Some(Found { split: Split { index, count }, from }))
    };
    if let Some(index) = number("JOB_COMPLETION_INDEX")? {
        let from = "JOB_COMPLETION_INDEX";
        return match count {
            Some(count) => build(index, count, from),
            // A copy in a pod is the whole unless something says that it is divided.
            None if !given.slurm && !auto => Ok(None),
            None => Err(format!(
                "{from}={index}: of how many? Give --parts N or RINGROAD_PARTS=N, the completions of the Job; or --part 1/1 for the whole"
            )),
        };
    }
    if (given.slurm || auto || count.is_some())
        && let Some(id) = number("SLURM_ARRAY_TASK_ID")?
    {
        let (first, step) = (number("SLURM_ARRAY_TASK_MIN")?, number("SLURM_ARRAY_TASK_STEP")?);
        let index = id.saturating_sub(first.unwrap_or(0)) / step.unwrap_or(1).max(1);
        let count = match count {
            Some(count) => Some(count),
            None => number("SLURM_ARRAY_TASK_COUNT")?,
        };
        let count = count.ok_or("SLURM_ARRAY_TASK_ID without SLURM_ARRAY_TASK_COUNT: give --parts N")?;
        return build(index, count, "SLURM_ARRAY_TASK_ID");
    }
    // A load by each of them would be many times the one that was asked for; a copy is the whole one again.
    match (auto, count.filter(|_| given.parts.is_some() || given.slurm)) {
        (true, _) => {
            Err("--part auto: neither JOB_COMPLETION_INDEX nor SLURM_ARRAY_TASK_ID is set".to_owned())
        }
        (false, Some(count)) => {
            let what = if given.parts.is_some() {
                "--parts N".to_owned()
            } else {
                format!("RINGROAD_PARTS={count}")
            };
            Err(format!(
                "{what}: which of them? Give --part I/N (1/1 for the whole), or JOB_COMPLETION_INDEX in the environment"
            ))
        }
        (false, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn found(given: Given<'_>, variables: &[(&str, &str)]) -> Result<Option<(String, &'static str)>, String> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        find(given, &variable).map(|found| found.map(|found| (found.split.to_string(), found.from)))
    }

    const LOAD: Given<'_> = Given { part: None, parts: None, slurm: true };
    const COPY: Given<'_> = Given { part: None, parts: None, slurm: false };

    #[test]
    fn a_part_comes_from_the_option_or_from_what_the_engine_sets() {
        let part = |text: &str, from| Ok(Some((text.to_owned(), from)));
        let kubernetes = [("JOB_COMPLETION_INDEX", "2"), ("RINGROAD_PARTS", "8")];
        let slurm = [
            ("SLURM_ARRAY_TASK_ID", "5"),
            ("SLURM_ARRAY_TASK_MIN", "1"),
            ("SLURM_ARRAY_TASK_COUNT", "8"),
            ("SLURM_ARRAY_TASK_STEP", "1"),
        ];
        assert_eq!(found(LOAD, &[]), Ok(None));
        assert_eq!(found(LOAD, &kubernetes), part("3/8", "JOB_COMPLETION_INDEX"));
        assert_eq!(found(COPY, &kubernetes), part("3/8", "JOB_COMPLETION_INDEX"));
        assert_eq!(found(LOAD, &slurm), part("5/8", "SLURM_ARRAY_TASK_ID"));
        assert_eq!(found(COPY, &slurm), Ok(None), "a copy of the task's own");
        assert_eq!(found(COPY, &kubernetes[..1]), Ok(None), "likewise");
        assert_eq!(found(COPY, &kubernetes[1..]), Ok(None), "the last pass, as others");
        assert_eq!(found(Given { part: Some("auto"), ..COPY }, &slurm), part("5/8", "SLURM_ARRAY_TASK_ID"));
        assert_eq!(found(Given { part: Some("1/2"), ..LOAD }, &slurm), part("1/2", "--part"));
        let parts = Given { parts: Some(4), ..LOAD };
        assert_eq!(found(parts, &kubernetes), part("3/4", "JOB_COMPLETION_INDEX"));
        let steps =
            [("SLURM_ARRAY_TASK_ID", "9"), ("SLURM_ARRAY_TASK_STEP", "3"), ("SLURM_ARRAY_TASK_COUNT", "4")];
        assert_eq!(found(LOAD, &steps), part("4/4", "SLURM_ARRAY_TASK_ID"));
    }

    #[test]
    fn what_does_not_say_which_part_of_how_many_is_refused() {
        for (given, variables, why) in [
            (LOAD, &[("JOB_COMPLETION_INDEX", "2")][..], "of how many?"),
            (LOAD, &[("JOB_COMPLETION_INDEX", "8"), ("RINGROAD_PARTS", "8")], "more tasks than parts"),
            (LOAD, &[("JOB_COMPLETION_INDEX", "x"), ("RINGROAD_PARTS", "8")], "a number is expected"),
            (LOAD, &[("SLURM_ARRAY_TASK_ID", "2")], "give --parts N"),
            (Given { parts: Some(8), ..LOAD }, &[], "--parts N: which of them?"),
            (LOAD, &[("RINGROAD_PARTS", "8")], "RINGROAD_PARTS=8: which of them?"),
            (Given { part: Some("auto"), ..COPY }, &[], "neither"),
            (Given { part: Some("0/8"), ..LOAD }, &[], "counted from 1"),
            (Given { part: Some("1/8"), parts: Some(8), ..LOAD }, &[], "already"),
        ] {
            let said = found(given, variables).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}

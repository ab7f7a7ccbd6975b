//! Which extended attributes are copied: `/etc/xattr.conf`, the table of libattr that GNU cp follows too.
//!
//! A line has a pattern of names and what they are: `skip`, or `permissions`. Permissions go with the mode
//! (`-p`), not with the other attributes. The lists of Linux and of NFSv4 are permissions, whatever the table
//! says. Start at [`class`].

use crate::sys;
use std::ffi::{CStr, CString};
use std::io;
use std::path::Path;
use std::sync::OnceLock;

/// Where the table is.
pub(crate) const TABLE: &str = "/etc/xattr.conf";

/// Names that are permissions on every system.
const PERMISSIONS: [&CStr; 4] =
    [c"system.posix_acl_access", c"system.posix_acl_default", c"system.nfs4_acl", c"system.nfs4acl"];

/// What an attribute is to a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Goes with the mode.
    Permissions,
    /// Is never copied.
    Skip,
    /// Goes where attributes are preserved.
    Other,
}

/// The table, read once, when the first attribute is met: most files have none.
static RULES: OnceLock<Result<Rules, io::Error>> = OnceLock::new();

/// Returns what an attribute of this name is.
pub(crate) fn class(name: &CStr) -> Class {
    if PERMISSIONS.contains(&name) {
        return Class::Permissions;
    }
    match RULES.get_or_init(|| Rules::read(Path::new(TABLE))) {
        Ok(rules) => rules.class(name),
        Err(_) => Class::Other,
    }
}

/// Returns why the table could not be used, if it was asked for and could not.
pub(crate) fn unusable() -> Option<io::Error> {
    let why = RULES.get()?.as_ref().err()?;
    Some(match why.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(why.kind(), why.to_string()),
    })
}

/// The lines of a table.
#[derive(Debug, Default)]
struct Rules(Vec<(CString, Class)>);

impl Rules {
    /// Reads a table. Without one there are no rules.
    fn read(path: &Path) -> io::Result<Rules> {
        match std::fs::read(path) {
            Ok(text) => Rules::parse(&text),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Rules::default()),
            Err(why) => Err(why),
        }
    }

    fn parse(text: &[u8]) -> io::Result<Rules> {
        let mut rules = Vec::new();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
            let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
            let Some(pattern) = words.next() else { continue };
            let class = match (words.next(), words.next()) {
                (Some(b"skip"), None) => Class::Skip,
                (Some(b"permissions"), None) => Class::Permissions,
                _ => {
                    let why = format!("line {number} is no pattern with \"skip\" or \"permissions\"");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                }
            };
            rules.push((CString::new(pattern)?, class));
        }
        Ok(Rules(rules))
    }

    /// Returns the class of an attribute. A later line counts more, as in libattr.
    fn class(&self, name: &CStr) -> Class {
        let found = self.0.iter().rev().find(|(pattern, _)| sys::matches(pattern, name));
        found.map_or(Class::Other, |(_, class)| *class)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_name_is_what_the_last_line_that_matches_it_says() {
        let text =
            b"# a table\n\n user.Beagle.*\tskip # index\nafs.? permissions\nuser.Beagle.kept permissions";
        let rules = Rules::parse(text).unwrap();
        for (name, class) in [
            (c"user.Beagle.uid", Class::Skip),
            (c"user.Beagle.a/b", Class::Skip),
            (c"user.Beagle.kept", Class::Permissions),
            (c"user.beagle.uid", Class::Other),
            (c"user.mine", Class::Other),
            (c"afs.x", Class::Permissions),
            (c"afs.xy", Class::Other),
        ] {
            assert_eq!(rules.class(name), class, "{name:?}");
        }
    }

    #[test]
    fn lists_of_linux_and_nfs_are_permissions_without_a_table() {
        assert_eq!(Rules::default().class(c"system.nfs4_acl"), Class::Other);
        PERMISSIONS.iter().for_each(|name| assert_eq!(class(name), Class::Permissions, "{name:?}"));
    }

    #[test]
    fn a_line_that_says_neither_is_an_error_with_its_number() {
        for text in ["user.x", "user.x keep", "user.x skip now", "# ok\nskip"] {
            let why = Rules::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(why.starts_with("line "), "{text}: {why}");
        }
        assert!(Rules::read(Path::new("/nonexistent/xattr.conf")).unwrap().0.is_empty());
    }
}

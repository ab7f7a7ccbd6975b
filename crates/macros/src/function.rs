//! `#[main]` and `#[test]`: they replace an async function by a function that runs it.

use crate::code::code;
use proc_macro::{Delimiter, Ident, Span, TokenStream, TokenTree};

/// Drivers that an attribute may name.
const DRIVERS: &[&str] = &["auto", "io_uring", "epoll", "poll", "select", "threads", "sim"];

/// What `all` stands for: the drivers of the kernel.
const ALL: &[&str] = &["io_uring", "epoll", "poll", "select", "threads"];

/// Reads a list of drivers: `epoll, io_uring`, or `all`.
pub(crate) fn drivers(arguments: TokenStream) -> Result<Vec<String>, String> {
    let mut drivers: Vec<String> = Vec::new();
    for token in arguments {
        match token {
            TokenTree::Punct(comma) if comma.as_char() == ',' => {}
            TokenTree::Ident(name) if name.to_string() == "all" => {
                drivers.extend(ALL.iter().map(|driver| (*driver).to_owned()));
            }
            TokenTree::Ident(name) if DRIVERS.contains(&&*name.to_string()) => drivers.push(name.to_string()),
            other => {
                let known = DRIVERS.join(", ");
                return Err(format!(
                    "`{other}` is no driver (one of: {known}; `all` for every one of the kernel)"
                ));
            }
        }
    }
    drivers.dedup();
    Ok(drivers)
}

/// An async function without arguments.
pub(crate) struct Function {
    /// Attributes and visibility.
    before: TokenStream,
    /// `should_panic` and `ignore`: attributes of the test, not of the async function.
    of_test: TokenStream,
    name: Ident,
    /// `-> Type`, or nothing.
    returns: TokenStream,
    body: TokenStream,
}

impl Function {
    pub(crate) fn parse(item: TokenStream, attribute: &str) -> Result<Function, String> {
        let tokens: Vec<TokenTree> = item.into_iter().collect();
        let is = |at: usize, word: &str| matches!(tokens.get(at), Some(TokenTree::Ident(name)) if name.to_string() == word);
        let Some(at) = (0..tokens.len()).find(|at| is(*at, "async") && is(at + 1, "fn")) else {
            return Err(format!("`#[ringroad::{attribute}]` is for an `async fn`"));
        };
        let Some(TokenTree::Ident(name)) = tokens.get(at + 2) else {
            return Err("expected the name of a function after `async fn`".into());
        };
        match tokens.get(at + 3) {
            Some(TokenTree::Group(group))
                if group.delimiter() == Delimiter::Parenthesis && group.stream().is_empty() => {}
            _ => return Err(format!("`#[ringroad::{attribute}]` is for a function without arguments")),
        }
        let Some((TokenTree::Group(body), before_body)) = tokens.split_last() else {
            return Err("expected the body of a function".into());
        };
        let (before, of_test) = attributes(tokens.iter().take(at).cloned());
        Ok(Function {
            before,
            of_test,
            name: name.clone(),
            returns: before_body.iter().skip(at + 4).cloned().collect(),
            body: TokenTree::Group(body.clone()).into(),
        })
    }

    fn parts(&self, driver: &str) -> Vec<(&'static str, TokenStream)> {
        // A test that is expected to panic must return nothing.
        let (code, end) = match self.returns.is_empty() {
            true => ("", ";"),
            false => ("-> ::std::process::ExitCode", ""),
        };
        let name = |name: &Ident| TokenStream::from(TokenTree::Ident(name.clone()));
        vec![
            ("BEFORE", self.before.clone()),
            ("OFTEST", self.of_test.clone()),
            ("NAME", name(&self.name)),
            ("RETURNS", self.returns.clone()),
            ("BODY", self.body.clone()),
            ("CODE", code.parse().unwrap_or_default()),
            ("END", end.parse().unwrap_or_default()),
            ("DRIVER", format!("{driver:?}").parse().unwrap_or_default()),
            ("TEST", name(&Ident::new(driver, Span::call_site()))),
        ]
    }

    /// Returns a function that runs the async function on this driver.
    pub(crate) fn as_main(&self, driver: &str) -> TokenStream {
        code(
            "OFTEST BEFORE fn NAME() RETURNS {
                async fn NAME() RETURNS BODY
                ::ringroad::__private::main(DRIVER, NAME())
            }",
            &self.parts(driver),
        )
    }

    /// Returns a test for each driver, in a module with the function's name; one test without a list.
    pub(crate) fn as_tests(&self, drivers: &[String]) -> TokenStream {
        let mut tests = TokenStream::new();
        match drivers {
            [] => return self.one_test("auto"),
            [driver] => return self.one_test(driver),
            _ => {}
        }
        for driver in drivers {
            tests.extend(code(
                "#[::core::prelude::v1::test]
                OFTEST fn TEST() CODE {
                    ::ringroad::__private::test(DRIVER, super::NAME) END
                }",
                &self.parts(driver),
            ));
        }
        let mut parts = self.parts("auto");
        parts.push(("TESTS", tests));
        // A function and a module may have the same name.
        code("BEFORE async fn NAME() RETURNS BODY mod NAME { TESTS }", &parts)
    }

    fn one_test(&self, driver: &str) -> TokenStream {
        code(
            "#[::core::prelude::v1::test]
            OFTEST BEFORE fn NAME() CODE {
                async fn NAME() RETURNS BODY
                ::ringroad::__private::test(DRIVER, NAME) END
            }",
            &self.parts(driver),
        )
    }
}

/// Separates the attributes of a test from those of its function.
fn attributes(tokens: impl Iterator<Item = TokenTree>) -> (TokenStream, TokenStream) {
    let (mut before, mut of_test) = (TokenStream::new(), TokenStream::new());
    let mut mark = None;
    for token in tokens {
        match (&token, mark.take()) {
            (TokenTree::Punct(punct), None) if punct.as_char() == '#' => mark = Some(token),
            (TokenTree::Group(group), Some(mark)) => {
                let first = group.stream().into_iter().next().map(|name| name.to_string());
                let is_of_test = matches!(first.as_deref(), Some("should_panic" | "ignore"));
                let side = if is_of_test { &mut of_test } else { &mut before };
                side.extend([mark, token]);
            }
            (_, mark) => before.extend(mark.into_iter().chain([token])),
        }
    }
    (before, of_test)
}

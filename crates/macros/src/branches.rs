//! The code of `select!`, `join!` and `try_join!`.
//!
//! The rules of these macros in the crate `ringroad` parse the branches, because they need a parser of
//! expressions and patterns. Here each branch arrives in groups.

use crate::code::{code, whole};
use proc_macro::{Group, Ident, Span, TokenStream, TokenTree};

/// A branch of `select!`.
struct Branch {
    pattern: TokenStream,
    future: TokenStream,
    condition: TokenStream,
    body: TokenStream,
}

fn group(token: Option<TokenTree>) -> Result<Group, String> {
    match token {
        Some(TokenTree::Group(group)) => Ok(group),
        other => Err(format!("expected a group, found {other:?}")),
    }
}

/// Returns the name of the `index`th thing of its kind.
fn name(kind: &str, index: usize) -> TokenStream {
    TokenTree::Ident(Ident::new(&format!("__{kind}_{index}"), Span::mixed_site())).into()
}

fn number(index: usize) -> TokenStream {
    format!("{index}usize").parse().unwrap_or_default()
}

/// `[CRATE] fair|biased [ELSE]? { (pattern) (future) (condition) (body) }*`
pub(crate) fn select(input: TokenStream) -> Result<TokenStream, String> {
    let mut input = input.into_iter();
    let krate = group(input.next())?.stream();
    let mode = input.next().map(|mode| mode.to_string()).unwrap_or_default();
    let otherwise = group(input.next())?.stream();
    let mut branches = Vec::new();
    for token in input {
        let mut parts = group(Some(token))?.stream().into_iter();
        let mut part = || group(parts.next()).map(|group| group.stream());
        branches.push(Branch { pattern: part()?, future: part()?, condition: part()?, body: part()? });
    }
    let count = branches.len();
    let [mut generics, mut variants, mut conditions, mut futures, mut polls, mut arms] =
        std::array::from_fn(|_| TokenStream::new());
    for (index, branch) in branches.into_iter().enumerate() {
        let parts = [
            ("CRATE", krate.clone()),
            ("INDEX", number(index)),
            ("TYPE", name("T", index)),
            ("VARIANT", name("B", index)),
            ("FUTURE", name("future", index)),
            ("PATTERN", whole(branch.pattern.clone())),
            ("CHECKED", whole(without_bindings(branch.pattern))),
            ("EXPRESSION", whole(branch.future)),
            ("CONDITION", whole(branch.condition)),
            ("BODY", whole(branch.body)),
        ];
        generics.extend(code("TYPE,", &parts));
        variants.extend(code("VARIANT(TYPE),", &parts));
        conditions.extend(code("CONDITION,", &parts));
        futures.extend(code(
            "let mut FUTURE = ::core::pin::pin!(::core::future::IntoFuture::into_future(EXPRESSION));",
            &parts,
        ));
        polls.extend(code(
            "INDEX => {
                match ::core::future::Future::poll(FUTURE.as_mut(), __context) {
                    ::core::task::Poll::Ready(__output) => {
                        #[allow(unused_variables, unreachable_patterns, clippy::all)]
                        match &__output {
                            CHECKED => {}
                            _ => {
                                __enabled[INDEX] = false;
                                continue;
                            }
                        }
                        return ::core::task::Poll::Ready(__Selected::VARIANT(__output));
                    }
                    ::core::task::Poll::Pending => __waits = true,
                }
            }",
            &parts,
        ));
        arms.extend(code("__Selected::VARIANT(PATTERN) => BODY,", &parts));
    }
    let otherwise = if otherwise.is_empty() {
        code("CRATE::__private::every_branch_is_disabled()", &[("CRATE", krate.clone())])
    } else {
        whole(otherwise)
    };
    let start = if mode == "biased" { "0usize" } else { "CRATE::__private::turn()" };
    let parts = [
        ("CRATE", krate.clone()),
        ("COUNT", number(count)),
        ("GENERICS", generics),
        ("VARIANTS", variants),
        ("CONDITIONS", conditions),
        ("FUTURES", futures),
        ("POLLS", polls),
        ("ARMS", arms),
        ("OTHERWISE", otherwise),
        ("START", code(start, &[("CRATE", krate)])),
    ];
    Ok(code(
        "{
            enum __Selected<GENERICS> { VARIANTS None }
            let __selected = {
                let mut __enabled: [bool; COUNT] = [CONDITIONS];
                FUTURES
                let __selected = ::core::future::poll_fn(|__context| {
                    let __start: usize = START;
                    let mut __waits = false;
                    for __index in 0..__enabled.len() {
                        let __index = (__start + __index) % __enabled.len();
                        if !__enabled[__index] {
                            continue;
                        }
                        match __index {
                            POLLS
                            _ => ::core::unreachable!(),
                        }
                    }
                    if __waits { ::core::task::Poll::Pending } else { ::core::task::Poll::Ready(__Selected::None) }
                }).await;
                __selected
            };
            match __selected {
                ARMS
                __Selected::None => OTHERWISE,
                _ => ::core::unreachable!(),
            }
        }",
        &parts,
    ))
}

/// Removes `mut` and `ref` from a pattern. The result matches a reference and binds nothing mutably.
fn without_bindings(pattern: TokenStream) -> TokenStream {
    let mut out: Vec<TokenTree> = Vec::new();
    for token in pattern {
        match token {
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), without_bindings(group.stream()));
                inner.set_span(group.span());
                out.push(TokenTree::Group(inner));
            }
            TokenTree::Ident(word) if word.to_string() == "ref" => {}
            // `&mut` is a pattern of its own.
            TokenTree::Ident(word)
                if word.to_string() == "mut"
                    && !matches!(out.last(), Some(TokenTree::Punct(before)) if before.as_char() == '&') => {}
            other => out.push(other),
        }
    }
    out.into_iter().collect()
}

/// `[CRATE] (future)*`
pub(crate) fn join(input: TokenStream, stops_early: bool) -> Result<TokenStream, String> {
    let mut input = input.into_iter();
    let krate = group(input.next())?.stream();
    let [mut futures, mut polls, mut outputs] = std::array::from_fn(|_| TokenStream::new());
    let mut count = 0;
    for (index, token) in input.enumerate() {
        count += 1;
        let parts = [
            ("CRATE", krate.clone()),
            ("INDEX", number(index)),
            ("FUTURE", name("future", index)),
            ("EXPRESSION", whole(group(Some(token))?.stream())),
        ];
        futures.extend(code(
            "let mut FUTURE = ::core::pin::pin!(CRATE::__private::MaybeDone::new(EXPRESSION));",
            &parts,
        ));
        polls.extend(code(
            if stops_early {
                "INDEX => match FUTURE.as_mut().poll_ok(__context) {
                    ::core::result::Result::Ok(__is_done) => __done &= __is_done,
                    ::core::result::Result::Err(__why) => {
                        return ::core::task::Poll::Ready(::core::result::Result::Err(__why));
                    }
                },"
            } else {
                "INDEX => __done &= FUTURE.as_mut().poll_done(__context),"
            },
            &parts,
        ));
        outputs.extend(code(
            if stops_early { "FUTURE.as_mut().take_ok()," } else { "FUTURE.as_mut().take()," },
            &parts,
        ));
    }
    let output = if stops_early { "::core::result::Result::Ok((OUTPUTS))" } else { "(OUTPUTS)" };
    let output = code(output, &[("OUTPUTS", outputs)]);
    if count == 0 {
        return Ok(output);
    }
    // The futures take turns in being polled first. Otherwise one that is always ready would use the whole
    // budget of the task, and leave none for the others.
    Ok(code(
        "{
            FUTURES
            let mut __turn: usize = 0;
            let __joined = ::core::future::poll_fn(|__context| {
                let __start = __turn;
                __turn = (__turn + 1) % COUNT;
                let mut __done = true;
                for __index in 0..COUNT {
                    match (__start + __index) % COUNT {
                        POLLS
                        _ => ::core::unreachable!(),
                    }
                }
                if __done { ::core::task::Poll::Ready(OUTPUT) } else { ::core::task::Poll::Pending }
            }).await;
            __joined
        }",
        &[("FUTURES", futures), ("POLLS", polls), ("OUTPUT", output), ("COUNT", number(count))],
    ))
}

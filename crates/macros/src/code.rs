//! Code from templates: text with names that stand for tokens.

use proc_macro::{Delimiter, Group, Span, TokenStream, TokenTree};

/// Returns `template` as tokens, with each name in `parts` replaced by its tokens. The caller's code cannot
/// see the template's other names.
pub(crate) fn code(template: &str, parts: &[(&str, TokenStream)]) -> TokenStream {
    let parsed: TokenStream = template.parse().unwrap_or_default();
    replaced(parsed, parts)
}

fn replaced(tokens: TokenStream, parts: &[(&str, TokenStream)]) -> TokenStream {
    let mut out = TokenStream::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), replaced(group.stream(), parts));
                inner.set_span(Span::mixed_site());
                out.extend([TokenTree::Group(inner)]);
            }
            TokenTree::Ident(name) => match parts.iter().find(|(part, _)| *part == name.to_string()) {
                Some((_, part)) => out.extend(part.clone()),
                None => out.extend([TokenTree::Ident(proc_macro::Ident::new(
                    &name.to_string(),
                    Span::mixed_site(),
                ))]),
            },
            mut other => {
                other.set_span(Span::mixed_site());
                out.extend([other]);
            }
        }
    }
    out
}

/// Returns tokens that are one expression or pattern, whatever stands beside them.
pub(crate) fn whole(tokens: TokenStream) -> TokenStream {
    TokenTree::Group(Group::new(Delimiter::None, tokens)).into()
}

/// Returns code that does not compile, with this message.
pub(crate) fn refused(why: &str) -> TokenStream {
    format!("::core::compile_error!({why:?});").parse().unwrap_or_default()
}

//! The attributes and macros of the crate `ringroad`, which documents them. Use them through it.
//!
//! They read and write tokens themselves, because building a parser of the language would take longer than
//! building the rest of a small program. Start at [`main`]; `branches` writes the code of `select!` and
//! `join!`.
#![forbid(unsafe_code)]

mod branches;
mod code;
mod function;

use code::refused;
use function::Function;
use proc_macro::TokenStream;

/// Runs an async `main` on a runtime.
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let made = function::drivers(arguments).and_then(|drivers| match &*drivers {
        [] => Ok(String::from("auto")),
        [driver] => Ok(driver.clone()),
        _ => Err("a program runs on one driver: `#[ringroad::main(epoll)]`, or without an argument".into()),
    });
    made.and_then(|driver| Ok(Function::parse(item, "main")?.as_main(&driver)))
        .unwrap_or_else(|why| refused(&why))
}

/// Runs an async test on a runtime, or on each of several drivers.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let made = function::drivers(arguments)
        .and_then(|drivers| Ok(Function::parse(item, "test")?.as_tests(&drivers)));
    made.unwrap_or_else(|why| refused(&why))
}

/// Returns the code of `ringroad::select!`, from branches in groups.
#[doc(hidden)]
#[proc_macro]
pub fn select_code(input: TokenStream) -> TokenStream {
    branches::select(input).unwrap_or_else(|why| refused(&why))
}

/// Returns the code of `ringroad::join!`, from futures in groups.
#[doc(hidden)]
#[proc_macro]
pub fn join_code(input: TokenStream) -> TokenStream {
    branches::join(input, false).unwrap_or_else(|why| refused(&why))
}

/// Returns the code of `ringroad::try_join!`, from futures in groups.
#[doc(hidden)]
#[proc_macro]
pub fn try_join_code(input: TokenStream) -> TokenStream {
    branches::join(input, true).unwrap_or_else(|why| refused(&why))
}

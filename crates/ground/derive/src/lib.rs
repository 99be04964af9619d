//! The derive macros of crate `kvdrive-declare`, which re-exports and documents them. A derive reads one struct or enum
//! and generates a table, and the assignments between fields and values. All other code is functions in that crate.

mod counters;
mod help;
mod section;
mod words;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// `kvdrive_declare::Section` from a struct: each field with `#[setting(..)]` is a setting, its comment the help text.
#[proc_macro_derive(Section, attributes(section, setting))]
pub fn section(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    section::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// `kvdrive_declare::Words` from an enum without fields: a variant's word is its name in kebab-case, or the one in
/// `#[word("...")]`.
#[proc_macro_derive(Words, attributes(word))]
pub fn words(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    words::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// `kvdrive_declare::Counters` from a struct: each field is a counter, its comment the help text.
#[proc_macro_derive(Counters, attributes(counters, counter))]
pub fn counters(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    counters::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

//! `#[derive(Words)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, LitStr, Result};

pub fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Enum(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "Words is for enums"));
    };
    let name = &input.ident;
    let mut rows = Vec::new();
    for variant in &data.variants {
        if !matches!(variant.fields, Fields::Unit) {
            return Err(Error::new_spanned(variant, "a variant with fields is no word"));
        }
        let mut word = lower(&variant.ident.to_string(), '-');
        for attribute in variant.attrs.iter().filter(|attribute| attribute.path().is_ident("word")) {
            word = attribute.parse_args::<LitStr>()?.value();
        }
        let variant = &variant.ident;
        rows.push(quote! { (#word, #name::#variant) });
    }
    Ok(quote! {
        impl ::kvdrive_declare::Words for #name {
            const WORDS: &'static [(&'static str, Self)] = &[#(#rows),*];
        }
        impl ::kvdrive_declare::Field for #name {
            fn of_value(value: &::kvdrive_declare::Value) -> Option<Self> {
                ::kvdrive_declare::of_word(value.as_str()?)
            }
            fn to_value(&self) -> ::kvdrive_declare::Value {
                ::kvdrive_declare::Words::word(*self).into()
            }
        }
        impl ::kvdrive_declare::Natural for #name {
            const RULE: ::kvdrive_declare::Rule = ::kvdrive_declare::Rule::Row(::kvdrive_declare::words::<Self>);
        }
    })
}

/// `RoundRobin` as `round-robin`, with this between its words.
pub fn lower(name: &str, between: char) -> String {
    let mut word = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !word.is_empty() {
            word.push(between);
        }
        word.extend(letter.to_lowercase());
    }
    word
}

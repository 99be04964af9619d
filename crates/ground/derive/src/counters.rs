//! `#[derive(Counters)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::{Attribute, Data, DataStruct, DeriveInput, Error, Expr, Fields, Ident, LitStr, Result};

use crate::help::help;
use crate::words::lower;

/// What `#[counter(..)]` of a field says, or `#[counters(..)]` of a struct for all of its fields.
#[derive(Clone, Default)]
struct CounterAttributes {
    is_skipped: bool,
    name: Option<LitStr>,
    prefix: Option<LitStr>,
    unit: Option<Expr>,
    by: Option<Expr>,
    kind: Option<TokenStream>,
    form: Option<TokenStream>,
}

impl CounterAttributes {
    fn read(&mut self, attributes: &[Attribute], attribute: &str) -> Result<()> {
        for attribute in attributes.iter().filter(|other| other.path().is_ident(attribute)) {
            attribute.parse_nested_meta(|meta| self.take(&meta))?;
        }
        Ok(())
    }

    fn take(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        match meta.path.require_ident()?.to_string().as_str() {
            "skip" => self.is_skipped = true,
            "name" => self.name = Some(meta.value()?.parse()?),
            "prefix" => self.prefix = Some(meta.value()?.parse()?),
            "unit" => self.unit = Some(meta.value()?.parse()?),
            "by" => self.by = Some(meta.value()?.parse()?),
            "modelled" => self.kind = Some(quote! { Modelled }),
            "measured" => self.kind = Some(quote! { Measured }),
            "state" => self.form = Some(quote! { State }),
            "maximum" => self.form = Some(quote! { Maximum }),
            _ => return Err(meta.error("a counter has no such property")),
        }
        Ok(())
    }
}

pub fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let name = &input.ident;
    let items: Vec<(&Ident, &[Attribute])> = match &input.data {
        Data::Struct(DataStruct { fields: Fields::Named(fields), .. }) => {
            fields.named.iter().filter_map(|field| Some((field.ident.as_ref()?, &*field.attrs))).collect()
        }
        Data::Enum(data) => data.variants.iter().map(|variant| (&variant.ident, &*variant.attrs)).collect(),
        _ => return Err(Error::new_spanned(name, "Counters is for structs with named fields, and enums")),
    };
    let is_enum = matches!(input.data, Data::Enum(_));
    let mut of_all = CounterAttributes::default();
    of_all.read(&input.attrs, "counters")?;
    let (mut counters, mut reads) = (Vec::new(), Vec::new());
    for (ident, attributes) in items {
        let mut said = of_all.clone();
        said.read(attributes, "counter")?;
        if said.is_skipped {
            continue;
        }
        let prefix = said.prefix.as_ref().map_or_else(String::new, LitStr::value);
        let name = said
            .name
            .as_ref()
            .map_or_else(|| format!("{prefix}{}", lower(&ident.to_string(), '_')), LitStr::value);
        let help = help(attributes);
        if help.is_empty() {
            return Err(Error::new_spanned(ident, "what does it count? Its comment is the help text"));
        }
        let place = counters.len();
        let counter = quote! { &<Self as ::kvdrive_declare::Counters>::COUNTERS[#place] };
        reads.push(match said.by {
            Some(_) => quote! { into.put_each(#counter, &self.#ident); },
            None => quote! { into.put(#counter, &self.#ident); },
        });
        let by = said.by.map_or_else(|| quote! { None }, |by| quote! { Some(#by) });
        let unit = said.unit.map_or_else(
            || quote! { ::kvdrive_declare::Unit::of(#name) },
            |unit| quote! { ::kvdrive_declare::Unit::#unit },
        );
        let kind = said.kind.unwrap_or_else(|| quote! { Counted });
        let form = said.form.unwrap_or_else(|| quote! { Sum });
        counters.push(quote! {
            ::kvdrive_declare::Counter {
                name: #name,
                unit: #unit,
                kind: ::kvdrive_declare::Kind::#kind,
                form: ::kvdrive_declare::Form::#form,
                by: #by,
                help: #help,
            }
        });
    }
    if is_enum {
        return Ok(quote! {
            impl #name {
                /// Every counter, at the place of its variant.
                pub const COUNTERS: &'static [::kvdrive_declare::Counter] = &[#(#counters),*];
            }
        });
    }
    Ok(quote! {
        impl ::kvdrive_declare::Counters for #name {
            const COUNTERS: &'static [::kvdrive_declare::Counter] = &[#(#counters),*];
            fn read(&self, into: &mut ::kvdrive_declare::Counts) {
                #(#reads)*
            }
        }
    })
}

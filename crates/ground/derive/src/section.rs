//! `#[derive(Section)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Expr, Field, Fields, Ident, LitStr, Meta, Result};

use crate::help::help;

/// What `#[setting(..)]` of one field says.
#[derive(Default)]
struct SettingAttributes {
    is_part: bool,
    is_skipped: bool,
    rule: Option<Expr>,
    key: Option<LitStr>,
    unit: Option<Expr>,
    default: Option<Expr>,
    option: Option<LitStr>,
    when: Option<Expr>,
    in_image: bool,
    shrinks: bool,
}

impl SettingAttributes {
    fn of(field: &Field) -> Result<SettingAttributes> {
        let mut attributes = SettingAttributes::default();
        for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("setting")) {
            if matches!(attribute.meta, Meta::Path(_)) {
                continue;
            }
            attribute.parse_nested_meta(|meta| {
                let name = meta.path.require_ident()?.to_string();
                match name.as_str() {
                    "part" => attributes.is_part = true,
                    "skip" => attributes.is_skipped = true,
                    "image" => attributes.in_image = true,
                    "shrinks" => attributes.shrinks = true,
                    "is" => attributes.rule = Some(meta.value()?.parse()?),
                    "key" => attributes.key = Some(meta.value()?.parse()?),
                    "unit" => attributes.unit = Some(meta.value()?.parse()?),
                    "default" => attributes.default = Some(meta.value()?.parse()?),
                    "option" => attributes.option = Some(meta.value()?.parse()?),
                    "when" => attributes.when = Some(meta.value()?.parse()?),
                    _ => return Err(meta.error("a setting has no such property")),
                }
                Ok(())
            })?;
        }
        Ok(attributes)
    }

    /// The setting's whole key: that of the field, within its section unless it names another one.
    fn key_in(&self, section: &str, field: &Ident) -> String {
        let key = self.key.as_ref().map_or_else(|| field.to_string(), LitStr::value);
        if key.contains('.') { key } else { format!("{section}.{key}") }
    }

    /// The conditions under which a run reads it.
    fn when(&self) -> TokenStream {
        self.when.as_ref().map_or_else(|| quote! { &[] }, |when| quote! { #when })
    }
}

/// The name of the section, and whether it has a `Default` that is derived as well: `#[section("flash", default)]`.
fn section_of(input: &DeriveInput) -> Result<(String, bool)> {
    let attribute = input.attrs.iter().find(|attribute| attribute.path().is_ident("section"));
    let attribute =
        attribute.ok_or_else(|| Error::new_spanned(&input.ident, "which section? #[section(\"NAME\")]"))?;
    attribute.parse_args_with(|input: syn::parse::ParseStream<'_>| {
        let name = input.parse::<LitStr>()?.value();
        let has_default = input.parse::<Option<syn::Token![,]>>()?.is_some();
        if has_default {
            input.parse::<syn::Token![default]>()?;
        }
        Ok((name, has_default))
    })
}

/// The declaration of one setting, as an entry of its section.
fn setting(section: &str, field: &Field, attributes: &SettingAttributes) -> TokenStream {
    let ident = field.ident.as_ref().expect("fields are named");
    let (ty, key) = (&field.ty, attributes.key_in(section, ident));
    let when = attributes.when();
    let rule =
        attributes.rule.as_ref().map_or_else(|| quote! { <#ty as Natural>::RULE }, |rule| quote! { #rule });
    let unit = attributes.unit.as_ref().map_or_else(|| quote! { Unit::of(#key) }, |unit| quote! { #unit });
    let default = match &attributes.default {
        Some(default) => quote! {
            Some(|| {
                let value: #ty = #default;
                Field::to_value(&value)
            })
        },
        None => quote! { None },
    };
    let option =
        attributes.option.as_ref().map_or_else(|| quote! { None }, |option| quote! { Some(#option) });
    let (help, in_image, shrinks) = (help(&field.attrs), attributes.in_image, attributes.shrinks);
    quote! {
        Entry::Setting(Setting {
            key: #key,
            rule: #rule,
            unit: #unit,
            help: #help,
            least: #default,
            option: #option,
            in_image: #in_image,
            shrinks: #shrinks,
            when: #when,
        })
    }
}

pub fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let name = &input.ident;
    let (section, has_default) = section_of(input)?;
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(name, "Section is for structs"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new_spanned(name, "a setting has a name"));
    };
    let (mut entries, mut takes, mut gives) = (Vec::new(), Vec::new(), Vec::new());
    for field in &fields.named {
        let attributes = SettingAttributes::of(field)?;
        let ident = field.ident.as_ref().expect("fields are named");
        let ty = &field.ty;
        let when = attributes.when();
        if attributes.is_skipped {
            takes.push(quote! { #ident: ::core::default::Default::default() });
            continue;
        }
        if attributes.is_part {
            entries.push(quote! {
                Entry::Part(<#ty as Section>::ENTRIES, #when)
            });
            takes.push(quote! { #ident: ::kvdrive_declare::Section::take(values)? });
            gives.push(quote! { ::kvdrive_declare::Section::give(&self.#ident, values); });
            continue;
        }
        entries.push(setting(&section, field, &attributes));
        let key = attributes.key_in(&section, ident);
        takes.push(quote! { #ident: values.field(#key)? });
        gives.push(quote! { values.put(#key, ::kvdrive_declare::Field::to_value(&self.#ident)); });
    }
    let default = has_default.then(|| {
        quote! {
            impl Default for #name {
                fn default() -> Self {
                    ::kvdrive_declare::default_of()
                }
            }
        }
    });
    Ok(quote! {
        #default
        impl ::kvdrive_declare::Section for #name {
            const ENTRIES: &'static [::kvdrive_declare::Entry] = {
                #[allow(unused_imports)]
                use ::kvdrive_declare::words_of_declarations::*;
                &[#(#entries),*]
            };
            fn take(values: &::kvdrive_declare::Values<'_>) -> Result<Self, ::kvdrive_declare::Problem> {
                Ok(Self { #(#takes),* })
            }
            fn give(&self, values: &mut ::kvdrive_declare::GivenValues) {
                #(#gives)*
            }
        }
    })
}

//! Values of a TOML document as JSON, read in place. It knows no key of kvdrive.
//!
//! Crate `toml_edit` converts a document only by taking it, with every comment and space: a plan of five hundred runs then
//! spent most of its time on copies.

use serde_json::{Map, Value};
use toml_edit::{Item, TableLike};

/// The keys and values of a table, in its order.
pub(crate) fn of_table(table: &dyn TableLike) -> Map<String, Value> {
    table.iter().map(|(key, item)| (key.to_owned(), of_item(item))).collect()
}

fn of_item(item: &Item) -> Value {
    match (item.as_table_like(), item.as_value()) {
        (Some(table), _) => of_table(table).into(),
        (None, Some(value)) => of_value(value),
        (None, None) => unreachable!("a profile has sections and values: {item}"),
    }
}

/// One value. A number that is not finite, and a date, which no setting has, are `null`.
pub(crate) fn of_value(value: &toml_edit::Value) -> Value {
    use toml_edit::Value as Toml;
    match value {
        Toml::Integer(number) => (*number.value()).into(),
        Toml::Float(number) => (*number.value()).into(),
        Toml::Boolean(flag) => (*flag.value()).into(),
        Toml::String(text) => text.value().as_str().into(),
        Toml::Array(values) => values.iter().map(of_value).collect::<Vec<_>>().into(),
        Toml::InlineTable(table) => of_table(table).into(),
        Toml::Datetime(_) => Value::Null,
    }
}

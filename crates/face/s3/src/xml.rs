//! The XML of requests and answers.

use quick_xml::Reader;
use quick_xml::escape::escape;
use quick_xml::events::Event;

use crate::failure::Failure;

/// Before every document.
const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// A document that grows.
pub struct Xml(String);

impl Xml {
    /// A document of this element, with the namespace of S3; `build` adds what is in it.
    pub fn document(name: &str, build: impl FnOnce(&mut Xml)) -> String {
        let mut xml = Xml(format!("{HEAD}<{name} xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"));
        build(&mut xml);
        xml.0 += &format!("</{name}>");
        xml.0
    }

    /// An error, which has no namespace.
    pub fn error(failure: &Failure, resource: &str) -> String {
        let mut xml = Xml(format!("{HEAD}<Error>"));
        xml.put("Code", failure.code);
        xml.put("Message", &failure.message);
        xml.put("Resource", resource);
        xml.0 + "</Error>"
    }

    /// An element with a text. Characters that XML cannot have become `?`.
    pub fn put(&mut self, name: &str, text: &str) {
        let is_allowed = |c: char| c >= ' ' || matches!(c, '\t' | '\n' | '\r');
        let text: String = text.chars().map(|c| if is_allowed(c) { c } else { '?' }).collect();
        self.0 += &format!("<{name}>{}</{name}>", escape(&text));
    }

    /// An element with others.
    pub fn within(&mut self, name: &str, build: impl FnOnce(&mut Xml)) {
        self.0 += &format!("<{name}>");
        build(self);
        self.0 += &format!("</{name}>");
    }
}

/// The texts of the elements `fields` of each element `item` of a document, in their order; an element that is missing is
/// an empty text.
///
/// # Errors
/// It is no XML.
pub fn items<const N: usize>(
    document: &[u8],
    item: &str,
    fields: [&str; N],
) -> Result<Vec<[String; N]>, Failure> {
    let bad = |what: String| {
        Failure::new("MalformedXML", 400, format!("the body is not the XML that is expected: {what}"))
    };
    let mut reader = Reader::from_reader(document);
    let (mut items, mut within, mut path) = (Vec::new(), None::<[String; N]>, Vec::<Vec<u8>>::new());
    loop {
        match reader.read_event().map_err(|error| bad(error.to_string()))? {
            Event::Start(start) => {
                let name = start.local_name().as_ref().to_vec();
                if name == item.as_bytes() {
                    within = Some([const { String::new() }; N]);
                }
                path.push(name);
            }
            Event::Empty(_) => {}
            Event::End(end) => {
                path.pop();
                if end.local_name().as_ref() == item.as_bytes() {
                    items.extend(within.take());
                }
            }
            Event::Text(text) => {
                let text = text.decode().map_err(|error| bad(error.to_string()))?;
                note(&mut within, &path, fields, &text);
            }
            Event::GeneralRef(reference) => {
                let text = match reference.resolve_char_ref().map_err(|error| bad(error.to_string()))? {
                    Some(character) => character.to_string(),
                    None => match &reference[..] {
                        b"amp" => "&",
                        b"lt" => "<",
                        b"gt" => ">",
                        b"quot" => "\"",
                        b"apos" => "'",
                        other => return Err(bad(format!("&{};", String::from_utf8_lossy(other)))),
                    }
                    .to_owned(),
                };
                note(&mut within, &path, fields, &text);
            }
            Event::Eof if path.is_empty() => return Ok(items),
            Event::Eof => return Err(bad("it ends early".to_owned())),
            _ => {}
        }
    }
}

/// Adds a text to the field whose element it is in.
fn note<const N: usize>(item: &mut Option<[String; N]>, path: &[Vec<u8>], fields: [&str; N], text: &str) {
    let field = path.last().and_then(|name| fields.iter().position(|field| field.as_bytes() == name));
    if let (Some(item), Some(field)) = (item, field) {
        item[field] += text;
    }
}

//! Listing a bucket, and removing many objects of it. A drive keeps names in no order, so a listing asks it for all of them;
//! the pages of one listing share what was found.

use std::sync::Arc;

use kvdrive::objects::{Manifest, Object};

use crate::answer::{Answer, document};
use crate::bucket::{Bucket, Listing};
use crate::content::Content;
use crate::date;
use crate::failure::Failure;
use crate::object::{check_name, quoted};
use crate::request::encoded;
use crate::signature::hex;
use crate::xml::{Xml, items};

/// Most names of a page, and of a request that removes objects, as in S3.
const PAGE_MAX: usize = 1000;
/// Most bytes of the list of objects to remove.
const LIST_MAX_BYTES: usize = 4 << 20;

/// What a program asks for.
struct Asked {
    prefix: Vec<u8>,
    delimiter: Vec<u8>,
    most: usize,
    /// Where the page begins: behind this name, or behind all names of this common prefix.
    after: Vec<u8>,
    token: String,
    is_encoded: bool,
    /// The version of the call.
    is_second: bool,
}

impl Asked {
    fn of(query: &[(String, String)]) -> Result<Asked, Failure> {
        let field = |name: &str| query.iter().find(|(field, _)| field == name).map(|(_, value)| &value[..]);
        let bytes = |name: &str| field(name).unwrap_or_default().as_bytes().to_vec();
        let is_second = field("list-type") == Some("2");
        let most = field("max-keys").map_or(Ok(PAGE_MAX), |text| text.parse::<usize>());
        let most = most.map_err(|_| Failure::invalid("max-keys is no number"))?.min(PAGE_MAX);
        let (mut after, mut token) = (bytes(if is_second { "start-after" } else { "marker" }), String::new());
        if let Some(given) = field("continuation-token").filter(|_| is_second) {
            let (of_listing, name) = given.split_once('.').unwrap_or_default();
            let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
            let name: Option<Vec<u8>> = name.as_bytes().chunks(2).map(digits).collect();
            after = name
                .filter(|name| !name.is_empty())
                .ok_or_else(|| Failure::invalid("continuation-token is none of this server"))?;
            token = of_listing.to_owned();
        }
        let is_encoded = field("encoding-type") == Some("url");
        Ok(Asked {
            prefix: bytes("prefix"),
            delimiter: bytes("delimiter"),
            most,
            after,
            token,
            is_encoded,
            is_second,
        })
    }

    /// A name as the answer has it. Without `encoding-type=url` bytes that are no text are lost.
    fn shown(&self, name: &[u8]) -> String {
        if self.is_encoded { encoded(name, true) } else { String::from_utf8_lossy(name).into_owned() }
    }

    /// The common prefix under which a name is shown.
    fn common<'n>(&self, name: &'n [u8]) -> Option<&'n [u8]> {
        let (within, length) = (name.get(self.prefix.len()..)?, self.delimiter.len());
        let at =
            within.windows(length.max(1)).position(|part| part == self.delimiter).filter(|_| length > 0)?;
        Some(&name[..self.prefix.len() + at + length])
    }
}

/// A line of a page.
enum Entry<'l> {
    Object(&'l [u8], &'l Object),
    Common(&'l [u8]),
}

impl Entry<'_> {
    fn name(&self) -> &[u8] {
        match self {
            Entry::Object(name, _) | Entry::Common(name) => name,
        }
    }
}

/// A page, and whether there are more behind it.
fn page<'l>(asked: &Asked, objects: &'l [(Vec<u8>, Object)]) -> (Vec<Entry<'l>>, bool) {
    let mut entries: Vec<Entry<'l>> = Vec::new();
    let is_behind = |name: &[u8]| {
        let is_of_common = !asked.delimiter.is_empty()
            && asked.after.ends_with(&asked.delimiter)
            && name.starts_with(&asked.after);
        name > &asked.after[..] && !is_of_common
    };
    for (name, object) in
        objects.iter().filter(|(name, _)| name.starts_with(&asked.prefix) && is_behind(name))
    {
        let entry = asked.common(name).map_or(Entry::Object(name, object), Entry::Common);
        if matches!((entries.last(), &entry), (Some(Entry::Common(last)), Entry::Common(common)) if last == common)
        {
            continue;
        }
        if entries.len() == asked.most {
            return (entries, asked.most > 0);
        }
        entries.push(entry);
    }
    (entries, false)
}

/// The objects of a bucket: those that the pages before had, or as they are now.
async fn listing(bucket: &Bucket, token: &str) -> Result<Listing, Failure> {
    let kept = bucket.listed().clone().filter(|kept| kept.token == token);
    if let Some(kept) = kept {
        return Ok(kept);
    }
    let objects = Arc::new(bucket.drive().await?.objects.all().await?);
    let token = hex(&Manifest::begin(1)?.beginning[4..]);
    Ok(Listing { token, objects })
}

/// Lists a bucket.
pub async fn list(bucket: &Bucket, query: &[(String, String)]) -> Result<Answer, Failure> {
    let asked = Asked::of(query)?;
    let listing = listing(bucket, &asked.token).await?;
    let (entries, is_cut) = page(&asked, &listing.objects);
    *bucket.listed() = Some(listing.clone()).filter(|_| is_cut);
    let (drive, mut descriptions) = (bucket.drive().await?, Vec::new());
    for entry in &entries {
        descriptions.push(match entry {
            Entry::Object(_, object) => drive.described(object).await?,
            Entry::Common(_) => Default::default(),
        });
    }
    Ok(document(Xml::document("ListBucketResult", |xml| {
        head(xml, bucket, &asked);
        xml.put("IsTruncated", if is_cut { "true" } else { "false" });
        if let Some(last) = entries.last().filter(|_| is_cut) {
            if asked.is_second {
                xml.put("NextContinuationToken", &format!("{}.{}", listing.token, hex(last.name())));
            } else {
                xml.put("NextMarker", &asked.shown(last.name()));
            }
        }
        for (entry, description) in entries.iter().zip(&descriptions) {
            let shown = asked.shown(entry.name());
            match entry {
                Entry::Common(_) => xml.within("CommonPrefixes", |xml| xml.put("Prefix", &shown)),
                Entry::Object(_, object) => xml.within("Contents", |xml| {
                    xml.put("Key", &shown);
                    xml.put("LastModified", &date::in_xml(description.modified_s));
                    if !description.etag.is_empty() {
                        xml.put("ETag", &quoted(&description.etag));
                    }
                    xml.put("Size", &object.size.to_string());
                    xml.put("StorageClass", "STANDARD");
                }),
            }
        }
        if asked.is_second {
            xml.put("KeyCount", &entries.len().to_string());
        }
    })))
}

/// What an answer repeats of the request.
fn head(xml: &mut Xml, bucket: &Bucket, asked: &Asked) {
    xml.put("Name", bucket.name());
    xml.put("Prefix", &asked.shown(&asked.prefix));
    if !asked.delimiter.is_empty() {
        xml.put("Delimiter", &asked.shown(&asked.delimiter));
    }
    if asked.is_encoded {
        xml.put("EncodingType", "url");
    }
    if !asked.is_second {
        xml.put("Marker", &asked.shown(&asked.after));
    }
    xml.put("MaxKeys", &asked.most.to_string());
}

/// Removes the objects that a request lists.
pub async fn delete(bucket: &Bucket, content: Content) -> Result<Answer, Failure> {
    let body = content.whole(LIST_MAX_BYTES).await?;
    let list = items(&body, "Object", ["Key"])?;
    let quiet = items(&body, "Delete", ["Quiet"])?.first().is_some_and(|[quiet]| quiet == "true");
    if list.is_empty() || list.len() > PAGE_MAX {
        return Err(Failure::new("MalformedXML", 400, format!("allowed: 1 to {PAGE_MAX} objects")));
    }
    let (drive, mut results) = (bucket.drive().await?, Vec::new());
    for [name] in &list {
        let removed = async {
            check_name(name.as_bytes())?;
            let _turn = bucket.turn(name.as_bytes()).await;
            Ok::<bool, Failure>(drive.objects.delete(name.as_bytes()).await?)
        };
        results.push(removed.await.map(drop));
    }
    Ok(document(Xml::document("DeleteResult", |xml| {
        for ([name], result) in list.iter().zip(&results) {
            match result {
                Ok(()) if quiet => {}
                Ok(()) => xml.within("Deleted", |xml| xml.put("Key", name)),
                Err(failure) => xml.within("Error", |xml| {
                    xml.put("Key", name);
                    xml.put("Code", failure.code);
                    xml.put("Message", &failure.message);
                }),
            }
        }
    })))
}

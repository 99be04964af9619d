//! Uploads in parts. Each part is a pair of the drive from the moment it has come; the object is there when the upload is
//! completed. If all parts but the last have one size, as programs make them, they are the parts of the object; otherwise
//! they are copied into parts of one size. The door forgets uploads when it ends, and their parts stay on the drive.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper::Response;
use hyper::http::request::Parts;
use kvdrive::objects::Manifest;
use md5::{Digest, Md5};
use tokio::sync::{Mutex, Semaphore};

use crate::answer::{Answer, Out, document, empty, end};
use crate::begun::{Arrived, Part, Upload};
use crate::bucket::{Bucket, Connected};
use crate::content::Content;
use crate::date;
use crate::description::Description;
use crate::failure::Failure;
use crate::object::{check_name, description, put_next, quoted, too_large};
use crate::request::encoded;
use crate::signature::hex;
use crate::xml::{Xml, items};

/// Highest number of a part, as in S3.
const PARTS_MAX: u32 = 10_000;
/// Most uploads of a bucket at a time.
const UPLOADS_MAX: usize = 1000;
/// Most bytes of the list of parts that completes an upload.
const LIST_MAX_BYTES: usize = 2 << 20;
/// Memory for parts that are coming, in units of 1 MiB: a part is in memory until it is whole.
static MEMORY: Semaphore = Semaphore::const_new(512);

fn no_upload() -> Failure {
    Failure::new(
        "NoSuchUpload",
        404,
        "there is no upload of that identifier and name; the server may have been restarted",
    )
}

/// Begins an upload.
pub async fn begin(bucket: &Bucket, name: &[u8], parts: &Parts) -> Result<Answer, Failure> {
    check_name(name)?;
    let description = description(parts)?;
    let manifest = Manifest::begin(bucket.drive().await?.value_max_bytes)?;
    let id = hex(&manifest.beginning);
    let arrived = Arrived { manifest, parts: BTreeMap::new() };
    let upload = Upload { name: name.to_vec(), description, parts: Mutex::new(Some(arrived)) };
    {
        let mut uploads = bucket.uploads();
        if uploads.len() >= UPLOADS_MAX {
            return Err(Failure::new(
                "SlowDown",
                503,
                format!("there are {UPLOADS_MAX} uploads that were not completed"),
            ));
        }
        uploads.insert(id.clone(), Arc::new(upload));
    }
    Ok(document(Xml::document("InitiateMultipartUploadResult", |xml| {
        xml.put("Bucket", bucket.name());
        xml.put("Key", &String::from_utf8_lossy(name));
        xml.put("UploadId", &id);
    })))
}

fn find(bucket: &Bucket, id: &str, name: &[u8]) -> Result<Arc<Upload>, Failure> {
    bucket.uploads().get(id).filter(|upload| upload.name == name).cloned().ok_or_else(no_upload)
}

/// Takes a part.
pub async fn put(
    bucket: &Bucket,
    name: &[u8],
    id: &str,
    number: &str,
    content: Content,
) -> Result<Answer, Failure> {
    let upload = find(bucket, id, name)?;
    let number: Option<u32> = number.parse().ok().filter(|number| (1..=PARTS_MAX).contains(number));
    let number = number.ok_or_else(|| Failure::invalid(format!("partNumber: allowed: 1 to {PARTS_MAX}")))?;
    let drive = bucket.drive().await?;
    let most = u64::from(drive.value_max_bytes);
    let bytes = content.expected().ok_or_else(|| {
        Failure::new("MissingContentLength", 411, "a part has to say its length before it comes")
    })?;
    if bytes > most {
        return Err(too_large(most));
    }
    let memory = u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(u32::MAX).min(512);
    let _memory = MEMORY.acquire_many(memory).await.expect("it is never closed");
    let (part, md5) = gather(content).await?;
    let mut arrived = upload.parts.lock().await;
    let arrived = arrived.as_mut().ok_or_else(no_upload)?;
    drive.objects.put(&arrived.manifest, number - 1, &part).await?;
    arrived.parts.insert(number, Part { bytes: part.len() as u64, md5 });
    Ok(end(Response::builder().header("etag", quoted(&hex(&md5))), Out::Whole(None)))
}

async fn gather(mut content: Content) -> Result<(Vec<u8>, [u8; 16]), Failure> {
    let mut part = Vec::new();
    while let Some(bytes) = content.next().await? {
        part.extend(bytes);
    }
    Ok((part, content.end()?))
}

/// Makes an object of the parts that the request lists.
pub async fn complete(bucket: &Bucket, name: &[u8], id: &str, content: Content) -> Result<Answer, Failure> {
    let upload = find(bucket, id, name)?;
    let list = items(&content.whole(LIST_MAX_BYTES).await?, "Part", ["PartNumber", "ETag"])?;
    let drive = bucket.drive().await?;
    // Parts that come meanwhile wait, and find no upload.
    let mut parts = upload.parts.lock().await;
    let arrived = parts.as_mut().ok_or_else(no_upload)?;
    let chosen = chosen(arrived, &list)?;
    let mut description = Description { modified_s: date::now(), ..upload.description.clone() };
    description.etag = tag(&chosen);
    let mut manifest = match uniform(arrived, &chosen) {
        Some(manifest) => manifest,
        None => copied(&drive, arrived, &chosen).await?,
    };
    let finished = {
        let _turn = bucket.turn(name).await;
        drive.objects.finish(name, &mut manifest, &description.to_bytes()).await
    };
    let is_copy = manifest.beginning != arrived.manifest.beginning;
    if let Err(error) = finished {
        // Without an answer of the drive, the manifest may be there.
        if is_copy && error.status().is_some() {
            drive.objects.forget(&manifest).await;
        }
        return Err(error.into());
    }
    let kept = if is_copy { 0 } else { chosen.len() as u32 };
    forget(&drive, arrived, kept).await;
    *parts = None;
    bucket.uploads().remove(id);
    Ok(document(Xml::document("CompleteMultipartUploadResult", |xml| {
        xml.put("Location", &format!("/{}/{}", bucket.name(), encoded(name, true)));
        xml.put("Bucket", bucket.name());
        xml.put("Key", &String::from_utf8_lossy(name));
        xml.put("ETag", &quoted(&description.etag));
    })))
}

/// The parts that a list names, in its order.
fn chosen(arrived: &Arrived, list: &[[String; 2]]) -> Result<Vec<(u32, Part)>, Failure> {
    let mut chosen: Vec<(u32, Part)> = Vec::new();
    for [number, etag] in list {
        let part = number.trim().parse().ok().and_then(|number| Some((number, *arrived.parts.get(&number)?)));
        let part = part.filter(|(_, part)| etag.trim().trim_matches('"') == hex(&part.md5));
        let part = part
            .ok_or_else(|| Failure::new("InvalidPart", 400, format!("part {number} {etag} has not come")))?;
        if chosen.last().is_some_and(|last| last.0 >= part.0) {
            return Err(Failure::new(
                "InvalidPartOrder",
                400,
                "the parts are not listed in the order of their numbers",
            ));
        }
        chosen.push(part);
    }
    if chosen.is_empty() { Err(Failure::new("MalformedXML", 400, "no part is listed")) } else { Ok(chosen) }
}

/// The entity tag of an object in parts, as S3 makes it.
fn tag(chosen: &[(u32, Part)]) -> String {
    let mut md5 = Md5::new();
    chosen.iter().for_each(|(_, part)| md5.update(part.md5));
    format!("{}-{}", hex(&md5.finalize()), chosen.len())
}

/// The manifest of an object whose parts are those of the upload, if it can have them.
fn uniform(arrived: &Arrived, chosen: &[(u32, Part)]) -> Option<Manifest> {
    let (first, last) = (chosen.first()?.1.bytes, chosen.last()?.1.bytes);
    let are_first = chosen.iter().zip(1..).all(|((number, _), place)| *number == place);
    let are_equal = chosen[..chosen.len() - 1].iter().all(|(_, part)| part.bytes == first);
    let fits = are_first && are_equal && (1..=first).contains(&last);
    let size = chosen.iter().map(|(_, part)| part.bytes).sum();
    fits.then(|| Manifest { size, part_bytes: first, ..arrived.manifest.clone() })
}

/// Copies the parts of the upload into parts of one size.
async fn copied(drive: &Connected, arrived: &Arrived, chosen: &[(u32, Part)]) -> Result<Manifest, Failure> {
    let mut manifest = Manifest::begin(drive.objects.part_bytes())?;
    let copied = async {
        let (most, mut rest) = (manifest.part_bytes as usize, Vec::new());
        for (number, part) in chosen {
            let bytes = drive.objects.take(&arrived.manifest, number - 1).await?;
            let bytes = bytes.filter(|bytes| bytes.len() as u64 == part.bytes);
            rest.extend(
                bytes.ok_or_else(|| Failure::new("InvalidPart", 400, format!("part {number} is gone")))?,
            );
            let whole = rest.len() / most * most;
            for piece in rest[..whole].chunks(most) {
                put_next(drive, &mut manifest, piece).await?;
            }
            rest.drain(..whole);
        }
        if rest.is_empty() { Ok(()) } else { put_next(drive, &mut manifest, &rest).await }
    };
    match copied.await {
        Ok(()) => Ok(manifest),
        Err(failure) => {
            drive.objects.forget(&manifest).await;
            Err(failure)
        }
    }
}

/// Removes the parts of an upload but the first `kept`.
async fn forget(drive: &Connected, arrived: &Arrived, kept: u32) {
    for number in arrived.parts.keys().filter(|number| **number > kept) {
        drive.objects.forget_part(&arrived.manifest, number - 1).await;
    }
}

/// Ends an upload, and removes its parts.
pub async fn abort(bucket: &Bucket, name: &[u8], id: &str) -> Result<Answer, Failure> {
    let upload = find(bucket, id, name)?;
    let drive = bucket.drive().await?;
    let arrived = upload.parts.lock().await.take();
    bucket.uploads().remove(id);
    if let Some(arrived) = arrived {
        forget(&drive, &arrived, 0).await;
    }
    Ok(empty(204))
}

/// The parts of an upload.
pub async fn parts(bucket: &Bucket, name: &[u8], id: &str) -> Result<Answer, Failure> {
    let upload = find(bucket, id, name)?;
    let arrived = upload.parts.lock().await;
    let arrived = arrived.as_ref().ok_or_else(no_upload)?;
    Ok(document(Xml::document("ListPartsResult", |xml| {
        xml.put("Bucket", bucket.name());
        xml.put("Key", &String::from_utf8_lossy(name));
        xml.put("UploadId", id);
        xml.put("IsTruncated", "false");
        for (number, part) in &arrived.parts {
            xml.within("Part", |xml| {
                xml.put("PartNumber", &number.to_string());
                xml.put("ETag", &quoted(&hex(&part.md5)));
                xml.put("Size", &part.bytes.to_string());
            });
        }
    })))
}

/// The uploads of a bucket.
pub fn list(bucket: &Bucket) -> Answer {
    let mut uploads: Vec<(String, Arc<Upload>)> =
        bucket.uploads().iter().map(|(id, upload)| (id.clone(), upload.clone())).collect();
    uploads.sort_by(|one, other| (&one.1.name, &one.0).cmp(&(&other.1.name, &other.0)));
    document(Xml::document("ListMultipartUploadsResult", |xml| {
        xml.put("Bucket", bucket.name());
        xml.put("IsTruncated", "false");
        for (id, upload) in &uploads {
            xml.within("Upload", |xml| {
                xml.put("Key", &String::from_utf8_lossy(&upload.name));
                xml.put("UploadId", id);
                xml.put("Initiated", &date::in_xml(upload.description.modified_s));
            });
        }
    }))
}

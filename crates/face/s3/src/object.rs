//! One object: PUT, GET, HEAD and DELETE.

use std::sync::Arc;

use hyper::Response;
use hyper::http::request::Parts;
use kvdrive::objects::{Manifest, Object, Objects, PART_BYTES};
use tokio::sync::mpsc;

use crate::answer::{Answer, Out, empty, end};
use crate::bucket::{Bucket, Connected};
use crate::content::Content;
use crate::date;
use crate::description::Description;
use crate::failure::Failure;
use crate::range::range;
use crate::request::header;
use crate::signature::hex;

/// Most bytes of an object that one request stores, as in S3.
pub const PUT_MAX_BYTES: u64 = 5 << 30;
/// Pieces of an answer that wait for their reader.
const AHEAD: usize = 2;
/// Headers that are stored with an object, besides those that begin with `x-amz-meta-`.
const KEPT: [&str; 6] = [
    "content-type",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "expires",
];
/// Most bytes of these, as in S3 for those of programs.
const KEPT_MAX_BYTES: usize = 8 << 10;

/// What the headers of a request say of the object that it stores.
///
/// # Errors
/// They are too long.
pub fn description(parts: &Parts) -> Result<Description, Failure> {
    let is_kept = |name: &str| KEPT.contains(&name) || name.starts_with("x-amz-meta-");
    let kept = parts.headers.iter().filter(|(name, _)| is_kept(name.as_str()));
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let mut headers: Vec<(String, String)> =
        kept.map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes()))).collect();
    // It says how the body came, and is none of the object's.
    for (_, value) in headers.iter_mut().filter(|(name, _)| name == "content-encoding") {
        let codings = value.split(',').map(str::trim).filter(|coding| *coding != "aws-chunked");
        *value = codings.collect::<Vec<_>>().join(", ");
    }
    headers.retain(|(_, value)| !value.is_empty());
    if headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > KEPT_MAX_BYTES {
        let message = format!("headers that are stored have at most {KEPT_MAX_BYTES} bytes");
        return Err(Failure::new("MetadataTooLarge", 400, message));
    }
    Ok(Description { etag: String::new(), modified_s: date::now(), headers })
}

/// Is a name one that objects may have?
///
/// # Errors
/// It is too long, or the name of parts.
pub fn check_name(name: &[u8]) -> Result<(), Failure> {
    if name.len() > 1024 {
        return Err(Failure::new("KeyTooLongError", 400, "a name has at most 1024 bytes"));
    }
    if Objects::allows(name) {
        Ok(())
    } else {
        Err(Failure::invalid("names of this form are parts of objects"))
    }
}

/// Stores an object.
pub async fn put(
    bucket: &Bucket,
    name: &[u8],
    parts: &Parts,
    mut content: Content,
) -> Result<Answer, Failure> {
    check_name(name)?;
    let mut description = description(parts)?;
    if content.expected().is_some_and(|bytes| bytes > PUT_MAX_BYTES) {
        return Err(too_large(PUT_MAX_BYTES));
    }
    let drive = bucket.drive().await?;
    let mut manifest = Manifest::begin(drive.objects.part_bytes())?;
    // Whether the manifest is on the drive is not known if the drive went away while it was stored.
    let mut may_be_there = false;
    let stored = async {
        store(&drive, &mut manifest, &mut content).await?;
        description.etag = hex(&content.end()?);
        let _turn = bucket.turn(name).await;
        if header(parts, "if-none-match") == Some("*") && drive.objects.find(name).await?.is_some() {
            return Err(Failure::new("PreconditionFailed", 412, "there is an object of that name"));
        }
        let finished = drive.objects.finish(name, &mut manifest, &description.to_bytes()).await;
        may_be_there = finished.as_ref().is_err_and(|error| error.status().is_none());
        Ok(finished?)
    };
    let stored = stored.await;
    if let Err(failure) = stored {
        if !may_be_there {
            drive.objects.forget(&manifest).await;
        }
        return Err(failure);
    }
    Ok(end(Response::builder().header("etag", quoted(&description.etag)), Out::Whole(None)))
}

/// The failure of an object of more than `most` bytes.
pub fn too_large(most: u64) -> Failure {
    Failure::new("EntityTooLarge", 400, format!("it has more than {most} bytes"))
}

/// Stores the bytes of a body as the parts of an object.
async fn store(drive: &Connected, manifest: &mut Manifest, content: &mut Content) -> Result<(), Failure> {
    let most = manifest.part_bytes as usize;
    let mut part = Vec::new();
    while let Some(bytes) = content.next().await? {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(most - part.len()));
            part.extend_from_slice(now);
            rest = later;
            if part.len() == most {
                put_next(drive, manifest, &part).await?;
                part.clear();
            }
        }
        if manifest.size > PUT_MAX_BYTES {
            return Err(too_large(PUT_MAX_BYTES));
        }
    }
    if part.is_empty() { Ok(()) } else { put_next(drive, manifest, &part).await }
}

/// Stores the next part of an object that grows. It counts from the moment on at which it may be there.
pub async fn put_next(drive: &Connected, manifest: &mut Manifest, bytes: &[u8]) -> Result<(), Failure> {
    let number = manifest.parts();
    manifest.size += bytes.len() as u64;
    Ok(drive.objects.put(manifest, number, bytes).await?)
}

/// Returns an object, or says what there is (`is_head`).
pub async fn get(bucket: Arc<Bucket>, name: &[u8], parts: &Parts, is_head: bool) -> Result<Answer, Failure> {
    let drive = bucket.drive().await?;
    let (object, description) = drive.found(name).await?;
    let etag = quoted(&description.etag);
    let is_it = |tags: &str| {
        tags.split(',').any(|tag| [&etag[..], "*"].contains(&tag.trim().trim_start_matches("W/")))
    };
    if header(parts, "if-match").is_some_and(|tags| !description.etag.is_empty() && !is_it(tags)) {
        return Err(Failure::new("PreconditionFailed", 412, "the object has another entity tag"));
    }
    if header(parts, "if-none-match").is_some_and(is_it) {
        return Ok(empty(304));
    }
    let asked = range(header(parts, "range"), object.size)?;
    let (status, bytes) = (if asked.is_some() { 206 } else { 200 }, asked.clone().unwrap_or(0..object.size));
    let mut answer = Response::builder()
        .status(status)
        .header("accept-ranges", "bytes")
        .header("last-modified", date::in_header(description.modified_s));
    if !description.etag.is_empty() {
        answer = answer.header("etag", etag);
    }
    if asked.is_some() {
        answer = answer
            .header("content-range", format!("bytes {}-{}/{}", bytes.start, bytes.end - 1, object.size));
    }
    if !description.headers.iter().any(|(name, _)| name == "content-type") {
        answer = answer.header("content-type", "binary/octet-stream");
    }
    answer = description.headers.iter().fold(answer, |answer, (name, value)| answer.header(name, value));
    let left = bytes.end - bytes.start;
    if is_head {
        return Ok(end(answer.header("content-length", left), Out::Head(left)));
    }
    let (sender, pieces) = mpsc::channel(AHEAD);
    tokio::spawn(send(drive, name.to_vec(), object, bytes, sender));
    Ok(end(answer, Out::Coming { pieces, left }))
}

/// Reads bytes of an object for an answer, until its reader is gone.
async fn send(
    drive: Arc<Connected>,
    name: Vec<u8>,
    object: Object,
    bytes: std::ops::Range<u64>,
    sender: mpsc::Sender<Result<Vec<u8>, Failure>>,
) {
    let mut at = bytes.start;
    while at < bytes.end {
        let most = (bytes.end - at).min(PART_BYTES.into());
        let read = drive.objects.read(&name, &object, at, most).await;
        let piece = read.map_err(Failure::from).and_then(|piece| piece.ok_or_else(Failure::replaced));
        at += piece.as_ref().map_or(0, |piece| piece.len() as u64);
        let is_over = piece.is_err();
        if sender.send(piece).await.is_err() || is_over {
            return;
        }
    }
}

/// Removes an object; one that is not there is removed, too.
pub async fn delete(bucket: &Bucket, name: &[u8]) -> Result<Answer, Failure> {
    check_name(name)?;
    let drive = bucket.drive().await?;
    let _turn = bucket.turn(name).await;
    drive.objects.delete(name).await?;
    Ok(empty(204))
}

/// An entity tag as headers and documents have it.
pub fn quoted(etag: &str) -> String {
    format!("\"{etag}\"")
}

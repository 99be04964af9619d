//! The door: its socket, and which part of it answers a request.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::answer::{Answer, Out, document, empty, failed};
use crate::bucket::Bucket;
use crate::content::Content;
use crate::failure::Failure;
use crate::request::{ObjectPath, header, query};
use crate::signature::{self, Access};
use crate::xml::Xml;
use crate::{date, list, object, upload};

/// Connections at a time; others wait.
const CONNECTIONS_MAX: usize = 256;
/// A connection ends that has not sent the head of a request for so long.
const HEAD_MAX: Duration = Duration::from_secs(30);
/// Most bytes of the head of a request, and of answers that wait for their reader besides the last.
const BUFFER_MAX_BYTES: usize = 256 << 10;
/// Time after which the door tries again to accept a connection when that has failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// What S3 has of an object or bucket and this door has not, as a query names it.
const ABSENT: [&str; 14] = [
    "acl",
    "attributes",
    "cors",
    "encryption",
    "legal-hold",
    "lifecycle",
    "notification",
    "policy",
    "replication",
    "restore",
    "retention",
    "select",
    "tagging",
    "torrent",
];

/// What the door serves, and to whom.
pub struct Door {
    /// Buckets by their names.
    pub buckets: Vec<Arc<Bucket>>,
    /// Who may ask; `None`: everybody.
    pub access: Option<Access>,
}

/// Serves at `at` on a thread for as long as the program runs; returns the address, with the port if the system chose it.
///
/// # Errors
/// The address cannot be listened at, or is one that other machines reach and no key is needed to ask.
pub fn listen(at: SocketAddr, door: Door) -> anyhow::Result<SocketAddr> {
    anyhow::ensure!(
        at.ip().is_loopback() || door.access.is_some(),
        "--s3 {at}: other machines can reach that address; give --s3-key, or the variable KVDRIVE_S3_KEY"
    );
    let listener = std::net::TcpListener::bind(at).with_context(|| format!("--s3 {at}"))?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("s3".into()).spawn(move || {
        let serve = async {
            let listener = TcpListener::from_std(listener)?;
            serve(&listener, Arc::new(door)).await;
            Ok::<(), std::io::Error>(())
        };
        if let Err(error) = runtime.block_on(serve) {
            kvdrive_text::output::tell(&format!("kvdrive: no S3 at {bound}: {error}"));
        }
    })?;
    Ok(bound)
}

async fn serve(listener: &TcpListener, door: Arc<Door>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = places.clone().acquire_owned().await.expect("it is never closed");
        match listener.accept().await {
            Ok((socket, _)) => _ = tokio::spawn(serve_one(socket, door.clone(), place)),
            Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
        }
    }
}

/// Answers the requests of one connection.
async fn serve_one(socket: TcpStream, door: Arc<Door>, _place: OwnedSemaphorePermit) {
    _ = socket.set_nodelay(true);
    let answer = service_fn(move |request| {
        let door = door.clone();
        async move { Ok::<Answer, Infallible>(door.answer(request).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).max_buf_size(BUFFER_MAX_BYTES);
    // Errors of a connection are reported to its client alone.
    _ = http.serve_connection(TokioIo::new(socket), answer).await;
}

impl Door {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let (parts, body) = request.into_parts();
        let place = ObjectPath::of(&parts);
        let bucket = self.buckets.iter().find(|bucket| bucket.name() == place.bucket);
        let answered = match signature::check(&parts, self.access.as_ref()) {
            Ok(payload) => match Content::new(&parts, payload, body) {
                Ok(content) => self.carry_out(&parts, &place, bucket, content).await,
                Err(failure) => Err(failure),
            },
            Err(failure) => Err(failure),
        };
        match answered {
            Ok(answer) => answer,
            Err(failure) => {
                if let ("SlowDown", Some(bucket)) = (failure.code, bucket) {
                    bucket.lost().await;
                }
                let mut answer = failed(&failure, parts.uri.path());
                if parts.method == Method::HEAD {
                    *answer.body_mut() = Out::Head(0);
                }
                answer
            }
        }
    }

    async fn carry_out(
        &self,
        parts: &Parts,
        place: &ObjectPath,
        bucket: Option<&Arc<Bucket>>,
        content: Content,
    ) -> Result<Answer, Failure> {
        if place.bucket.is_empty() {
            return match parts.method {
                Method::GET => Ok(self.buckets()),
                _ => Err(not_allowed()),
            };
        }
        let bucket = bucket.ok_or_else(|| {
            Failure::new("NoSuchBucket", 404, "there is no bucket of that name; each is a namespace")
        })?;
        let query = query(parts);
        if let Some((name, _)) = query.iter().find(|(name, _)| ABSENT.contains(&&name[..])) {
            return Err(Failure::absent(name));
        }
        match place.name.is_empty() {
            true => of_bucket(parts, bucket, &query, content).await,
            false => of_object(parts, bucket, &place.name, &query, content).await,
        }
    }

    /// All buckets.
    fn buckets(&self) -> Answer {
        document(Xml::document("ListAllMyBucketsResult", |xml| {
            xml.within("Buckets", |xml| {
                for bucket in &self.buckets {
                    xml.within("Bucket", |xml| {
                        xml.put("Name", bucket.name());
                        xml.put("CreationDate", &date::in_xml(0));
                    });
                }
            });
        }))
    }
}

fn not_allowed() -> Failure {
    Failure::new("MethodNotAllowed", 405, "this server does not do that")
}

async fn of_bucket(
    parts: &Parts,
    bucket: &Arc<Bucket>,
    query: &[(String, String)],
    content: Content,
) -> Result<Answer, Failure> {
    let asks = |name: &str| query.iter().any(|(field, _)| field == name);
    match parts.method {
        Method::GET if asks("uploads") => Ok(upload::list(bucket)),
        Method::GET if asks("location") => Ok(document(Xml::document("LocationConstraint", |_| {}))),
        Method::GET if asks("versioning") => Ok(document(Xml::document("VersioningConfiguration", |_| {}))),
        Method::GET if asks("versions") || asks("object-lock") => Err(Failure::absent("versions of objects")),
        Method::GET => list::list(bucket, query).await,
        // A program that makes sure that there is a bucket has it.
        Method::PUT | Method::HEAD => Ok(empty(200)),
        Method::POST if asks("delete") => list::delete(bucket, content).await,
        _ => Err(not_allowed()),
    }
}

async fn of_object(
    parts: &Parts,
    bucket: &Arc<Bucket>,
    name: &[u8],
    query: &[(String, String)],
    content: Content,
) -> Result<Answer, Failure> {
    let field = |name: &str| query.iter().find(|(field, _)| field == name).map(|(_, value)| &value[..]);
    let id = field("uploadId");
    if header(parts, "x-amz-copy-source").is_some() {
        return Err(Failure::absent("copies on the server"));
    }
    match (&parts.method, id) {
        (&Method::GET, Some(id)) => upload::parts(bucket, name, id).await,
        (&Method::PUT, Some(id)) => {
            upload::put(bucket, name, id, field("partNumber").unwrap_or_default(), content).await
        }
        (&Method::POST, Some(id)) => upload::complete(bucket, name, id, content).await,
        (&Method::DELETE, Some(id)) => upload::abort(bucket, name, id).await,
        (&Method::POST, None) if field("uploads").is_some() => upload::begin(bucket, name, parts).await,
        (&Method::GET, None) => object::get(bucket.clone(), name, parts, false).await,
        (&Method::HEAD, None) => object::get(bucket.clone(), name, parts, true).await,
        (&Method::PUT, None) => object::put(bucket, name, parts, content).await,
        (&Method::DELETE, None) => object::delete(bucket, name).await,
        _ => Err(not_allowed()),
    }
}

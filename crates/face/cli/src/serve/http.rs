//! The page of a served drive, and its metrics, over HTTP: on a thread of its own.
//!
//! | path | what |
//! |---|---|
//! | `/` | a page that shows the drive as it runs; needs nothing else |
//! | `/metrics` | for Prometheus |
//! | `/seen` | one snapshot as JSON: [`super::seen::Seen`] |
//! | `/events` | a snapshot each second, as server-sent events |
//! | `/curve` | commands of hosts at each of the last seconds, for a page that is opened later |
//! | `/2/`, ... | the same of namespace 2 |
//!
//! Requests that carry the name of another site are refused ([`super::site`]).

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Json, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::IntervalStream;
use tokio_stream::{Stream, StreamExt};

use super::metrics::Format;
use super::site::SiteNames;
use super::station::{Station, Stations};
use crate::output;

/// Between two snapshots of the page.
const SECOND: Duration = Duration::from_secs(1);

/// Connections at a time, so that page and metrics leave descriptors to hosts. A further connection replaces the
/// oldest, so streams of events and half-sent requests of one client do not keep other clients from the page.
const CONNECTIONS_MAX: usize = 32;
/// A connection ends that has not sent a whole request for so long,
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// or, on Linux, that has not taken what it asked for.
#[cfg(target_os = "linux")]
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Looks at the server and its drives at a time. A client that asks without end, and reads nothing, waits for its turn
/// as others do, and no more threads and answers are made for it.
const LOOKS_MAX: usize = 4;
/// Most bytes of answers that wait for the reader of a connection, besides the last one; the same for requests.
const BUFFER_MAX_BYTES: usize = 64 << 10;
/// Time after which the server tries again to accept a connection when that has failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

static LOOKS: Semaphore = Semaphore::const_new(LOOKS_MAX);

const PAGE: &str = include_str!("page.html");

/// Seconds that the curve of the page has.
const CURVE_SECONDS: usize = 120;

/// Commands of hosts so far, with the time of the server in ns, at each of the last seconds.
#[derive(Default)]
struct Curve(Mutex<VecDeque<(u64, u64)>>);

impl Curve {
    fn add(&self, point: (u64, u64)) {
        let mut points = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A rate is between two points.
        if points.len() > CURVE_SECONDS {
            points.pop_front();
        }
        points.push_back(point);
    }

    fn points(&self) -> Vec<(u64, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

/// Looks each second how many commands there were, for as long as the server answers.
async fn draw(station: Arc<Station>, curve: Arc<Curve>) {
    let mut ticks = tokio::time::interval(SECOND);
    loop {
        ticks.tick().await;
        match look(station.clone(), Station::io_commands).await {
            Ok(point) => curve.add(point),
            Err(_) => return,
        }
    }
}

/// Serves page and metrics at `at` for as long as the program runs, to requests that carry one of these names or an
/// address; returns the address, with the port if the system chose it.
///
/// # Errors
/// What the system says.
pub fn listen(at: SocketAddr, names: SiteNames, stations: Stations) -> anyhow::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(at).with_context(|| format!("--http {at}"))?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().max_blocking_threads(LOOKS_MAX).enable_all().build()?;
    thread::Builder::new().name("http".into()).spawn(move || {
        let curve = Arc::<Curve>::default();
        let router = stations.iter().enumerate().fold(Router::new(), |router, (index, station)| {
            let of = if index == 0 { "/".to_owned() } else { format!("/{}/", station.nsid()) };
            router.merge(pages(&of, station.clone(), curve.clone()))
        });
        let router = router.layer(from_fn_with_state(Arc::new(names), refuse_other_names));
        let serve = async {
            tokio::spawn(draw(stations[0].clone(), curve));
            let listener = TcpListener::from_std(listener)?;
            serve(&listener, &router).await;
            Ok::<(), std::io::Error>(())
        };
        if let Err(error) = runtime.block_on(serve) {
            output::tell(&format!("kvdrive: no page at http://{bound}/: {error}"));
        }
    })?;
    Ok(bound)
}

/// Takes connections for ever, each on a task of its own.
async fn serve(listener: &TcpListener, router: &Router) {
    let mut open = VecDeque::<JoinHandle<()>>::new();
    loop {
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            // No descriptor is left: some other connection has to end first.
            Err(_) => {
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= CONNECTIONS_MAX
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        open.push_back(tokio::spawn(serve_one(socket, router.clone())));
    }
}

/// Answers the requests of one connection.
async fn serve_one(socket: TcpStream, router: Router) {
    // Another system waits for the reader.
    #[cfg(target_os = "linux")]
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&socket, ANSWER_MAX.as_millis() as u32);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(REQUEST_MAX).max_buf_size(BUFFER_MAX_BYTES);
    // Errors of a connection are reported to its client alone.
    let _ = http.serve_connection(TokioIo::new(socket), TowerToHyperService::new(router)).await;
}

/// Refuses requests for pages of other sites.
async fn refuse_other_names(State(names): State<Arc<SiteNames>>, request: Request, next: Next) -> Response {
    match names.check(&request) {
        Ok(()) => next.run(request).await,
        Err(why) => (StatusCode::MISDIRECTED_REQUEST, why).into_response(),
    }
}

/// The pages of one drive, at `of` and below. The curve is that of all of its server's hosts.
fn pages(of: &str, station: Arc<Station>, curve: Arc<Curve>) -> Router {
    Router::new()
        .route(of, get(async || Html(PAGE)))
        .route(&format!("{of}metrics"), get(metrics_page))
        .route(&format!("{of}seen"), get(seen))
        .route(&format!("{of}events"), get(events))
        .route(&format!("{of}curve"), get(async move || Json(curve.points())))
        .with_state(station)
}

/// Runs `look` where it may wait for the drive.
async fn look<T: Send + 'static>(
    station: Arc<Station>,
    look: impl FnOnce(&Station) -> anyhow::Result<T> + Send + 'static,
) -> Result<T, Response> {
    // A connection that ends gives up its place in the line; a look that has begun goes on, and keeps its place.
    let turn = LOOKS.acquire().await.expect("it is never closed");
    let looked = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        look(&station)
    });
    let looked = looked.await;
    let gone = |what: String| (StatusCode::SERVICE_UNAVAILABLE, what).into_response();
    looked.map_err(|error| gone(error.to_string()))?.map_err(|error| gone(format!("{error:#}")))
}

async fn metrics_page(State(station): State<Arc<Station>>, headers: HeaderMap) -> Result<Response, Response> {
    let accept: Vec<&str> =
        headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let format = Format::accepted_by(&accept.join(","));
    let text = look(station, move |station| Ok(format.text(station.seen()?, station.hosts()?)?)).await?;
    Ok(([(header::CONTENT_TYPE, format.content_type())], text).into_response())
}

async fn seen(State(station): State<Arc<Station>>) -> Result<Response, Response> {
    Ok(Json(look(station, Station::seen).await?).into_response())
}

async fn events(State(station): State<Arc<Station>>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let ticks = IntervalStream::new(tokio::time::interval(SECOND));
    let snapshots = ticks.then(move |_| {
        let station = station.clone();
        async move { look(station, Station::seen).await.ok() }
    });
    let events = snapshots.filter_map(|seen| Event::default().json_data(seen?).ok()).map(Ok);
    Sse::new(events).keep_alive(KeepAlive::default())
}

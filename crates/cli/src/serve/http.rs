//! The page of a served drive, and its metrics, over HTTP: on a thread of its own.
//!
//! | path | what |
//! |---|---|
//! | `/` | a page that shows the drive as it runs; needs nothing else |
//! | `/metrics` | for Prometheus |
//! | `/seen` | one snapshot as JSON: [`super::seen::Seen`] |
//! | `/events` | a snapshot each second, as server-sent events |
//! | `/2/`, ... | the same of namespace 2 |

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Json, Response};
use axum::routing::get;
use axum::{Router, serve};
use tokio_stream::wrappers::IntervalStream;
use tokio_stream::{Stream, StreamExt};

use super::metrics;
use super::station::{Station, Stations};

/// Between two snapshots of the page.
const SECOND: Duration = Duration::from_secs(1);

const PAGE: &str = include_str!("page.html");

/// Serves page and metrics at `at` for as long as the program runs; returns the address, with the port if the
/// system chose it.
///
/// # Errors
/// What the system says.
pub fn listen(at: SocketAddr, stations: Stations) -> anyhow::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(at).with_context(|| format!("--http {at}"))?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("http".into()).spawn(move || {
        let router = stations.iter().enumerate().fold(Router::new(), |router, (index, station)| {
            let of = if index == 0 { "/".to_owned() } else { format!("/{}/", station.nsid()) };
            router.merge(pages(&of, station.clone()))
        });
        let result =
            runtime.block_on(async { serve(tokio::net::TcpListener::from_std(listener)?, router).await });
        if let Err(error) = result {
            eprintln!("kvdrive: the page at http://{bound}/ has ended: {error}");
        }
    })?;
    Ok(bound)
}

/// The pages of one drive, at `of` and below.
fn pages(of: &str, station: Arc<Station>) -> Router {
    Router::new()
        .route(of, get(async || Html(PAGE)))
        .route(&format!("{of}metrics"), get(metrics_page))
        .route(&format!("{of}seen"), get(seen))
        .route(&format!("{of}events"), get(events))
        .with_state(station)
}

/// Runs `look` where it may wait for the drive.
async fn look<T: Send + 'static>(
    station: Arc<Station>,
    look: impl FnOnce(&Station) -> anyhow::Result<T> + Send + 'static,
) -> Result<T, Response> {
    let looked = tokio::task::spawn_blocking(move || look(&station)).await;
    let gone = |what: String| (StatusCode::SERVICE_UNAVAILABLE, what).into_response();
    looked.map_err(|error| gone(error.to_string()))?.map_err(|error| gone(format!("{error:#}")))
}

async fn metrics_page(State(station): State<Arc<Station>>) -> Result<Response, Response> {
    let text = look(station, |station| Ok(metrics::text(station.seen()?, station.hosts()?)?)).await?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
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

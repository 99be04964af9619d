//! Answers: whole ones, and those whose bytes come from the drive while they are sent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::http::response::Builder;
use hyper::{Response, StatusCode};
use tokio::sync::mpsc::Receiver;

use crate::failure::Failure;
use crate::xml::Xml;

/// An answer of the door.
pub type Answer = Response<Out>;

/// The body of an answer.
pub enum Out {
    /// Known bytes; `None` after they were sent.
    Whole(Option<Bytes>),
    /// The bytes of an object as they come; an error ends the connection, so that no program takes a part for the whole.
    Coming {
        /// What has come.
        pieces: Receiver<Result<Vec<u8>, Failure>>,
        /// How many bytes are to come.
        left: u64,
    },
    /// No bytes, of an object of so many: the answer to HEAD.
    Head(u64),
}

impl Body for Out {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        match self.get_mut() {
            Out::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Out::Head(_) => Poll::Ready(None),
            Out::Coming { left: 0, .. } => Poll::Ready(None),
            Out::Coming { pieces, left } => Poll::Ready(Some(match ready!(pieces.poll_recv(context)) {
                Some(Ok(bytes)) => {
                    *left = left.saturating_sub(bytes.len() as u64);
                    Ok(Frame::data(bytes.into()))
                }
                Some(Err(failure)) => Err(std::io::Error::other(failure.message)),
                None => Err(std::io::Error::other("the object was not read to its end")),
            })),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Out::Whole(bytes) => bytes.is_none(),
            Out::Coming { left, .. } => *left == 0,
            Out::Head(_) => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Out::Whole(bytes) => bytes.as_ref().map_or(0, |bytes| bytes.len() as u64),
            Out::Coming { left, .. } => *left,
            Out::Head(bytes) => *bytes,
        })
    }
}

/// Ends an answer whose status and headers the door has chosen.
pub fn end(answer: Builder, body: Out) -> Answer {
    let bad = || {
        let mut answer = Response::new(Out::Whole(None));
        *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        answer
    };
    // A header that a program stored with an object may be none of HTTP.
    answer.body(body).unwrap_or_else(|_| bad())
}

/// An answer without a body.
pub fn empty(status: u16) -> Answer {
    end(Response::builder().status(status), Out::Whole(None))
}

/// A document.
pub fn document(text: String) -> Answer {
    let answer = Response::builder().header("content-type", "application/xml");
    end(answer, Out::Whole(Some(text.into())))
}

/// A failure, about this path.
pub fn failed(failure: &Failure, path: &str) -> Answer {
    let mut answer = document(Xml::error(failure, path));
    *answer.status_mut() = failure.status;
    answer
}

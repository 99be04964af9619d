//! Asynchronous events: notices that a controller sends without being asked at that time.
//!
//! ```text
//!   Asynchronous Event Request ─► Events::park          waits, for as long as nothing happens
//!   something happens          ─► Events::note          if the host wants to hear of it (feature 0Bh)
//!                                 Events::next_to_tell  the oldest request, and dword 0 of its answer
//!   Get Log Page               ─► Events::note_read     the host knows: the page may be told of again
//! ```
//!
//! A host that was asked to read a log page is not notified of that page again before it has read it, since it would
//! learn nothing new. The type of a request is the transport's.

use std::collections::VecDeque;

use kvdrive_nvme::Status;
use kvdrive_nvme::feature::event;
use kvdrive_nvme::log::{Health, lid};

/// Asynchronous Event Requests that may wait at a time (AERL + 1). SPDK posts four if it may.
pub const REQUESTS_MAX: usize = 4;

/// Events of which a host can be notified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// Identify data of a namespace has changed.
    Namespaces,
    /// Few spare blocks are left.
    FewSpares,
    /// The drive has become read-only.
    ReadOnly,
    /// A doorbell was rung with a value that it cannot have.
    Doorbell,
}

const NOTICES: [Notice; 4] = [Notice::Namespaces, Notice::FewSpares, Notice::ReadOnly, Notice::Doorbell];

impl Notice {
    /// The bits of feature 0Bh that enable it, for those that can be disabled. Bits 7:0 are those of the critical
    /// warnings.
    fn wanted_by(self) -> Option<u32> {
        let bits = match self {
            Notice::Namespaces => event::NAMESPACE_ATTRIBUTES,
            Notice::FewSpares => u32::from(Health::FEW_SPARES),
            Notice::ReadOnly => u32::from(Health::READ_ONLY),
            Notice::Doorbell => return None,
        };
        Some(bits)
    }

    /// The log page with details.
    fn page(self) -> u8 {
        match self {
            Notice::Namespaces => lid::CHANGED_NAMESPACES,
            Notice::FewSpares | Notice::ReadOnly => lid::HEALTH,
            Notice::Doorbell => lid::ERRORS,
        }
    }

    fn dword(self) -> u32 {
        let (kind, information) = match self {
            Notice::Namespaces => (event::NOTICE, event::NAMESPACE_CHANGED),
            Notice::FewSpares => (event::HEALTH, event::FEW_SPARES),
            Notice::ReadOnly => (event::HEALTH, event::UNRELIABLE),
            Notice::Doorbell => (event::ERROR, event::WRONG_DOORBELL_VALUE),
        };
        event::dword(kind, information, self.page())
    }
}

/// State of a notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum NoticeState {
    /// It has not happened since the host last read the log page.
    #[default]
    Nothing,
    /// It has happened and the host has not been notified.
    Pending,
    /// The host was notified and has not read the log page.
    Masked,
}

/// The notices of one controller, and the requests that wait for them.
#[derive(Debug)]
pub struct Events<R> {
    requests: VecDeque<R>,
    states: [NoticeState; NOTICES.len()],
}

impl<R> Default for Events<R> {
    fn default() -> Events<R> {
        Events { requests: VecDeque::new(), states: [NoticeState::Nothing; NOTICES.len()] }
    }
}

impl<R> Events<R> {
    /// Does a request wait?
    pub fn is_awaited(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Adds a waiting request.
    ///
    /// # Errors
    /// The request is returned: the limit is reached, and its answer is [`Status::ASYNC_EVENT_LIMIT`].
    pub fn park(&mut self, request: R) -> Result<(), (R, Status)> {
        if self.requests.len() >= REQUESTS_MAX {
            return Err((request, Status::ASYNC_EVENT_LIMIT));
        }
        self.requests.push_back(request);
        Ok(())
    }

    /// Removes a request for which `is_meant` returns `true`.
    pub fn unpark(&mut self, is_meant: impl FnMut(&R) -> bool) -> Option<R> {
        let at = self.requests.iter().position(is_meant)?;
        self.requests.remove(at)
    }

    /// Notes that `notice` has happened. `wanted_events` are the events enabled by the host:
    /// [`crate::Features`].
    pub fn note(&mut self, notice: Notice, wanted_events: u32) {
        let state = &mut self.states[notice as usize];
        let is_wanted = notice.wanted_by().is_none_or(|bits| wanted_events & bits != 0);
        if is_wanted && *state == NoticeState::Nothing {
            *state = NoticeState::Pending;
        }
    }

    /// Notes that the host has read a log page: its notices may be sent again.
    pub fn note_read(&mut self, page: u8) {
        for notice in NOTICES.into_iter().filter(|notice| notice.page() == page) {
            self.states[notice as usize] = NoticeState::Nothing;
        }
    }

    /// A waiting request, and dword 0 of its answer.
    pub fn next_to_tell(&mut self) -> Option<(R, u32)> {
        let is_masked = |states: &[NoticeState], page| {
            NOTICES.iter().any(|other| other.page() == page && states[*other as usize] == NoticeState::Masked)
        };
        let notice = NOTICES.into_iter().find(|notice| {
            self.states[*notice as usize] == NoticeState::Pending && !is_masked(&self.states, notice.page())
        })?;
        let request = self.requests.pop_front()?;
        self.states[notice as usize] = NoticeState::Masked;
        Some((request, notice.dword()))
    }

    /// Removes all notices and requests, for a reset.
    pub fn clear(&mut self) {
        *self = Events::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u32 = u32::MAX;

    fn events(requests: usize) -> Events<usize> {
        let mut events = Events::default();
        (0..requests).for_each(|request| events.park(request).expect("there is room"));
        events
    }

    #[test]
    fn a_second_notice_of_a_page_waits_until_the_host_has_read_it() {
        for (first, second) in [(Notice::FewSpares, Notice::ReadOnly), (Notice::ReadOnly, Notice::FewSpares)]
        {
            let mut events = events(4);
            events.note(first, ALL);
            assert_eq!(events.next_to_tell(), Some((0, first.dword())));
            // The same page: the host was notified already. Another page: it was not.
            events.note(second, ALL);
            events.note(first, ALL);
            assert_eq!(events.next_to_tell(), None, "{second:?} while its page is masked");
            events.note(Notice::Namespaces, ALL);
            assert_eq!(events.next_to_tell(), Some((1, Notice::Namespaces.dword())));
            // Reading one page does not affect another.
            events.note_read(lid::CHANGED_NAMESPACES);
            assert_eq!(events.next_to_tell(), None);
            // After reading the page the host knows its whole content, and is notified of later events.
            events.note_read(lid::HEALTH);
            assert_eq!(events.next_to_tell(), None, "the page said {second:?}, too");
            events.note(second, ALL);
            assert_eq!(events.next_to_tell(), Some((2, second.dword())));
        }
    }

    #[test]
    fn of_two_notices_of_a_page_that_wait_for_a_request_one_is_told() {
        let mut events = events(0);
        events.note(Notice::FewSpares, ALL);
        events.note(Notice::ReadOnly, ALL);
        assert_eq!(events.next_to_tell(), None, "no host asks");
        events.park(7).expect("there is room");
        events.park(8).expect("there is room");
        assert_eq!(events.next_to_tell(), Some((7, Notice::FewSpares.dword())));
        assert_eq!(events.next_to_tell(), None);
        assert!(events.is_awaited(), "the second request waits on");
    }

    #[test]
    fn a_host_hears_of_what_it_wants_to_alone() {
        for notice in NOTICES {
            let mut events = events(1);
            // An event that cannot be disabled is wanted by all.
            let bits = notice.wanted_by().unwrap_or_default();
            if bits != 0 {
                events.note(notice, !bits);
                assert_eq!(events.next_to_tell(), None, "{notice:?}");
            }
            events.note(notice, bits);
            assert_eq!(events.next_to_tell(), Some((0, notice.dword())));
        }
    }
}

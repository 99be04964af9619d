//! The log of a server: one line for each connection that failed, with the reason. It has at most
//! [`LINES_PER_SECOND`], since unauthorised hosts cause these lines and must not fill a disk.

/// Most lines in a second.
const LINES_PER_SECOND: u32 = 10;

type Tell = Box<dyn FnMut(&str)>;

/// The destination of log lines. The default discards them.
#[derive(Default)]
pub struct Log {
    tell: Option<Tell>,
    second: u64,
    lines: u32,
    withheld: u64,
}

impl Log {
    /// A log that passes each line to `tell`.
    pub fn new(tell: impl FnMut(&str) + 'static) -> Log {
        Log { tell: Some(Box::new(tell)), ..Log::default() }
    }

    /// Writes a line at `now_ms`, unless this second has had its number of lines.
    pub fn note(&mut self, now_ms: u64, line: &str) {
        let Some(tell) = &mut self.tell else { return };
        let second = now_ms / 1000;
        if second != self.second {
            (self.second, self.lines) = (second, 0);
            if std::mem::take(&mut self.withheld) > 0 {
                tell("(more such lines were left out)");
            }
        }
        self.lines += 1;
        if self.lines > LINES_PER_SECOND {
            self.withheld += 1;
            return;
        }
        tell(line);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn strangers_do_not_fill_a_log() {
        let lines = Rc::new(RefCell::new(Vec::new()));
        let told = lines.clone();
        let mut log = Log::new(move |line| told.borrow_mut().push(line.to_owned()));
        (0..1000).for_each(|_| log.note(5_999, "a"));
        assert_eq!(*lines.borrow(), ["a"; 10]);
        log.note(6_000, "b");
        assert_eq!(lines.borrow()[10..], ["(more such lines were left out)", "b"]);
    }
}

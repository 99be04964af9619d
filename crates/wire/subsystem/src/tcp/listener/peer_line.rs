//! [`PeerLine`]: which connections are next.

/// Connections in the order in which they were put here, each once.
#[derive(Default)]
pub(super) struct PeerLine {
    keys: Vec<usize>,
    /// For each key of a connection: is it in the line?
    is_in: Vec<bool>,
}

impl PeerLine {
    pub(super) fn push(&mut self, key: usize) {
        if self.is_in.len() <= key {
            self.is_in.resize(key + 1, false);
        }
        if !std::mem::replace(&mut self.is_in[key], true) {
            self.keys.push(key);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Takes all.
    pub(super) fn take(&mut self) -> Vec<usize> {
        self.keys.iter().for_each(|key| self.is_in[*key] = false);
        std::mem::take(&mut self.keys)
    }

    /// Memory that was taken with keys, and is empty now, is for the next ones.
    pub(super) fn reuse(&mut self, memory: Vec<usize>) {
        if self.keys.is_empty() {
            self.keys = memory;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket that is never read to its end has an event for each arrival, and one turn for all of them.
    #[test]
    fn a_connection_is_once_in_a_line() {
        let mut line = PeerLine::default();
        [3, 1, 3, 1, 1].into_iter().for_each(|key| line.push(key));
        assert_eq!(line.take(), [3, 1]);
        assert!(line.is_empty());
        line.push(3);
        assert_eq!(line.take(), [3]);
    }
}

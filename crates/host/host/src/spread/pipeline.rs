//! Drivers of several drives as one pipeline, over any transports.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kvdrive_content::{Piece, Region};
use kvdrive_declare::Counters;
use kvdrive_nvme::Status;
use kvdrive_sim::wall::{Patience, Stopwatch};

use super::Spread;
use super::gathered::{Cursor, Gathered, GatheredState, merged};
use crate::Error;
use crate::answers::IteratorId;
use crate::client::{Answer, Call, Content};
use crate::driver::{self, Driver};
use crate::pipelined::{Completion, Pipelined};

/// Counts of one drive's commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Counters)]
pub struct Share {
    /// Stores that the drive acknowledged, or SAKER in front of it.
    pub stores: u64,
    /// Retrieves that the drive answered, also those that found no pair.
    pub retrieves: u64,
    /// Deletes that the drive acknowledged, or SAKER in front of it.
    pub deletes: u64,
    /// Lists, iterator commands and exists that the drive answered.
    pub others: u64,
    /// Commands that the drive refused or left without an answer.
    pub failed: u64,
    /// Bytes of the values that the drive acknowledged.
    pub stored_bytes: u64,
    /// Bytes of the values that the drive returned.
    pub retrieved_bytes: u64,
}

impl Share {
    /// Adds the counts of the same drive from another connection.
    pub fn add(&mut self, other: &Share) {
        self.stores += other.stores;
        self.retrieves += other.retrieves;
        self.deletes += other.deletes;
        self.others += other.others;
        self.failed += other.failed;
        self.stored_bytes += other.stored_bytes;
        self.retrieved_bytes += other.retrieved_bytes;
    }

    fn note(&mut self, call: &Call<()>, value_bytes: u32, result: &Result<Answer, Status>) {
        if matches!(result, Err(status) if *status != Status::KEY_NOT_FOUND) {
            self.failed += 1;
            return;
        }
        match (call, result) {
            (Call::Store { .. }, _) => {
                self.stores += 1;
                self.stored_bytes += u64::from(value_bytes);
            }
            (Call::Retrieve { .. } | Call::RetrievePart { .. }, result) => {
                self.retrieves += 1;
                let Ok(Answer::Value(bytes)) = result else { return };
                self.retrieved_bytes += u64::from(*bytes);
            }
            (Call::Delete { .. } | Call::Remove { .. }, _) => self.deletes += 1,
            _ => self.others += 1,
        }
    }
}

/// A pipeline's counts of its drives. Clones share them.
#[derive(Clone, Debug)]
pub struct Tally(Arc<Mutex<Tallied>>);

#[derive(Debug)]
struct Tallied {
    shares: Vec<Share>,
    lost: Vec<Option<Error>>,
    sleeps: u64,
}

impl Tally {
    fn lock(&self) -> MutexGuard<'_, Tallied> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a command of `drive` that SAKER took or answered for it.
    pub(super) fn note(
        &self,
        drive: usize,
        call: &Call<()>,
        value_bytes: u32,
        result: &Result<Answer, Status>,
    ) {
        self.lock().shares[drive].note(call, value_bytes, result);
    }

    /// Notes the error by which a drive was lost.
    pub(super) fn note_lost(&self, drive: usize, error: &Error) {
        self.lock().lost[drive] = Some(error.clone());
    }

    /// The counts of each drive since the last `take`.
    pub fn take(&self) -> Vec<Share> {
        self.lock().shares.iter_mut().map(std::mem::take).collect()
    }

    /// The error by which each drive was lost; `None` for a drive that was not.
    pub fn lost(&self) -> Vec<Option<Error>> {
        self.lock().lost.clone()
    }

    /// How often the thread slept to wait for any drive.
    pub fn sleeps(&self) -> u64 {
        self.lock().sleeps
    }
}

/// The value of one drive's command.
enum Part<V> {
    /// The command is the whole call.
    Whole(V),
    /// The command is part of the gathered call with this number.
    Of(usize),
}

impl<V: Content> Content for Part<V> {
    fn piece(&self) -> Piece<'_> {
        match self {
            Part::Whole(value) => value.piece(),
            Part::Of(_) => Piece::Bytes(&[]),
        }
    }
}

/// A drive that is not lost.
struct Member<'d, V> {
    pipeline: driver::Pipeline<'d, Part<V>>,
    /// Time of its last answer, or when it last had no command under way, ns.
    heard_ns: u64,
}

/// Connections to several drives as one pipeline. A call with a key goes to the drive that has the key, a
/// list or an iterator to all drives.
///
/// A drive whose connection fails is lost: its commands without an answer end with
/// [`Status::HOST_PATH_ERROR`], and so does every later call that needs it. The other drives continue, and
/// their acknowledged writes are kept. [`Tally`] says which drive was lost and why. When all drives are lost,
/// calls that wait return the error.
///
/// A batch is refused (01h), and so is a list unless all drives keep keys in order.
pub struct Pipeline<'d, V> {
    spread: Spread,
    members: Vec<Option<Member<'d, V>>>,
    depth: u32,
    is_ordered: bool,
    /// Calls that were begun and whose completion was not returned.
    under_way: u32,
    /// Calls of several drives, by the number in [`Part::Of`].
    gathered: Vec<Option<Gathered<V>>>,
    cursors: Vec<Option<Cursor>>,
    answered: VecDeque<Completion<V>>,
    /// The error by which the last drive was lost.
    failure: Option<Error>,
    /// How long a drive with commands under way may be silent.
    silence: Option<Duration>,
    clock: Stopwatch,
    patience: Patience,
    tally: Tally,
}

impl<'d, V: Content> Pipeline<'d, V> {
    /// A pipeline over `drivers`, in the order of `spread`'s names, of up to `depth` calls at once; each
    /// driver needs room for `depth` commands. A drive without a driver is lost from the beginning.
    /// `is_ordered`: all drives keep keys in order.
    ///
    /// # Errors
    /// As [`Driver::pipeline`].
    pub fn new(
        spread: Spread,
        drivers: impl IntoIterator<Item = Option<&'d mut Driver>>,
        depth: u32,
        is_ordered: bool,
        silence: Option<Duration>,
    ) -> Result<Pipeline<'d, V>, Error> {
        let member =
            |driver: &'d mut Driver| driver.pipeline().map(|pipeline| Member { pipeline, heard_ns: 0 });
        let members = drivers.into_iter().map(|driver| driver.map(member).transpose());
        let members = members.collect::<Result<Vec<_>, _>>()?;
        assert_eq!(spread.seeds.len(), members.len(), "each drive has a name");
        assert!(members.iter().any(Option::is_some), "there is a drive");
        let (shares, lost) = (vec![Share::default(); members.len()], vec![None; members.len()]);
        let tally = Tally(Arc::new(Mutex::new(Tallied { shares, lost, sleeps: 0 })));
        Ok(Pipeline {
            spread,
            members,
            depth,
            is_ordered,
            under_way: 0,
            gathered: Vec::new(),
            cursors: Vec::new(),
            answered: VecDeque::new(),
            failure: None,
            silence,
            clock: Stopwatch::start(),
            patience: Patience::default(),
            tally,
        })
    }

    /// The counts of its drives.
    pub fn tally(&self) -> Tally {
        self.tally.clone()
    }

    /// Begins a command on one drive.
    fn begin_on(&mut self, drive: usize, call: Call<()>, part: Part<V>, into: Region) {
        let Some(member) = &mut self.members[drive] else {
            return self.ended(drive, call, part, Err(Status::HOST_PATH_ERROR), into);
        };
        if member.pipeline.under_way() == 0 {
            member.heard_ns = self.clock.ns();
        }
        let begun = member.pipeline.begin(call, part, into);
        assert!(begun.is_ok(), "it has room for all calls of this pipeline");
        self.take_answered(drive);
    }

    /// Takes completions that needed no command, and notices a connection that cannot be written to.
    fn take_answered(&mut self, drive: usize) {
        while let Some(member) = &mut self.members[drive] {
            if let Some(error) = member.pipeline.failure().cloned() {
                return self.lose(drive, &error);
            }
            let Some(Completion { call, value, result, content }) = member.pipeline.answered() else {
                return;
            };
            self.ended(drive, call, value, result, content);
        }
    }

    /// The connection to a drive has failed.
    fn lose(&mut self, drive: usize, error: &Error) {
        let Some(member) = self.members[drive].take() else { return };
        self.tally.lock().lost[drive] = Some(error.clone());
        if self.members.iter().all(Option::is_none) {
            self.failure = Some(error.clone());
        }
        for (call, part, into) in member.pipeline.into_unanswered() {
            self.ended(drive, call, part, Err(Status::HOST_PATH_ERROR), into);
        }
    }

    /// A command of one drive has ended.
    fn ended(
        &mut self,
        drive: usize,
        call: Call<()>,
        part: Part<V>,
        result: Result<Answer, Status>,
        content: Region,
    ) {
        self.tally.lock().shares[drive].note(&call, part.piece().bytes(), &result);
        match part {
            Part::Whole(value) => self.answered.push_back(Completion { call, value, result, content }),
            Part::Of(number) => self.gather(number, drive, result, content),
        }
    }

    fn answer(&mut self, call: Call<()>, value: V, result: Result<Answer, Status>, content: Region) {
        self.answered.push_back(Completion { call, value, result, content });
    }

    /// Begins a call that has a command for each of several drives.
    fn begin_gathered(
        &mut self,
        call: Call<()>,
        value: V,
        state: GatheredState,
        commands: Vec<(usize, Call<()>)>,
    ) {
        let number = self.gathered.iter().position(Option::is_none).unwrap_or_else(|| {
            self.gathered.push(None);
            self.gathered.len() - 1
        });
        // The count has one extra until all commands are begun: a lost drive answers at once.
        self.gathered[number] = Some(Gathered { call, value, left: commands.len() + 1, state });
        for (drive, command) in commands {
            self.begin_on(drive, command, Part::Of(number), Region::new());
        }
        self.end_one(number);
    }

    /// Takes the answer of one drive to its command of call `number`.
    fn gather(&mut self, number: usize, drive: usize, result: Result<Answer, Status>, content: Region) {
        let Some(Gathered { state, .. }) = &mut self.gathered[number] else {
            unreachable!("it has not ended")
        };
        match (state, result) {
            (GatheredState::List { keys, .. }, Ok(answer)) => keys.extend(answer.keys()),
            (GatheredState::Seek(cursor), result) => cursor.opened(drive, result, content),
            (GatheredState::Next { cursor }, Ok(answer)) => {
                let cursor = self.cursors[cursor.number() as usize].as_mut().expect("it is open");
                cursor.came(drive, answer.pair(), content);
            }
            (GatheredState::Close(Ok(())), Ok(_)) | (GatheredState::Close(Err(_)), _) => {}
            (state, Err(status)) => *state = GatheredState::Close(Err(status)),
        }
        self.end_one(number);
    }

    /// Counts one command of call `number` as ended; after the last one the call is answered.
    fn end_one(&mut self, number: usize) {
        let gathered = self.gathered[number].as_mut().expect("it has not ended");
        gathered.left -= 1;
        if gathered.left > 0 {
            return;
        }
        let Gathered { call, value, state, .. } = self.gathered[number].take().expect("it has not ended");
        match state {
            GatheredState::List { keys, buffer_bytes } => {
                let keys = merged(keys, buffer_bytes);
                self.answer(call, value, Ok(Answer::Keys(keys)), Region::new());
            }
            GatheredState::Close(closed) => {
                let result = closed.map(|()| Answer::Done);
                self.answer(call, value, result, Region::new());
            }
            GatheredState::Seek(Cursor { failed: Some(status), iterators, .. }) => {
                let state = GatheredState::Close(Err(status));
                self.begin_gathered(call, value, state, closing(&iterators));
            }
            GatheredState::Seek(mut cursor) => {
                let (pair, content) = cursor.choose();
                let iterator = self.keep(cursor);
                self.answer(call, value, Ok(Answer::Opened(iterator, pair)), content);
            }
            GatheredState::Next { cursor } => self.choose(call, value, cursor),
        }
    }

    fn choose(&mut self, call: Call<()>, value: V, iterator: IteratorId) {
        let cursor = self.cursors[iterator.number() as usize].as_mut().expect("it is open");
        let (pair, content) = cursor.choose();
        self.answer(call, value, Ok(Answer::Pair(pair)), content);
    }

    fn keep(&mut self, cursor: Cursor) -> IteratorId {
        let number = self.cursors.iter().position(Option::is_none).unwrap_or(self.cursors.len());
        if number == self.cursors.len() {
            self.cursors.push(None);
        }
        self.cursors[number] = Some(cursor);
        IteratorId::numbered(number as u32)
    }

    fn cursor(&mut self, iterator: IteratorId) -> Option<&mut Option<Cursor>> {
        self.cursors.get_mut(iterator.number() as usize).filter(|cursor| cursor.is_some())
    }

    /// Takes the completions that have arrived from all drives.
    fn sweep(&mut self) {
        for drive in 0..self.members.len() {
            while let Some(member) = &mut self.members[drive]
                && member.pipeline.under_way() > 0
            {
                match member.pipeline.next_completion_within(Some(Duration::ZERO)) {
                    Ok(Some(Completion { call, value, result, content })) => {
                        member.heard_ns = self.clock.ns();
                        self.ended(drive, call, value, result, content);
                    }
                    Ok(None) => break,
                    Err(error) => self.lose(drive, &error),
                }
            }
        }
    }

    /// Waits until bytes arrive, for `left` at most; a drive that is silent for too long is lost.
    fn wait(&mut self, left: Option<Duration>) {
        if self.patience.look_again() {
            return std::hint::spin_loop();
        }
        let (now, mut left) = (self.clock.ns(), left);
        for drive in 0..self.members.len() {
            let Some(member) = self.members[drive].as_ref().filter(|member| member.pipeline.under_way() > 0)
            else {
                continue;
            };
            let Some(silence) = self.silence else { continue };
            let quiet = Duration::from_nanos(now.saturating_sub(member.heard_ns));
            match silence.checked_sub(quiet).filter(|left| !left.is_zero()) {
                Some(patient) => left = Some(left.map_or(patient, |left| left.min(patient))),
                None => {
                    let what = format!("no answer for {} s", silence.as_secs_f64());
                    return self.lose(drive, &Error::Io { kind: std::io::ErrorKind::TimedOut, what });
                }
            }
        }
        let members = self.members.iter_mut().flatten().map(|member| &mut member.pipeline);
        let mut pipelines: Vec<_> = members.filter(|pipeline| pipeline.under_way() > 0).collect();
        self.tally.lock().sleeps += 1;
        driver::Pipeline::sleep_for_any(&mut pipelines, left);
        self.patience.end();
    }
}

/// The commands that close the iterators of a cursor.
fn closing(iterators: &[Option<IteratorId>]) -> Vec<(usize, Call<()>)> {
    let open = iterators.iter().enumerate();
    open.filter_map(|(drive, iterator)| Some((drive, Call::Close { iterator: (*iterator)? }))).collect()
}

impl<V: Content> Pipelined<V> for Pipeline<'_, V> {
    fn has_room(&self) -> bool {
        self.under_way < self.depth
    }

    fn under_way(&self) -> u32 {
        self.under_way
    }

    fn begin(&mut self, call: Call<()>, value: V, into: Region) -> Result<(), V> {
        if !self.has_room() {
            return Err(value);
        }
        self.under_way += 1;
        let to_all = |call: Call<()>| (0..self.members.len()).map(|drive| (drive, call)).collect::<Vec<_>>();
        match call {
            Call::Store { key, .. }
            | Call::Retrieve { key }
            | Call::RetrievePart { key, .. }
            | Call::Delete { key }
            | Call::Remove { key }
            | Call::Exist { key } => {
                let drive = key.with_bytes(|key| self.spread.place(key));
                self.begin_on(drive, call, Part::Whole(value), into);
            }
            Call::List { buffer_bytes, .. } if self.is_ordered => {
                let commands = to_all(call);
                self.begin_gathered(
                    call,
                    value,
                    GatheredState::List { keys: Vec::new(), buffer_bytes },
                    commands,
                );
            }
            Call::Batch { .. } | Call::List { .. } => {
                self.answer(call, value, Err(Status::INVALID_OPCODE), into);
            }
            Call::Seek { .. } => {
                let (commands, cursor) = (to_all(call), Cursor::new(self.members.len(), self.is_ordered));
                self.begin_gathered(call, value, GatheredState::Seek(cursor), commands);
            }
            Call::Next { iterator } => match self.cursor(iterator) {
                None => self.answer(call, value, Err(Status::NO_SUCH_ITERATOR), into),
                Some(Some(Cursor { asked_next: Some(drive), iterators, .. })) => {
                    let iterator_there = iterators[*drive].expect("it has a pair");
                    let commands = vec![(*drive, Call::Next { iterator: iterator_there })];
                    self.begin_gathered(call, value, GatheredState::Next { cursor: iterator }, commands);
                }
                Some(_) => self.choose(call, value, iterator),
            },
            Call::Close { iterator } => match self.cursor(iterator).and_then(Option::take) {
                None => self.answer(call, value, Err(Status::NO_SUCH_ITERATOR), into),
                Some(cursor) => {
                    self.begin_gathered(
                        call,
                        value,
                        GatheredState::Close(Ok(())),
                        closing(&cursor.iterators),
                    );
                }
            },
        }
        Ok(())
    }

    fn next_completion_within(&mut self, timeout: Option<Duration>) -> Result<Option<Completion<V>>, Error> {
        let began = Stopwatch::start();
        loop {
            if let Some(error) = &self.failure {
                // Answers that came before the loss are returned.
                self.answered.retain(|answered| answered.result != Err(Status::HOST_PATH_ERROR));
                if self.answered.is_empty() {
                    return Err(error.clone());
                }
            }
            if let Some(answered) = self.answered.pop_front() {
                self.under_way -= 1;
                return Ok(Some(answered));
            }
            if self.under_way == 0 {
                return Ok(None);
            }
            self.sweep();
            if !self.answered.is_empty() || self.failure.is_some() {
                self.patience.end();
                continue;
            }
            let left = timeout.map(|span| span.saturating_sub(Duration::from_nanos(began.ns())));
            if left == Some(Duration::ZERO) {
                self.patience.end();
                return Ok(None);
            }
            self.wait(left);
        }
    }
}

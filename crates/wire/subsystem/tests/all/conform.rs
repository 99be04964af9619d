//! The clauses of `kvdrive conform` by a PCI function: a guest's rings and memory. Network and the drive's own queues are
//! tried by the tests of crate `conform`.

use std::path::{Path, PathBuf};

use kvdrive_conform::target::{Answer, Data, Lost, NoAnswer, Target, UNTOUCHED};
use kvdrive_conform::{Wanted, check};
use kvdrive_nvme::{SglDescriptor, Sqe, Status};

use super::functions::{beside, serve};
use kvdrive_rigs::guest::{BASE, DATA_AT, Doorbell, Guest, MEMORY_BYTES, PAGE, Rings};

/// Entries of the I/O queue.
const ENTRIES: u32 = 8;

/// A function with its admin queue and an I/O queue. Functions of one server share its namespace.
struct Function {
    guest: Guest,
    rings: Rings,
    others: Vec<PathBuf>,
}

impl Function {
    fn boot(path: &Path, others: Vec<PathBuf>) -> Function {
        let mut guest = Guest::boot(path, Doorbell::InMemory, true);
        let rings = guest.create(1, ENTRIES, None);
        Function { guest, rings, others }
    }

    /// Puts the data of a command, or room for its answer, into the guest's memory.
    fn put(&mut self, data: Data<'_>) -> u32 {
        let bytes = match data {
            Data::None => return 0,
            Data::Out(bytes) => bytes.to_vec(),
            Data::In(room) => vec![UNTOUCHED; room as usize],
        };
        assert!(bytes.len() as u64 <= MEMORY_BYTES - DATA_AT, "a value fits into the guest");
        self.guest.put(DATA_AT, &bytes);
        bytes.len() as u32
    }

    fn take(&self, data: Data<'_>, status: Status) -> Vec<u8> {
        match data {
            Data::In(room) if status.is_success() => self.guest.get(DATA_AT, room as usize),
            _ => Vec::new(),
        }
    }
}

impl Target for Function {
    fn name(&self) -> String {
        "a function".to_owned()
    }

    fn nsid(&self) -> u32 {
        1
    }

    fn admin(&mut self, mut sqe: Sqe, data: Data<'_>) -> Result<Answer, NoAnswer> {
        let bytes = self.put(data);
        assert!(u64::from(bytes) <= PAGE, "an admin command has one page");
        sqe.set_prps(if bytes > 0 { BASE + DATA_AT } else { 0 }, 0);
        let cqe = self.guest.admin(&sqe);
        let data = self.take(data, cqe.status());
        Ok(Answer { status: cqe.status(), dw0: cqe.dw0.get(), data })
    }

    fn io(&mut self, mut sqe: Sqe, data: Data<'_>) -> Result<Answer, NoAnswer> {
        let bytes = self.put(data);
        sqe.set_sgl(SglDescriptor::data_block(BASE + DATA_AT, bytes));
        let cqe = self.guest.run(&mut self.rings, &sqe);
        let data = self.take(data, cqe.status());
        Ok(Answer { status: cqe.status(), dw0: cqe.dw0.get(), data })
    }

    /// A reset of the controller.
    fn reconnect(&mut self) -> Result<(), Lost> {
        self.guest.set_register(kvdrive_nvme::property::CC, 0);
        self.guest.enable();
        self.rings = self.guest.create(1, ENTRIES, None);
        Ok(())
    }

    fn another(&self) -> Result<Option<Box<dyn Target>>, Lost> {
        let Some(path) = self.others.first() else { return Ok(None) };
        Ok(Some(Box::new(Function::boot(path, Vec::new()))))
    }
}

#[test]
fn a_function_keeps_every_clause() {
    let (server, paths, _folder) = serve(beside(), 2);
    let mut function = Function::boot(&paths[0], vec![paths[1].clone()]);
    let report = check(&mut function, &Wanted::default(), &mut |judged| {
        if judged.verdict == kvdrive_conform::report::Verdict::Fail {
            println!("{}", judged.text());
        }
    });
    let report = report.unwrap();
    assert_eq!(report.failed(), [""; 0]);
    assert!(report.left.is_empty());
    let pages = report.judged.iter().find(|judged| judged.clause.id == "log-list").unwrap();
    assert_eq!(pages.told, "00h 01h 02h 03h 04h 05h C0h", "as on every port");
    drop(function);
    server.end();
}

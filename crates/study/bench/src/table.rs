//! The table of all figures: a line for each that is measured.

use std::fmt;

use kvdrive_config::binary;
use kvdrive_text::{grouped, with_decimals};

use super::speed::Speed;
use super::stores::Simulated;
use super::{
    Collecting, Figures, Idle, Instructions, MEMORY_VALUE_BYTES, Memory, WALL_DEPTH, WALL_VALUE_BYTES,
};

impl Figures {
    /// Revision of this program and the machine, without a figure yet.
    pub fn of_this_machine() -> Figures {
        Figures {
            revision: kvdrive_run::revision::of_program(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            machine: format!("{} {}", std::env::consts::ARCH, std::env::consts::OS),
            simulated: None,
            instructions: None,
            memory: None,
            collecting: None,
            stores: Vec::new(),
            served_capacity_bytes: None,
            wall: None,
            idle: None,
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { revision, cores, machine, .. } = self;
        line(f, "revision", String::new(), "", format!("{revision}, {machine}, {cores} cores"))?;
        self.simulated.iter().try_for_each(|simulated| of_simulated(f, simulated))?;
        self.instructions.iter().try_for_each(|instructions| of_instructions(f, instructions))?;
        self.memory.iter().try_for_each(|memory| of_memory(f, memory))?;
        self.collecting.iter().try_for_each(|collecting| of_collecting(f, collecting))?;
        for Simulated { name, speed } in &self.stores {
            let figure = million(speed.per_cpu_s.unwrap_or(speed.per_s));
            let each =
                speed.events_each.map_or_else(String::new, |events| format!(", {events:.1} events each"));
            let how = format!("{name}, {} in virtual time{each}", grouped(speed.operations));
            line(f, "requests/s of CPU time", figure, "measured", how)?;
        }
        if let Some(wall) = &self.wall {
            let size =
                self.served_capacity_bytes.map_or_else(String::new, |bytes| format!(", {}", binary(bytes)));
            let how = format!(
                "{WALL_VALUE_BYTES} B at depth {WALL_DEPTH} from one thread, unpaced{size}, {} stores{}",
                grouped(wall.operations),
                runs(wall)
            );
            line(f, "served stores/s", million(wall.per_s), "measured", how)?;
        }
        self.idle.iter().try_for_each(|idle| of_idle(f, idle))
    }
}

fn line(f: &mut fmt::Formatter<'_>, what: &str, figure: String, kind: &str, how: String) -> fmt::Result {
    writeln!(f, "{what:<28}{figure:>12}   {kind:<9}  {how}")
}

fn runs(speed: &Speed) -> String {
    match speed.seconds.len() {
        1 => String::new(),
        runs => format!(", best of {runs}"),
    }
}

fn million(number: f64) -> String {
    format!("{:.3} M", number / 1e6)
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn unknown() -> String {
    "unknown".to_owned()
}

fn of_simulated(f: &mut fmt::Formatter<'_>, simulated: &Speed) -> fmt::Result {
    let how = format!("W(M) adaptive, backfill, {} stores{}", grouped(simulated.operations), runs(simulated));
    line(f, "simulated stores/s", million(simulated.per_s), "measured", how)?;
    let figure = simulated.per_cpu_s.map_or_else(unknown, million);
    line(f, "the same of CPU time", figure, "measured", "while the thread had a core".into())?;
    let events = simulated.events_each.map_or_else(unknown, |events| format!("{events:.2}"));
    line(f, "events/store", events, "counted", "the same".into())
}

fn of_instructions(f: &mut fmt::Formatter<'_>, instructions: &Instructions) -> fmt::Result {
    let (figure, how) = match (instructions.per_store, instructions.counter) {
        (Some(per_store), Some(name)) => (
            with_decimals(per_store, 0),
            format!("the same, {} stores, {name}", grouped(instructions.stores)),
        ),
        _ => (unknown(), "neither perf nor valgrind counts instructions here".into()),
    };
    line(f, "instructions/store", figure, "counted", how)
}

fn of_memory(f: &mut fmt::Formatter<'_>, memory: &Memory) -> fmt::Result {
    let how = format!("{} pairs of {MEMORY_VALUE_BYTES} B by prp on tags media", grouped(memory.pairs));
    line(f, "resident, most", memory.peak_bytes.map_or_else(unknown, mib), "measured", how)?;
    let per_pair = memory.bytes_per_pair().map_or_else(unknown, |bytes| format!("{bytes:.1}"));
    line(f, "resident bytes/pair", per_pair, "measured", "the same, without the program itself".into())?;
    line(f, "in huge pages", mib(memory.huge_page_bytes), "measured", "the same".into())?;
    let each = with_decimals(memory.page_faults as f64 / memory.pairs.max(1) as f64, 4);
    line(f, "page faults/pair", each, "measured", format!("the same, {} in all", grouped(memory.page_faults)))
}

fn of_collecting(f: &mut fmt::Formatter<'_>, collecting: &Collecting) -> fmt::Result {
    let Collecting { scale, loading, speed, peak_bytes, deepest_stack_bytes } = collecting;
    let loads = format!("plus at {scale}, {} loads and overwrites, untimed", grouped(loading.operations));
    let ops = format!("A uniform after them, {}, timed", grouped(speed.operations));
    for (what, speed, how) in [("hash engine's loads/s", loading, loads), ("hash engine's ops/s", speed, ops)]
    {
        line(f, what, million(speed.per_s), "measured", how)?;
        let figure = speed.per_cpu_s.map_or_else(unknown, million);
        line(f, "the same of CPU time", figure, "measured", "while the thread had a core".into())?;
    }
    line(f, "resident, most", peak_bytes.map_or_else(unknown, mib), "measured", "the same".into())?;
    let how = format!("of {} that a task has; the same", grouped(kvdrive_sim::STACK_BYTES as u64));
    line(f, "deepest stack, bytes", grouped(*deepest_stack_bytes as u64), "measured", how)
}

fn of_idle(f: &mut fmt::Formatter<'_>, idle: &Idle) -> fmt::Result {
    let share = idle.cpu_seconds.map(|cpu_s| format!("{} %", with_decimals(cpu_s / idle.seconds * 100.0, 3)));
    let how = format!("of a core, {} wake-ups in {} s", idle.wake_ups, with_decimals(idle.seconds, 1));
    line(f, "an idle drive", share.unwrap_or_else(unknown), "measured", how)
}

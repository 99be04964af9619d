//! Exit status 2 for every input that is wrong, wherever the program finds that. A job tells a found bug, which is 1 (tests
//! of the commands check that), from a wrong command line by it. `docs/commands.md` has the table.

use std::process::{Command, Output};

/// Command lines with something wrong, over all commands. `DIR` is an empty folder; `BAD` a file that is no file of this
/// program.
const WRONG: &str = "
nothing
--tour-ops 0
--nothing
run --nothing
run extra
run --workload nothing
run --workload trace:DIR/none
run --workload trace:BAD
run --workload trace:DIR
run --transfer pri
run --packing nothing
run --engine nothing
run --profile nothing
run --profile DIR/none.toml
run --config DIR/none.toml
run --config BAD
run --ops nothing
run --ops -1
run --num 5x
run --value-size 9GiB
run --value-size x
run --depth 0
run --queues 0
run --scale 1/0
run --scale 3/4x
run --dram x
run --media nothing
run --media file
run --nand maybe
run --rate 0
run --rate fast
run --clock sundial
run --pace off
run --record DIR/r
run --own-thread
run --faults DIR/none.toml
run --faults BAD
run --seed x
run --seed 1,2 --record DIR/r
run --ops 1,2
run --set nothing
run --set nothing=1
run --set flash.channels=0
run --set flash.channels=x
run --set host.depth=x
run --alpha -1
run --saker maybe
run --json DIR/none/j
run --interval 0
run --interval 1s --json -
run --histogram DIR/none/h
run --cdf DIR/none/c --ops 1 --num 1
run --connect http://127.0.0.1:1
run --connect tcp://127.0.0.1:x
run --connect tcp://127.0.0.1:1
run --connect tcp://127.0.0.1:1 --faults BAD
run --connect tcp://127.0.0.1:1 --engine lsm
run --connect tcp://127.0.0.1:1 --clock virtual
run --connect tcp://127.0.0.1:1 --dhchap-secret x
compare --workload nothing
compare --profile cosmos-plus,nothing
compare --transfer prp,pri
compare --clock wall
crash --at 0
crash --cuts none
crash --lives 0
crash --engine nothing
crash --faults BAD
crash --clock wall
storm --cases 0
storm --minutes 0
storm --seed x
storm --engine nothing
check DIR/none
check BAD
check DIR
dump DIR/none
dump BAD
explain nothing
explain store --transfer pri
explain store --value-size x
claims nothing
claims bandslim --only nothing
claims bandslim --scale x
figure nothing
figure fig-nothing --quick
sweep DIR/none.toml
sweep BAD
report --out BAD/x --quick
cache --limit foo
serve --listen http://127.0.0.1:0
serve --listen tcp://127.0.0.1:x
serve --listen tcp://0.0.0.0:0
serve --pace fast
serve --memory x
serve --in-capsule 9000
serve --queue-entries 1
serve --reactors 7
serve --nqn iqn.x
serve --host iqn.x
serve --namespace DIR/none.toml
serve --namespace BAD
serve --control DIR/none/c
serve --http off
serve --ops 5
serve --engine nothing
serve --record DIR/none/r
ctl nothing
ctl inject red-error
ctl inject status die
ctl status --control DIR/none
ctl power cut --after x
ctl --nsid x status
top --control DIR/none
replay DIR/none
replay BAD
bench --connect http://x
bench --scale x
calibrate --store nothing
secret nothing
tune --tolerance -1
tune --tolerance x
tune --workload x
list nothing
config --set nothing=1
config --profile nothing
completions nothing
man nothing
ng --node x=y -- true
";

fn kvdrive(line: &str, folder: &std::path::Path) -> Output {
    let bad = folder.parent().unwrap().join("bad");
    let place =
        |word: &str| word.replace("DIR", folder.to_str().unwrap()).replace("BAD", bad.to_str().unwrap());
    Command::new(env!("CARGO_BIN_EXE_kvdrive")).args(line.split_whitespace().map(place)).output().unwrap()
}

#[test]
fn a_wrong_input_ends_in_status_2_wherever_it_is_found() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("bad"), "this = is [no file\nof kvdrive\n").unwrap();
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let lines: Vec<&str> = WRONG.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines.len() >= 100, "{}", lines.len());
    let mut wrong = Vec::new();
    for line in lines {
        let Output { status, stdout, stderr } = kvdrive(line, &empty);
        let said = String::from_utf8_lossy(&stderr).into_owned();
        if status.code() != Some(2)
            || said.trim().is_empty()
            || said.contains("panicked")
            || !stdout.is_empty()
        {
            wrong.push(format!("{line}: {:?}, {} B printed: {said}", status.code(), stdout.len()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(std::fs::read_dir(empty).unwrap().count(), 0, "no file was made");
}

//! Files of fault rules: the operations that a rule matches, and errors of files.

use kvdrive_nvme::Key;

use super::faults::parse;
use kvdrive_rigs::drive::document;

#[test]
fn rules_say_what_they_match() {
    let document = document::<&str>(&[]);
    let text = "[[rule]]\nfault = \"status\"\nstatus = \"key exists\"\nopcode = [\"02h\", \"exist\"]\n\
                keys = [\"0x00\", \"k9\"]\nnamespace = 1\n";
    let rule = parse(&document, text).expect("a rule").remove(0);
    assert_eq!(rule.matches.opcodes, [0x02, 0x14]);
    assert_eq!(rule.matches.keys, Some(Key::new(&[0]).unwrap()..=Key::new(b"k9").unwrap()));
    assert_eq!((rule.name.as_str(), rule.matches.namespaces), ("status 1", vec![1]));
}

#[test]
fn what_is_wrong_with_a_file_is_one_line_that_says_where() {
    let document = document::<&str>(&[]);
    let wrong = |text: &str| parse(&document, text).err().expect("it is wrong").to_string();
    let table = [
        ("[[rule]\n", "faults.toml:1:8: unclosed array table"),
        ("rules = 1\n", "faults.toml:1:1: rules: unknown; the file has [[rule]] tables only"),
        ("[[rule]]\ndie = 1\n", "faults.toml:1:1: fault: missing; there are read-error"),
        ("[[rule]]\nfault = \"oops\"\n", "faults.toml:2:9: fault: no \"oops\"; there are read-error"),
        (
            "[[rule]]\nfault = \"flip\"\nat = \"erase\"\n",
            "faults.toml:3:6: at: no \"erase\"; flip strikes at read, program",
        ),
        (
            "[[rule]]\nfault = \"flip\"\nkey = \"a\"\n",
            "faults.toml:3:1: key: a flip at a read does not look at it",
        ),
        (
            "[[rule]]\nfault = \"flip\"\ndie = [0, 9]\n",
            "faults.toml:3:11: die: expected a whole number, 0 to 1",
        ),
        (
            "[[rule]]\nfault = \"flip\"\npurpose = \"x\"\n",
            "faults.toml:3:11: purpose: no \"x\"; there are value",
        ),
        ("[[rule]]\nfault = \"flip\"\nnth = 2\ntimes = 1\n", "faults.toml:3:7: nth: is one time"),
        ("[[rule]]\nfault = \"flip\"\nprobability = 7\n", "faults.toml:3:15: probability: expected a number"),
        (
            "[[rule]]\nfault = \"flip\"\nprobability = \"0%\"\n",
            "faults.toml:3:15: probability: expected a number",
        ),
        (
            "[[rule]]\nfault = \"flip\"\nevery = 0\n",
            "faults.toml:3:9: every: expected a whole number from 1 on",
        ),
        ("[[rule]]\nfault = \"status\"\n", "faults.toml:1:1: status: missing"),
        ("[[rule]]\nfault = \"status\"\nstatus = \"00h\"\n", "faults.toml:3:10: status: success is no fault"),
        ("[[rule]]\nfault = \"status\"\nstatus = \"x\"\n", "faults.toml:3:10: status: \"x\"; expected"),
        (
            "[[rule]]\nfault = \"delay\"\ndelay_ns = \"5 parsecs\"\n",
            "faults.toml:3:12: delay_ns: unknown unit",
        ),
        (
            "[[rule]]\nfault = \"lose\"\nkeys = [\"b\", \"a\"]\n",
            "faults.toml:3:8: keys: expected [FIRST, LAST], in order",
        ),
        ("[[rule]]\nfault = \"lose\"\nkey = \"0x1\"\n", "faults.toml:3:7: key: \"0x1\": expected two"),
    ];
    let said = table.map(|(text, line)| (wrong(text), line));
    let other: Vec<_> =
        said.iter().filter(|(said, line)| !said.starts_with(line) || said.contains('\n')).collect();
    assert!(other.is_empty(), "{other:#?}");
}

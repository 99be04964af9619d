//! The files that programs find in `/sys`.

use std::fs::read_to_string;

use kvdrive_ng::nodes::{Kind, Nodes};
use kvdrive_ng::sysfs::{Tree, is_inside};

#[test]
fn a_controller_and_its_namespace_are_found_from_both_classes() {
    let nodes = Nodes::of("/dev/ng3n1=kvdrive:cosmos-plus").unwrap();
    let tree = Tree::new(&nodes).unwrap();
    let read = |path: &str| read_to_string(tree.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(read("/sys/class/nvme/nvme3/model"), format!("{:40}\n", "kvdrive key-value SSD"));
    assert_eq!(read("/sys/class/nvme/nvme3/state"), "live\n");
    let subsystem = "/sys/class/nvme-subsystem/nvme-subsys3";
    assert_eq!(read(&format!("{subsystem}/nvme3/serial")), read("/sys/class/nvme/nvme3/serial"));
    assert_eq!(read(&format!("{subsystem}/nvme3n1/csi")), "1\n");
    assert!(read(&format!("{subsystem}/subsysnqn")).starts_with("nqn."));
    let folder = tree.path("/sys");
    drop(tree);
    assert!(!folder.exists());
}

#[test]
fn paths_beside_the_tree_are_not_inside() {
    for inside in ["/sys/class/nvme", "/sys/class/nvme/nvme0/model", "/sys/class/nvme-subsystem/"] {
        assert!(is_inside(inside), "{inside}");
    }
    for outside in ["/sys/class/nvme-generic", "/sys/class", "/sys/block", "sys/class/nvme", "/dev/ng0n1"] {
        assert!(!is_inside(outside), "{outside}");
    }
}

#[test]
fn a_node_brings_those_that_linux_has_beside_it() {
    let nodes =
        Nodes::of("/dev/nvme0n1=tcp://127.0.0.1;/tmp/kv=tcp://[::1]:5,nsid=2;/dev/ng4n2=tcp://127.0.0.1")
            .unwrap();
    let found: Vec<_> =
        nodes.all().iter().map(|node| (node.path.as_str(), node.kind, node.instance)).collect();
    let should = [
        ("/dev/nvme0n1", Kind::Block, (0, 1)),
        ("/dev/ng0n1", Kind::Generic, (0, 1)),
        ("/dev/nvme0", Kind::Controller, (0, 1)),
        ("/tmp/kv", Kind::Generic, (1, 1)),
        ("/dev/ng4n2", Kind::Generic, (4, 2)),
        ("/dev/nvme4", Kind::Controller, (4, 2)),
    ];
    assert_eq!(found, should);
    assert_eq!(nodes.at("//dev/./ng4n2", format_args!("/"), true), Some(4));
    assert_eq!(nodes.at("ng4n2", format_args!("/dev"), true), Some(4));
    assert_eq!(nodes.at("ng4n2", format_args!("/tmp"), true), None);
}

#[test]
fn a_file_of_nodes_says_what_is_wrong_and_where() {
    let node =
        |row: &str| Nodes::of_toml("nodes.toml", &format!("[[node]]\n{row}")).err().map(|it| it.to_string());
    assert_eq!(node("path = \"/dev/ng0n1\"\ndrive = \"tcp://127.0.0.1:4420\"\nprivileged = false"), None);
    let strange = node("path = \"/dev/ng0n1\"\ndrive = \"tcp://h\"\ncolour = 1").unwrap();
    assert!(strange.starts_with("nodes.toml: ") && strange.contains("colour"), "{strange}");
    let wrong = node("path = \"/dev/ng0n1\"\ndrive = \"tcp://h,nsid=x\"").unwrap();
    assert_eq!(wrong, "nodes.toml: /dev/ng0n1: nsid=x: a number is needed");
}

//! Secrets and pre-shared keys of `kvdrive serve` and of its hosts, and TLS.

use std::process::Command;

use kvdrive_host::tcp::{Initiator, Options};

use super::serve::{ctl, run_against, serve};

#[test]
fn a_host_with_a_secret_has_to_know_it_and_a_drive_too() {
    let secret = |byte| kvdrive_auth::Secret::new(None, &[byte; 32]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("drive.sock");
    let file = folder.path().join("secret");
    std::fs::write(&file, secret(1).to_interchange()).unwrap();
    let host = format!("nqn.host=@{},{}", file.display(), secret(2).to_interchange());
    let served = serve(&["--control", socket.to_str().unwrap(), "--host", &host]);
    let run = |own: &str, controllers: u8| {
        let controllers = secret(controllers).to_interchange();
        let secrets = ["--dhchap-secret", own, "--dhchap-ctrl-secret", &controllers];
        let work = ["--workload", "ycsb-a", "--ops", "200", "--num", "50", "--host-nqn", "nqn.host"];
        run_against(&served, &[&work[..], &secrets].concat())
    };
    run(&format!("@{}", file.display()), 2).unwrap();
    let error = run(&secret(3).to_interchange(), 2).unwrap_err();
    assert!(error.contains("the controller ended it: authentication failed"), "{error}");
    let error = run(&secret(1).to_interchange(), 3).unwrap_err();
    assert!(error.contains("the host ended it: authentication failed"), "{error}");
    assert!(!error.contains("DHHC"), "{error}");
    let error = run_against(&served, &["--ops", "1", "--host-nqn", "nqn.host"]).unwrap_err();
    assert!(error.contains("authentication required"), "{error}");

    let conform = |controllers: u8| {
        let target = format!("tcp://{}", served.address);
        let (own, controllers) = (format!("@{}", file.display()), secret(controllers).to_interchange());
        let secrets =
            ["--host-nqn", "nqn.host", "--dhchap-secret", &own, "--dhchap-ctrl-secret", &controllers];
        kvdrive(&[&["conform", &target, "--only", "exist,hosts"], &secrets[..]].concat())
    };
    assert!(conform(2).unwrap().contains(" 0 fail, "));
    let error = conform(3).unwrap_err();
    assert!(error.contains("the host ended it: authentication failed"), "{error}");

    let own = kvdrive_host::tcp::Authentication::from(secret(1));
    let options = Options { host_nqn: "nqn.host".into(), authentication: Some(own), ..Options::default() };
    let _host = Initiator::connect(&served.address[..], &served.nqn, &options).unwrap();
    let hosts = ctl(&socket, &["hosts"]).unwrap();
    assert!(hosts.lines().nth(1).is_some_and(|host| host.contains(" yes ")), "{hosts}");
}

/// Runs `kvdrive` with these arguments: returns its output, or its error.
pub(crate) fn kvdrive(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_kvdrive")).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[test]
fn secrets_and_psks_are_made_and_never_the_same_twice() {
    for arguments in [&["dhchap"][..], &["dhchap", "--hash", "0"], &["dhchap", "--hash", "3"]] {
        let made = || kvdrive(&[&["secret"], arguments].concat()).unwrap();
        assert!(made().trim().parse::<kvdrive_auth::Secret>().is_ok());
        assert_ne!(made(), made());
    }
    for hash in ["1", "2"] {
        let made = kvdrive(&["secret", "psk", "--hash", hash]).unwrap();
        assert!(made.starts_with(&format!("NVMeTLSkey-1:0{hash}:")));
        assert!(made.trim().parse::<kvdrive_auth::Psk>().is_ok());
    }
    // The example of libnvme.
    let psk = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
    let names = ["--host-nqn", "nqn.psk-test-host", "--nqn", "nqn.psk-test-subsys"];
    let text = kvdrive(&[&["secret", "tls-key", "--psk", psk], &names[..]].concat()).unwrap();
    let identity =
        "NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU=";
    assert!(text.contains(identity) && text.contains("8fc3c0badfd4c0c6"), "{text}");
    let error = kvdrive(&[&["secret", "tls-key", "--psk", "nonsense"], &names[..]].concat()).unwrap_err();
    assert!(error.contains("--psk: not a PSK; a PSK has the form NVMeTLSkey-1"), "{error}");
}

/// Every command that takes a name checks its form first.
#[test]
fn names_of_hosts_and_subsystems_have_their_form_in_every_command() {
    let long = format!("nqn.{}", "a".repeat(220));
    for wrong in ["foo", "", "nqn", &long] {
        let host = ["--host-nqn", wrong];
        let subsystem = ["--nqn", wrong];
        let at = ["run", "--workload", "fillrandom", "--connect", "tcp://127.0.0.1:1"];
        let key = ["secret", "tls-key", "--psk", "@/nowhere"];
        let (key_host, key_subsystem) = (["--host-nqn", "nqn.host"], ["--nqn", "nqn.subsystem"]);
        for arguments in [
            [&at[..], &host].concat(),
            [&at[..], &subsystem].concat(),
            [&key[..], &host, &key_subsystem].concat(),
            [&key[..], &key_host, &subsystem].concat(),
            [&["serve"][..], &subsystem].concat(),
            vec!["serve", "--host", wrong],
            [&["conform", "tcp://127.0.0.1:1"][..], &host].concat(),
            [&["conform", "tcp://127.0.0.1:1"][..], &subsystem].concat(),
        ] {
            let error = kvdrive(&arguments).unwrap_err();
            let says = "begins with \"nqn.\" and has at most 223 bytes";
            assert!(error.contains(says), "{arguments:?}: {error}");
        }
    }
}

/// A problem of TLS is one line; without the feature, that line says how to build it in.
#[test]
fn tls_wants_a_psk_and_a_psk_wants_tls() {
    let psk = "nqn.host=NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
    let error = kvdrive(&["serve", "--host", psk]).unwrap_err();
    assert!(error.contains("--host nqn.host: its PSK is for TLS; give --tls"), "{error}");
    let error = kvdrive(&["serve", "--tls", "--host", "nqn.host"]).unwrap_err();
    let built_in = cfg!(feature = "tls");
    let expected = if built_in { "--tls: no --host has a PSK" } else { "built without TLS (feature tls)" };
    assert!(error.contains(expected) && error.lines().count() == 1, "{error}");
    if !built_in {
        let psk = psk.trim_start_matches("nqn.host=");
        for words in [&["run", "--connect", "tcp://127.0.0.1:9"][..], &["conform", "tcp://127.0.0.1:9"]] {
            let error = kvdrive(&[words, &["--tls-psk", psk]].concat()).unwrap_err();
            assert!(error.contains(expected) && error.lines().count() == 1, "{words:?}: {error}");
        }
    }
    for words in [&["run", "--connect", "/dev/ng9n1"][..], &["conform", "/dev/ng9n1"]] {
        let error = kvdrive(&[words, &["--host-nqn", "nqn.host"]].concat()).unwrap_err();
        assert!(
            error.contains("--host-nqn: the kernel has the connection to /dev/ng9n1"),
            "{words:?}: {error}"
        );
    }
}

#[cfg(feature = "tls")]
#[test]
fn hosts_and_a_drive_speak_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, file) = (folder.path().join("drive.sock"), folder.path().join("psk"));
    std::fs::write(&file, kvdrive(&["secret", "psk", "--hash", "2"]).unwrap()).unwrap();
    let psk = format!("@{}", file.display());
    let host = format!("nqn.host={psk}");
    let served = serve(&["--tls", "--control", socket.to_str().unwrap(), "--host", &host]);
    let work = ["--workload", "ycsb-a", "--ops", "500", "--num", "50", "--depth", "8", "--verify"];
    let run = |more: &[&str]| run_against(&served, &[&work[..], &["--host-nqn", "nqn.host"], more].concat());
    run(&["--tls-psk", &psk]).unwrap();
    run(&["--tls-psk", &psk, "--psk-version", "0"]).unwrap();
    let error = run(&["--tls-psk", &psk, "--psk-derivation", "libnvme"]).unwrap_err();
    assert!(error.contains("TLS") || error.contains("closed"), "{error}");
    assert!(run(&[]).is_err());
    let target = format!("tcp://{}", served.address);
    let conform = |more: &[&str]| {
        kvdrive(
            &[&["conform", &target, "--host-nqn", "nqn.host", "--only", "store,digests,hosts"], more]
                .concat(),
        )
    };
    let lines = conform(&["--tls-psk", &psk, "--psk-version", "0"]).unwrap();
    assert!(lines.contains(" store-over ") && lines.contains(" 0 fail, "), "{lines}");
    assert!(conform(&[]).unwrap_err().contains(&target), "without TLS the target is not reached");
    let tls = kvdrive_host::tcp::Tls::from(
        std::fs::read_to_string(&file).unwrap().trim().parse::<kvdrive_auth::Psk>().unwrap(),
    );
    let options = Options { host_nqn: "nqn.host".into(), tls: Some(tls), ..Options::default() };
    let _host = Initiator::connect(&served.address[..], &served.nqn, &options).unwrap();
    let hosts = ctl(&socket, &["hosts"]).unwrap();
    assert!(hosts.lines().nth(1).is_some_and(|host| host.contains(" yes ")), "{hosts}");
}

//! Secrets on the command line: as they are, or in a file, where others of this machine do not see them.

use anyhow::Context;
use kvdrive_auth::Secret;
use kvdrive_target::subsystem::Host;

/// The secret that `text` is, or that is in the file behind its `@`.
///
/// # Errors
/// A file that cannot be read, or no secret; neither is repeated, but for the name of the file.
pub fn read(text: &str) -> anyhow::Result<Secret> {
    let Some(path) = text.strip_prefix('@') else { return Ok(text.parse()?) };
    let content = std::fs::read_to_string(path).with_context(|| path.to_owned())?;
    content.trim().parse::<Secret>().with_context(|| path.to_owned())
}

/// The host in `NQN[=SECRET[,CONTROLLER-SECRET]]`.
///
/// # Errors
/// As [`read`], with the name of the host.
pub fn host(text: &str) -> anyhow::Result<Host> {
    let Some((nqn, secrets)) = text.split_once('=') else { return Ok(Host::from(text)) };
    let (own, controllers) = match secrets.split_once(',') {
        Some((own, controllers)) => (own, Some(controllers)),
        None => (secrets, None),
    };
    let named =
        |what: &'static str, secret: &str| read(secret).with_context(|| format!("--host {nqn}: {what}"));
    Ok(Host {
        nqn: nqn.to_owned(),
        secret: Some(named("its secret", own)?),
        controller_secret: controllers.map(|secret| named("the subsystem's secret", secret)).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";

    #[test]
    fn a_host_has_a_name_and_perhaps_secrets_and_a_wrong_one_is_not_shown() {
        let plain = host("nqn.a").unwrap();
        assert_eq!((plain.nqn.as_str(), plain.secret), ("nqn.a", None));
        let both = host(&format!("nqn.a={SECRET},{SECRET}")).unwrap();
        assert_eq!((both.nqn.as_str(), both.secret == both.controller_secret), ("nqn.a", true));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("{SECRET}\n")).unwrap();
        let by_file = host(&format!("nqn.a=@{}", file.path().display())).unwrap();
        assert_eq!((by_file.secret, by_file.controller_secret), (both.secret, None));
        let error = format!("{:#}", host(&format!("nqn.a={}", SECRET.replace("ia6", "ja6"))).unwrap_err());
        assert!(error.starts_with("--host nqn.a: its secret: ") && !error.contains("6zGod"), "{error}");
        assert!(format!("{:#}", host("nqn.a=@/nowhere").unwrap_err()).contains("/nowhere"));
    }
}

//! The namespaces of a served subsystem: from options, from files (`--namespace`), and from a variable, by which container
//! images are told what to serve. Not here: the drives behind them.

use std::path::{Path, PathBuf};

use anyhow::Context;
use kvdrive_config::{Document, RunOptions};
use kvdrive_device::engines::BLOCK;
use kvdrive_text::input::read_text;
use kvdrive_text::output::shown;

/// Namespaces as `kv:mem,lba:/data/a.img`: what each holds, pairs or blocks, and where.
pub const VARIABLE: &str = "KVDRIVE_NAMESPACES";

/// The configuration of each drive, in the order of their namespaces. The first one has the options `first`; `files` are those
/// of `--namespace`, and `listed` is the value of [`VARIABLE`], which replaces neither: its first entry names engine and medium
/// of the first drive.
///
/// # Errors
/// A setting is wrong, a file cannot be read, or the options and the variable contradict each other.
pub fn documents(
    mut first: RunOptions,
    files: &[PathBuf],
    listed: Option<&str>,
) -> anyhow::Result<Vec<Document>> {
    first.serve_hosts();
    let Some(listed) = listed else { return of_options(first, files) };
    anyhow::ensure!(files.is_empty(), "--namespace: {VARIABLE} lists the namespaces; leave one of them out");
    if let Some(option) = first.first_given(&["engine", "media"]) {
        anyhow::bail!("{option}: {VARIABLE} names it for each namespace; leave one of them out");
    }
    let mut documents = Vec::new();
    for (at, entry) in listed.split(',').enumerate() {
        let in_entry = || format!("{VARIABLE}: entry {} of {listed:?}", at + 1);
        let options = options_of(first.clone(), entry.trim()).with_context(in_entry)?;
        let document = match at {
            0 => options.document_without_work("serve", "hosts bring the work"),
            _ => options.document_of_drive("serve"),
        };
        documents.push(document.with_context(in_entry)?);
    }
    Ok(documents)
}

fn of_options(first: RunOptions, files: &[PathBuf]) -> anyhow::Result<Vec<Document>> {
    let mut documents = vec![first.document_without_work("serve", "hosts bring the work")?];
    for file in files {
        let mut options = first.only_defaults();
        options.file_of_drive(shown(file), read_text(file)?)?;
        documents.push(options.document_of_drive("serve")?);
    }
    Ok(documents)
}

/// The options with engine and medium of one entry.
fn options_of(mut options: RunOptions, entry: &str) -> anyhow::Result<RunOptions> {
    const FORM: &str = "expected kv:mem, kv:FILE, lba:mem or lba:FILE";
    let (holds, place) = entry.split_once(':').with_context(|| FORM.to_owned())?;
    match holds {
        "kv" => {}
        "lba" => options.give("engine", BLOCK.name)?,
        _ => anyhow::bail!("{holds:?} is neither kv nor lba; {FORM}"),
    }
    match place {
        "" => anyhow::bail!("{FORM}"),
        // Not as if a user had chosen the medium: the drive fits the machine's memory.
        "mem" => options.set_default("media.kind=ram"),
        file => {
            anyhow::ensure!(Path::new(file).file_name().is_some(), "{file:?} names no file; {FORM}");
            options.give("media", "file")?;
            options.set(format!("media.path={file}"));
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(value: &str) -> anyhow::Result<Vec<(String, String)>> {
        let documents = documents(RunOptions::default(), &[], Some(value))?;
        let row = |document: &Document| {
            let config = document.config().unwrap();
            (config.engine.name.to_string(), config.media.kind.to_string())
        };
        Ok(documents.iter().map(row).collect())
    }

    #[test]
    fn the_variable_names_what_each_namespace_holds_and_where() {
        let rows = listed("kv:mem, kv:/tmp/second.img,kv:mem,lba:mem").unwrap();
        let rows: Vec<_> = rows.iter().map(|(engine, media)| (engine.as_str(), media.as_str())).collect();
        assert_eq!(rows, [("lsm", "ram"), ("lsm", "file"), ("lsm", "ram"), ("block", "ram")]);
    }

    /// A further namespace may be another drive; what its file sets overrides the profile that it names.
    #[test]
    fn the_file_of_a_namespace_may_name_a_profile() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("second.toml");
        let of = |text: &str| {
            std::fs::write(&file, text).unwrap();
            documents(RunOptions::default(), std::slice::from_ref(&file), None).map(|mut all| all.remove(1))
        };
        let second = of("profile = \"pm983\"\n[controller]\nmax_value_bytes = 1000\n").unwrap();
        let max_value_bytes = second.config().unwrap().controller.max_value_bytes;
        assert_eq!((second.profile_name(), max_value_bytes), ("pm983", 1000));
        assert_eq!(of("[controller]\nmax_value_bytes = 1000\n").unwrap().profile_name(), "cosmos-plus");
        for (text, expected) in [
            ("profile = \"pm98\"\n", "did you mean pm983"),
            ("profile = 7\n", "expected the name of a profile"),
            ("profile = \"pm983\"\n[flash]\nchannel = 3\n", "flash.channel: unknown key"),
        ] {
            let error = of(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_wrong_entry_is_named_with_its_place_and_what_is_expected() {
        for (value, expected) in [
            ("kv:mem,zns:mem", "entry 2"),
            ("kv:mem,zns:mem", "\"zns\" is neither kv nor lba"),
            ("lba:", "expected kv:mem"),
            ("", "expected kv:mem"),
            ("kv:", "expected kv:mem"),
            ("kv:mem,", "entry 2"),
            ("kv:/", "names no file"),
        ] {
            let error = format!("{:#}", listed(value).unwrap_err());
            assert!(error.contains(VARIABLE) && error.contains(expected), "{value:?}: {error}");
        }
    }

    #[test]
    fn an_option_that_the_variable_contradicts_is_refused() {
        let with_engine = RunOptions::default().with("engine", "plus");
        let error = documents(with_engine, &[], Some("kv:mem")).unwrap_err().to_string();
        assert!(error.starts_with("--engine: KVDRIVE_NAMESPACES names it"), "{error}");
        let files = [PathBuf::from("second.toml")];
        let error = documents(RunOptions::default(), &files, Some("kv:mem")).unwrap_err().to_string();
        assert!(error.starts_with("--namespace: "), "{error}");
    }
}

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command line program talks on standard output")]
//! `gpu-bundle`: one folder that a machine with a GPU runs, with nothing but a driver and Python with NumPy.
//!
//! ```text
//!   target/gpu-bundle/  run.sh  checks.py  cuda_tests  cuda_bench  arenite-*.whl  programs/  cases/  logs/ (by run.sh)
//! ```
//!
//! `cargo xtask gpu-bundle [PROGRAMS [CASES]]`: PROGRAMS is a folder of further programs, as `NAME.pte`,
//! `NAME.ptd`, `NAME.npz`; without it the bundle has the seed program alone. CASES is a folder of trial cases,
//! of which those that want a GPU are taken. Deliberately absent: copying it there.

use super::Outcome;
use crate::python::{Build, Environment};
use crate::shell::{self, cargo, root, run_lines, target};
use std::fs;
use std::path::{Path, PathBuf};

/// The most bytes that a bundle may have.
const BUNDLE_BYTES_MAX: u64 = 60 << 20;

/// What the machine with the GPU runs.
const SCRIPTS: [(&str, &str); 2] =
    [("run.sh", include_str!("../../gpu/run.sh")), ("checks.py", include_str!("../../gpu/checks.py"))];

/// The files of a folder of trial cases that the cases with a GPU need, by how their names begin.
const CASES: [&str; 6] = ["h16_", "h20_", "seq_h20.", "replay.", "engines.", "common."];

/// Builds and gathers.
pub(crate) fn run(words: &[String]) -> Outcome {
    let bundle = target().join("gpu-bundle");
    if bundle.exists() {
        fs::remove_dir_all(&bundle).map_err(|error| describe(&bundle, &error))?;
    }
    let programs = bundle.join("programs");
    fs::create_dir_all(&programs).map_err(|error| describe(&programs, &error))?;
    for (kind, name) in [("--test", "cuda_tests"), ("--bench", "cuda_bench")] {
        copy(&build(kind)?, &bundle.join(name))?;
    }
    let environment = Environment::ready("bundle", &["maturin>=1.9,<2", "numpy"])?;
    let wheel = environment.install_wheel(Build::Release)?;
    copy(&wheel, &bundle.join(wheel.file_name().unwrap_or_default()))?;
    let has_ending = |path: &Path, endings: &[&str]| {
        path.extension().and_then(|ending| ending.to_str()).is_some_and(|ending| endings.contains(&ending))
    };
    let own = root().join("tests/data/cuda");
    copy_into(&own, &programs, |path| has_ending(path, &["npz", "ptd"]))?;
    unpack(&environment, &own.join("seed_net.pte.z"), &programs.join("seed_net.pte"))?;
    if let Some(folder) = words.first() {
        copy_into(Path::new(folder), &programs, |path| has_ending(path, &["pte", "ptd", "npz"]))?;
    }
    if let Some(folder) = words.get(1) {
        let wanted = |path: &Path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            CASES.iter().any(|start| name.starts_with(start))
        };
        fs::create_dir_all(bundle.join("cases")).map_err(|error| describe(&bundle, &error))?;
        copy_into(Path::new(folder), &bundle.join("cases"), wanted)?;
    }
    for (name, text) in SCRIPTS {
        let script = bundle.join(name);
        fs::write(&script, text).map_err(|error| describe(&script, &error))?;
    }
    let size_bytes = size_of(&bundle)?;
    println!("\n{}: {} MiB. There: sh run.sh", bundle.display(), size_bytes >> 20);
    if size_bytes > BUNDLE_BYTES_MAX {
        return Err(format!("the bundle has {size_bytes} bytes, at most {BUNDLE_BYTES_MAX}"));
    }
    Ok(())
}

fn describe(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Builds the target `cuda` of this kind; gives the program.
fn build(kind: &str) -> Result<PathBuf, String> {
    let mut found = None;
    let mut command =
        cargo(&["test", "--release", "--package", "arenite", "--features", "cuda", kind, "cuda"]);
    let command = command.args(["--no-run", "--message-format", "json-render-diagnostics"]);
    run_lines(command, |line| {
        if let Some((_, rest)) = line.split_once("\"executable\":\"") {
            found = rest.split('"').next().map(PathBuf::from);
        }
    })?;
    found.ok_or_else(|| format!("cargo named no program for {kind} cuda"))
}

fn copy(from: &Path, to: &Path) -> Outcome {
    fs::copy(from, to).map(|_| ()).map_err(|error| describe(from, &error))
}

/// Copies the files that are wanted.
fn copy_into(from: &Path, to: &Path, wanted: impl Fn(&Path) -> bool) -> Outcome {
    let entries = fs::read_dir(from).map_err(|error| describe(from, &error))?;
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| wanted(path)) {
        if let Some(name) = path.file_name() {
            copy(&path, &to.join(name))?;
        }
    }
    Ok(())
}

/// Expands a file compressed with zlib, by Python: this crate has no dependencies.
fn unpack(environment: &Environment, from: &Path, to: &Path) -> Outcome {
    let code =
        "import sys, zlib; open(sys.argv[2], 'wb').write(zlib.decompress(open(sys.argv[1], 'rb').read()))";
    let (from, to) = (from.display().to_string(), to.display().to_string());
    shell::run(&mut environment.command(&["-c", code, &from, &to]))
}

fn size_of(folder: &Path) -> Result<u64, String> {
    let mut size_bytes = 0;
    for entry in fs::read_dir(folder).map_err(|error| describe(folder, &error))?.filter_map(Result::ok) {
        let path = entry.path();
        size_bytes +=
            if path.is_dir() { size_of(&path)? } else { entry.metadata().map_or(0, |meta| meta.len()) };
    }
    Ok(size_bytes)
}

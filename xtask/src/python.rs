#![forbid(unsafe_code)]
//! Virtual environments under `target/`, and the wheel inside them.
//!
//! Deliberately absent: the user's own environment, which is never touched.

use crate::shell::{command, root, run, target};
use std::path::PathBuf;
use std::process::Command;

/// Which profile the wheel is compiled with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    /// Checks on; shares the libraries that the Rust tests built.
    Checked,
    /// As a user gets it.
    Release,
}

/// A virtual environment of this project.
pub(crate) struct Environment {
    home: PathBuf,
}

impl Environment {
    /// Makes `target/venv-NAME` where it is not there yet, and installs `packages`.
    pub(crate) fn ready(name: &str, packages: &[&str]) -> Result<Self, String> {
        let environment = Self { home: target().join(format!("venv-{name}")) };
        if !environment.python().exists() {
            let home = environment.home.display().to_string();
            run(&mut command(interpreter()?, &["-m", "venv", &home]))?;
        }
        let mut install = environment.command(&["-m", "pip", "install", "--quiet"]);
        run(install.arg("--disable-pip-version-check").args(packages))?;
        Ok(environment)
    }

    /// The interpreter inside.
    pub(crate) fn python(&self) -> PathBuf {
        if cfg!(windows) { self.home.join("Scripts/python.exe") } else { self.home.join("bin/python") }
    }

    /// The interpreter inside, with arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        command(self.python(), arguments)
    }

    /// Compiles the wheel with maturin, which is in the environment, and installs it; gives the wheel.
    pub(crate) fn install_wheel(&self, build: Build) -> Result<PathBuf, String> {
        let out = target().join(if build == Build::Release { "wheels/release" } else { "wheels/checked" });
        let out_text = out.display().to_string();
        let python = self.python().display().to_string();
        let mut make = self.command(&["-m", "maturin", "build", "--quiet", "-m", "py/Cargo.toml"]);
        make.args(["-i", &python, "-o", &out_text]);
        if build == Build::Release {
            make.arg("--release");
        }
        run(&mut make)?;
        let mut wheels: Vec<PathBuf> = std::fs::read_dir(&out)
            .map_err(|error| format!("{out_text}: {error}"))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|end| end == "whl"))
            .collect();
        wheels.sort_by_key(|path| path.metadata().and_then(|meta| meta.modified()).ok());
        let wheel = wheels.pop().ok_or_else(|| format!("no wheel in {out_text}"))?;
        let mut install = self.command(&["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        run(install.args(["--force-reinstall", "--no-deps"]).arg(&wheel))?;
        Ok(wheel)
    }
}

/// Python 3.10 or later: `$PYTHON`, or what `PATH` has.
fn interpreter() -> Result<String, String> {
    let named = std::env::var("PYTHON").ok();
    let candidates = named.iter().map(String::as_str).chain(["python3", "python"]);
    let probe = "import sys; raise SystemExit(sys.version_info < (3, 10))";
    for candidate in candidates {
        let mut check = Command::new(candidate);
        if check.args(["-c", probe]).current_dir(root()).status().is_ok_and(|status| status.success()) {
            return Ok(candidate.to_owned());
        }
    }
    Err("needs Python 3.10 or later: neither $PYTHON nor python3 nor python is".to_owned())
}

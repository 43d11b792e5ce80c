#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command line program talks on standard output")]
//! `sanitize`: what several threads do at once with arenas and pools, under `AddressSanitizer` and `ThreadSanitizer`.
//!
//! Only our code and that of our dependencies is instrumented; the standard library is the toolchain's own. Needs
//! a nightly toolchain and Linux on x86-64; elsewhere it says so and succeeds.
//!
//! Deliberately absent: installing a toolchain.

use super::Outcome;
use crate::shell::{self, command, root, target};

/// The only system that is tried; also what keeps build scripts free of instrumentation.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Builds and runs `tests/races` with each sanitizer.
pub(crate) fn run(_words: &[String]) -> Outcome {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) || !nightly_is_there() {
        println!("sanitizers are skipped: they need Linux on x86-64 and a nightly toolchain");
        return Ok(());
    }
    for (sanitizer, options) in [("address", "ASAN_OPTIONS"), ("thread", "TSAN_OPTIONS")] {
        let folder = target().join("sanitize").join(sanitizer);
        let suppressions = root().join("tests/races/thread_suppressions.txt");
        let mut cargo = command(
            "cargo",
            &["+nightly", "run", "--quiet", "--package", "arenite-races", "--target", TRIPLE, "--target-dir"],
        );
        cargo
            .arg(folder)
            .env_remove("RUSTC")
            .env_remove("RUSTUP_TOOLCHAIN")
            .env("RUSTFLAGS", format!("-Zsanitizer={sanitizer} -Cunsafe-allow-abi-mismatch=sanitizer"))
            .env(options, format!("halt_on_error=1:suppressions={}", suppressions.display()));
        if sanitizer == "address" {
            cargo.env(options, "detect_stack_use_after_return=1");
        }
        shell::run(&mut cargo)?;
    }
    Ok(())
}

fn nightly_is_there() -> bool {
    let mut probe = command("cargo", &["+nightly", "--version"]);
    probe.env_remove("RUSTUP_TOOLCHAIN").output().is_ok_and(|output| output.status.success())
}

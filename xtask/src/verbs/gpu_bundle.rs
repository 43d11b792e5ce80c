#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command line program talks on standard output")]
//! `gpu-bundle`: one folder that a machine with a GPU runs, with nothing but a driver and Python with NumPy.
//!
//! ```text
//!   target/gpu-bundle/  run.sh   cuda_tests   cuda_bench   arenite-*.whl   programs/   logs/ (made by run.sh)
//! ```
//!
//! `cargo xtask gpu-bundle [FOLDER]`: FOLDER has further programs, as `NAME.pte`, `NAME.ptd`, `NAME.npz`;
//! without it the bundle has the seed program alone. Deliberately absent: copying it there.

use super::Outcome;
use crate::python::{Build, Environment};
use crate::shell::{cargo, root, run_lines, target};
use std::fs;
use std::path::{Path, PathBuf};

/// The most bytes that a bundle may have.
const BUNDLE_BYTES_MAX: u64 = 60 << 20;

/// Builds and gathers.
pub(crate) fn run(words: &[String]) -> Outcome {
    let bundle = target().join("gpu-bundle");
    if bundle.exists() {
        fs::remove_dir_all(&bundle).map_err(|error| describe(&bundle, &error))?;
    }
    let programs = bundle.join("programs");
    fs::create_dir_all(&programs).map_err(|error| describe(&programs, &error))?;
    for (kind, name) in [("--test", "cuda_tests"), ("--bench", "cuda_bench")] {
        let built = build(kind)?;
        copy(&built, &bundle.join(name))?;
    }
    Environment::ready("bundle", &["maturin>=1.9,<2", "numpy"])?.install_wheel(Build::Release)?;
    copy_into(&target().join("wheels/release"), &bundle, &["whl"])?;
    copy_into(&root().join("tests/data/cuda"), &programs, &["z", "npz", "ptd"])?;
    if let Some(folder) = words.first() {
        copy_into(Path::new(folder), &programs, &["pte", "ptd", "npz"])?;
    }
    let script = bundle.join("run.sh");
    fs::write(&script, RUN).map_err(|error| describe(&script, &error))?;
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

/// Copies the files with these endings.
fn copy_into(from: &Path, to: &Path, endings: &[&str]) -> Outcome {
    let entries = fs::read_dir(from).map_err(|error| describe(from, &error))?;
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if let Some(name) = path.file_name().filter(|_| endings.contains(&ending)) {
            copy(&path, &to.join(name))?;
        }
    }
    Ok(())
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

/// What the machine with the GPU runs: one line per check, everything said in `logs/`.
const RUN: &str = r#"#!/bin/sh
# Runs on a machine with a GPU: needs its driver and Python 3.10 with NumPy. One line per check; what each
# said is in logs/.
cd "$(dirname "$0")" || exit 2
mkdir -p logs site
failed=0

check() {
    name=$1
    shift
    if "$@" > "logs/$name.txt" 2>&1; then
        echo "ok    $name"
    else
        echo "FAIL  $name: $(tail -n 1 "logs/$name.txt")"
        failed=$((failed + 1))
    fi
}

cat > expand.py << 'END'
import glob, zipfile, zlib
for name in glob.glob("programs/*.pte.z"):
    with open(name, "rb") as packed, open(name[:-2], "wb") as plain:
        plain.write(zlib.decompress(packed.read()))
for name in glob.glob("*.whl"):
    zipfile.ZipFile(name).extractall("site")
END

cat > seed.py << 'END'
import sys
if "torch" in sys.argv:
    import torch
import numpy as np
from arenite import Runtime
arrays = np.load("programs/seed_net.npz")
program = Runtime.get().load_program("programs/seed_net.pte")
method = program.load_method("forward")
for _ in range(5):
    (out,) = method.execute([arrays["forward.in0"], arrays["forward.in1"]])
    error = float(np.abs(np.asarray(out) - arrays["forward.out0"]).max())
    print("error", error)
    assert error == 0.0
print(method.memory_report())
END

export ARENITE_CUDA_PROGRAMS="$PWD/programs" PYTHONPATH="$PWD/site"
chmod +x cuda_tests cuda_bench
nvidia-smi > logs/machine.txt 2>&1
check expand python3 expand.py
for test in $(./cuda_tests --ignored --list 2> /dev/null | sed -n 's/: test$//p'); do
    check "$test" ./cuda_tests --ignored --exact --nocapture "$test"
done
check all_in_one_process ./cuda_tests --ignored --nocapture --test-threads=1
check python_seed python3 seed.py
if python3 -c 'import torch' 2> /dev/null; then
    check python_seed_after_torch python3 seed.py torch
fi
if command -v compute-sanitizer > /dev/null; then
    check memcheck compute-sanitizer --error-exitcode 1 ./cuda_tests --ignored --exact \
        programs::every_program_gives_what_eager_gave
fi
./cuda_bench --bench 2>&1 | tee logs/bench.txt
echo "$failed failed"
[ "$failed" -eq 0 ]
"#;

//! The C example is compiled and run, against the static library and the header as they are.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn compiler() -> Option<String> {
    let named = std::env::var("CC").ok();
    let known = ["cc", "gcc", "clang"].map(str::to_owned);
    let runs =
        |name: &String| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success());
    named.into_iter().chain(known).find(runs)
}

/// Where the libraries of this build are: above the folder of this test.
fn libraries() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    here.parent().and_then(Path::parent).unwrap().to_path_buf()
}

#[test]
fn the_c_example_compiles_without_warnings_and_finds_all_as_it_should_be() {
    let Some(compiler) = compiler() else {
        eprintln!("skipped: there is no C compiler on this machine");
        return;
    };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = libraries().join("arenite_c_example");
    let library = [libraries(), libraries().join("deps")]
        .map(|folder| folder.join("libarenite_c.a"))
        .into_iter()
        .find(|path| path.exists())
        .expect("cargo built the static library");
    let mut command = Command::new(compiler);
    command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"]).arg(here.join("include"));
    command.arg(here.join("examples/example.c")).arg(library).args(["-lpthread", "-ldl", "-lm", "-o"]);
    let compiled = command.arg(&program).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let run = Command::new(&program).output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && said.contains("all is as it should be"), "{said}");
}

#[test]
fn every_function_of_the_header_is_there_and_no_other() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(here.join("include/arenite.h")).unwrap();
    let code: String = ["lib.rs", "error.rs"]
        .map(|name| std::fs::read_to_string(here.join("src").join(name)).unwrap())
        .concat();
    let names = |text: &str, before: &str, lines: fn(&str) -> bool| {
        let mut found: Vec<String> = text
            .lines()
            .filter(|line| lines(line))
            .filter_map(|line| {
                let at = line.find(before)? + before.len() - "arenite_".len();
                let name = line[at..].split('(').next()?.trim();
                line[at..].contains('(').then(|| name.to_owned())
            })
            .collect();
        found.sort();
        found
    };
    let declared =
        names(&header, "arenite_", |line| line.contains('(') && !line.starts_with([' ', '/', '#']));
    let declared: Vec<String> = declared
        .iter()
        .map(|name| name.rsplit([' ', '*']).next().unwrap_or_default().to_owned())
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect();
    let defined = names(&code, "fn arenite_", |line| line.contains("extern \"C\" fn"));
    assert_eq!(declared, defined);
}

//! The header is true: C programs compile against it without a warning, link, and do what it says.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder that cargo builds this package's libraries into.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().to_owned()
}

/// A C compiler, or `None`, said on standard error: C is not a tool that this project installs.
fn compiler() -> Option<String> {
    let named = std::env::var("CC").ok();
    let found = named.into_iter().chain(["cc", "gcc", "clang"].map(String::from)).find(|name| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        eprintln!("no C compiler is there: not compiled");
    }
    found
}

/// Compiles `source` with every warning an error, runs it, and gives what it printed and its exit code.
fn compile_and_run(name: &str, source: &Path) -> Option<(String, Option<i32>)> {
    let compiler = compiler()?;
    let program = libraries().join(format!("c_{name}"));
    let built = Command::new(compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(root().join("include"))
        .arg(source)
        .arg(libraries().join("libarenite_c.a"))
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let run = Command::new(&program).output().unwrap();
    let text = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    Some((text, run.status.code()))
}

#[test]
fn the_example_runs() {
    let Some((text, code)) = compile_and_run("runtime", &root().join("examples/runtime.c")) else { return };
    assert_eq!(code, Some(0), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "planned: 6144 bytes, bound 6144, optimal");
    assert!(lines[1].starts_with("third tensor at offset ") && lines[1].ends_with(": 7"), "{text}");
    assert_eq!(lines[2], "live after scratch: 6144");
    assert!(
        lines[3].starts_with("3: pool:0: ") && lines[3].contains("over the limit of 16384 bytes"),
        "{text}"
    );
    assert_eq!(lines[4], "given back twice: 5");
    assert_eq!(lines[5], "blocks of the pool left: 0");
}

/// Sizes and every way to call wrongly.
const HOSTILE: &str = r#"
#include "arenite.h"
#include <stdio.h>
#include <string.h>
#define SHOW(call) printf("%d %s\n", (int)(call), error.message)
static int released;
static void *null(void *c, size_t s, size_t a) { (void)c, (void)s, (void)a; return NULL; }
static void *odd(void *c, size_t s, size_t a) { (void)c, (void)s, (void)a; return (void *)3; }
static void drop(void *c, void *p, size_t s, size_t a) { (void)c, (void)p, (void)s, (void)a; }
static void release(void *c) { (void)c; released++; }
int main(void) {
    arenite_error error;
    memset(&error, 0, sizeof error);
    printf("%zu %zu %zu %zu %zu %zu %zu %zu\n", sizeof(arenite_error), sizeof(arenite_buffer), sizeof(arenite_plan),
           sizeof(arenite_arena_stats), sizeof(arenite_checkpoint), sizeof(arenite_key), sizeof(arenite_pool_stats),
           sizeof(arenite_block));
    arenite_space *host = arenite_space_host(), *space = NULL;
    arenite_arena *arena = NULL;
    arenite_block block;
    SHOW(arenite_arena_new(NULL, &arena, &error));
    SHOW(arenite_arena_new(host, NULL, &error));
    SHOW(arenite_space_own("Bad Name", 0, NULL, &space, &error));
    arenite_space_calls calls = {NULL, 1, null, drop, release};
    SHOW(arenite_space_own("own", 0, NULL, &space, &error));
    SHOW(arenite_space_own("own", 0, &calls, NULL, &error));
    arenite_arena_new(host, &arena, NULL);
    SHOW(arenite_arena_allocate(arena, 8, 3, &block, &error));
    SHOW(arenite_arena_allocate(arena, (size_t)-1, 8, &block, &error));
    SHOW(arenite_arena_allocate(NULL, 8, 8, &block, &error));
    SHOW(arenite_arena_allocate(arena, 8, 8, NULL, &error));
    arenite_checkpoint wild = {{12345, 678}};
    SHOW(arenite_arena_rewind(arena, wild, &error));
    arenite_arena_allocate(arena, 100, 8, &block, NULL);
    arenite_checkpoint later = arenite_arena_checkpoint(arena);
    arenite_arena_reset(arena);
    SHOW(arenite_arena_rewind(arena, later, &error));
    arenite_arena_free(arena);
    arenite_space_own("own", 0, &calls, &space, NULL);
    arenite_arena_new(space, &arena, NULL);
    arenite_space_release(space);
    SHOW(arenite_arena_allocate(arena, 8, 8, &block, &error));
    arenite_arena_free(arena);
    calls.allocate = odd;
    arenite_space_own("own", 0, &calls, &space, NULL);
    arenite_arena_new(space, &arena, NULL);
    SHOW(arenite_arena_allocate(arena, 8, 8, &block, &error));
    arenite_arena_free(arena);
    arenite_space_release(space);
    printf("released %d\n", released);
    uint64_t offset;
    arenite_buffer buffer = {8, 3, 0, 1};
    SHOW(arenite_plan_buffers(&buffer, 1, ARENITE_PLAN_GREEDY, 0, &offset, NULL, &error));
    buffer = (arenite_buffer){8, 8, 5, 1};
    SHOW(arenite_plan_buffers(&buffer, 1, ARENITE_PLAN_GREEDY, 0, &offset, NULL, &error));
    SHOW(arenite_plan_buffers(&buffer, 1, 9, 0, &offset, NULL, &error));
    SHOW(arenite_plan_buffers(NULL, 1, 0, 0, &offset, NULL, &error));
    SHOW(arenite_plan_buffers(&buffer, (size_t)-1, 0, 0, &offset, NULL, &error));
    printf("%d\n", (int)arenite_plan_buffers(NULL, 0, 3, 1, NULL, NULL, NULL));
    arenite_pool *pool, *other;
    arenite_key key, second;
    SHOW(arenite_pool_new(NULL, 0, &pool, &error));
    arenite_pool_new(host, 1 << 20, &pool, NULL);
    arenite_pool_new(host, 0, &other, NULL);
    SHOW(arenite_pool_take(pool, 2 << 20, 64, &block, &key, &error));
    SHOW(arenite_pool_take(pool, 8, 64, &block, NULL, &error));
    arenite_pool_take(pool, 100, 64, &block, &key, NULL);
    arenite_pool_take(other, 100, 64, &block, &second, NULL);
    SHOW(arenite_pool_give_back(other, key, &error));
    printf("%d ", (int)arenite_pool_stats_of(pool).blocks);
    printf("%d\n", (int)arenite_pool_give_back(pool, key, NULL));
    SHOW(arenite_pool_give_back(pool, key, &error));
    printf("%d %d\n", (int)arenite_pool_stats_of(pool).blocks, (int)(arenite_pool_trim(pool) > 0));
    arenite_pool_free(pool);
    arenite_pool_free(other);
    arenite_pool_free(NULL);
    arenite_space_release(NULL);
    arenite_arena_free(NULL);
    arenite_arena_reset(NULL);
    arenite_space_release(host);
    return 0;
}
"#;

#[test]
fn wrong_calls_are_answers_and_sizes_agree() {
    let source = libraries().join("c_hostile.c");
    std::fs::write(&source, HOSTILE).unwrap();
    let Some((text, code)) = compile_and_run("hostile", &source) else { return };
    assert_eq!(code, Some(0), "{text}");
    let sizes = [
        size_of::<arenite_c::CError>(),
        size_of::<arenite_c::Buffer>(),
        size_of::<arenite_c::PlanSummary>(),
        size_of::<arenite_c::ArenaStats>(),
        size_of::<arenite_c::Checkpoint>(),
        size_of::<arenite_c::Key>(),
        size_of::<arenite_c::PoolStats>(),
        size_of::<arenite_c::OutBlock>(),
    ];
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], sizes.map(|size| size.to_string()).join(" "));
    let expected = [
        "5 space is NULL",
        "5 arena: the place",
        "5 ",
        "5 calls is NULL",
        "5 space: the place",
        "5 align is 3",
        "1 host: 18446744073709551615 bytes",
        "5 arena is NULL",
        "5 block: the place",
        "5 checkpoint: this arena never stood there",
        "5 checkpoint: this arena never stood there",
        "4 own:0: 8 bytes at alignment 8 refused: the caller's allocate gave NULL",
        "4 own:0: 8 bytes at alignment 8 refused: the caller's allocate gave an address",
        "released 2",
        "5 buffer 0 has alignment 3",
        "5 buffer 0 has the reversed lifespan",
        "5 strategy is 9",
        "5 buffers and offsets must not be NULL",
        "5 count is 18446744073709551615",
        "0",
        "5 space is NULL",
        "3 host: 2097152 bytes at alignment 64 refused: over the limit of 1048576 bytes",
        "5 block or key: the place",
        "5 ",
        "1 0",
        "5 ",
        "0 1",
    ];
    for (line, start) in lines[1..].iter().zip(expected) {
        assert!(line.starts_with(start), "{line:?} should start with {start:?}\n{text}");
    }
    assert_eq!(lines.len(), expected.len() + 1, "{text}");
}

/// The names between `start` and a parenthesis, of lines that `wanted` picks.
fn names(text: &str, wanted: impl Fn(&str) -> bool) -> std::collections::BTreeSet<String> {
    let named = |line: &str| {
        let (before, _) = line.split_once('(')?;
        let name = before.rsplit([' ', '*']).next()?;
        name.starts_with("arenite_").then(|| name.to_owned())
    };
    text.lines().filter(|line| wanted(line)).filter_map(named).collect()
}

#[test]
fn every_function_of_the_header_is_there_and_no_other() {
    let header = std::fs::read_to_string(root().join("include/arenite.h")).unwrap();
    let declared = names(&header, |line| !line.starts_with([' ', '/', '#']));
    let mut defined = std::collections::BTreeSet::new();
    for file in std::fs::read_dir(root().join("src")).unwrap() {
        let code = std::fs::read_to_string(file.unwrap().path()).unwrap();
        defined.extend(names(&code, |line| line.contains("extern \"C\" fn arenite_")));
    }
    assert_eq!(declared, defined);
    assert!(declared.len() > 20);
}

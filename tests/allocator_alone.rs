//! The allocator without the rest: a short list of dependencies, and a project of somebody else's that builds on it.
#![cfg(not(any(feature = "exec", feature = "cuda")))]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn cargo(folder: &Path, words: &[&str]) -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(words).arg("--offline").current_dir(folder).env_remove("RUSTFLAGS");
    let out = command.output().map_err(|error| error.to_string())?;
    let (said, failed) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if out.status.success() { Ok(said.into_owned()) } else { Err(failed.into_owned()) }
}

/// The names between backticks in the sentence of design.md on what the allocator alone needs.
fn promised() -> Vec<String> {
    let design = std::fs::read_to_string(root().join("design.md")).unwrap();
    let (_, rest) = design.split_once("The allocator alone (`default-features = false`) needs").unwrap();
    let sentence = rest.split('.').next().unwrap();
    let mut names: Vec<String> = sentence.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    names.sort();
    names
}

#[test]
fn the_allocator_alone_depends_on_what_design_says_and_nothing_else() {
    let words =
        ["tree", "--package", "arenite", "--no-default-features", "--edges", "normal", "--prefix", "depth"];
    let tree = cargo(&root(), &words).unwrap();
    let direct: Vec<&str> = tree
        .lines()
        .filter_map(|line| line.strip_prefix('1')?.split_once(' ').map(|(name, _)| name))
        .collect();
    assert_eq!(direct, promised());
    let all: std::collections::BTreeSet<&str> =
        tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(all.len() <= 30, "{all:?}");
}

/// A crate outside the workspace, with a space of its own.
const PROGRAM: &str = r#"
use arenite::{AllocError, Arena, Block, HostAccessible, HeapSpace, MemorySpace, Pool, SpaceId};
use std::alloc::Layout;

#[derive(Debug)]
struct Own(HeapSpace);

unsafe impl MemorySpace for Own {
    fn id(&self) -> SpaceId { SpaceId::new("own", 0).unwrap() }
    fn host_accessible(&self) -> bool { true }
    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> { self.0.allocate(layout) }
    unsafe fn deallocate(&self, block: Block) { unsafe { self.0.deallocate(block) } }
}
unsafe impl HostAccessible for Own {}

fn main() {
    let space = Own(HeapSpace);
    let arena = Arena::new(&space);
    let text = arena.alloc_str("a runtime of its own");
    let pool = Pool::new(&space);
    let block = pool.allocate(Layout::new::<[u8; 100]>()).unwrap();
    println!("{text}: {} bytes of {}", block.block().size_bytes(), space.id());
}
"#;

#[test]
#[cfg_attr(miri, ignore = "calls the compiler")]
fn a_project_outside_the_workspace_uses_its_own_space() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = format!(
        "[package]\nname = \"scratch\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\narenite = {{ path = {:?}, default-features = false }}\n\n\
         [profile.dev]\nopt-level = 1\ndebug = \"line-tables-only\"\n\n\
         [profile.dev.package.\"*\"]\nopt-level = 2\ndebug = false\n",
        root().display().to_string()
    );
    std::fs::create_dir(folder.path().join("src")).unwrap();
    std::fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    std::fs::write(folder.path().join("src/main.rs"), PROGRAM).unwrap();
    std::fs::copy(root().join("Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
    // What this test was built with serves again: the profile is the same.
    let here = std::env::current_exe().unwrap();
    let target = here.ancestors().nth(3).unwrap().display().to_string();
    let said = cargo(folder.path(), &["run", "--quiet", "--target-dir", &target]).unwrap();
    assert_eq!(said, "a runtime of its own: 100 bytes of own:0\n");
}

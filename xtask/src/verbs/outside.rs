#![forbid(unsafe_code)]
//! A runtime of somebody else: a project outside this workspace that depends on `arenite` without its default
//! features, brings a memory space of its own, and runs. What it then depends on is what README promises.
//!
//! Deliberately absent: the network. Versions are those of this workspace's lock file.

use super::Outcome;
use crate::shell::{self, root, target};
use std::path::Path;
use std::process::Command;

/// Every crate behind `arenite` without features, proc macros and their parts left out.
const PROMISED: [&str; 9] = [
    "bytemuck",
    "cfg-if",
    "libc",
    "lock_api",
    "parking_lot",
    "parking_lot_core",
    "scopeguard",
    "smallvec",
    "thiserror",
];

const PROGRAM: &str = r#"//! A space over a vector, an arena over the space.
use arenite::{AllocError, AllocErrorKind, Arena, Block, HostAccessible, MemorySpace, SpaceId};
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Mutex;

#[derive(Debug)]
struct Pages(Mutex<(Vec<u128>, usize)>);

// SAFETY: bytes are handed out once, from the front of a vector that never grows and lives as long as the space.
unsafe impl MemorySpace for Pages {
    fn id(&self) -> SpaceId {
        SpaceId::new("pages", 0).unwrap()
    }

    fn host_accessible(&self) -> bool {
        true
    }

    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        let mut pages = self.0.lock().unwrap();
        let (room, used) = (pages.0.len() * 16, pages.1);
        let start = pages.0.as_mut_ptr().cast::<u8>();
        let place = used + start.wrapping_add(used).align_offset(layout.align());
        if place + layout.size() > room {
            return Err(AllocError::new(self.id(), layout, AllocErrorKind::NotNow));
        }
        pages.1 = place + layout.size();
        Ok(Block::new(NonNull::new(start.wrapping_add(place)).unwrap(), layout))
    }

    unsafe fn deallocate(&self, _block: Block) {}
}

// SAFETY: it is ordinary memory.
unsafe impl HostAccessible for Pages {}

fn main() {
    let pages = Pages(Mutex::new((vec![0; 1 << 12], 0)));
    let mut arena = Arena::new(&pages);
    let sum = arena.scoped(|scope| scope.alloc_slice_with(100, |index| index as u64).iter().sum::<u64>());
    assert_eq!((sum, arena.live_bytes()), (4950, 0));
    assert!(arena.try_alloc_slice_with(1 << 20, |_| 0_u8).is_err());
    println!("{}", pages.0.lock().unwrap().1 > 0);
}
"#;

/// Makes the project anew, runs it, and compares its dependencies.
pub(super) fn run(_words: &[String]) -> Outcome {
    let folder = target().join("outside");
    let manifest = folder.join("Cargo.toml");
    let path = root().display().to_string();
    let written = format!(
        "[package]\nname = \"outside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
         arenite = {{ path = {path:?}, default-features = false }}\n"
    );
    write(&folder.join("src/main.rs"), PROGRAM)?;
    write(&manifest, &written)?;
    let lock =
        std::fs::read_to_string(root().join("Cargo.lock")).map_err(|error| format!("Cargo.lock: {error}"))?;
    write(&folder.join("Cargo.lock"), &lock)?;
    let manifest = manifest.display().to_string();
    let build = folder.join("target").display().to_string();
    let mut command = shell::cargo(&["run", "--quiet", "--manifest-path", &manifest, "--target-dir", &build]);
    shell::run(&mut command)?;
    let found = dependencies(&manifest)?;
    if found == PROMISED {
        return Ok(());
    }
    Err(format!("arenite without features depends on {found:?}; README promises {PROMISED:?}"))
}

fn write(path: &Path, text: &str) -> Outcome {
    let wrong = |error: std::io::Error| format!("{}: {error}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(wrong)?;
    }
    std::fs::write(path, text).map_err(wrong)
}

/// The crates that the project is linked with, but for `arenite` and itself.
fn dependencies(manifest: &str) -> Result<Vec<String>, String> {
    let mut tree: Command =
        shell::cargo(&["tree", "--quiet", "--edges", "normal,no-proc-macro", "--prefix", "none"]);
    let output = tree
        .args(["--format", "{p}", "--manifest-path", manifest])
        .output()
        .map_err(|error| format!("cargo tree: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = text.lines().filter_map(|line| line.split(' ').next());
    let mut names: Vec<String> =
        names.filter(|name| !["", "arenite", "outside"].contains(name)).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    Ok(names)
}
